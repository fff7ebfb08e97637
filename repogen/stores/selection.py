"""Which files of a working copy a command reads, beyond config.pbtxt and manifests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.files import is_directory
from repogen.repository.ensembles import with_steps
from repogen.repository.inventory import read_model
from repogen.repository.layout import directory_of_step, models_of, triton_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


def everything(repository: Path, names: Iterable[str] = ()) -> Iterator[Path]:
    """Yield the directories of models, or the whole repository without names."""
    selection = tuple(names)
    yield from (repository / name for name in selection) if selection else (repository,)


def served(repository: Path, names: Iterable[str] = ()) -> Iterator[Path]:
    """Yield what Triton loads of models and of the models of their steps: of all models without names."""
    for name in with_steps(repository, tuple(names) or models_of(repository)):
        if directory_of_step(repository, name) is not None:
            yield from version(repository, name, *read_model(repository, name).served)


def version(repository: Path, name: str, *numbers: int) -> Iterator[Path]:
    """Yield the directories of versions of a model, and the files that its config names."""
    directory = directory_of_step(repository, name)
    for path in () if directory is None else directory.iterdir():
        number = triton_version(path.name)
        if number in numbers or number is None or not is_directory(path):
            yield path

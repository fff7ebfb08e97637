"""Which files of a working copy a command reads, beyond config.pbtxt and manifests."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from repogen.errors import RepogenError
from repogen.files import is_directory
from repogen.repository.digest import has_recorded_digest
from repogen.repository.ensembles import with_steps
from repogen.repository.golden import GOLDEN_JSON, GOLDEN_NPZ
from repogen.repository.inventory import read_model
from repogen.repository.layout import directory_of_step, models_of, triton_version
from repogen.repository.manifest import read_manifest
from repogen.repository.written_config import origin_of_config

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


def with_origin(repository: Path, name: str, versions: tuple[int, ...]) -> tuple[int, ...]:
    """Return versions of a model, and the version whose config.pbtxt is the model's if it is not one of them."""
    with suppress(RepogenError, OSError):
        origin = origin_of_config(repository / name)
        return versions if origin is None else tuple(dict.fromkeys((*versions, origin)))
    return versions


def tested(repository: Path, name: str, versions: Iterable[int]) -> Iterator[Path]:
    """Yield what a smoke test reads of versions of a model that a server reads from the store itself.

    These are the golden tensors, and files that can be compared with the manifest only by their bytes: the object is
    newer than the manifest, as after a copy with the tools of the store.
    """
    for number in versions:
        directory = repository / name / str(number)
        with suppress(RepogenError, OSError):  # the deploy reports a version without a manifest that can be read
            for record in read_manifest(directory).files:
                path = directory / record.path
                if record.path in {GOLDEN_JSON, GOLDEN_NPZ} or not has_recorded_digest(path):
                    yield path

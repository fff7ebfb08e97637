"""The models of an ensemble's steps in the private repository: as they were just staged, or as they are published."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from repogen.errors import PublishError
from repogen.repository.layout import model_dir, versions

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def stage_members(private: Path, repository: Path, names: Iterable[str]) -> None:
    """Have models in a private repository, unless they are staged there: as hard links, so that nothing is copied.

    Args:
        private: The private repository.
        repository: The real one, on the same filesystem.
        names: The models.

    Raises:
        PublishError: One is in neither, or can't be linked.
    """
    for name in names:
        staged, published = model_dir(private, name), model_dir(repository, name)
        if versions(staged):
            continue
        if not versions(published):
            raise PublishError(
                f"{name} is a step of an ensemble, and is not in {repository} yet",
                "build it with the ensemble: name both with --model, or none",
                code="stage.no-step",
            )
        try:
            shutil.rmtree(staged, ignore_errors=True)  # what a publish leaves of a version that it moved
            shutil.copytree(published, staged, symlinks=True, copy_function=os.link)
        except (OSError, shutil.Error) as error:
            raise PublishError(f"{name} can't be staged as a step: {error}", code="stage.write") from error

"""Whether other users of the machine can change the Python code of a model before it is imported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub import constants

from repogen.errors import SourceError
from repogen.files.paths import is_foreign_in_public, is_like_tmp, is_public, real_path

if TYPE_CHECKING:
    from repogen.source.huggingface.checkpoint import Checkpoint


def require_own_code(checkpoint: Checkpoint, spec_root: Path) -> None:
    """Require that no other user planted the code of a model, can add to it, or can replace it while it is imported.

    Args:
        checkpoint: The model.
        spec_root: Directory of the spec. Users who can rename files in it, or above it, are trusted.

    Raises:
        SourceError: Another user did or can.
    """
    if not checkpoint.config.has_remote_code:
        return
    directory, root = checkpoint.directory, real_path(spec_root)
    unsafe = [path for path in _both(directory) if is_like_tmp(path)]
    if checkpoint.config.names_other_repository:  # transformers reads that code from the cache of the Hub
        hub = Path(constants.HF_HUB_CACHE)
        hub.mkdir(parents=True, exist_ok=True)  # otherwise, another user could create it in a shared HF_HOME
        unsafe += [path for path in _both(hub) if is_public(path) or _is_replaceable(path, root)]
    unsafe += [path for path in _both(directory) if _is_replaceable(path, root)]
    unsafe += [file for file in directory.glob("*.py") if is_foreign_in_public(real_path(file), Path("/"))]
    if unsafe:
        raise SourceError(
            f"{unsafe[0]} contains Python code, but belongs to another user, or other users can add files to it or "
            "replace it",
            "copy the model to your own directory, or set HF_HOME to one",
            code="working-directory.foreign",
            where=checkpoint.name,
        )


def _both(path: Path) -> tuple[Path, ...]:
    """Return a path with and without symlinks."""
    return tuple(dict.fromkeys((path.absolute(), real_path(path))))


def _is_replaceable(directory: Path, root: Path) -> bool:
    """Return whether another user planted a directory, or can rename it or a directory above."""
    if is_foreign_in_public(directory, Path("/")):
        return True
    others = (path for path in (directory, *directory.parents) if not _is_trusted(real_path(path), root))
    # a mounted volume, as in Kubernetes, may be writable by all users of a container
    return any(is_public(path) and not is_like_tmp(path) and not os.path.ismount(path) for path in others)


def _is_trusted(path: Path, root: Path) -> bool:
    return path.is_relative_to(root) or root.is_relative_to(path)

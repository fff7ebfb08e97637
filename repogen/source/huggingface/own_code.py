"""Whether other users of the machine can change the Python code of a model before it is imported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub import constants

from repogen.errors import SourceError
from repogen.files.own_code import FOREIGN_CODE, foreign_code, is_replaceable
from repogen.files.paths import exists, is_public, reason
from repogen.spec.sources import is_hub_id

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
    directory = checkpoint.directory
    try:
        files = (*checkpoint.code_files(directory), *directory.glob("*.json"))  # config.json names the code to run
        unsafe = foreign_code(directory, files, spec_root)
        if unsafe is None and checkpoint.config.names_other_repository:
            unsafe = _foreign_code_in_other_repository(checkpoint, spec_root)
    except OSError as error:
        raise SourceError(
            f"the code of {checkpoint.name} cannot be read: {reason(error)}",
            "build again when nothing else changes the directory",
            code="source.hf-files",
            where=checkpoint.name,
        ) from error
    if unsafe is not None:
        raise SourceError(
            f"{unsafe} contains or names Python code, {FOREIGN_CODE}",
            "copy the model to your own directory, or set HF_HOME to one; other users must not be able to write to "
            "it: chmod -R o-w DIR",
            code="working-directory.foreign",
            where=checkpoint.name,
        )


def _foreign_code_in_other_repository(checkpoint: Checkpoint, spec_root: Path) -> Path | None:
    """Return a directory or a file through which other users can change code in another repository; None without.

    Raises:
        SourceError: The code is in a directory of this machine: transformers prefers one with the name of a repository.
    """
    repositories = dict.fromkeys(name for name, _ in checkpoint.config.code_paths if name)
    for name in repositories:
        if not is_hub_id(name) or exists(Path(name)):
            problem = "there is a path with this name" if is_hub_id(name) else "this is not a repository on the Hub"
            raise SourceError(
                f"auto_map of {checkpoint.name} names code in {name!r}, but {problem}",
                "copy the code next to the model and correct auto_map, or run the command in another directory",
                code="source.hf-files",
                where=f"{checkpoint.name}/config.json",
            )
    if is_replaceable(Path(), spec_root):
        return Path.cwd()
    hub = Path(constants.HF_HUB_CACHE)
    hub.mkdir(parents=True, exist_ok=True)  # otherwise, another user could create it in a shared HF_HOME
    if is_public(hub) or is_replaceable(hub, spec_root):
        return hub
    for repository in repositories:
        for snapshot in sorted((hub / f"models--{repository.replace('/', '--')}" / "snapshots").glob("*")):
            if unsafe := foreign_code(hub, checkpoint.code_files(snapshot, repository), spec_root):
                return unsafe
    return None

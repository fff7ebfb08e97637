"""``repogen init``: a commented, working spec with a tiny model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.errors import SpecError
from repogen.resources import templates_dir

if TYPE_CHECKING:
    from pathlib import Path


def scaffold(directory: Path, *, force: bool) -> tuple[Path, ...]:
    """Write ``repogen.yaml`` and ``models.py`` into ``directory``, all of them or none.

    Args:
        directory: Made when it does not exist.
        force: Overwrite.

    Returns:
        The files written.

    Raises:
        SpecError: A file is already there and ``force`` is not given, or the directory cannot be written.
    """
    sources = sorted(path for path in (templates_dir() / "init").iterdir() if path.is_file())
    targets = [directory / source.name for source in sources]
    present = [target.name for target in targets if target.exists()]
    if present and not force:
        raise SpecError(
            f"{directory} already has {', '.join(present)}; nothing was written",
            "use another directory, or --force to overwrite",
            code="init.exists",
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for source, target in zip(sources, targets, strict=True):
            target.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    except OSError as error:
        raise SpecError(f"cannot write to {directory}: {error.strerror}", code="init.unwritable") from error
    return tuple(targets)

"""``repogen init``: a commented, working spec with a tiny model, and a workflow that builds it on GitHub."""

from __future__ import annotations

import os
from pathlib import Path

from repogen import __version__
from repogen.errors import SpecError
from repogen.resources import templates_dir

SPEC = "repogen.yaml"
WORKFLOW = ".github/workflows/repogen.yml"
ACTION = "triton-repogen/repogen"
"""Where GitHub finds repogen's action and reusable workflow."""


def scaffold(directory: Path, *, force: bool, github: bool = False) -> tuple[Path, ...]:
    """Write ``repogen.yaml`` and ``models.py`` into ``directory``, all of them or none.

    Args:
        directory: Made when it does not exist.
        force: Overwrite.
        github: Write a workflow, too, into the git repository of ``directory``; a spec that is there is then kept as
            it is, with its models, whatever ``force`` says.

    Returns:
        The files written.

    Raises:
        SpecError: A file is already there and ``force`` is not given, or one cannot be written.
    """
    files = {}
    if not (github and (directory / SPEC).exists()):
        sources = sorted(path for path in (templates_dir() / "init").iterdir() if path.is_file())
        files = {directory / source.name: source.read_text(encoding="utf-8") for source in sources}
    if github:
        root = _repository_root(directory)
        spec = (directory.resolve() / SPEC).relative_to(root).as_posix()
        files[Path(os.path.relpath(root / WORKFLOW))] = _workflow(spec)
    present = [os.path.relpath(path, directory) for path in files if path.exists()]
    if present and not force:
        raise SpecError(
            f"{directory} already has {', '.join(present)}; nothing was written",
            "use another directory, or --force to overwrite",
            code="init.exists",
        )
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise SpecError(f"cannot write {path}: {error.strerror}", code="init.unwritable") from error
    return tuple(files)


def _workflow(spec: str) -> str:
    """Return a workflow that calls repogen's own.

    Args:
        spec: Path of the spec in the git repository.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - for this alone

    environment = Environment(  # noqa: S701 - YAML, no HTML; the one value from outside is written as JSON
        loader=FileSystemLoader(templates_dir() / "github"),
        undefined=StrictUndefined,
        # GitHub's own expressions are written with braces.
        variable_start_string="[[",
        variable_end_string="]]",
        keep_trailing_newline=True,
    )
    return environment.get_template("repogen.yml.j2").render(action=ACTION, ref=f"v{__version__}", spec=spec)


def _repository_root(directory: Path) -> Path:
    """Return the top of the git repository, where GitHub looks for workflows; ``directory`` outside of one."""
    here = directory.resolve()
    return next((place for place in (here, *here.parents) if (place / ".git").exists()), here)

"""The files that ``repogen init`` writes, all of them or none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.errors import SpecError
from repogen.resources import templates_dir
from repogen.scaffold.description import flow, one_line
from repogen.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2 import Environment

    from repogen.scaffold.description import Found

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
    _write(files, directory, force=force)
    return tuple(files)


def scaffold_from(model: Found, directory: Path, *, force: bool) -> tuple[Path, ...]:
    """Write a ``repogen.yaml`` for a model that is there.

    Args:
        model: As ``describe`` returned it.
        directory: Made when it does not exist.
        force: Overwrite.

    Returns:
        The files written.

    Raises:
        SpecError: There is a spec already and ``force`` is not given, or it cannot be written.
    """
    template = _environment("init_from", trim=True).get_template("repogen.yaml.j2")
    text = template.render(
        name=flow(model.name),
        source=flow(model.source),
        missing=one_line(model.missing),
        comments=[one_line(line) for line in model.comments],
        keys=[one_line(line) for line in model.keys],
    )
    _write({directory / SPEC: text}, directory, force=force)
    return (directory / SPEC,)


def _write(files: Mapping[Path, str], directory: Path, *, force: bool) -> None:
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


def _workflow(spec: str) -> str:
    """Return a workflow that calls repogen's own.

    Args:
        spec: Path of the spec in the git repository.
    """
    template = _environment("github", variable=("[[", "]]")).get_template("repogen.yml.j2")
    return template.render(action=ACTION, ref=f"v{__version__}", spec=spec)


def _environment(folder: str, variable: tuple[str, str] = ("{{", "}}"), *, trim: bool = False) -> Environment:
    """Return what renders templates; GitHub's own expressions are written with braces, so its template has others."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - for this alone

    return Environment(  # noqa: S701 - YAML, no HTML; values from outside are written as JSON, or in comments
        loader=FileSystemLoader(templates_dir() / folder),
        undefined=StrictUndefined,
        variable_start_string=variable[0],
        variable_end_string=variable[1],
        trim_blocks=trim,
        keep_trailing_newline=True,
    )


def _repository_root(directory: Path) -> Path:
    """Return the top of the git repository, where GitHub looks for workflows; ``directory`` outside of one."""
    here = directory.resolve()
    return next((place for place in (here, *here.parents) if (place / ".git").exists()), here)

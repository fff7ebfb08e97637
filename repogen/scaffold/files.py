"""Writes the files of ``repogen init``."""

from __future__ import annotations

import os
import secrets
import shlex
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING

from repogen.errors import SpecError
from repogen.files import MAX_GRAPH_BYTES, is_file, open_inside, read_bytes, read_text, reason
from repogen.files.content import copy_bytes
from repogen.files.paths import has_trusted_owner
from repogen.files.resolve import directory_to_write
from repogen.resources import templates_dir
from repogen.scaffold.code import model_callables
from repogen.scaffold.description import CopiedFile, flow, one_line
from repogen.scaffold.pipelines import KFP, NO_PIPELINES, Pipelines, matrix_workflow, pipeline_texts
from repogen.spec.document import compose, data
from repogen.targets import DEFAULT_RELEASE, find_target, newest_target
from repogen.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jinja2 import Environment

    from repogen.scaffold.description import SpecDescription

SPEC = "repogen.yaml"
WORKFLOW = ".github/workflows/repogen.yml"
MANIFESTS = "kubernetes"
IGNORED = ".gitignore"
_BUILD = "build/"
"""Directory next to the spec, into which builds write their reports."""
_TRACKED = ("mlflow.db", "mlartifacts/")
"""What builds write next to the spec if they are tracked there."""
ACTION = "triton-repogen/repogen"
"""The GitHub repository of repogen's action and reusable workflow."""


def scaffold(
    directory: Path,
    *,
    force: bool,
    github: bool = False,
    kubernetes: bool = False,
    pipelines: Pipelines = NO_PIPELINES,
) -> tuple[Path, ...]:
    """Write ``repogen.yaml`` and ``models.py`` into ``directory``.

    Args:
        directory: Created if it does not exist.
        force: Overwrite an existing spec and workflow. Code is never overwritten.
        github: Also write a workflow into the git repository of ``directory``. An existing spec and its models are
            then kept, even with ``force``.
        kubernetes: Also write manifests into ``directory/kubernetes``, for the release that the spec names. An existing
            spec is kept as well.
        pipelines: Also write these, and build in a matrix in the workflow. An existing spec is kept as well.

    Returns:
        The files written.

    Raises:
        SpecError: A file exists that may not be overwritten, or the existing spec names no release, in which case
            nothing is written; or a write failed.
    """
    files = {}
    if not ((github or kubernetes or pipelines.requested) and (directory / SPEC).exists()):
        sources = sorted(path for path in (templates_dir() / "init").iterdir() if path.is_file())
        files = {directory / source.name: source.read_text(encoding="utf-8") for source in sources}
        if not can_track():
            files[directory / SPEC] = files[directory / SPEC].replace("\nmlflow: {}", "\n# mlflow: {}")
        files = {path: text for path, text in files.items() if not _is_same_code(path, text)}
    if github:
        root = _repository_root(directory)
        # in a name, this would be an expression that GitHub evaluates
        spec = (directory.resolve() / SPEC).relative_to(root).as_posix().replace("${{", "${{ '${{' }}")
        template = _environment("github", variable=("[[", "]]")).get_template("repogen.yml.j2")
        workflow = template.render(action=ACTION, ref=f"v{__version__}", spec=spec)
        if pipelines.matrix:
            workflow = matrix_workflow(_environment("pipelines", ("[[", "]]")), pipelines, spec, ACTION)
        files[Path(os.path.relpath(root / WORKFLOW))] = workflow
    if kubernetes:
        spec_file = directory / SPEC
        text = files[spec_file] if spec_file in files else _spec_text(spec_file)
        files |= {directory / MANIFESTS / name: manifest for name, manifest in _manifests(text).items()}
    if pipelines.requested:
        texts = pipeline_texts(_environment("pipelines", ("[[", "]]")), pipelines, SPEC)
        files |= {path: text for name, text in texts.items() if not _is_same_code(path := directory / name, text)}
    _write(files, directory, force=force)
    return (*files, *(_ignore_outputs(directory) if directory / SPEC in files else ()))


def can_track() -> bool:
    """Return whether MLflow is installed; without it, ``init`` writes ``mlflow:`` as a comment."""
    return find_spec("mlflow") is not None


def _manifests(spec: str) -> dict[str, str]:
    """Return the text of each Kubernetes manifest, for the release that a spec names.

    Raises:
        SpecError: The release is unknown.
    """
    root, _ = compose(spec, SPEC)
    document = None if root is None else data(root)
    target = document.get("target") if isinstance(document, dict) else None
    release = target.get("triton", DEFAULT_RELEASE) if isinstance(target, dict) else DEFAULT_RELEASE
    if not isinstance(release, str) or find_target(release) is None:
        raise SpecError(
            f"{SPEC}: target.triton is not a release of Triton",
            f'write a release in quotes, for example "{DEFAULT_RELEASE}"',
            code="check.release",
        )
    environment = _environment("kubernetes", variable=("[[", "]]"))
    return {
        name.removesuffix(".j2"): environment.get_template(name).render(release=release, version=__version__)
        for name in environment.list_templates()
    }


def describe_ensemble(path: str, directory: Path, name: str | None) -> SpecDescription:
    """Describe the ensemble of a text classifier, with the code of its steps; see ``describe_text_ensemble``.

    Raises:
        SpecError: It is not a text classifier, or cannot be loaded.
    """
    from repogen.scaffold.text_ensemble import describe_text_ensemble  # noqa: PLC0415 - starts a worker

    environment = _environment("init_ensemble", trim=True)

    def render(template: str, values: Mapping[str, object]) -> str:
        return environment.get_template(template).render(values)

    return describe_text_ensemble(Path(path), directory, name, render)


def scaffold_from(description: SpecDescription, directory: Path, *, force: bool) -> tuple[Path, ...]:
    """Write a ``repogen.yaml`` for existing models.

    Args:
        description: The result of ``describe``.
        directory: Created if it does not exist.
        force: Overwrite an existing spec.

    Returns:
        The files written.

    Raises:
        SpecError: A spec exists and ``force`` is not set, or the write failed.
    """
    template = _environment("init_from", trim=True).get_template("repogen.yaml.j2")
    models = [
        {
            "name": flow(model.name),
            "source": _source_text(model.source),
            "comments": [one_line(line) for line in model.comments],
            "lines": [one_line(line) for line in model.keys],
        }
        for model in description.models
    ]
    text = template.render(
        release=flow(newest_target().release),
        models=models,
        tracked=can_track(),
        missing=one_line(description.missing),
        repository=flow(description.repository),
        omitted=[one_line(line) for line in description.omitted],
    )
    files: dict[Path, str | CopiedFile] = {directory / SPEC: text}
    files |= {directory / name: code for name, code in description.files.items()}
    for model in description.models:
        files |= {directory / name: file for name, file in model.copies.items()}
    _write(files, directory, force=force)
    return (*files, *_ignore_outputs(directory))


def _source_text(source: Mapping[str, object]) -> str:
    """Return what follows ``source:``: everything on its line, except for the steps of an ensemble."""
    steps = source.get("steps")
    if not isinstance(steps, list):
        return f" {flow(source)}"
    keys = [f"{flow(key)}: {flow(value)}" for key, value in source.items() if key != "steps"]
    lines = [*keys, "steps:", *(f"- {flow(step)}" for step in steps)]
    return "".join(f"\n      {one_line(line)}" for line in lines)


def _spec_text(path: Path) -> str:
    try:
        return read_bytes(path).decode(errors="replace")
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror}", code="init.from") from error


def _write(files: Mapping[Path, str | CopiedFile], directory: Path, *, force: bool) -> None:
    """Write texts and copies of files; nothing if one may not be overwritten: code, or any file without ``force``.

    If a write fails, the new files are removed.

    Raises:
        SpecError: A file may not be overwritten, or cannot be read or written; a link leads to where it would be
            written; or the copies are too large.
    """
    code = next((path for path in files if path.suffix == ".py" and os.path.lexists(path)), None)
    if code is not None:
        raise SpecError(
            f"{directory} already has {code.name}, which `repogen init` never overwrites; nothing was written",
            f"for your own model, use `repogen init{_argument(directory)} --from {os.path.relpath(code)}:NAME`"
            f"{_callables_hint(code)}; for the example, use an empty directory"
            if code.name != KFP
            else f"move or delete {code.name}, and run the command again",
            code="init.exists",
        )
    link = next((link for path in files for link in _links(path, directory)), None)
    if link is not None:
        raise SpecError(
            f"{link} is a link, and `repogen init` does not write through links; nothing was written",
            "delete the link, or use another directory",
            code="init.exists",
        )
    existing = [str(path) for path in files if os.path.lexists(path)]
    if existing and not force:
        raise SpecError(
            f"already exists: {', '.join(existing)}; nothing was written",
            "use another directory, or overwrite it with --force",
            code="init.exists",
        )
    _require_small(content.path for content in files.values() if isinstance(content, CopiedFile))
    try:
        _write_all(files, frozenset(path for path in files if str(path) not in existing))
    except OSError as error:
        raise SpecError(f"cannot write the files: {reason(error)}", code="init.unwritable") from error


def _write_all(files: Mapping[Path, str | CopiedFile], new: frozenset[Path]) -> None:
    """Write files; if that fails, remove the new ones, and keep those that would be overwritten.

    A file that is overwritten keeps its mode.

    Raises:
        OSError: It failed.
    """
    places: dict[Path, Path] = {}
    leftovers: list[Path] = []
    opened: dict[Path, Path] = {}
    with ExitStack() as stack:  # the directories stay open, so that no others take their places
        try:
            for path, content in files.items():
                if path.parent not in opened:
                    opened[path.parent] = stack.enter_context(directory_to_write(path.parent))
                file = opened[path.parent] / path.name
                temporary = file.with_name(f".{file.name}-{secrets.token_hex(4)}")
                places[temporary] = file
                leftovers += [temporary, file] if path in new else [temporary]
                _write_new(temporary, content)
                if path not in new:
                    temporary.chmod(file.lstat().st_mode & 0o777)
            for temporary, file in places.items():
                temporary.replace(file)
        except OSError:
            for leftover in leftovers:
                with suppress(OSError):
                    leftover.unlink()
            raise


def _write_new(path: Path, content: str | CopiedFile) -> None:
    with path.open("xb") as stream:
        if isinstance(content, str):
            stream.write(content.encode())
        else:
            _copy(content, stream)


def _require_small(sources: Iterable[Path]) -> None:
    """Require files that are small enough to be copied.

    Raises:
        SpecError: They are larger than 2 GiB together, or one cannot be read.
    """
    try:
        size = sum(path.stat().st_size for path in sources)
    except OSError as error:
        raise SpecError(f"{error.filename} cannot be read: {error.strerror}", code="init.from") from error
    if size > MAX_GRAPH_BYTES:
        raise SpecError(
            f"the files that have to be copied next to the spec have {size} bytes; the limit is {MAX_GRAPH_BYTES}",
            "write the spec into a directory that contains the repository: nothing is copied there",
            code="init.from",
        )


def _links(path: Path, directory: Path) -> tuple[Path, ...]:
    """Return what is a link: a file, or a directory above it that `init` may create. Other users could plant one.

    Args:
        path: A file in ``directory``, or the workflow in the git repository.
        directory: May be a link itself.
    """
    names = path.relative_to(directory) if path.is_relative_to(directory) else Path(WORKFLOW)
    return tuple(each for each in (path, *path.parents[: len(names.parts) - 1]) if each.is_symlink())


def _copy(source: CopiedFile, writer: IO[bytes]) -> None:
    """Copy a regular file up to the size that it has at the start."""
    with open_inside(source.path, source.directory, source.root) as reader:
        copy_bytes(reader, writer, os.fstat(reader.fileno()).st_size)


def _is_same_code(path: Path, text: str) -> bool:
    """Return whether a Python file already has this text, so that it need not be written."""
    try:
        return path.suffix == ".py" and read_text(path) == text
    except (OSError, UnicodeDecodeError):
        return False


def _argument(directory: Path) -> str:
    return "" if directory == Path() else f" {shlex.quote(str(directory))}"


def _callables_hint(file: Path) -> str:
    names = model_callables(file)
    return f", where NAME is {' or '.join(names)}" if names else ""


def _environment(folder: str, variable: tuple[str, str] = ("{{", "}}"), *, trim: bool = False) -> Environment:
    """Return the Jinja environment of a template folder; GitHub's expressions use braces, so its delimiters differ."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - only `init` needs it

    return Environment(  # noqa: S701 - YAML, not HTML; outside values are written as JSON or in comments
        loader=FileSystemLoader(templates_dir() / folder),
        undefined=StrictUndefined,
        variable_start_string=variable[0],
        variable_end_string=variable[1],
        trim_blocks=trim,
        keep_trailing_newline=True,
    )


def _git_root(directory: Path) -> Path | None:
    """Return the top of the git repository; None without one, or if another user may have planted its ``.git``."""
    start = directory.resolve()
    top = next((path for path in (start, *start.parents) if (path / ".git").exists()), None)
    return top if top is not None and has_trusted_owner(top / ".git", top) else None


def _repository_root(directory: Path) -> Path:
    """Return the top of the git repository, where GitHub looks for workflows; without one, ``directory`` itself."""
    return _git_root(directory) or directory.resolve()


def _ignore_outputs(directory: Path) -> tuple[Path, ...]:
    """Add what builds write next to the spec to .gitignore, after its other lines; return the file if it was changed.

    Nothing is changed outside of a git repository, unless the directory has that file; nor if the file is a link, which
    git does not follow, or cannot be changed: the spec is valid without it.
    """
    file, root = directory / IGNORED, _git_root(directory)
    if file.is_symlink() or (root is None and not file.exists()):
        return ()
    above = [path for path in directory.resolve().parents if root is not None and path.is_relative_to(root)]
    try:
        text = read_bytes(file).decode(errors="replace") if file.exists() else ""
        patterns = {line.strip() for line in text.splitlines()}
        for path in above:
            lines = read_text(path / IGNORED).splitlines() if is_file(path / IGNORED) else ()
            patterns |= {line for line in lines if not line.startswith("/")}
        ignored = {pattern.removeprefix("/") for pattern in patterns}
        outputs = (_BUILD, *(_TRACKED if can_track() else ()))
        missing = [name for name in outputs if not ignored & {name, name.removesuffix("/")}]
        if not missing:
            return ()
        end = "\r\n" if "\r\n" in text else "\n"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with directory_to_write(directory) as opened:
            descriptor = os.open(opened / IGNORED, flags, 0o664)
        with os.fdopen(descriptor, "ab") as stream:
            separator = "" if not text or text.endswith(end) else end
            stream.write((separator + "".join(f"{name}{end}" for name in missing)).encode())
    except (OSError, ValueError):
        return ()
    return (file,)

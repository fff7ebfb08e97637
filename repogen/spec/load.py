"""Loads a spec file, or reports all its problems."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING

from yaml.reader import Reader

from repogen.errors import SpecError
from repogen.files import is_file, open_regular
from repogen.files.paths import require_no_foreign_link
from repogen.files.url import RepositoryUrl, location
from repogen.files.work_limit import work_limit
from repogen.spec.document import Node, Rejected, compose, data
from repogen.spec.merge import complete, is_rejected, locate, merged_values, walk
from repogen.spec.models import Location, Spec, SpecFile
from repogen.spec.paths import check_model_paths, check_repository, check_templates
from repogen.spec.problems import MAX_SHOWN, Problem, SpecProblemsError, message_text, printable
from repogen.spec.rules import check_model
from repogen.spec.steps import check_steps
from repogen.spec.structure import Finding, PartialModel, check_defaults, check_file, check_tracking, salvage
from repogen.spec.tracking import check_tracking_uri
from repogen.targets import Target, find_target, newest_target, targets
from repogen.triton_config.sections.base import key_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from repogen.triton_config.sections.base import KeyPath

MAX_BYTES = 1_000_000
MAX_MERGED_VALUES = 100_000
"""Largest number of values that defaults may add: the defaults of a small file, for many models, fill the memory."""

_RELEASE = re.compile(r"(?:20)?(\d\d)\.(\d{1,2})(?:-.*)?", re.ASCII)
"""A year and a month, also as in the tag of an image: ``24.10-py3``."""
_FILE = "repogen.yaml"
_OTHER_SUFFIXES = {".yaml": ".yml", ".yml": ".yaml"}
_INIT_HINT = "create one with `repogen init`"


def load_spec(path: Path, release: str | None = None, *, content: bytes | None = None) -> Spec:
    """Load a spec.

    Args:
        path: The YAML file; messages contain it in this form.
        release: The Triton release to build for, instead of the one in the spec.
        content: Bytes to load instead of those of the file, such as an edited spec that is not written yet.

    Returns:
        The spec with absolute paths, and ``defaults`` merged into every model.

    Raises:
        SpecProblemsError: The file has problems; the error contains all of them.
        SpecError: The file does not exist or can't be read, or ``release`` is not supported.
        WorkLimitError: It needs too much time or memory.
    """
    with work_limit(str(path)):
        return _load_spec(path, release, content)


def load_tracking_spec(path: Path) -> Spec:
    """Load a spec for a command that needs only its MLflow server: its models may be incomplete, and files missing.

    Args:
        path: The YAML file.

    Returns:
        The spec without models; each section other than ``mlflow`` has its default.

    Raises:
        SpecProblemsError: The file is not valid YAML, or ``mlflow`` is not valid, or a key at the top is unknown.
        SpecError: The file does not exist or can't be read.
        WorkLimitError: It needs too much time or memory.
    """
    with work_limit(str(path)):
        root, problems = _mapping(str(path), read_spec(path))
        valid, findings = check_tracking(data(root))
        if valid is not None and valid.mlflow is not None:
            findings += check_tracking_uri(valid.mlflow.tracking_uri)
        problems += _locate(findings, root, str(path))
        if problems or valid is None:
            raise SpecProblemsError(problems)
        return replace(_spec(path, valid, root, None), models={})


def _load_spec(path: Path, release: str | None, content: bytes | None) -> Spec:
    if release is not None and find_target(release) is None:
        problem = _unknown_release(release)
        raise SpecError(f"--target: {problem.what}", problem.hint, code="spec.target")
    file = str(path)
    root, problems = _mapping(file, read_spec(path) if content is None else content)
    if merged_values(root) > MAX_MERGED_VALUES:
        position = locate(root, ("defaults",))[0]
        what = f"has more than {MAX_MERGED_VALUES} values, counted for each model"
        raise SpecProblemsError([*problems, Problem(file, *position, "defaults", what, "split the spec")])
    completed = complete(root)
    valid, findings = _check(root, completed, path.absolute().parent, release)
    problems += _locate(findings, completed, file)
    if problems or valid is None:
        raise SpecProblemsError(problems)
    return _spec(path, valid, completed, release)


def _mapping(file: str, raw: bytes) -> tuple[Node, list[Problem]]:
    """Return the mapping that a file contains, and the problems of its YAML.

    Raises:
        SpecProblemsError: It is not a mapping, or can't be read as one.
    """
    text, decode_problem = _decode(raw, file)
    if decode_problem is not None:
        raise SpecProblemsError([decode_problem])
    root, problems = compose(text, file)
    if root is None and problems:
        raise SpecProblemsError(problems)
    if root is None or root.value is None:
        raise SpecProblemsError([Problem(file, 1, 1, "", "the spec is empty", _INIT_HINT)])
    if not isinstance(root.value, dict):
        what = "the spec must be a mapping with models:"
        raise SpecProblemsError([*problems, Problem(file, *root.position, "", what, _INIT_HINT)])
    return root, problems


def read_spec(path: Path) -> bytes:
    """Return the bytes of a spec.

    Raises:
        SpecError: It does not exist, can't be read, or is too large; or it is behind a symlink of another user, which
            could lead to a private project of this user.
    """
    try:
        require_no_foreign_link(path)
        if path.is_dir():
            raise SpecError(
                f"{path} is a directory, not a spec",
                f"pass the file, for example {path / 'repogen.yaml'}",
                code="spec.unreadable",
            )
        with open_regular(path) as stream:
            raw = stream.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise SpecError("spec not found", _missing_hint(path), code="spec.missing", where=str(path)) from error
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        raise SpecError(f"the spec can't be read: {problem}", code="spec.unreadable", where=str(path)) from error
    if len(raw) > MAX_BYTES:
        hint = "a spec contains paths of files, not their content"
        raise SpecError(f"the spec is larger than {MAX_BYTES} bytes", hint, code="spec.too-large", where=str(path))
    return raw


def _missing_hint(path: Path) -> str:
    """Return the hint for a spec that does not exist."""
    if path.name == str(path) and not path.suffix and is_file(path.with_name(_FILE)):
        return f"for one model of {_FILE}, pass --model {path}"
    other = path.with_suffix(_OTHER_SUFFIXES.get(path.suffix, path.suffix))
    return f"{other} exists: pass it, or rename it to {path.name}" if is_file(other) else _INIT_HINT


def _decode(raw: bytes, file: str) -> tuple[str, Problem | None]:
    """Return the text without its byte order mark, or the first invalid byte or character as a problem."""
    try:
        text = raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        position = _end_of(raw[: error.start].decode("utf-8"))
        what = f"is not UTF-8: byte 0x{raw[error.start]:02x}"
        return "", Problem(file, *position, "", what, "save the file as UTF-8")
    unprintable = Reader.NON_PRINTABLE.search(text)
    if unprintable:
        what = f"contains the control character U+{ord(unprintable.group()):04X}"
        return "", Problem(file, *_end_of(text[: unprintable.start()]), "", what, "remove it")
    return text, None


def _end_of(text: str) -> Location:
    text = text.removeprefix("\ufeff")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return Location(len(lines), len(lines[-1]) + 1)


def _check(
    root: Node, completed: Node, folder: Path, target_release: str | None
) -> tuple[SpecFile | None, list[Finding]]:
    """Return the validated file, or None if its structure is invalid, and all findings."""
    document, raw_document = data(completed), data(root)
    if not isinstance(document, dict) or not isinstance(raw_document, dict):
        return None, []
    valid, findings = check_file(document)
    findings += check_defaults(raw_document.get("defaults", {}))
    release = _string(_get(document.get("target", {}), "triton", SpecFile.model_fields["target"].default.triton))
    target = find_target(target_release or release) if release is not None else None
    if release is not None and find_target(release) is None:
        findings.append(_unknown_release(release))
    templates = _string(document.get("templates"))
    findings += check_templates(templates, folder)
    findings += check_tracking_uri(_string(_get(document.get("mlflow", {}), "tracking_uri", None)))
    repository = _string(document.get("repository", SpecFile.model_fields["repository"].default))
    if repository is not None:
        findings += check_repository(repository, templates, folder)
    models = document.get("models")
    trusted = {
        name: PartialModel(valid.models[name], frozenset()) if valid else salvage(model)
        for name, model in (models.items() if isinstance(models, dict) else ())
    }
    of_models = (_model_findings(name, model, target, folder, completed) for name, model in trusted.items())
    of_steps = _step_findings(trusted, completed)
    # names are compared with all others for a hint, and only the first findings are printed
    return valid, [*findings, *islice(chain(chain.from_iterable(of_models), of_steps), 2 * MAX_SHOWN)]


def _step_findings(models: Mapping[str, PartialModel], completed: Node) -> Iterator[Finding]:
    for finding in check_steps(models):
        path = ("models", *finding.path)
        if not _is_inherited(completed, path):  # an ensemble ignores inherited keys that it does not support
            yield finding._replace(path=path)


def _model_findings(
    name: str, model: PartialModel, target: Target | None, folder: Path, completed: Node
) -> Iterator[Finding]:
    for finding in (*check_model(model, target), *check_model_paths(model, folder)):
        path = ("models", name, *finding.path)
        # A model need not use a dim that all models inherit.
        if finding.path[:1] == ("dims",) and finding.what.startswith("no input") and _is_inherited(completed, path):
            continue
        yield finding._replace(path=path)


def _is_inherited(completed: Node, path: KeyPath) -> bool:
    return locate(completed, path)[1][:1] == ("defaults",)


def _locate(findings: list[Finding], completed: Node, file: str) -> Iterator[Problem]:
    """Yield the findings as problems with positions, except for values that were rejected while reading."""
    for finding in findings:
        if finding.what.startswith("must be") and is_rejected(completed, finding.path):
            continue
        position, path = locate(completed, finding.path)
        texts = map(message_text, (key_text(path), finding.what, finding.hint))
        yield Problem(file, *position, *texts)


def _unknown_release(release: str) -> Finding:
    releases = list(targets())
    nearest = " or ".join(_nearest_releases(release, releases))
    suggestion = f"nearest: {nearest}, " if nearest else ""
    what = f'"{printable(release)}" is not a Triton release that this version of repogen supports'
    return Finding(("target", "triton"), what, f"{suggestion}newest: {releases[-1]}, oldest: {releases[0]}")


def _nearest_releases(text: str, releases: Sequence[str]) -> list[str]:
    """Return the releases whose year and month are nearest to a text; none if it is not a year and a month.

    >>> [_nearest_releases(text, ["23.08", "24.01", "24.10", "24.12"]) for text in ("22.01", "24.1", "24.13", "x")]
    [['23.08'], ['24.01', '24.10'], ['24.12'], []]
    """
    match = _RELEASE.fullmatch(text)
    if match is None:
        return []
    year, month = match.groups()
    candidates = [f"{year}.0{month}", f"{year}.{month}0"] if len(month) == 1 else []
    nearest = min(releases, key=lambda release: abs(_months(release) - _months(f"{year}.{month}")))
    return [release for release in candidates if release in releases] or [nearest]


def _months(release: str) -> int:
    year, month = map(int, release.split("."))
    return 12 * year + min(max(month, 1), 12)


def _get(mapping: object, key: str, default: object) -> object:
    return mapping.get(key, default) if isinstance(mapping, dict) else default


def _string(value: object) -> str | None:
    return value if isinstance(value, str) and not isinstance(value, Rejected) else None


def _spec(path: Path, file: SpecFile, completed: Node, release: str | None) -> Spec:
    absolute = path.absolute()
    root = absolute.parent
    # Not resolved: otherwise messages would contain the target of a symlink, which the user did not write.
    return Spec(
        path=absolute,
        repository=_repository(root, file.repository),
        release=release or file.target.triton,
        templates=None if file.templates is None else root / file.templates,
        models=file.models,
        locations={key_text(key): position for key, position in walk(completed, (), completed.position) if key},
        mlflow=file.mlflow,
        display_path=str(path),
        gpu=file.target.device == "gpu",
        notes=tuple(_release_notes(file, release)),
        ignored_rules=file.check.ignore,
    )


def _repository(root: Path, repository: str) -> Path:
    place = location(repository)
    return place if isinstance(place, RepositoryUrl) else root / place


def _release_notes(file: SpecFile, release: str | None) -> Iterator[str]:
    """Yield what the user should know about the target release: it is a default, or newer than the table."""
    target = find_target(release or file.target.triton)
    if release is None and "triton" not in file.target.model_fields_set:
        yield (
            f"the spec has no target: the default is Triton {file.target.triton}; write target: {{triton: "
            f'"{newest_target().release}"}} for the newest known release'
        )
    if target is not None and target.unknown_note:
        yield target.unknown_note

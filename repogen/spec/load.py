"""A spec file -> Spec, or every problem of it at once."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from yaml.reader import Reader

from repogen.errors import SpecError
from repogen.spec.document import Node, Refused, compose, data
from repogen.spec.merge import complete, is_refused, locate, walk
from repogen.spec.models import Location, Spec, SpecFile
from repogen.spec.paths import check_model_paths, check_repository, check_templates
from repogen.spec.problems import Problem, SpecProblemsError, printable, shown
from repogen.spec.rules import check_model
from repogen.spec.steps import check_steps
from repogen.spec.structure import Finding, PartialModel, check_defaults, check_file, salvage
from repogen.spec.tracking import check_tracking_uri
from repogen.targets import Target, targets
from repogen.triton_config.sections.base import key_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from repogen.triton_config.sections.base import KeyPath

MAX_BYTES = 1_000_000
_START = "`repogen init` writes a spec to start from"


def load_spec(path: Path, release: str | None = None) -> Spec:
    """Load a spec.

    Args:
        path: The YAML file; messages name it as it is given here.
        release: The Triton release to build for, in place of the spec's own.

    Returns:
        The spec with absolute paths, and ``defaults`` merged into every model.

    Raises:
        SpecProblemsError: The file can be read but is wrong; it carries every problem with its place.
        SpecError: There is no such file, or it can't be read; an unknown release.
    """
    if release is not None and release not in targets():
        wrong = _unknown_release(release)
        raise SpecError(f"--target: {wrong.what}", wrong.hint, code="spec.target")
    file = str(path)
    raw = _read(path)
    text, unreadable = _decode(raw, file)
    if unreadable is not None:
        raise SpecProblemsError([unreadable])
    root, problems = compose(text, file)
    if root is None and problems:
        raise SpecProblemsError(problems)
    if root is None or root.value is None:
        raise SpecProblemsError([Problem(file, 1, 1, "", "the spec is empty", _START)])
    if not isinstance(root.value, dict):
        place = root.place
        raise SpecProblemsError(
            [*problems, Problem(file, *place, "", "the spec must be a mapping with models:", _START)]
        )
    whole = complete(root)
    valid, findings = _check(root, whole, path.absolute().parent, release)
    problems += _placed(findings, whole, file)
    if problems or valid is None:
        raise SpecProblemsError(problems)
    return _spec(path, valid, whole, release)


def _read(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise SpecError(f"{path} is a directory, not a spec", f"name the file: {path / 'repogen.yaml'}")
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise SpecError(f"there is no spec {path}", _START, code="spec.missing", where=str(path)) from error
    except (OSError, ValueError) as error:
        raise SpecError(f"the spec {path} can't be read: {error}", code="spec.unreadable", where=str(path)) from error
    if len(raw) > MAX_BYTES:
        hint = "a spec names files, it does not hold them"
        raise SpecError(
            f"the spec {path} is larger than {MAX_BYTES} bytes", hint, code="spec.too-large", where=str(path)
        )
    return raw


def _decode(raw: bytes, file: str) -> tuple[str, Problem | None]:
    """Return the text without its byte order mark, or the place of the first byte or character that is refused."""
    try:
        text = raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        place = _end_of(raw[: error.start].decode("utf-8"))
        what = f"is not UTF-8: byte 0x{raw[error.start]:02x}"
        return "", Problem(file, *place, "", what, "save the file as UTF-8")
    unprintable = Reader.NON_PRINTABLE.search(text)
    if unprintable:
        what = f"holds the control character U+{ord(unprintable.group()):04X}"
        return "", Problem(file, *_end_of(text[: unprintable.start()]), "", what, "remove it")
    return text, None


def _end_of(text: str) -> Location:
    text = text.removeprefix("\ufeff")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return Location(len(lines), len(lines[-1]) + 1)


def _check(root: Node, whole: Node, folder: Path, wanted: str | None) -> tuple[SpecFile | None, list[Finding]]:
    """Return the validated file (None when its structure is wrong) and every finding."""
    plain, raw = data(whole), data(root)
    if not isinstance(plain, dict) or not isinstance(raw, dict):
        return None, []
    valid, findings = check_file(plain)
    findings += check_defaults(raw.get("defaults", {}))
    release = _string(_get(plain.get("target", {}), "triton", SpecFile.model_fields["target"].default.triton))
    target = targets().get(wanted or release) if release is not None else None
    if release is not None and release not in targets():
        findings.append(_unknown_release(release))
    templates = _string(plain.get("templates"))
    findings += check_templates(templates, folder)
    findings += check_tracking_uri(_string(_get(plain.get("mlflow", {}), "tracking_uri", None)))
    repository = _string(plain.get("repository", SpecFile.model_fields["repository"].default))
    if repository is not None:
        findings += check_repository(repository, templates, folder)
    models = plain.get("models")
    trusted = {
        name: PartialModel(valid.models[name], frozenset()) if valid else salvage(model)
        for name, model in (models.items() if isinstance(models, dict) else ())
    }
    for name, model in trusted.items():
        findings += _in_model(name, model, target, folder, whole)
    for finding in check_steps(trusted):
        path = ("models", *finding.path)
        if not _inherited(whole, path):  # what every model inherits, an ensemble does without
            findings.append(finding._replace(path=path))
    return valid, findings


def _in_model(name: str, model: PartialModel, target: Target | None, folder: Path, whole: Node) -> Iterator[Finding]:
    for finding in (*check_model(model, target), *check_model_paths(model, folder)):
        path = ("models", name, *finding.path)
        # A dim that every model inherits is none that this one forgot to use.
        if finding.path[:1] == ("dims",) and finding.what.startswith("no input") and _inherited(whole, path):
            continue
        yield finding._replace(path=path)


def _inherited(whole: Node, path: KeyPath) -> bool:
    return locate(whole, path)[1][:1] == ("defaults",)


def _placed(findings: list[Finding], whole: Node, file: str) -> Iterator[Problem]:
    """Yield the findings as problems at their places; what was refused while reading is not reported again."""
    for finding in findings:
        if finding.what.startswith("must be") and is_refused(whole, finding.path):
            continue
        place, path = locate(whole, finding.path)
        told = (shown(key_text(path)), shown(finding.what), shown(finding.hint))
        yield Problem(file, place.line, place.column, *told)


def _unknown_release(release: str) -> Finding:
    known = list(targets())
    near = difflib.get_close_matches(release[:20], known, n=1, cutoff=0.5)
    also = f"nearest: {near[0]}, " if near else ""
    what = f'"{printable(release)}" is not a Triton release known to this repogen'
    return Finding(("target", "triton"), what, f"{also}newest: {known[-1]}, oldest: {known[0]}")


def _get(mapping: object, key: str, default: object) -> object:
    return mapping.get(key, default) if isinstance(mapping, dict) else default


def _string(value: object) -> str | None:
    return value if isinstance(value, str) and not isinstance(value, Refused) else None


def _spec(path: Path, file: SpecFile, whole: Node, release: str | None) -> Spec:
    absolute = path.absolute()
    root = absolute.parent
    # Not resolved: through a symlink, messages would name a directory that the user never wrote.
    return Spec(
        path=absolute,
        repository=root / file.repository,
        release=release or file.target.triton,
        templates=None if file.templates is None else root / file.templates,
        models=file.models,
        locations={key_text(told): place for told, place in walk(whole, (), whole.place) if told},
        mlflow=file.mlflow,
        shown=str(path),
        gpu=file.target.device == "gpu",
    )

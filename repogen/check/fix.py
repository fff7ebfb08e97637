"""Applies the corrections of findings to the text of config.pbtxt; comments and formatting are kept."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from bisect import bisect_left, insort
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import dropwhile, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from repogen.artifacts.file_names import CONFIG_FILE, MAX_CONFIG_BYTES
from repogen.check.checker import CheckReport, check
from repogen.errors import PublishError
from repogen.files import is_file, open_regular, raise_if_exhausted, read_bytes
from repogen.files.content import ContentError, read_stream
from repogen.files.resolve import directory_to_write
from repogen.files.work_limit import COMMAND_SECONDS, work_limit
from repogen.repository.filesystem import opened_directory
from repogen.repository.layout import latest_version
from repogen.triton_config.text.parse import PbtxtError
from repogen.triton_config.text.source_map import SourceMap, locate_fields, parent_path, tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from repogen.check.checker import Selection
    from repogen.triton_config.rules.findings import Finding
    from repogen.triton_config.text.source_map import Token

_MAX_ROUNDS = 10
"""Limit of rounds; a correction may reveal another finding, because a wrong number of dims hides wrong sizes."""
_MODE = 0o775
"""The bits of a file's mode that are kept. The corrected file belongs to this user, whoever owned the original."""
_BOM = "\N{BYTE ORDER MARK}"
_INDEX = re.compile(r"\[\d+\]$")
_MAP_KEY = re.compile(r"\[\"")
_NEW_ENTRY = frozenset({"input", "output"})
"""Fields whose correction is a further entry."""


@dataclass(frozen=True)
class FixedFile:
    """A config.pbtxt with corrections.

    Attributes:
        path: The file, as in findings.
        before: Its text; bytes that are not UTF-8 are surrogates.
        after: The corrected text.
        fixes: Number of findings that are corrected.
    """

    path: Path
    before: str
    after: str
    fixes: int


@dataclass(frozen=True)
class FixReport:
    """What was corrected, and what is left.

    Attributes:
        files: The corrected files.
        remaining: The findings about the corrected files.
        skipped: Files that could be corrected, but must not be, and the reason.
    """

    files: tuple[FixedFile, ...]
    remaining: CheckReport
    skipped: tuple[tuple[Path, str], ...] = ()


class _Edit(NamedTuple):
    """Replaces the text between two offsets."""

    start: int
    end: int
    text: str


class _Body:
    """The text of a config without its byte order mark, its fields and its tokens."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def fields(self) -> SourceMap:
        return locate_fields(self.text, CONFIG_FILE)

    @cached_property
    def tokens(self) -> list[Token]:
        return list(tokens(self.text))


def fix(paths: Sequence[Path], release: str, selection: Selection, *, unsafe: bool) -> FixReport:
    """Correct the configs of repositories in memory; nothing is written.

    Args:
        paths: Repositories, models' directories, or files in them.
        release: The Triton release that will serve them.
        selection: Which findings to correct, and to report.
        unsafe: Whether to apply corrections that may not be what the user intended.

    Raises:
        SpecError: As ``check``.
        WorkLimitError: As ``check``; the limit is that of a single check.
    """
    with work_limit("the repository", COMMAND_SECONDS):
        return _fix(paths, release, selection, unsafe=unsafe)


def _fix(paths: Sequence[Path], release: str, selection: Selection, *, unsafe: bool) -> FixReport:
    report = original = check(*paths, release=release, selection=selection)
    before: dict[str, str] = {}
    texts: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for _ in range(_MAX_ROUNDS):
        changed = False
        for path, findings in _fixable(report.findings, unsafe=unsafe).items():
            if path not in before and path not in skipped:
                reason, text = _correctable_text(Path(path))
                skipped |= {path: reason} if reason else {}
                before |= {} if reason else {path: text}
            if path in before:
                text = texts.get(path, before[path])
                texts[path] = apply(text, findings)
                changed = changed or texts[path] != text
        if not changed:
            break
        report = check(*paths, release=release, selection=selection, texts=texts)
    first = Counter(finding.path for finding in original.findings)
    last = Counter(finding.path for finding in report.findings)
    useless = [path for path in texts if last[path] >= first[path]]
    if useless:
        skipped |= dict.fromkeys(useless, "the corrections contradict each other")
        texts = {path: text for path, text in texts.items() if path not in useless}
        report = check(*paths, release=release, selection=selection, texts=texts)
        last = Counter(finding.path for finding in report.findings)
    files = (FixedFile(Path(path), before[path], text, first[path] - last[path]) for path, text in texts.items())
    return FixReport(
        tuple(file for file in files if file.after != file.before),
        report,
        tuple((Path(path), reason) for path, reason in skipped.items()),
    )


def fixable(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings that ``fix`` can correct, some only if unsafe; none in files that it does not change."""
    findings = [finding for finding in findings if finding.applicability is not None]
    skipped = {path for path in {finding.path for finding in findings} if _correctable_text(Path(path))[0]}
    return tuple(finding for finding in findings if finding.path not in skipped)


def write(files: Iterable[FixedFile]) -> None:
    """Replace each file atomically by its corrected text.

    Raises:
        PublishError: A file cannot be written, or was changed in the meantime; it is unchanged.
    """
    for file in files:
        try:
            _replace(file)
        except OSError as error:
            raise PublishError(
                f"{file.path} cannot be corrected: {error.strerror}", "fix the permissions", code="check.unwritable"
            ) from error


def apply(text: str, findings: Iterable[Finding]) -> str:
    """Return the text of a config with the corrections of findings about it.

    Of corrections that contradict each other, the first is applied.
    """
    mark = _BOM if text.startswith(_BOM) else ""
    body = _Body(text.removeprefix(_BOM))
    edits: list[_Edit] = []  # sorted; they do not touch
    done: set[_Edit] = set()
    for finding in findings:
        if finding.code == "RG003":
            mark = ""
            continue
        try:
            edits_of_finding = set(_edits(body, finding))
        except PbtxtError:
            continue
        new_edits = edits_of_finding - done
        if edits_of_finding and not any(_overlaps(new, edits) for new in new_edits):
            for new in new_edits:
                insort(edits, new)
            done |= new_edits
    parts: list[str] = []
    end = 0
    for edit in edits:
        parts += [body.text[end : edit.start], edit.text]
        end = edit.end
    return "".join([mark, *parts, body.text[end:]])


def _fixable(findings: Iterable[Finding], *, unsafe: bool) -> dict[str, list[Finding]]:
    """Return the findings to correct, by path; not those for which two served versions need different corrections."""
    by_field: dict[tuple[str, str], dict[str, Finding]] = {}
    for finding in findings:
        if finding.applicability == "safe" or (unsafe and finding.applicability == "unsafe"):
            is_new = finding.field in _NEW_ENTRY
            key = f"{finding.field} {finding.fix}" if is_new else _INDEX.sub("", finding.field)
            by_field.setdefault((finding.path, key), {}).setdefault(finding.fix, finding)
    by_path: dict[str, list[Finding]] = {}
    for (path, _), corrections in by_field.items():
        if len(corrections) == 1:
            by_path.setdefault(path, []).extend(corrections.values())
    return by_path


def _correctable_text(path: Path) -> tuple[str, str]:
    """Return why a config must not be corrected, or else its text."""
    try:
        skip = _reason_to_skip(path)
        return skip, "" if skip else _read(path)[0]
    except OSError as error:  # another user may replace it since it was checked
        raise_if_exhausted(error)
        return f"it cannot be read: {error.strerror}", ""
    except ContentError as error:
        return f"it {error}", ""


def _reason_to_skip(path: Path) -> str:
    """Return why a config must not be corrected; empty if it may be.

    Raises:
        OSError: It cannot be read.
    """
    if path.is_symlink() or path.parent.is_symlink():
        return "it is a symlink"
    version = latest_version(path.parent)
    copy = path.parent / str(version) / CONFIG_FILE
    if version is not None and is_file(copy) and _has_content(copy, read_bytes(path, MAX_CONFIG_BYTES)):
        return "`repogen build` wrote it: change the spec, and build again"
    return ""


def _has_content(path: Path, content: bytes) -> bool:
    """Return whether a file has these bytes; no more of it are read."""
    with open_regular(path) as stream:
        return stream.read(len(content) + 1) == content


def _read(path: Path) -> tuple[str, int]:
    """Return the text of a config, in which bytes that are not UTF-8 are surrogates, and its mode.

    Another user may replace the file or the model's directory with a symlink at any time: these are not followed.

    Raises:
        OSError: The file or the directory is a symlink, or cannot be read.
    """
    with opened_directory(path.absolute().parent) as model, open_regular(model / path.name, follow=False) as stream:
        text = read_stream(stream, MAX_CONFIG_BYTES).decode(errors="surrogateescape")
        return text, stat.S_IMODE(os.fstat(stream.fileno()).st_mode)


def _replace(file: FixedFile) -> None:
    """Write next to the model, where Triton ignores files, and rename."""
    encoded = file.after.encode(errors="surrogateescape")
    text, mode = _read(file.path)
    if text != file.before:
        raise PublishError(f"{file.path} was changed in the meantime", "run the command again", code="check.changed")
    directory = file.path.absolute().parent
    with directory_to_write(directory.parent) as models, opened_directory(models / directory.name) as model:
        descriptor, name = tempfile.mkstemp(prefix=".repogen-fix-", dir=models)
        copy = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                # not by the name of the copy: another user may have replaced it with a link
                os.fchmod(descriptor, mode & _MODE)
                stream.write(encoded)
                stream.flush()
                os.fsync(descriptor)
                copy.replace(model / file.path.name)
        finally:
            copy.unlink(missing_ok=True)


def _overlaps(edit: _Edit, edits: Sequence[_Edit]) -> bool:
    """Return whether an edit touches the text of one of sorted edits; two insertions at one place do as well."""
    index = bisect_left(edits, edit)
    neighbors = edits[max(index - 1, 0) : index + 1]
    return any(edit.start <= other.end and other.start <= edit.end for other in neighbors)


def _edits(body: _Body, finding: Finding) -> Iterator[_Edit]:
    """Yield the edits of one correction."""
    path = finding.field
    if path in _NEW_ENTRY:
        yield from _new_entry(body.fields, path, finding.fix)
    elif _MAP_KEY.search(path):
        yield from _renamed_key(body, path, finding.fix)
    else:
        path = _INDEX.sub("", path)
        parent, name = parent_path(path), path.rpartition(".")[2]
        yield from _replaced(body, (parent, name), finding.fix)


def _replaced(body: _Body, target: tuple[str, str], fix: str) -> Iterator[_Edit]:
    """Yield edits that leave the fields of ``fix`` in a message exactly once, and the target only if it is one."""
    text, (parent, name) = body.text, target
    spans = locate_fields(fix, "fix").spans
    lines = {field: fix[slice(*spans[field][0])] for field in spans if "." not in field}

    def spans_of(field: str) -> list[tuple[int, int]]:
        return body.fields.spans.get(f"{parent}.{field}".lstrip("."), [])

    existing = [span for field in (*lines, name) for span in spans_of(field)]
    if existing:
        anchor = existing[0]
        yield _Edit(*anchor, _separator(text, anchor[0]).join(lines.values()))
        for span in dict.fromkeys(existing[1:]):
            if span != anchor:
                yield _deletion(text, *span)
        return
    siblings = spans_of("name") or spans_of("model_name")
    if siblings:
        separator = _separator(text, siblings[0][0])
        yield _Edit(siblings[0][1], siblings[0][1], "".join(f"{separator}{line}" for line in lines.values()))
    elif not parent:
        yield _Edit(0, 0, "".join(f"{line}\n" for line in lines.values()))


def _separator(text: str, start: int) -> str:
    """Return what separates fields: a line break with the indentation of a field, or a space if it shares its line."""
    line_start = text.rfind("\n", 0, start) + 1
    indentation = text[line_start:start]
    line_break = "\r\n" if "\r\n" in text else "\n"
    return " " if indentation.strip() else f"{line_break}{indentation}"


def _deletion(text: str, start: int, end: int) -> _Edit:
    """Return the edit that deletes a field and its separator, and its line if nothing else is on it."""
    separator = re.compile(r"[ \t]*[,;]").match(text, end)
    end = separator.end() if separator else end
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end + 1
    if not text[line_start:start].strip() and not text[end:line_end].strip():
        return _Edit(line_start, line_end, "")
    return _Edit(start, end, "")


def _new_entry(fields: SourceMap, name: str, fix: str) -> Iterator[_Edit]:
    spans = fields.spans.get(name)
    if spans:
        body = "".join(f"  {line}\n" for line in fix.splitlines())
        yield _Edit(spans[-1][1], spans[-1][1], f"\n{name} {{\n{body}}}")


def _renamed_key(body: _Body, path: str, fix: str) -> Iterator[_Edit]:
    """Yield the edit that replaces the key of a map's entry by the key in ``fix``."""
    start = body.fields.positions.get(path)
    new_key = next((token.text for token in tokens(fix) if token.is_string), "")
    index = len(body.tokens) if start is None else bisect_left(body.tokens, start, key=lambda token: token.position)
    entry = islice(body.tokens, index, None)
    after_key = dropwhile(lambda token: token.text != "key", entry)
    key = next((token for token in after_key if token.is_string), None)
    if key is not None and new_key:
        yield _Edit(key.offset, key.end, new_key)

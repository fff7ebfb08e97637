"""config.pbtxt as text: its encoding, its fields, and the findings that its comments suppress."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import MAX_CONFIG_BYTES
from repogen.check.layout import unreadable_config
from repogen.files import raise_if_exhausted
from repogen.files.content import ContentError, read_bytes
from repogen.files.resolve import ForeignLinkError
from repogen.targets import field_releases, supports_field
from repogen.triton_config.rules.findings import Finding
from repogen.triton_config.text.parse import STRAY, TOKEN, PbtxtError, oversize_reason, parse
from repogen.triton_config.text.source_map import SourceMap, locate_fields, tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from repogen.triton_config.rules.findings import Severity
    from repogen.triton_config.text.parse import ModelConfig

_MAX_FINDINGS = 2_000
"""More than a check lists of one rule; a config can have hundreds of thousands of placeholders."""
_BOM = "\N{BYTE ORDER MARK}"
# At most 200 characters: a line of many openings would take time that grows with the square of its length.
_TEMPLATE_SYNTAX = re.compile(r"\$\{[^}\n]{0,200}\}|\{\{.{0,200}?\}\}|\{%.{0,200}?%\}|<%.{0,200}?%>")
_IGNORE = re.compile(r"#\s*repogen:\s*ignore(?P<file>-file)?\[(?P<codes>[A-Z0-9,\s]*)\]")


@dataclass(frozen=True)
class ConfigText:
    """A config.pbtxt that was read.

    Attributes:
        path: Its path.
        config: The parsed message; None if it can't be parsed.
        fields: Position of each field.
        findings: Findings about the text itself.
        suppressed: (line, code prefix) of the findings that comments suppress; line 0 for the whole file.
    """

    path: Path
    config: ModelConfig | None = None
    fields: SourceMap = field(default_factory=SourceMap)
    findings: tuple[Finding, ...] = ()
    suppressed: frozenset[tuple[int, str]] = frozenset()

    def at(self, path: Path) -> ConfigText:
        """Return the same text at another path."""
        return self if path == self.path else replace(self, path=path, findings=_in(path, self.findings))

    def placed(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yield findings about the config with their lines and columns."""
        for finding in findings:
            position = self.fields.position(finding.field)
            yield replace(finding, path=str(self.path), line=position.line, column=position.column)

    def suppresses(self, finding: Finding) -> bool:
        """Return whether a comment suppresses a finding; none about security."""
        if finding.security:
            return False
        prefixes = (finding.code[:length] for length in range(len(finding.code) + 1))
        return any((line, prefix) in self.suppressed for prefix in prefixes for line in (0, finding.line))


def read_config(path: Path, release: str, text: str | None = None) -> ConfigText:
    """Read and parse a config.pbtxt.

    Args:
        path: An existing path, which need not be a file.
        release: Triton release that must support its fields.
        text: Text to parse instead of the file's.
    """
    if text is None:
        text, read_error = _text(path)
        if read_error is not None:
            return ConfigText(path, findings=(replace(read_error, path=str(path)),))
    if reason := oversize_reason(text):
        hint = "check that this is the right file; repogen cannot check larger configs"
        return ConfigText(path, findings=(Finding("RG005", "error", f"{path.name} {reason}", hint, path=str(path)),))
    suppressed = frozenset(_suppressions(text))
    findings = [*_byte_order(text), *islice(_template_syntax(text), _MAX_FINDINGS)]
    if STRAY.search(text):
        findings.append(Finding("RG005", "warning", "a comment or a string is not UTF-8", "save the file as UTF-8"))
        text = STRAY.sub("?", text)
    text = text.removeprefix(_BOM)
    try:
        fields = locate_fields(text, path.name)
        config = parse(text, path.name)
    except PbtxtError as error:
        if not any(finding.code == "RG004" and finding.severity == "error" for finding in findings):
            message = str(error.message).removeprefix(f"{path.name}:{error.line}:{error.column}: ")
            syntax = Finding("RG001", "error", message, error.hint, line=error.line, column=error.column, security=True)
            findings.append(syntax)
        return ConfigText(path, findings=_in(path, findings), suppressed=suppressed)
    findings += _unknown_fields(fields, release)
    return ConfigText(path, config, fields, _in(path, findings), suppressed)


def _in(path: Path, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(replace(finding, path=str(path)) for finding in findings)


def _text(path: Path) -> tuple[str, Finding | None]:
    reason = unreadable_config(path)
    if reason:
        return "", Finding("RG005", "error", f"{path.name} {reason}", "replace it with a regular file")
    try:
        content = read_bytes(path, MAX_CONFIG_BYTES)
    except ContentError as error:
        hint = "a config is usually a few kilobytes: check that this is the right file"
        return "", Finding("RG005", "error", f"{path.name} {error}", hint)
    except OSError as error:
        raise_if_exhausted(error)
        hint = "replace the link with the files" if isinstance(error, ForeignLinkError) else "make it readable"
        return "", Finding("RG005", "error", f"{path.name} cannot be read: {error.strerror}", hint)
    text = content.decode(errors="surrogateescape")
    if any(STRAY.search(token.text) for token in tokens(text) if token.text[0] not in "\"'"):
        return "", Finding("RG005", "error", f"{path.name} is not UTF-8", "save it as UTF-8")
    return text, None


def _byte_order(text: str) -> Iterator[Finding]:
    if text.startswith(_BOM):
        message = "the file begins with a UTF-8 byte order mark, which Triton rejects"
        first = text.removeprefix(_BOM).partition("\n")[0]
        yield Finding("RG003", "error", message, "save it as UTF-8 without BOM", line=1, column=1, fix=first)


def _template_syntax(text: str) -> Iterator[Finding]:
    if not _TEMPLATE_SYNTAX.search(text):
        return
    spans = [match for match in TOKEN.finditer(text) if match[0][0] in "\"'#"]  # strings and comments
    starts = [match.start() for match in spans]
    line_start = 0
    for number, line in enumerate(text.split("\n"), 1):
        for match in _TEMPLATE_SYNTAX.finditer(line):
            index = bisect_right(starts, line_start + match.start()) - 1
            inside = spans[index][0][0] if index >= 0 and line_start + match.start() < spans[index].end() else ""
            if inside != "#":
                message = f"{match[0]} is template syntax that was not rendered"
                hint = "render the template first" + ("; in a string it is used literally" if inside else "")
                severity: Severity = "warning" if inside else "error"
                # without a string around it, the file cannot be parsed
                column, security = match.start() + 1, not inside
                yield Finding("RG004", severity, message, hint, line=number, column=column, security=security)
        line_start += len(line) + 1


def _unknown_fields(fields: SourceMap, release: str) -> Iterator[Finding]:
    for (message, name), position in fields.schema_fields.items():
        message_name = message.removeprefix("inference.")
        if not supports_field(release, message_name, name):
            since, until = field_releases(message_name, name)
            supported = f"it was added in {since}" if since > release else f"it was removed after {until}"
            text = f"{name} of {message_name} is unknown to Triton {release}: {supported}"
            hint = f"remove it, or target {since if since > release else until}"
            yield Finding("RG002", "error", text, hint, line=position.line, column=position.column)


def _suppressions(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        for match in _IGNORE.finditer(line):
            own_line = not line[: match.start()].strip()
            target = 0 if match["file"] else number + own_line
            yield from ((target, code) for code in re.split(r"[,\s]+", match["codes"].strip()) if code)

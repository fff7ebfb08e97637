"""config.pbtxt as text: what it is, what it says, and which findings its comments wave through."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from repogen.check.layout import config_kind
from repogen.targets import field_releases, supports_field
from repogen.triton_config.rules.findings import Finding
from repogen.triton_config.text.parse import PbtxtError, parse
from repogen.triton_config.text.source_map import SourceMap, locate_fields, tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from repogen.triton_config.rules.findings import Severity
    from repogen.triton_config.text.parse import ModelConfig

MAX_BYTES = 16 * 2**20
_STRAY = re.compile("[\ud800-\udfff]")  # bytes that are no UTF-8, as surrogateescape leaves them
_BOM = "\N{BYTE ORDER MARK}"
_LEFT_OVER = re.compile(r"\$\{[^}\n]*\}|\{\{.*?\}\}|\{%.*?%\}|<%.*?%>")
_IGNORE = re.compile(r"#\s*repogen:\s*ignore(?P<file>-file)?\[(?P<codes>[A-Z0-9,\s]*)\]")


@dataclass(frozen=True)
class ConfigText:
    """A config.pbtxt that was read.

    Attributes:
        path: It.
        config: What it says; None where it can't be parsed.
        fields: Where each field stands.
        findings: What is wrong with the text itself.
        waved: (line, code prefix) that comments wave through; line 0 for the whole file.
    """

    path: Path
    config: ModelConfig | None = None
    fields: SourceMap = field(default_factory=SourceMap)
    findings: tuple[Finding, ...] = ()
    waved: frozenset[tuple[int, str]] = frozenset()

    def placed(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yield findings about the config at their lines."""
        for finding in findings:
            place = self.fields.position(finding.field)
            yield replace(finding, path=str(self.path), line=place.line, column=place.column)

    def waves(self, finding: Finding) -> bool:
        """Whether a comment waves a finding through."""
        return any(line in {0, finding.line} and finding.code.startswith(code) for line, code in self.waved)


def read_config(path: Path, release: str) -> ConfigText:
    """Read and parse a config.pbtxt.

    Args:
        path: An existing path, of whatever kind.
        release: Triton release whose fields it may have.
    """
    text, wrong = _text(path)
    if wrong is not None:
        return ConfigText(path, findings=(replace(wrong, path=str(path)),))
    waved = frozenset(_waved(text))
    found = [*_byte_order(text), *_left_overs(text)]
    if _STRAY.search(text):
        found.append(Finding("RG005", "warning", "a comment or a string is not UTF-8", "save the file as UTF-8"))
        text = _STRAY.sub("?", text)
    text = text.removeprefix(_BOM)
    try:
        fields = locate_fields(text, path.name)
        config = parse(text, path.name)
    except PbtxtError as error:
        if not any(finding.code == "RG004" and finding.severity == "error" for finding in found):
            message = str(error.message).removeprefix(f"{path.name}:{error.line}:{error.column}: ")
            found.append(Finding("RG001", "error", message, error.hint, line=error.line, column=error.column))
        return ConfigText(path, findings=_in(path, found), waved=waved)
    found += _unknown(fields, release)
    return ConfigText(path, config, fields, _in(path, found), waved)


def _in(path: Path, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(replace(finding, path=str(path)) for finding in findings)


def _text(path: Path) -> tuple[str, Finding | None]:
    kind = config_kind(path)
    if kind:
        return "", Finding("RG005", "error", f"{path.name} {kind}", "make it a file")
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            message = f"{path.name} is larger than {MAX_BYTES // 2**20} MiB"
            return "", Finding("RG005", "error", message, "a config has some kilobytes: is it the right file?")
    except OSError as error:
        return "", Finding("RG005", "error", f"{path.name} cannot be read: {error.strerror}", "make it readable")
    text = content.decode(errors="surrogateescape")
    if any(_STRAY.search(token.text) for token in tokens(text) if token.text[0] not in "\"'"):
        return "", Finding("RG005", "error", f"{path.name} is not UTF-8", "save it as UTF-8")
    return text, None


def _byte_order(text: str) -> Iterator[Finding]:
    if text.startswith(_BOM):
        message = "the file begins with a UTF-8 byte order mark, which Triton refuses"
        first = text.removeprefix(_BOM).partition("\n")[0]
        yield Finding("RG003", "error", message, "save it as UTF-8 without BOM", line=1, column=1, fix=first)


def _left_overs(text: str) -> Iterator[Finding]:
    if not _LEFT_OVER.search(text):
        return
    strings = {token.position.line: token.text for token in tokens(text) if token.text[0] in "\"'"}
    for number, line in enumerate(text.splitlines(), 1):
        code = line.partition("#")[0] if "#" not in strings.get(number, "") else line
        for match in _LEFT_OVER.finditer(code):
            quoted = match[0] in strings.get(number, "")
            message = f"{match[0]} is left of a template"
            hint = "render the template first" + ("; a string takes it as it is" if quoted else "")
            severity: Severity = "warning" if quoted else "error"
            yield Finding("RG004", severity, message, hint, line=number, column=match.start() + 1)


def _unknown(fields: SourceMap, release: str) -> Iterator[Finding]:
    for (message, name), place in fields.schema_fields.items():
        short = message.removeprefix("inference.")
        if not supports_field(release, short, name):
            since, until = field_releases(short, name)
            when = f"it came with {since}" if since > release else f"the last one was {until}"
            text = f"{name} of {short} is unknown to Triton {release}: {when}"
            hint = f"drop it, or target {since if since > release else until}"
            yield Finding("RG002", "error", text, hint, line=place.line, column=place.column)


def _waved(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        for match in _IGNORE.finditer(line):
            alone = not line[: match.start()].strip()
            where = 0 if match["file"] else number + alone
            yield from ((where, code) for code in re.split(r"[,\s]+", match["codes"].strip()) if code)

"""Writes ``triton:`` and ``optimize:`` of a model into the text of a spec; comments, order and quotes stay."""

from __future__ import annotations

import difflib
import os
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from io import StringIO
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError

from repogen.errors import RepogenError, SpecError
from repogen.files import read_bytes
from repogen.files.paths import real_path
from repogen.reporting.text import MAX_COMPARED, equal_ends, unified_diff
from repogen.spec.load import MAX_BYTES, load_spec
from repogen.spec.problems import printable
from repogen.tune.passes_edit import OPTIMIZE, pass_nodes, same_entries, with_key, with_passes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repogen.spec.models import ModelSpec, Spec
    from repogen.triton_config.sections.base import KeyPath
    from repogen.triton_config.sections.model import TritonSpec

_INDENTS = ((2, 4, 2), (2, 2, 0), (4, 6, 4), (4, 4, 0), (4, 6, 2))
"""Indentation of mappings, of lists, and of the dash in a list."""
_WIDTH = 10_000
_SECTION = "triton"
_GROUPS = "instance_group"
_PARAMETERS = "parameters"
_BOM = b"\xef\xbb\xbf"
_REMOVED = object()


@dataclass(frozen=True)
class SpecEdit:
    """A change to a spec.

    Attributes:
        path: The file.
        before: Its bytes when it was read.
        after: Its bytes with the change.
    """

    path: Path
    before: bytes
    after: bytes

    @property
    def diff(self) -> str:
        """The change as a unified diff."""
        name = printable(self.path.name)
        before, after = (content.decode().splitlines() for content in (self.before, self.after))
        return "\n".join(unified_diff(before, after, (f"a/{name}", f"b/{name}"), ""))

    def write(self) -> None:
        """Replace the file atomically.

        Raises:
            SpecError: It was changed since it was read, or can't be written.
        """
        target = real_path(self.path)
        try:
            if read_bytes(target, MAX_BYTES) != self.before:
                raise SpecError(
                    f"{self.path.name} was changed while the model was tuned, so nothing was written",
                    "run the same command again: it repeats only the comparison",
                    code="tune.spec-changed",
                )
            _replace(target, self.after)
        except OSError as error:
            raise SpecError(
                f"{self.path} can't be written: {error.strerror}",
                "the diff in the report shows the change",
                code="tune.write",
            ) from error


def edit_spec(spec: Spec, content: bytes, name: str, changed: ModelSpec) -> SpecEdit:
    """Return the change that gives a model another ``triton:`` section or other passes.

    Args:
        spec: The loaded spec.
        content: Bytes of its file.
        name: The model.
        changed: The model with another ``triton`` or ``optimize``.

    Raises:
        SpecError: The change cannot be written without changing something else, for example because two models share
            the section through an anchor.
    """
    text = content.removeprefix(_BOM).decode()
    prefix = _BOM if content.startswith(_BOM) else b""
    unix = text.replace("\r\n", "\n")
    texts = [unix]
    if changed.optimize != spec.models[name].optimize:
        texts.insert(0, with_passes(unix, name, pass_nodes(changed.passes)))
    for start, keep_layout, keep_removed in product(dict.fromkeys(texts), (True, False), (False, True)):
        with suppress(RepogenError, YAMLError, KeyError, TypeError):
            edited = _edited(start, spec, name, changed, keep_removed=keep_removed)
            new = edited.with_layout if keep_layout else edited.dumped
            after = new.replace("\n", "\r\n") if "\r\n" in text else new
            edit = SpecEdit(spec.path, content, prefix + after.encode())
            if _changes_only(spec, edit, name, changed):
                return edit
    raise SpecError(
        f"the settings can't be written into {spec.path.name} without changing other parts of it",
        "an anchor may share the section with another model; copy the settings from the report by hand",
        code="tune.edit",
    )


def _plain(triton: TritonSpec) -> dict[str, Any]:
    return triton.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _edits(before: Mapping[str, Any], after: Mapping[str, Any], path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """Yield the key path and the new value of each difference."""
    for key in (*before, *(key for key in after if key not in before)):
        old, new = before.get(key, _REMOVED), after.get(key, _REMOVED)
        if key == _PARAMETERS:
            old, new = before.get(key, {}), after.get(key, {})  # merged by key with those of ``defaults``
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _edits(old, new, (*path, key))
        elif _is_group(old) and _is_group(new):
            yield from _edits(old[0], new[0], (*path, key, 0))
        elif old != new:
            yield (*path, key), new


def _is_group(value: object) -> bool:
    return isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict)


@dataclass(frozen=True)
class _Edited:
    """A text that was edited.

    Attributes:
        original: The text.
        normal: The text as ruamel.yaml writes it, without a change.
        dumped: The same with the change.
    """

    original: str
    normal: str
    dumped: str

    @property
    def with_layout(self) -> str:
        """The original text with the lines that the change replaces; those around them keep their layout."""
        original, normal, dumped = (
            text.splitlines(keepends=True) for text in (self.original, self.normal, self.dumped)
        )
        if len(original) != len(normal):
            return self.dumped
        first, same = equal_ends(normal, dumped)
        changed = [lines[first : len(lines) - same] for lines in (original, normal, dumped)]
        if max(map(len, changed)) > MAX_COMPARED:
            return self.dumped
        old, before, after = changed
        lines = original[:first]
        for tag, start, end, new_start, new_end in difflib.SequenceMatcher(
            None, before, after, autojunk=False
        ).get_opcodes():
            lines += old[start:end] if tag == "equal" else after[new_start:new_end]
        return "".join([*lines, *original[len(original) - same :]])


def _edited(text: str, spec: Spec, name: str, changed: ModelSpec, *, keep_removed: bool) -> _Edited:
    """Return the text with the change.

    Args:
        text: The text of the spec.
        spec: The loaded spec.
        name: The model.
        changed: The model with the change.
        keep_removed: Write the default value of what the section no longer sets, because ``defaults`` sets it.
    """
    yaml = _yaml_like(text)
    normal, document = _dumped(yaml, yaml.load(text)), yaml.load(text)
    model, original = document["models"][name], spec.models[name]
    if changed.optimize != original.optimize:
        nodes = pass_nodes(changed.passes)
        if not same_entries(model.get(OPTIMIZE), nodes):
            model[OPTIMIZE] = _flow(nodes)
    before, after = _plain(original.triton), _plain(changed.triton)
    explicit = changed.triton.model_dump(mode="json", by_alias=True)
    edits = list(_edits(before, after, ()))
    is_new = bool(edits) and _SECTION not in model
    if edits and model.get(_SECTION) is None:
        model[_SECTION] = CommentedMap()
    for path, value in edits:
        if _GROUPS in path and model[_SECTION].get(_GROUPS) is None:  # lists of ``defaults`` are not merged
            model[_SECTION][_GROUPS] = _flow(after[_GROUPS])
        else:
            _apply(model[_SECTION], path, value, _value_at(explicit, path), keep_removed=keep_removed)
    if edits and model[_SECTION].get(_PARAMETERS) == {}:
        del model[_SECTION][_PARAMETERS]
    dumped = _dumped(yaml, document)
    return _Edited(text, normal, _with_new_section(yaml, document, name, dumped) if is_new else dumped)


def _with_new_section(yaml: YAML, document: Any, name: str, dumped: str) -> str:  # noqa: ANN401 - a node of YAML
    """Return the text with the new section of a model before the comments that follow the model's other keys."""
    section = document["models"][name].pop(_SECTION)
    without = _dumped(yaml, document)
    changed = with_key(without, name, _dumped(yaml, {_SECTION: section}))
    return dumped if changed == without else changed


def _yaml_like(text: str) -> YAML:
    """Return a YAML whose layout changes the text the least."""

    def changed_lines(yaml: YAML) -> int:
        # a diff would need minutes for a long file in which every line differs
        before, after = Counter(text.splitlines()), Counter(_dumped(yaml, yaml.load(text)).splitlines())
        return ((before - after) + (after - before)).total()

    variants = []
    for mapping, sequence, offset in _INDENTS:
        yaml = YAML()
        yaml.preserve_quotes = True
        yaml.width = _WIDTH
        yaml.indent(mapping=mapping, sequence=sequence, offset=offset)
        variants.append(yaml)
    return min(variants, key=changed_lines)


def _dumped(yaml: YAML, document: object) -> str:
    stream = StringIO()
    yaml.dump(document, stream)
    return stream.getvalue()


def _apply(section: Any, path: KeyPath, value: Any, default: Any, *, keep_removed: bool) -> None:  # noqa: ANN401
    """Set a value; remove a key whose value is no longer set, or write its default."""
    node = section
    for key in path[:-1]:
        if not isinstance(key, int) and node.get(key) is None:
            node[key] = CommentedMap()
        node = node[key]
    if value is not _REMOVED:
        node[path[-1]] = _flow(value)
    elif keep_removed or (path[-1] in node and isinstance(default, (int, str)) and _PARAMETERS not in path):
        node[path[-1]] = default
    else:
        node.pop(path[-1], None)


def _flow(value: Any) -> Any:  # noqa: ANN401 - nodes of YAML
    """Return a value that is written on one line."""
    yaml = YAML()
    yaml.default_flow_style = True
    stream = StringIO()
    yaml.dump({"value": value}, stream)
    return YAML().load(stream.getvalue())["value"]


def _value_at(values: Any, path: KeyPath) -> Any:  # noqa: ANN401 - JSON
    """Return a value; 0, which is the default of a parameter of the backend, if there is none."""
    for key in path:
        try:
            values = values[key]
        except (KeyError, IndexError, TypeError):
            return 0
    return values


def _changes_only(spec: Spec, edit: SpecEdit, name: str, changed: ModelSpec) -> bool:
    """Return whether the new text is the spec with this change.

    Raises:
        RepogenError: It is not a spec.
    """
    after = load_spec(edit.path, spec.release, content=edit.after)
    loaded = after.models[name].triton
    # 0 is the default of the parameters that are tuned
    sections = [
        each.model_copy(update={"parameters": {key: value for key, value in each.parameters.items() if value != 0}})
        for each in (loaded, changed.triton)
    ]
    models = {**spec.models, name: changed.model_copy(update={"triton": loaded})}
    without = {"models": {}, "locations": {}, "display_path": "", "notes": ()}
    same_file = replace(after, **without) == replace(spec, **without)  # type: ignore[arg-type] # fields of several types
    return same_file and after.models == models and _plain(sections[0]) == _plain(sections[1])


def _replace(path: Path, content: bytes) -> None:
    mode = path.stat().st_mode
    number, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(number)
            os.fchmod(number, mode & 0o7777)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise

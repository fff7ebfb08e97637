"""Writes ``optimize:``, or a new key, of a model into the text of a spec, line by line.

ruamel.yaml attaches a comment to the value before it: it would remove the comment of the next key together with the
last entry of a list, and write a new key after the comment of the next one.
"""

from __future__ import annotations

import difflib
import json
from io import StringIO
from textwrap import indent
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedSeq
from ruamel.yaml.error import YAMLError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from repogen.spec.models import PassSpec

OPTIMIZE = "optimize"
_BEFORE = frozenset({"description", "source", "inputs", "examples", "outputs", "dims", "export"})
"""The keys of a model after which a new ``optimize:`` is written."""
_WIDTH = 10_000


def pass_nodes(passes: Iterable[PassSpec]) -> list[object]:
    """Return the entries of ``optimize:`` as values of YAML."""
    return [_node(each) for each in passes]


def same_entries(entries: object, nodes: Sequence[object]) -> bool:
    """Return whether the value of ``optimize:`` has these entries."""
    return isinstance(entries, CommentedSeq) and _texts(entries) == _texts(nodes)


def with_passes(text: str, name: str, nodes: Sequence[object]) -> str:
    """Return the text of a spec in which a model has these passes.

    A new key gets a line of its own; of a list with one entry per line, only entries that differ are replaced. The text
    is returned unchanged if the model is not written in lines, or if its passes are written in another form.
    """
    try:
        model = YAML().load(text)["models"][name]
        if OPTIMIZE in model:
            return _with_entries(text, model, nodes)
    except (YAMLError, LookupError, TypeError, AttributeError, ValueError):
        return text
    return with_key(text, name, f"{OPTIMIZE}: {_flow_text(nodes)}\n", after=_BEFORE)


def with_key(text: str, name: str, content: str, after: Collection[str] | None = None) -> str:
    """Return the text of a spec in which a model has another key.

    The text is returned unchanged if the model is not written in lines.

    Args:
        text: The text.
        name: The model.
        content: The lines of the key and its value, without indentation.
        after: Keys after the last of which it is written; None for all keys. Comments after that key are those of what
            follows.
    """
    try:
        model = YAML().load(text)["models"][name]
        line, column = max(tuple(model.lc.key(key)) for key in model.lc.data if after is None or key in after)
        if model.fa.flow_style():
            return text
    except (YAMLError, LookupError, TypeError, AttributeError, ValueError):
        return text
    lines = text.split("\n")
    end = _end(lines, line, column)
    return "\n".join([*lines[:end], *indent(content.rstrip("\n"), " " * column).split("\n"), *lines[end:]])


def _with_entries(text: str, model: Any, nodes: Sequence[object]) -> str:  # noqa: ANN401 - a node of YAML
    entries = model[OPTIMIZE]
    if not isinstance(entries, CommentedSeq) or entries.fa.flow_style() or not entries:
        return text
    lines = text.split("\n")
    starts = [entries.lc.item(index)[0] for index in range(len(entries))]
    dash = len(lines[starts[0]]) - len(lines[starts[0]].lstrip(" "))
    if any(not lines[start].startswith(f"{' ' * dash}- ") for start in starts):
        return text
    ends = [_end(lines, start, dash, entry=True) for start in starts]
    changes = difflib.SequenceMatcher(None, _texts(entries), _texts(nodes), autojunk=False).get_opcodes()
    for tag, start, end, new_start, new_end in reversed(changes):
        if tag != "equal":
            place = starts[start] if start < len(starts) else ends[-1]
            for index in reversed(range(start, end)):
                del lines[starts[index] : ends[index]]
            lines[place:place] = [f"{' ' * dash}- {_flow_text(node)}" for node in nodes[new_start:new_end]]
    if not nodes:
        line, column = model.lc.key(OPTIMIZE)
        after = column + len(OPTIMIZE) + 1
        lines[line] = f"{lines[line][:after]} []{lines[line][after:]}"
    return "\n".join(lines)


def _end(lines: Sequence[str], line: int, column: int, *, entry: bool = False) -> int:
    """Return the line after the last one of a key or of an entry; comments and blank lines after it are not part of it.

    Args:
        lines: The text.
        line: Its first line.
        column: Its indentation.
        entry: Whether it is an entry; the entries of a list may have the indentation of its key.
    """
    end = line + 1
    for number in range(line + 1, len(lines)):
        content = lines[number].lstrip(" ")
        if not content or content.startswith("#"):
            continue
        if len(lines[number]) - len(content) <= column and (entry or not content.startswith("- ")):
            break
        end = number + 1
    return end


def _node(entry: PassSpec) -> object:
    values: dict[str, object] = {"name": entry.name}
    if entry.options:
        values["options"] = entry.options
    if entry.gain is not None:
        values["gain"] = entry.gain
    return values if len(values) > 1 else entry.name


def _texts(nodes: Iterable[object]) -> list[str]:
    return [json.dumps(each, sort_keys=True) for each in nodes]


def _flow_text(value: object) -> str:
    """Return a value on one line.

    >>> _flow_text(["onnxsim", {"name": "ort-fusions", "gain": False}])
    '[onnxsim, {name: ort-fusions, gain: false}]'
    """
    yaml = YAML()
    yaml.default_flow_style = True
    yaml.width = _WIDTH
    stream = StringIO()
    yaml.dump({"value": value}, stream)
    return stream.getvalue().strip().removeprefix("{value: ").removesuffix("}")

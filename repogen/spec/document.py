"""YAML text to a tree of nodes with their positions, built from parser events within limits.

PyYAML's own composer recurses, expands aliases without a limit, accepts duplicate keys and discards positions. This
one reads the event stream once, with its own stack. An aliased node is built once; its expanded size and height are
counted, so that nested aliases reach a limit before memory runs out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import yaml

from repogen.spec.models import Location
from repogen.spec.problems import Problem, message_text, printable, value_text
from repogen.spec.scalars import CORE_TAGS, Scalar, ScalarError, resolve_plain, resolve_tagged, short_tag
from repogen.triton_config.sections.base import key_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.triton_config.sections.base import KeyPath

MAX_NODES = 20_000
MAX_DEPTH = 32
_MERGE = "<<"

# libyaml if PyYAML was built with it: ten times faster, with the same events and marks.
_Loader: type[yaml.SafeLoader | yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Entry:
    """An entry of a mapping: position of its key, its value, and whether it comes from ``defaults``."""

    position: Location
    node: Node
    inherited: bool = False


Mapping: TypeAlias = dict[str, Entry]


@dataclass(frozen=True)
class Rejected:
    """Replaces a rejected value, so that the rest of the file is still checked."""


@dataclass(frozen=True)
class Node:
    """A value and its position.

    Attributes:
        position: Position of its first character.
        value: A scalar, a list of nodes, or entries by key.
        size: Number of nodes with every alias expanded.
        height: Levels of nesting, including its own.
    """

    position: Location
    value: Scalar | Rejected | list[Node] | Mapping
    size: int = 1
    height: int = 1


class UnreadableError(Exception):
    """The text can't be read any further, because of ``problem``."""

    def __init__(self, problem: Problem) -> None:
        """Store the problem."""
        super().__init__(str(problem))
        self.problem = problem


class _Frame:
    """A list or mapping that is not closed yet."""

    def __init__(self, position: Location, anchor: str | None, value: list[Node] | Mapping, *, rejected: bool) -> None:
        self.position = position
        self.anchor = anchor
        self.value = value
        self.rejected = rejected
        self.size = 1
        self.height = 1
        self.key: str | None = None
        self.key_position = position
        self.skip = False

    @property
    def expects_key(self) -> bool:
        return isinstance(self.value, dict) and self.key is None

    @property
    def path_part(self) -> str | int:
        return len(self.value) if isinstance(self.value, list) else self.key or "?"

    def add(self, node: Node) -> None:
        self.size += node.size
        self.height = max(self.height, node.height + 1)
        if isinstance(self.value, list):
            self.value.append(node)
            return
        if not self.skip:
            self.value[self.key or "?"] = Entry(self.key_position, node)
        self.key, self.skip = None, False


class _Composer:
    """Builds a tree from events; collects ``problems`` that it can skip, and raises UnreadableError for others."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.root: Node | None = None
        self._stack: list[_Frame] = []
        self._anchors: dict[str, Node] = {}
        self._nodes = 0

    def feed(self, event: yaml.Event) -> None:
        """Process one event."""
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._open(event)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._close()
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            raise self._fatal(event, "a second document starts here", "a spec is one document; remove the ---")

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        position = _position(event)
        is_plain = event.implicit[0] and not event.style
        if self._stack and self._stack[-1].expects_key:
            self._open_key(event.value, is_plain, event.tag, position)
            return
        value: Scalar | Rejected
        try:
            if event.tag not in {None, "!"}:
                value = resolve_tagged(event.value, str(event.tag))
            else:
                value = resolve_plain(event.value) if is_plain else event.value
        except ScalarError as error:
            self._note(position, error.what, error.hint)
            value = Rejected()
        self._attach(Node(position, value), event.anchor)

    def _open_key(self, text: str, is_plain: bool, tag: str | None, position: Location) -> None:  # noqa: FBT001 - a parsed fact
        frame = self._stack[-1]
        frame.key, frame.key_position = text, position
        if isinstance(frame.value, dict) and text in frame.value:
            first = frame.value[text].position
            frame.skip = True
            self._note(position, f"duplicate key, first on line {first.line}", "keep one of the two")
        reason, hint = _key_problem(text, is_plain, tag)
        if reason:
            frame.skip = frame.skip or text == _MERGE
            self._note(position, reason, hint)

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        position = _position(event)
        if len(self._stack) >= MAX_DEPTH:
            raise self._fatal(event, f"is nested deeper than {MAX_DEPTH} levels")
        tag = str(event.tag or "!")
        rejected = tag != "!" and CORE_TAGS.get(tag) not in {"seq", "map"}
        if rejected:
            what = f"the tag {printable(short_tag(tag))} is not allowed"
            self._note(position, what, "a spec contains plain data only; remove the tag")
        container: list[Node] | Mapping = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._stack.append(_Frame(position, event.anchor, container, rejected=rejected))

    def _close(self) -> None:
        frame = self._stack.pop()
        value = Rejected() if frame.rejected else frame.value
        self._attach(Node(frame.position, value, frame.size, frame.height), frame.anchor)

    def _alias(self, event: yaml.AliasEvent) -> None:
        node = self._anchors.get(str(event.anchor))
        if node is None:
            name = printable(str(event.anchor))
            raise self._fatal(event, f"the alias *{name} refers to an anchor that is not defined before it")
        if node.height + len(self._stack) > MAX_DEPTH:
            raise self._fatal(event, f"its aliases nest deeper than {MAX_DEPTH} levels")
        self._count(event, node.size)
        self._attach(node, None, from_alias=True)

    def _attach(self, node: Node, anchor: str | None, *, from_alias: bool = False) -> None:
        if not from_alias:
            self._count(node.position, 1)
        if anchor is not None:
            self._anchors[anchor] = node
        if not self._stack:
            self.root = node
            return
        frame = self._stack[-1]
        if frame.expects_key:
            what = "an alias as a key" if from_alias else f"{value_text(_shape(node))} as a key"
            self._note(node.position, f"{what} is not allowed", "keys are strings")
            frame.key, frame.key_position = "?", node.position
            frame.skip = True
        else:
            frame.add(node)

    def _count(self, at: yaml.Event | Location, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            what = f"the file has more than {MAX_NODES} values after aliases are expanded"
            raise self._fatal(at, what, "split the spec, or use fewer aliases")

    def _path(self) -> KeyPath:
        return tuple(frame.path_part for frame in self._stack)

    def _note(self, position: Location, what: str, hint: str = "") -> None:
        path = message_text(key_text(self._path()))
        problem = Problem(self.file, *position, path, message_text(what), message_text(hint))
        self.problems.append(problem)

    def _fatal(self, at: yaml.Event | Location, what: str, hint: str = "") -> UnreadableError:
        position = at if isinstance(at, Location) else _position(at)
        path = message_text(key_text(self._path()))
        return UnreadableError(Problem(self.file, *position, path, what, hint))


def compose(text: str, file: str) -> tuple[Node | None, list[Problem]]:
    """Read ``text`` up to the first syntax error or exceeded limit, which is the last problem.

    Args:
        text: YAML.
        file: Name of the file in problems.

    Returns:
        The tree of the document, or None if it is missing or incomplete; and all problems.
    """
    composer = _Composer(file)
    try:
        for event in _events(text, file):
            composer.feed(event)
    except UnreadableError as error:
        composer.problems.append(error.problem)
        return None, composer.problems
    return composer.root, composer.problems


def data(node: Node) -> object:
    """Return the tree as plain dicts, lists and scalars; rejected values stay ``Rejected``."""
    value = node.value
    if isinstance(value, dict):
        return {key: data(entry.node) for key, entry in value.items()}
    if isinstance(value, list):
        return [data(item) for item in value]
    return value


def _events(text: str, file: str) -> Iterator[yaml.Event]:
    try:
        yield from yaml.parse(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        what = printable(f"is not valid YAML: {error.problem or error.context}")
        line_text = text.splitlines()[mark.line] if mark and mark.line < len(text.splitlines()) else ""
        has_tab = "\t" in line_text[: len(line_text) - len(line_text.lstrip())]
        hint = "indent with spaces: YAML does not allow tabs" if has_tab else ""
        raise UnreadableError(Problem(file, line, column, "", what, hint)) from error
    except yaml.YAMLError as error:
        what = printable(f"is not valid YAML: {' '.join(str(error).split())}")
        raise UnreadableError(Problem(file, 0, 0, "", what)) from error


def _key_problem(text: str, is_plain: bool, tag: str | None) -> tuple[str, str]:  # noqa: FBT001 - a parsed fact
    """Return why a key is rejected, and a hint; both empty for a valid key."""
    if tag not in {None, "!", "tag:yaml.org,2002:str"}:
        return f"the tag {printable(short_tag(str(tag)))} on a key is not allowed", "keys are strings"
    if not is_plain or tag == "tag:yaml.org,2002:str":
        return "", ""
    if text == _MERGE:
        return "merge keys are not allowed", "put settings that models share under defaults:"
    try:
        value = resolve_plain(text)
    except ScalarError as error:
        reason = error.what if text in error.what else f"{text} {error.what}"
        return f"a key must be a string, but {reason}", _quote_hint(text)
    if isinstance(value, str):
        return "", ""
    key = printable(text) or "nothing"
    return f"a key must be a string, but YAML reads {key} as {value_text(value)}", _quote_hint(text)


def _quote_hint(text: str) -> str:
    return f'quote it: "{printable(text)}"'


def _shape(node: Node) -> object:
    return {} if isinstance(node.value, dict) else [] if isinstance(node.value, list) else node.value


def _position(event: yaml.Event) -> Location:
    mark = event.start_mark
    return Location(mark.line + 1, mark.column + 1) if mark else Location(1, 1)

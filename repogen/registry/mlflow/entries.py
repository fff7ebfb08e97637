"""Registered versions and alias moves, as they are stored in MLflow's tags."""

from __future__ import annotations

import json
import math
import re
import secrets
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from repogen.artifacts.registry import AliasMove, EntryState, RegistryEntry
from repogen.errors import TrackingError
from repogen.files.content import ContentError, require_few_values

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.artifacts.report import ModelReport
    from repogen.artifacts.versions import StagedVersion
    from repogen.registry.mlflow.library import ModelVersion

STATE = "repogen.state"
CONTENT = "repogen.content_sha256"
SHA256 = "repogen.sha256"
TRITON_VERSION = "repogen.triton.version"
REPOSITORY = "repogen.repository"
TARGET = "repogen.target"
PARITY = "repogen.parity.max_abs_diff"
LOSSY = "repogen.lossy"
SMOKE = "repogen.smoke"
STEPS = "repogen.steps"

_MOVE = "repogen.move."
_STEPS_SEPARATOR = ", "
# Source: mlflow.utils.validation.MAX_MODEL_REGISTRY_TAG_VALUE_LENGTH is 100,000 in MLflow 3, 5,000 in MLflow 2.
_MAX_FIGURES = 4000
"""Characters of the figures that are stored; a move has fewer values."""
_NOT_DONE = "(not confirmed)"
_BULLET = "\N{BULLET} "  # MLflow's page shows line breaks as spaces
_HEAD = re.compile(
    r"(?P<alias>[\w-]+): (?:none|version (?P<old>\d+)) -> (?P<new>\d+), (?P<why>\w+) by (?P<by>.*) at (?P<at>\S+?)"
    rf"(?:, with (?P<ensemble>\S+ \d+))?(?P<pending> {re.escape(_NOT_DONE)})?"
)
_PLAIN_NAME = re.compile(r"[\w.\[\]/-]+")
_FIGURE = re.compile(r'(?P<name>[\w.\[\]/-]+|"(?:[^"\\]|\\.)*")(?: = (?P<value>\S+))?: (?P<text>.*)')
_MAX_DIGITS = 19  # of a 64-bit version number; Python reads no number of more than 4300 digits


@dataclass(frozen=True, kw_only=True)
class _RecordedMove(AliasMove):
    """An alias move in a tag of a development build of repogen 0.1.

    Attributes:
        done: False between the moment before the alias is moved and the moment after.
    """

    done: bool


_RECORDED_MOVE = TypeAdapter(_RecordedMove)


def pending_tags(staged: StagedVersion, report: ModelReport, repository: Path) -> dict[str, str]:
    """Return the tags of a version that is not published yet."""
    smoke, steps = report.smoke, staged.manifest.provenance.steps
    return {
        STATE: EntryState.PENDING.value,
        CONTENT: staged.manifest.content_sha256,
        SHA256: staged.manifest.sha256,
        REPOSITORY: tag_text(str(repository.resolve())),
        TARGET: staged.manifest.provenance.target,
        PARITY: f"{report.max_abs_diff:.3g}",
        **({} if report.lossy is None else {LOSSY: str(report.lossy)}),
        **({STEPS: _STEPS_SEPARATOR.join(steps)} if steps else {}),
        SMOKE: "not run" if smoke is None else f"passed on Triton {smoke.server_version} ({smoke.server})",
    }


def tag_text(text: str) -> str:
    """Return text for a tag, which must be UTF-8: other bytes of a name are written as escapes."""
    return text.encode(errors="backslashreplace").decode()


def entry_of(version: ModelVersion, aliases: tuple[str, ...]) -> RegistryEntry:
    """Return a registered version; one without repogen's tags is foreign."""
    tags = {str(key): str(value) for key, value in version.tags.items()}
    states = {state.value: state for state in EntryState}
    number = tags.get(TRITON_VERSION, "")
    return RegistryEntry(
        name=str(version.name),
        version=version_number(version.version, str(version.name)),
        state=states.get(tags.get(STATE, ""), EntryState.FOREIGN),
        content=tags.get(CONTENT, ""),
        sha256=tags.get(SHA256, ""),
        triton_version=int(number) if _is_number(number) else None,
        repository=tags.get(REPOSITORY, ""),
        target=tags.get(TARGET, ""),
        tags=tags,
        aliases=aliases,
        steps=tuple(tags[STEPS].split(_STEPS_SEPARATOR)) if tags.get(STEPS) else (),
    )


def version_number(version: object, name: str) -> int:
    """Return the number of a registered version.

    Raises:
        TrackingError: It is not a number. The model is not treated as one without versions or without its alias,
            because a sync would remove it.
    """
    if not _is_number(str(version)):
        raise TrackingError(f"the registry has a version {str(version)!r:.60} of {name}, which is not a number")
    return int(str(version))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def move_key(move: AliasMove) -> str:
    """Return the key of a new tag for a move; keys are in order of time, and no two promotions get the same one."""
    # Source of the characters that a key may contain: mlflow.utils.validation.
    return re.sub(r"[^A-Za-z0-9_.-]", "-", f"{_MOVE}{move.alias}.{move.at}.{secrets.token_hex(3)}")


def move_value(move: AliasMove, *, done: bool) -> str:
    """Return a move as the text of a tag, which people read on MLflow's page and ``moves_of`` parses.

    >>> print(move_value(AliasMove("champion", 1, 2, "ann", "2026-01-01T12:00:00+00:00", "promote",
    ...     {"smoke": "18/18 checks [all]", "size.max_mb": "1.2 MB"}, {"size.max_mb": 1.25}), done=True))
    champion: version 1 -> 2, promote by ann at 2026-01-01T12:00:00+00:00
    • smoke: 18/18 checks [all]
    • size.max_mb = 1.25: 1.2 MB

    Args:
        move: The move.
        done: Whether the alias was moved; false right before it is moved.
    """
    old = "none" if move.old is None else f"version {move.old}"
    head = f"{move.alias}: {old} -> {move.new}, {move.why} by {_one_line(move.by)} at {move.at}"
    head += f", with {move.ensemble}" if move.ensemble else ""
    lines = [_figure_line(name, move.figures.get(name, ""), move.values.get(name)) for name in _figure_names(move)]
    if sum(map(len, lines)) > _MAX_FIGURES:
        lines = ["figures: too many to store"]
    return "\n".join([head if done else f"{head} {_NOT_DONE}", *lines])


def _figure_names(move: AliasMove) -> list[str]:
    return list({**move.figures, **move.values})


def _figure_line(name: str, text: str, value: float | None) -> str:
    key = name if _PLAIN_NAME.fullmatch(name) else json.dumps(name)
    number = "" if value is None else f" = {value!r}"
    return f"{_BULLET}{key}{number}: {_one_line(text)}"


def _one_line(text: str) -> str:
    return tag_text(" ".join(text.split()))


def moves_of(tags: Mapping[str, str], current: Mapping[str, int]) -> list[AliasMove]:
    """Return the moves in the tags of a registered model, oldest first.

    A promotion that was killed before it was recorded as done counts if the alias points to its new version.

    Args:
        tags: Tags of the registered model.
        current: Alias -> version that it points to now.
    """
    moves = []
    for key in sorted(key for key in tags if key.startswith(_MOVE)):
        recorded = _parse_text(tags[key]) or _parse_json(tags[key])
        if recorded is None:
            continue  # not written by repogen
        move, done = recorded
        if done or current.get(move.alias) == move.new:
            moves.append(move)
    return sorted(moves, key=lambda move: move.at)


def _parse_text(text: str) -> tuple[AliasMove, bool] | None:
    """Return a move that ``move_value`` wrote, and whether it was done; None for other text."""
    head, *lines = text.split("\n")
    match = _HEAD.fullmatch(head)
    if match is None or not _is_number(match["new"]) or not _is_number(match["old"] or "0"):
        return None
    figures, values = dict[str, str](), dict[str, float]()
    for line in lines:
        figure = _FIGURE.fullmatch(line.removeprefix(_BULLET))
        if figure is None:
            continue
        name = _figure_name(figure["name"])
        if figure["text"]:
            figures[name] = figure["text"]
        value = _number(figure["value"])
        if value is not None:
            values[name] = value
    old = None if match["old"] is None else int(match["old"])
    move = AliasMove(
        match["alias"], old, int(match["new"]), match["by"], match["at"], match["why"], figures, values,
        match["ensemble"] or "",
    )  # fmt: skip
    return move, match["pending"] is None


def _number(text: str | None) -> float | None:
    try:
        value = math.nan if text is None else float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _figure_name(text: str) -> str:
    try:
        return str(json.loads(text)) if text.startswith('"') else text
    except ValueError:
        return text


def _parse_json(text: str) -> tuple[AliasMove, bool] | None:
    """Return a move as development builds of repogen 0.1 recorded it."""
    try:
        require_few_values(text, _MAX_FIGURES)
        fields = asdict(_RECORDED_MOVE.validate_json(text))
    except (ContentError, ValidationError):
        return None
    done = bool(fields.pop("done"))
    return AliasMove(**fields), done

"""Registered versions and alias moves, as they are stored in MLflow's tags."""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from repogen.artifacts.registry import AliasMove, EntryState, RegistryEntry
from repogen.errors import TrackingError

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

_MOVE = "repogen.move."
# Source: mlflow.utils.validation.MAX_MODEL_REGISTRY_TAG_VALUE_LENGTH is 100,000 in MLflow 3, 5,000 in MLflow 2.
_MAX_FIGURES = 4000
_MAX_DIGITS = 19  # of a 64-bit version number; Python reads no number of more than 4300 digits


@dataclass(frozen=True, kw_only=True)
class _RecordedMove(AliasMove):
    """An alias move in a tag.

    Attributes:
        done: False between the moment before the alias is moved and the moment after.
    """

    done: bool


_RECORDED_MOVE = TypeAdapter(_RecordedMove)


def pending_tags(staged: StagedVersion, report: ModelReport, repository: Path) -> dict[str, str]:
    """Return the tags of a version that is not published yet."""
    smoke = report.smoke
    return {
        STATE: EntryState.PENDING.value,
        CONTENT: staged.manifest.content_sha256,
        SHA256: staged.manifest.sha256,
        REPOSITORY: str(repository.resolve()),
        TARGET: staged.manifest.provenance.target,
        PARITY: f"{report.max_abs_diff:.3g}",
        **({} if report.lossy is None else {LOSSY: str(report.lossy)}),
        SMOKE: "not run" if smoke is None else f"passed on Triton {smoke.server_version} ({smoke.server})",
    }


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
    """Return a move as the value of a tag."""
    if len(json.dumps([move.figures, move.values])) > _MAX_FIGURES:
        move = replace(move, figures={"": "too many to store"}, values={})
    return _RECORDED_MOVE.dump_json(_RecordedMove(**asdict(move), done=done)).decode()


def moves_of(tags: Mapping[str, str], current: Mapping[str, int]) -> list[AliasMove]:
    """Return the moves in the tags of a registered model, oldest first.

    A promotion that was killed before it was recorded as done counts if the alias points to its new version.

    Args:
        tags: Tags of the registered model.
        current: Alias -> version that it points to now.
    """
    moves = []
    for key in sorted(key for key in tags if key.startswith(_MOVE)):
        try:
            recorded = _RECORDED_MOVE.validate_json(tags[key])
        except ValidationError:
            continue  # not written by repogen
        fields = asdict(recorded)
        if fields.pop("done") or current.get(recorded.alias) == recorded.new:
            moves.append(AliasMove(**fields))
    return sorted(moves, key=lambda move: move.at)

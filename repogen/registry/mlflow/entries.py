"""Registered versions and alias moves as MLflow's tags hold them."""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import asdict
from typing import TYPE_CHECKING

from repogen.artifacts.registry import AliasMove, EntryState, RegistryEntry

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mlflow.entities.model_registry import ModelVersion

    from repogen.artifacts.report import ModelReport
    from repogen.artifacts.versions import StagedVersion

STATE = "repogen.state"
CONTENT = "repogen.content_sha256"
SHA256 = "repogen.sha256"
TRITON_VERSION = "repogen.triton.version"
REPOSITORY = "repogen.repository"
TARGET = "repogen.target"
PARITY = "repogen.parity.max_abs_diff"
SMOKE = "repogen.smoke"

_MOVE = "repogen.move."
# Source: mlflow.utils.validation.MAX_MODEL_REGISTRY_TAG_VALUE_LENGTH is 100,000 in MLflow 3, 5,000 in MLflow 2.
_MOST_FIGURES = 4000


def pending_tags(staged: StagedVersion, report: ModelReport, repository: Path) -> dict[str, str]:
    """Return what is known of a version before it is published."""
    smoke = report.smoke
    return {
        STATE: EntryState.PENDING.value,
        CONTENT: staged.manifest.content_sha256,
        SHA256: staged.manifest.sha256,
        REPOSITORY: str(repository.resolve()),
        TARGET: staged.manifest.provenance.target,
        PARITY: f"{report.max_abs_diff:.3g}",
        SMOKE: "not run" if smoke is None else f"passed on Triton {smoke.server_version} ({smoke.server})",
    }


def entry_of(version: ModelVersion, aliases: tuple[str, ...]) -> RegistryEntry:
    """Return a registered version; one whose tags are not repogen's is foreign."""
    tags = {str(key): str(value) for key, value in version.tags.items()}
    known = {state.value: state for state in EntryState}
    number = tags.get(TRITON_VERSION, "")
    return RegistryEntry(
        name=str(version.name),
        version=int(version.version),
        state=known.get(tags.get(STATE, ""), EntryState.FOREIGN),
        content=tags.get(CONTENT, ""),
        sha256=tags.get(SHA256, ""),
        triton_version=int(number) if number.isascii() and number.isdigit() else None,
        repository=tags.get(REPOSITORY, ""),
        target=tags.get(TARGET, ""),
        tags=tags,
        aliases=aliases,
    )


def move_key(move: AliasMove) -> str:
    """Return a tag's key for a move: in the order of time, and never that of another promotion."""
    # Source of what a key may hold: mlflow.utils.validation.
    return re.sub(r"[^A-Za-z0-9_.-]", "-", f"{_MOVE}{move.alias}.{move.at}.{secrets.token_hex(3)}")


def move_value(move: AliasMove, *, done: bool) -> str:
    """Return a move as a tag's value."""
    fields = asdict(move) | {"done": done}
    if len(json.dumps(fields["figures"])) > _MOST_FIGURES:
        fields["figures"] = {"": "too many to keep"}
    return json.dumps(fields, sort_keys=True)


def moves_of(tags: Mapping[str, str], current: Mapping[str, int]) -> list[AliasMove]:
    """Return the moves that a registered model's tags hold, oldest first.

    A promotion that was killed between its note and its end counts when the alias points to where it was to go.

    Args:
        tags: The registered model's.
        current: Alias -> version it points to now.
    """
    moves = []
    for key in sorted(key for key in tags if key.startswith(_MOVE)):
        try:
            fields = json.loads(tags[key])
            done = fields.pop("done")
            move = AliasMove(**fields)
        except (ValueError, TypeError, KeyError, AttributeError):
            continue  # somebody's own tag
        if done or current.get(move.alias) == move.new:
            moves.append(move)
    return sorted(moves, key=lambda move: move.at)

"""Whether repogen wrote a model's config.pbtxt, and which version it was written for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from repogen.errors import ConfigError
from repogen.repository.hold import held_version, hold_text
from repogen.repository.layout import config_bytes, versions
from repogen.repository.version_policy import policy_text, serving_only

if TYPE_CHECKING:
    from pathlib import Path


def origin_of_config(model: Path) -> int | None:
    """Return the newest version whose config.pbtxt the model's is; None if it was edited, or there is none.

    It is the version's own text as a build publishes it, the text with the policy that a sync writes, or the text of a
    hold.

    Args:
        model: The model's directory.

    Raises:
        MalformedRecordError: A config.pbtxt is larger than 1 MiB.
        OSError: A config.pbtxt can't be read.
    """
    config = config_bytes(model)
    if config is None:
        return None
    held = held_version(config)
    if held is not None:
        return held if config == _changed(model, held, held=True) else None
    numbers = list(reversed(versions(model)))
    own = next((number for number in numbers if config == config_bytes(model / str(number))), None)
    if own is not None:
        return own
    number = _synced_version(config)
    return number if number in numbers and config == _changed(model, number, held=False) else None


def _synced_version(config: bytes) -> int:
    """Return the only version that a config.pbtxt can be that of after a sync: the one that its policy names; or -1."""
    try:
        policy = policy_text(config.decode())
    except (ConfigError, UnicodeDecodeError):
        return -1
    numbers = re.findall(r"[0-9]{1,19}", policy)
    return int(numbers[0]) if len(numbers) == 1 else -1


def _changed(model: Path, version: int, *, held: bool) -> bytes | None:
    """Return a version's config.pbtxt with the policy of a hold or of a sync; None if it has none that can be read."""
    own = config_bytes(model / str(version))
    try:
        text = None if own is None else own.decode()
        return None if text is None else (hold_text if held else serving_only)(text, version).encode()
    except (ConfigError, UnicodeDecodeError):
        return None

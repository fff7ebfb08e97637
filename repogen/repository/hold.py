r"""A hold: the version that `repogen rollback` makes a repository serve until the hold is released.

A hold is recorded only in the model's config.pbtxt. Its first line names the version, and the rest is the version's own
config.pbtxt with a version policy that names this version alone. So the rename of config.pbtxt is the whole change, and
there is no second record that a kill could leave in a different state. Triton ignores comments.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from repogen.repository.decode import MalformedRecordError
from repogen.repository.layout import config_bytes
from repogen.repository.version_policy import serving_only

if TYPE_CHECKING:
    from pathlib import Path

_FIRST_LINE = "# repogen: held at version {version}"
_HOLD = re.compile(re.escape(_FIRST_LINE.encode()).replace(re.escape(b"{version}"), rb"([0-9]{1,19})") + rb"\r?\n")
_COMMENT = "# `repogen rollback` wrote this file; `repogen rollback NAME --release` ends the hold."


def held_version(config: bytes | None) -> int | None:
    r"""Return the version that a config.pbtxt holds; None without a hold.

    >>> held_version(hold_text('name: "m"', 3).encode()), held_version(b'name: "m"'), held_version(None)
    (3, None, None)
    """
    match = None if config is None else _HOLD.match(config)
    return None if match is None else int(match[1])


def hold_of(model: Path) -> int | None:
    """Return the version that a model's config.pbtxt holds; None without a hold, or if it can't be read.

    Args:
        model: The model's directory.
    """
    with suppress(OSError, MalformedRecordError):
        return held_version(config_bytes(model))
    return None


def hold_note(version: int) -> str:
    """Return the note that a hold decides what is served."""
    return f"version {version} is held and served; `--release` of `repogen rollback` ends the hold"


def hold_text(config: str, version: int) -> str:
    """Return the text of a config.pbtxt that holds a version.

    Args:
        config: Text of the version's own config.pbtxt.
        version: The version.

    Raises:
        PbtxtError: The text's braces are not balanced.
    """
    return "\n".join((_FIRST_LINE.format(version=version), _COMMENT, serving_only(config, version)))

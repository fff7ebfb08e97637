r"""The config.pbtxt of a model in an object store: it names the versions that it serves.

An object store cannot rename a directory, so a version appears object by object. A policy such as `latest` would serve
it before it is complete. Therefore the config.pbtxt in the store has the policy `specific` with the versions that the
model's own policy selects, and a new version is served from the moment at which that one object is replaced. The first
line marks the file, so that the model's own text, of which each version has a copy, is restored in a working copy.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from repogen.errors import ConfigError, RepogenError
from repogen.repository.hold import held_version
from repogen.repository.layout import config_bytes, triton_versions, versions
from repogen.repository.version_policy import served_versions, serving
from repogen.triton_config.text.parse import parse

if TYPE_CHECKING:
    from pathlib import Path

_FIRST_LINE = "# repogen: serves version"
_COMMENT = (
    "# The policy names the versions, so that a version that is being uploaded is not served; each version has a copy "
    "of its own config.pbtxt."
)
_PIN = re.compile(re.escape(_FIRST_LINE.encode()) + rb" (?P<versions>[0-9]{1,19}(?:, [0-9]{1,19})*)\r?\n")


def pinned(model: Path) -> bytes | None:
    """Return the config.pbtxt to store for a model; None if it has none.

    It is the model's own if repogen did not write it, or if it names versions already.

    Args:
        model: The model's directory in a working copy.
    """
    config = config_bytes(model)
    if config is None or held_version(config) is not None or not _is_a_versions_own(model, config):
        return config
    with suppress(ConfigError, UnicodeDecodeError):
        text = config.decode()
        parsed = parse(text, f"{model.name}/config.pbtxt")
        numbers = served_versions(parsed, triton_versions(model))
        if numbers and set(numbers) != set(parsed.version_policy.specific.versions):
            return _pinned_text(text, numbers).encode()
    return config


def pinned_versions(config: bytes | None) -> frozenset[int]:
    """Return the versions that a stored config.pbtxt serves, if it names them; empty otherwise."""
    with suppress(ConfigError, UnicodeDecodeError):
        if config is not None:
            return frozenset(parse(config.decode(), "config.pbtxt").version_policy.specific.versions)
    return frozenset()


def is_pinned(config: bytes) -> bool:
    """Return whether ``pinned`` changed the policy of a stored config.pbtxt."""
    return _PIN.match(config) is not None


def own_config(model: Path, stored: bytes) -> bytes:
    """Return the config.pbtxt that a stored one was made from; a file that was edited stays as it is.

    Args:
        model: The model's directory in a working copy, with its versions.
        stored: The stored file.
    """
    match = _PIN.match(stored)
    if match is None:
        return stored
    numbers = tuple(map(int, match["versions"].split(b", ")))
    for version in reversed(versions(model)):
        with suppress(RepogenError, OSError, UnicodeDecodeError):
            own = config_bytes(model / str(version))
            if own is not None and _pinned_text(own.decode(), numbers).encode() == stored:
                return own
    return stored


def _pinned_text(text: str, numbers: tuple[int, ...]) -> str:
    return "\n".join((f"{_FIRST_LINE} {', '.join(map(str, numbers))}", _COMMENT, serving(text, *numbers)))


def _is_a_versions_own(model: Path, config: bytes) -> bool:
    for version in reversed(versions(model)):
        with suppress(RepogenError, OSError):
            if config_bytes(model / str(version)) == config:
                return True
    return False

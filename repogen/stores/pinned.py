r"""The config.pbtxt of a model in an object store: it names the versions that it serves.

An object store cannot rename a directory, so a version appears object by object. A policy such as `latest` would serve
it before it is complete. Therefore the config.pbtxt in the store has the policy `specific` with the versions that the
model's own policy selects, and a new version is served from the moment at which that one object is replaced. The first
line marks the file, so that the model's own text, of which each version has a copy, is restored in a working copy.

Versions are deleted object by object as well. Before that, the file gets a last line that names them: another command
that was about to serve one of them fails, because it replaces the file on condition that nobody else did.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from repogen.errors import ConfigError, RepogenError
from repogen.repository.hold import held_version
from repogen.repository.layout import config_bytes, triton_versions, versions
from repogen.repository.version_policy import served_versions, serving
from repogen.repository.written_config import origin_of_config
from repogen.triton_config.text.parse import parse

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_FIRST_LINE = "# repogen: serves version"
_COMMENT = (
    "# The policy names the versions, so that a version that is being uploaded is not served; each version has a copy "
    "of its own config.pbtxt."
)
_LAST_LINE = "# repogen: deletes version"
_DELETED = re.compile(rb"\n" + re.escape(_LAST_LINE.encode()) + rb" (?P<versions>[0-9]{1,19}(?:, [0-9]{1,19})*)\r?\n\Z")
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


def can_name_deleted(model: Path) -> bool:
    """Return whether a model's config.pbtxt may get a line with the versions that are deleted: repogen wrote it.

    Args:
        model: The model's directory in a working copy.
    """
    with suppress(RepogenError, OSError):
        return origin_of_config(model) is not None
    return False


def naming_deleted(config: bytes, numbers: Iterable[int]) -> bytes:
    r"""Return a config.pbtxt that names versions which are deleted.

    >>> text = naming_deleted(b'name: "m"\n', [3, 1])
    >>> text, deleted_versions(text) == {1, 3}, deleted_versions(b'name: "m"\n')
    (b'name: "m"\n\n# repogen: deletes version 1, 3\n', True, frozenset())
    """
    return config + f"\n{_LAST_LINE} {', '.join(map(str, sorted(numbers)))}\n".encode()


@lru_cache(maxsize=64)  # called for each object of a listing, which is in the order of the models
def deleted_versions(config: bytes) -> frozenset[int]:
    """Return the versions that a stored config.pbtxt names as deleted; some of their objects may exist."""
    match = _DELETED.search(config)
    return frozenset() if match is None else frozenset(map(int, match["versions"].split(b", ")))


def own_config(model: Path, stored: bytes) -> bytes:
    """Return the config.pbtxt that a stored one was made from.

    A file that was edited, or that names a version that does not exist, stays as it is.

    Args:
        model: The model's directory in a working copy, with its versions.
        stored: The stored file.
    """
    stored = _DELETED.sub(b"", stored)
    match = _PIN.match(stored)
    if match is None:
        return stored
    numbers = tuple(map(int, match["versions"].split(b", ")))
    existing = versions(model)
    if not set(numbers) <= set(existing):
        return stored
    for version in reversed(existing):
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

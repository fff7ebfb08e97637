"""publish: a staged version becomes the repository's next one, whole or not at all; a repository follows a registry."""

from repogen.publish.fetched import stage_wanted
from repogen.publish.filesystem import Disk, Filesystem
from repogen.publish.recovery import recover
from repogen.publish.synced import (
    LocalModel,
    discard,
    is_from_registry,
    look,
    serve,
    served_versions,
    stale_versions,
    synced_repository,
    unserve,
)
from repogen.publish.version import publish

__all__ = [
    "Disk",
    "Filesystem",
    "LocalModel",
    "discard",
    "is_from_registry",
    "look",
    "publish",
    "recover",
    "serve",
    "served_versions",
    "stage_wanted",
    "stale_versions",
    "synced_repository",
    "unserve",
]

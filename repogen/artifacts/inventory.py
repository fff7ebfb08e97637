"""What a model repository contains: its models, their versions, and which of them are served."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.versions import Manifest


@dataclass(frozen=True)
class VersionRecord:
    """One version of a model in a repository.

    Attributes:
        model: The model.
        version: Number of the version's directory.
        path: The version's directory.
        served: Whether Triton serves it.
        manifest: Its manifest; None if repogen did not build it, or if the manifest can't be read.
        problem: Why there is no manifest; empty if there is one.
        size: Bytes of the files that the manifest lists; without a manifest, of the files in the directory.
        created: When its manifest was written, in UTC, ISO 8601; without a manifest, when the directory was changed;
            empty if that is not known.
        confirmed: Whether a model registry lists it as published, or it was not registered.
        signed: Whether the version has a signature, which was not verified.
        registry_version: Number in the model registry; None if it is not in one, or if no registry was queried.
        aliases: Aliases that point to it in the model registry.
    """

    model: str
    version: int
    path: Path
    served: bool
    manifest: Manifest | None
    problem: str
    size: int
    created: str
    confirmed: bool = True
    signed: bool = False
    registry_version: int | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelRecord:
    """One model of a repository.

    Attributes:
        name: The model.
        path: Its directory.
        versions: Its versions, newest first.
        served: Numbers that its config.pbtxt serves, newest first; a number may lack a directory.
        held: The version that `repogen rollback` holds; None without a hold.
        problem: Why it is not known what Triton serves, or what it would fail on; empty otherwise.
    """

    name: str
    path: Path
    versions: tuple[VersionRecord, ...]
    served: tuple[int, ...]
    held: int | None
    problem: str

    @property
    def newest_served(self) -> int | None:
        """The newest version that is served; None if none is."""
        return next((record.version for record in self.versions if record.served), None)

    def find(self, version: int) -> VersionRecord | None:
        """Return a version, None if the model does not have it."""
        return next((record for record in self.versions if record.version == version), None)


@dataclass(frozen=True)
class VersionsReport:
    """The result of ``repogen versions``.

    Attributes:
        repository: The repository.
        owner: ``built`` or ``synced``, as ``repogen.json`` states; empty for a repository without that file.
        models: Its models, by name.
        notes: What could not be determined, and why.
    """

    repository: Path
    owner: str
    models: tuple[ModelRecord, ...]
    notes: tuple[str, ...] = ()

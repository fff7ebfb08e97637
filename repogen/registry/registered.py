"""Downloads one registered version into a private repository, for commands that read it there."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.artifacts.registry import EntryState
from repogen.errors import SpecError
from repogen.files.temporary import temporary_directory
from repogen.registry.mlflow.uri import MODEL_ALIAS, MODEL_VERSION
from repogen.repository.layout import model_dir

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.artifacts.registry import ModelRegistry, RegistryEntry


@dataclass(frozen=True)
class RegisteredVersion:
    """A registered version on disk.

    Attributes:
        entry: The version.
        repository: A private repository that contains only this version.
        number: Number of its directory: that of the repository that it was published in, or the registry's.
    """

    entry: RegistryEntry
    repository: Path
    number: int

    @property
    def uri(self) -> Path:
        """URI of the version in the registry, as a path for reports."""
        return Path(f"models:/{self.entry.name}/{self.entry.version}")


def find_version(registry: ModelRegistry, name: str, uri: str) -> RegistryEntry:
    """Return the version that a URI refers to.

    Args:
        registry: The registry.
        name: Name of the model that the URI must name.
        uri: ``models:/NAME/VERSION`` or ``models:/NAME@ALIAS``.

    Raises:
        SpecError: The URI has another form or names another model, there is no such version, or it is not repogen's.
        TrackingError: The registry cannot be reached.
    """
    match = MODEL_ALIAS.fullmatch(uri) or MODEL_VERSION.fullmatch(uri)
    if match is None or match["name"] != name:
        raise SpecError(
            f"{uri!r} is not a version of {name}",
            f"write models:/{name}@ALIAS or models:/{name}/VERSION",
            code="repository.model-uri",
        )
    entries = registry.entries(name)
    if not entries:
        raise SpecError(
            f"the registry does not have a model {name!r}",
            "`repogen build` registers models if the spec has an mlflow: section",
            code="promotion.no-such-model",
        )
    entry = next((entry for entry in entries if _matches(entry, match.groupdict())), None)
    if entry is None:
        aliases = sorted(alias for entry in entries for alias in entry.aliases)
        numbers = ", ".join(str(entry.version) for entry in entries)
        raise SpecError(
            f"the registry does not have {uri}",
            f"its versions are {numbers}, and its aliases are {', '.join(aliases) or 'none'}",
            code="promotion.no-such-alias" if "alias" in match.groupdict() else "promotion.no-such-version",
        )
    if entry.state is EntryState.FOREIGN:
        raise SpecError(
            f"{uri} was not registered by repogen, so its files cannot be compared",
            "specify a version that `repogen build` registered",
            code="repository.model-uri",
        )
    return entry


@contextmanager
def registered_version(registry: ModelRegistry, entry: RegistryEntry) -> Iterator[RegisteredVersion]:
    """Yield a version in a private repository, which is removed afterward.

    Raises:
        TrackingError: Its artifacts were deleted or changed, or the registry cannot be reached.
    """
    with temporary_directory() as directory:
        number = entry.triton_version or entry.version
        version_dir = model_dir(directory, entry.name) / str(number)
        version_dir.mkdir(parents=True)
        registry.fetch(entry, version_dir)
        yield RegisteredVersion(entry, directory, number)


def _matches(entry: RegistryEntry, parts: dict[str, str]) -> bool:
    return parts["alias"] in entry.aliases if "alias" in parts else str(entry.version) == parts["version"]

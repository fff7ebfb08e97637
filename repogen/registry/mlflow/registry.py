"""MLflow's model registry behind the Protocol that promote and sync meet it at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.registry import EntryState, RegistryEntry
from repogen.errors import TrackingError
from repogen.registry.mlflow.entries import entry_of, move_key, move_value, moves_of
from repogen.registry.mlflow.version_download import fetch_version

if TYPE_CHECKING:
    from pathlib import Path

    from mlflow.entities.model_registry import RegisteredModel

    from repogen.artifacts.registry import AliasMove
    from repogen.registry.mlflow.client import Connection

_PAGE = 200


class MlflowRegistry:
    """A ``ModelRegistry`` in MLflow.

    Args:
        connection: An open connection.
    """

    def __init__(self, connection: Connection) -> None:
        """Keep the connection."""
        self._connection = connection
        self._client = connection.client

    def entries(self, name: str) -> tuple[RegistryEntry, ...]:
        """Return every version of ``name``, newest first; none when there is no such registered model."""
        model = self._model(name)
        return () if model is None else self._versions(name, _aliases(model))

    def with_content(self, name: str, content: str) -> tuple[RegistryEntry, ...]:
        """Return the versions that hold these very files, pending ones first, then newest first; without aliases."""
        same = [entry for entry in self.versions(name) if entry.content == content]
        return tuple(sorted(same, key=lambda entry: entry.state is not EntryState.PENDING))

    def versions(self, name: str) -> tuple[RegistryEntry, ...]:
        """Return every version of a model, newest first, without aliases: a call less than ``entries``."""
        return self._versions(name, {})

    def _versions(self, name: str, aliases: dict[str, int]) -> tuple[RegistryEntry, ...]:
        with self._connection.doing(f"reading the versions of {name}"):
            found, token = [], None
            while True:
                page = self._client.search_model_versions(f"name='{name}'", max_results=_PAGE, page_token=token)
                found += list(page)
                token = page.token
                if not token:
                    break
        entries = [entry_of(version, _pointing(aliases, int(version.version))) for version in found]
        return tuple(sorted(entries, key=lambda entry: entry.version, reverse=True))

    def with_alias(self, alias: str) -> tuple[RegistryEntry, ...]:
        """Return the version that ``alias`` points to, of every registered model that has it, by name."""
        with self._connection.doing("reading the registered models"):
            models, token = [], None
            while True:
                page = self._client.search_registered_models(max_results=_PAGE, page_token=token)
                models += list(page)
                token = page.token
                if not token:
                    break
            found = []
            for model in models:
                aliases = _aliases(model)
                if alias in aliases:
                    version = self._client.get_model_version(model.name, str(aliases[alias]))
                    found.append(entry_of(version, _pointing(aliases, aliases[alias])))
        return tuple(sorted(found, key=lambda entry: entry.name))

    def fetch(self, entry: RegistryEntry, directory: Path) -> Path:
        """Download the files of a version, checked against its manifest; see ``ModelRegistry.fetch``."""
        return fetch_version(self._connection, entry, directory)

    def move_alias(self, name: str, move: AliasMove) -> None:
        """Point an alias elsewhere and record the move; see ``ModelRegistry.move_alias``.

        MLflow can't compare and set, so the alias is read before and after; what is recorded before it is moved
        becomes history only when it was.
        """
        self._require_alias(name, move.alias, move.old)
        key = move_key(move)
        with self._connection.doing(f"moving {move.alias} of {name} to version {move.new}"):
            self._client.set_registered_model_tag(name, key, move_value(move, done=False))
            self._client.set_registered_model_alias(name, move.alias, str(move.new))
        self._require_alias(name, move.alias, move.new)
        with self._connection.doing(f"recording that {move.alias} of {name} moved to version {move.new}"):
            self._client.set_registered_model_tag(name, key, move_value(move, done=True))

    def moves(self, name: str, alias: str | None = None) -> tuple[AliasMove, ...]:
        """Return the recorded moves of one alias, or of all, oldest first."""
        model = self._model(name)
        if model is None:
            return ()
        return tuple(move for move in moves_of(model.tags, _aliases(model)) if alias in {None, move.alias})

    def register(self, name: str, source: str, run_id: str, tags: dict[str, str]) -> int:
        """Register a version; the registered model is created when there is none. Return the version's number."""
        from mlflow.exceptions import MlflowException  # noqa: PLC0415 - a tracked build's only

        with self._connection.doing(f"registering a version of {name}"):
            try:
                made = self._client.create_model_version(name, source, run_id, tags=tags)
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
                self._create_model(name)
                made = self._client.create_model_version(name, source, run_id, tags=tags)
        return int(made.version)

    def _create_model(self, name: str) -> None:
        from mlflow.exceptions import MlflowException  # noqa: PLC0415 - as above

        try:
            self._client.create_registered_model(name)
        except MlflowException as error:  # another build was faster
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise

    def tag(self, name: str, version: int, tags: dict[str, str]) -> None:
        """Set tags of a version one after another, in their order."""
        with self._connection.doing(f"confirming version {version} of {name}"):
            for key, value in tags.items():
                self._client.set_model_version_tag(name, str(version), key, value)

    def _model(self, name: str) -> RegisteredModel | None:
        from mlflow.exceptions import MlflowException  # noqa: PLC0415 - as above

        with self._connection.doing(f"reading the registered model {name}"):
            try:
                return self._client.get_registered_model(name)
            except MlflowException as error:
                if error.error_code in {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}:
                    return None
                raise

    def _require_alias(self, name: str, alias: str, version: int | None) -> None:
        model = self._model(name)
        now = None if model is None else _aliases(model).get(alias)
        if now != version:
            raise TrackingError(
                f"{alias} of {name} was moved meanwhile: it points to {_said(now)}, not to {_said(version)}",
                "look at `repogen history`, and decide again",
                code="tracking.alias-moved",
            )


def _said(version: int | None) -> str:
    return "no version" if version is None else f"version {version}"


def _aliases(model: RegisteredModel) -> dict[str, int]:
    return {str(alias): int(version) for alias, version in model.aliases.items()}


def _pointing(aliases: dict[str, int], version: int) -> tuple[str, ...]:
    return tuple(sorted(alias for alias, number in aliases.items() if number == version))

"""MLflow's model registry, behind the Protocol that promotion and sync use."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from repogen.artifacts.registry import EntryState, RegistryEntry
from repogen.errors import TrackingError
from repogen.files.temporary import temporary_directory
from repogen.registry.mlflow.client import Connection, connect
from repogen.registry.mlflow.download import fetch_manifest, fetch_version
from repogen.registry.mlflow.entries import STEPS, entry_of, move_key, move_value, moves_of, tag_text, version_number
from repogen.registry.mlflow.library import LoggedModel, Metric, MlflowException, ModelVersion, RegisteredModel
from repogen.registry.mlflow.metrics import REPORT_FILE, run_tags
from repogen.responses import MAX_BYTES, response_limits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from repogen.artifacts.registry import AliasMove, PromotionRun
    from repogen.artifacts.tracking import Tracking
    from repogen.artifacts.versions import Manifest

_PAGE = 200
_MAX_PAGES = 1000
_MAX_BYTES = 128 * 2**20
_SECONDS = 600.0
_SECONDS_PER_MODEL = 0.25
_DESCRIPTION = "Built and verified by repogen. `repogen promote` moves its aliases, and `repogen sync` publishes them."


class MlflowRegistry:
    """A ``ModelRegistry`` in MLflow.

    Args:
        connection: An open connection.
    """

    def __init__(self, connection: Connection) -> None:
        """Keep the connection."""
        self._connection = connection
        self._client = connection.client

    @classmethod
    def open(cls, tracking: Tracking) -> Self:
        """Connect to the registry of a tracking server.

        Raises:
            TrackingError: The server does not respond, or is not an MLflow server.
        """
        return cls(connect(tracking))

    def entries(self, name: str) -> tuple[RegistryEntry, ...]:
        """Return every version of ``name``, newest first; empty if no such model is registered."""
        model = self._model(name)
        return () if model is None else self._versions(name, _aliases(model))

    def with_content(self, name: str, content: str) -> tuple[RegistryEntry, ...]:
        """Return the versions with the same files, pending ones first, then newest first; without aliases."""
        entries = [entry for entry in self.versions(name) if entry.content == content]
        return tuple(sorted(entries, key=lambda entry: entry.state is not EntryState.PENDING))

    def versions(self, name: str) -> tuple[RegistryEntry, ...]:
        """Return every version of a model, newest first, without aliases: one call fewer than ``entries``."""
        return self._versions(name, {})

    def _versions(self, name: str, aliases: dict[str, int]) -> tuple[RegistryEntry, ...]:
        with self._connection.doing(f"reading the versions of {name}"):
            registered = self._search_versions(f"name='{name}'")
        entries = [
            entry_of(version, _pointing(aliases, version_number(version.version, name))) for version in registered
        ]
        return tuple(sorted(entries, key=lambda entry: entry.version, reverse=True))

    def with_alias(self, alias: str) -> tuple[RegistryEntry, ...]:
        """Return the version that ``alias`` points to, of every registered model that has it, by name."""
        with self._connection.doing("reading the registered models"):
            entries = []
            models = self._models_with_alias(alias)
            end = time.monotonic() + _SECONDS + len(models) * _SECONDS_PER_MODEL
            for name, aliases in models.items():
                _require_time(end, "registered models")
                version = self._client.get_model_version(name, str(aliases[alias]))
                entries.append(entry_of(version, _pointing(aliases, aliases[alias])))
        return tuple(sorted(entries, key=lambda entry: entry.name))

    def ensembles_with_alias(self, alias: str) -> tuple[RegistryEntry, ...]:
        """Return the version that ``alias`` points to, of every ensemble that has it, by name: in two calls or more."""
        with self._connection.doing("reading the registered ensembles"):
            models = self._models_with_alias(alias)
            versions = self._search_versions(f"tags.`{STEPS}` LIKE '%'")
        entries = (
            entry_of(version, _pointing(models[version.name], models[version.name][alias]))
            for version in versions
            if version.name in models
        )
        return tuple(
            sorted(
                (entry for entry in entries if entry.version == models[entry.name][alias]), key=lambda entry: entry.name
            )
        )

    def _models_with_alias(self, alias: str) -> dict[str, dict[str, int]]:
        """Return the aliases of every registered model that has an alias, by name."""
        models = _all(self._client.search_registered_models, "registered models")
        return {str(model.name): _aliases(model) for model in models if alias in model.aliases}

    def _search_versions(self, query: str) -> list[ModelVersion]:
        return _all(partial(self._client.search_model_versions, query), "versions")

    def manifest(self, entry: RegistryEntry) -> Manifest:
        """Download the manifest of a version; see ``ModelRegistry.manifest``."""
        reading = self._connection.doing(f"reading the manifest of {entry.name}")  # also if the disk is full
        with reading, temporary_directory() as directory:
            return fetch_manifest(self._connection, entry, directory)

    def fetch(self, entry: RegistryEntry, directory: Path) -> Path:
        """Download the files of a version, checked against its manifest; see ``ModelRegistry.fetch``."""
        return fetch_version(self._connection, entry, directory)

    def move_alias(self, name: str, move: AliasMove) -> None:
        """Point an alias to another version and record the move; see ``ModelRegistry.move_alias``.

        MLflow has no compare-and-set, so the alias is read before and after. The move is recorded before the alias is
        moved, and counts as history once the alias was moved.
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
        """Return the recorded moves of one alias, or of all aliases, oldest first."""
        model = self._model(name)
        if model is None:
            return ()
        return tuple(move for move in moves_of(model.tags, _aliases(model)) if alias in {None, move.alias})

    def register(self, name: str, logged: LoggedModel, tags: dict[str, str], description: str) -> int:
        """Register a logged model as a version; return its number. The registered model is created if necessary."""
        with self._connection.doing(f"registering a version of {name}"):
            try:
                version = self._create_version(name, logged, tags, description)
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
                self._create_model(name, logged.tags.get("mlflow.note.content", ""))
                version = self._create_version(name, logged, tags, description)
        return version_number(version.version, name)

    def _create_version(self, name: str, logged: LoggedModel, tags: dict[str, str], description: str) -> ModelVersion:
        source, run = f"models:/{logged.model_id}", logged.source_run_id
        return self._client.create_model_version(
            name, source, run, tags=tags, description=description, model_id=logged.model_id
        )

    def _create_model(self, name: str, description: str) -> None:
        try:
            self._client.create_registered_model(name, description=description or _DESCRIPTION)
        except MlflowException as error:  # a concurrent build created it
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise

    def tag(self, name: str, version: int, tags: dict[str, str]) -> None:
        """Set tags of a version, one after the other in their order."""
        with self._connection.doing(f"confirming version {version} of {name}"):
            for key, value in tags.items():
                self._client.set_model_version_tag(name, str(version), key, value)

    def record(self, run: PromotionRun) -> None:
        """Log a promotion as a finished or failed run; see ``ModelRegistry.record``."""
        own_tags = {key: tag_text(value) for key, value in run.tags.items()}
        tags = run_tags(self._connection.tracking.root, os.environ, "repogen promote") | own_tags
        experiment = self._connection.experiment()
        with self._connection.doing("recording a promotion"):
            logged = self._client.create_run(experiment, tags=tags, run_name=run.name)
            run_id = str(logged.info.run_id)
            timestamp = int(time.time() * 1000)
            self._client.log_batch(run_id, [Metric(key, value, timestamp, 0) for key, value in run.metrics.items()])
            self._client.log_text(run_id, run.page, REPORT_FILE)
            self._client.set_terminated(run_id, "FINISHED" if run.passed else "FAILED")

    def _model(self, name: str) -> RegisteredModel | None:
        with self._connection.doing(f"reading the registered model {name}"):
            try:
                return self._client.get_registered_model(name)
            except MlflowException as error:
                if error.error_code in {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}:
                    return None
                raise

    def _require_alias(self, name: str, alias: str, version: int | None) -> None:
        model = self._model(name)
        current = None if model is None else _aliases(model).get(alias)
        if current != version:
            raise TrackingError(
                f"{alias} of {name} was moved in the meantime: it points to {_version_text(current)}, "
                f"not to {_version_text(version)}",
                "check `repogen history`, then decide again",
                code="tracking.alias-moved",
            )


def _all(search: Callable[..., Any], what: str) -> list[Any]:
    """Return the entries of all pages of a search.

    Raises:
        TrackingError: There are too many, or they take too long: a server may always name another page.
        ResponseError: The pages are too large.
    """
    entries: list[Any] = []
    token: str | None = None
    end = time.monotonic() + _SECONDS
    with response_limits(MAX_BYTES, total=_MAX_BYTES):
        for _ in range(_MAX_PAGES):
            page = search(max_results=_PAGE, page_token=token)
            if len(page) > _PAGE:
                raise _too_many(f"lists {len(page)} {what} on a page of {_PAGE}")
            entries += list(page)
            token = page.token
            if not token:
                return entries
            _require_time(end, what)
    raise _too_many(f"lists more than {_MAX_PAGES} pages of {what}")


def _require_time(end: float, what: str) -> None:
    if time.monotonic() > end:
        raise _too_many(f"takes too long to return {what}")


def _too_many(what: str) -> TrackingError:
    return TrackingError(
        f"MLflow {what}",
        "check that the URI is that of your MLflow server, and delete entries that are not needed",
        code="tracking.server",
    )


def _version_text(version: int | None) -> str:
    return "no version" if version is None else f"version {version}"


def _aliases(model: RegisteredModel) -> dict[str, int]:
    return {str(alias): version_number(version, str(model.name)) for alias, version in model.aliases.items()}


def _pointing(aliases: dict[str, int], version: int) -> tuple[str, ...]:
    return tuple(sorted(alias for alias, number in aliases.items() if number == version))

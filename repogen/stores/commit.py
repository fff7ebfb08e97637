"""Writes the changes of a working copy to its store, in an order that is safe after a kill at any point.

For each model:

1. Each new version is claimed. If another process has published the number since, nothing is written. Nor is it if an
   earlier owner of the claim may only be suspended: the caller repeats the publish with the next number. The signature
   of an existing version needs no claim, which would mark the version as an interrupted upload.
2. The files of the new versions are uploaded: the largest first, then config.pbtxt, and finally manifest.json; also the
   files that config.pbtxt names. The model's config.pbtxt names other versions, so none of this has an effect.
3. The claims are renewed, which fails if another process took them over. Then the model's config.pbtxt is replaced, on
   condition that no other process has replaced it: this one write is the change. It also names the versions that are
   deleted next, so a command that was about to serve one of them fails, and those that begin later do not see them.
4. Files that are not needed are deleted, the manifest of a version last. The claims are released. The files of numbers
   that were not used are deleted, because their owner cannot replace config.pbtxt any more.

Before step 3, a failure removes what was uploaded. After it, the change is complete. If it is not known whether the
request of step 3 had an effect, the claim stays, and the next publish decides.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE, MANIFEST_FILE, SIGNATURE_FILE
from repogen.errors import PublishError, RepogenError
from repogen.repository.manifest import damaged_files, read_manifest
from repogen.stores.claim import Claim, claim_name
from repogen.stores.interface import ChangedError
from repogen.stores.pinned import can_name_deleted, naming_deleted, pinned, pinned_versions
from repogen.stores.working_copy import StoredConfig, by_version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from repogen.stores.working_copy import WorkingCopy

_MAX_CONFIG_BYTES = 2**20


def commit(copy: WorkingCopy, models: Iterable[str] | None = None, *, may_skip: bool = False) -> None:
    """Write the changes of a working copy to its store.

    Args:
        copy: The working copy.
        models: Only these; all when None.
        may_skip: Whether the caller tries again with another version number if that of a suspended process is in use.

    Raises:
        ChangedError: Another process changed a model in the meantime; its changes are not written.
        RepogenError: The store does not respond.
    """
    names = sorted(copy.models()) if models is None else list(models)
    for name in names:
        if _ModelCommit(copy, name, may_skip=may_skip).run():
            _delete_skipped(copy, name)
    copy.store.delete(copy.finished)
    copy.finished = []


def _delete_skipped(copy: WorkingCopy, model: str) -> None:
    """Delete what suspended processes uploaded of versions, after config.pbtxt was replaced, and their claims."""
    for name, number in [pair for pair in copy.skipped if pair[0] == model]:
        prefix = f"{copy.key_of(copy.path / name / str(number))}/"
        copy.store.abort_uploads(prefix)
        copy.store.delete([*(each.key for each in copy.store.list(prefix)), copy.skipped.pop((name, number))])


class _ModelCommit:
    """The commit of one model."""

    def __init__(self, copy: WorkingCopy, model: str, *, may_skip: bool) -> None:
        self._copy = copy
        self._may_skip = may_skip
        self._store = copy.store
        self._model = model
        self._config_key = copy.key_of(copy.path / model / CONFIG_FILE)
        local, stored = copy.files(model), {key for key in copy.entries if copy.model_of(key) == model}
        self._added = [
            key
            for key, identity in local.items()
            if key != self._config_key and (key not in stored or copy.entries[key].identity != identity)
        ]
        directories = {parent for key in local for parent in copy.local(key).parents}
        self._removed = [
            key
            for key in stored
            if key not in local and not (key.endswith("/") and copy.local(key.rstrip("/")) in directories)
        ]
        self._config = pinned(copy.path / model)
        if self._config is not None and can_name_deleted(copy.path / model):
            removed = set(by_version(copy, self._removed)) - set(by_version(copy, local))
            removed |= set(by_version(copy, copy.deleted.get(model, ())))
            numbers = [number for number in removed if number is not None]
            self._config = naming_deleted(self._config, numbers) if numbers else self._config
        self._removed += copy.deleted.get(model, ())
        before = copy.entries.get(self._config_key)
        # a config.pbtxt that another tool copied into the store is pinned with the first change of the model
        self._is_config_changed = local.get(self._config_key) != (None if before is None else before.identity)
        self._sources = {entry.identity: key for key, entry in copy.entries.items()}
        self._claims: list[Claim] = []
        self._written: list[str] = []
        self._placeholders: set[str] = set()
        self._is_decided = False

    def run(self) -> bool:
        """Write the changes; return whether config.pbtxt was replaced."""
        if not (self._added or self._removed or self._is_config_changed):
            return False
        stored = self._copy.configs.get(self._config_key)
        switches = self._config is not None and (stored is None or stored.content != self._config)
        self._write_owner()
        try:
            self._claim()
            if self._claims and switches:  # before the upload, which would then be useless
                self._require_unchanged_config(stored)
            self._upload()
            for claim in self._claims:
                claim.renew()
            if switches and self._config is not None:
                self._switch(self._config, stored)
            else:
                self._prepare_removal(stored)
            self._is_decided = True
            self._delete()
        except BaseException:
            self._undo()
            raise
        for claim in self._claims:
            claim.release()
        self._update()
        return switches

    def _prepare_removal(self, stored: StoredConfig | None) -> None:
        """Delete config.pbtxt of a model that is removed, or require that it did not change.

        Raises:
            ChangedError: Another process replaced it.
        """
        if self._config_key in self._removed and stored is not None:
            self._store.delete_if(self._config_key, stored.tag)
        elif not self._claims:
            self._require_unchanged_config(stored)

    def _claim(self) -> None:
        versions = by_version(self._copy, self._added)
        signed = {version for version, keys in versions.items() if self._is_signature(version, keys)}
        for version in sorted(version for version in versions if version is not None and version not in signed):
            name = claim_name(self._model, version)
            claim = Claim(self._store, self._copy.key_of(self._copy.path / name))
            claim.acquire(lambda version=version: self._wait(version), may_skip=self._may_skip)  # type: ignore[misc]
            self._claims.append(claim)
            self._require_free(version, f"{self._version_key(version)}/", claim)

    def _is_signature(self, version: int | None, keys: Iterable[str]) -> bool:
        """Return whether objects are only the signature of a version that exists."""
        prefix = self._version_key(version)
        exists = f"{prefix}/{MANIFEST_FILE}" in self._copy.entries
        return exists and all(key == f"{prefix}/{SIGNATURE_FILE}" for key in keys)

    def _require_free(self, version: int, prefix: str, claim: Claim) -> None:
        """Require that a claimed version has only the files that the working copy knows; remove those of a dead upload.

        Raises:
            ChangedError: Another process published the version before it was claimed.
        """
        unknown = [each.key for each in self._store.list(prefix) if each.key not in self._copy.entries]
        if claim.taken_over:
            if version in pinned_versions(self._stored_config()):
                raise ChangedError(prefix)  # it was complete
            self._store.abort_uploads(prefix)
            self._store.delete(unknown)
        elif unknown:
            raise ChangedError(prefix)

    def _version_key(self, version: object) -> str:
        return self._copy.key_of(self._copy.path / self._model / str(version))

    def _stored_config(self) -> bytes | None:
        try:
            return self._store.read(self._config_key, _MAX_CONFIG_BYTES)
        except FileNotFoundError:
            return None

    def _upload(self) -> None:
        for version, keys in sorted(by_version(self._copy, self._added).items(), key=lambda item: item[0] or 0):
            if version is not None:
                self._require_intact(version)
            for key in sorted(keys, key=self._order):
                self._written.append(key)
                self._write(key)

    def _order(self, key: str) -> tuple[int, int, str]:
        path = self._copy.local(key)
        last = (CONFIG_FILE, MANIFEST_FILE)
        return (last.index(path.name) + 1 if path.name in last else 0, -path.stat().st_size, key)

    def _require_intact(self, version: int) -> None:
        """Require that the files of a new version match its manifest, before the first of them is uploaded.

        Raises:
            PublishError: They don't.
        """
        directory = self._copy.path / self._model / str(version)
        if damage := damaged_files(directory, read_manifest(directory)):
            raise PublishError(
                f"{self._model}: version {version} was changed before it was uploaded: {'; '.join(damage)}",
                "run the command again",
                code="store.damaged",
            )

    def _write(self, key: str) -> None:
        path = self._copy.local(key)
        source = self._sources.get(self._copy.files(self._model)[key])
        if source is not None:
            self._store.copy(source, key)
            if not self._copy.entries[source].complete:
                self._placeholders.add(key)
            return
        size, sent = path.stat().st_size, 0
        what = f"{self._model}: upload of {path.name}"

        def count(bytes_sent: int) -> None:
            nonlocal sent
            sent += bytes_sent
            self._copy.progress.download(what, sent, size)

        self._store.upload(path, key, count)

    def _switch(self, content: bytes, stored: StoredConfig | None) -> None:
        try:
            if stored is None:
                tag = self._store.create(self._config_key, content)
            else:
                tag = self._store.replace(self._config_key, content, stored.tag)
        except ChangedError:  # the request had no effect
            raise
        except BaseException:
            # the request, or one that an interrupt left to another thread, may have its effect: removing the version
            # could remove what is served
            for claim in self._claims:
                claim.abandon()
            self._claims = []
            self._is_decided = True
            raise
        self._copy.configs[self._config_key] = StoredConfig(content, tag)

    def _require_unchanged_config(self, stored: StoredConfig | None) -> None:
        if self._stored_config() != (None if stored is None else stored.content):
            raise ChangedError(self._config_key)

    def _delete(self) -> None:
        """Delete files: config.pbtxt of a model that is removed first, and the manifest of a version last."""
        manifests = [key for key in self._removed if key.endswith(f"/{MANIFEST_FILE}")]
        configs = [key for key in self._removed if key == self._config_key]
        others = [key for key in self._removed if key not in {*manifests, *configs}]
        self._store.delete([*configs, *sorted(others), *manifests])

    def _undo(self) -> None:
        """Remove what was uploaded, unless the change is made; errors do not replace the error that is raised."""
        with suppress(RepogenError, OSError, ChangedError):
            if not self._is_decided:
                served = pinned_versions(self._stored_config())
                versions = by_version(self._copy, self._written)
                written = [key for version, keys in versions.items() if version not in served for key in keys]
                new = [key for key in written if key not in self._copy.entries]
                for key in new:
                    self._store.abort_uploads(key)
                self._store.delete(new)
            for claim in self._claims:
                claim.release()

    def _wait(self, version: int) -> None:
        self._copy.progress.note(self._model, f"waiting: another process is publishing version {version}")

    def _write_owner(self) -> None:
        """Create ``repogen.json`` if the repository has none.

        Raises:
            ChangedError: Another process created a different one.
        """
        for key, identity in self._copy.files("").items():
            entry = self._copy.entries.get(key)
            if entry is None or entry.identity != identity:
                content = self._copy.local(key).read_bytes()
                if entry is None:
                    self._store.create(key, content)
                else:
                    self._store.replace(key, content, entry.stored.tag)
                self._record([key])

    def _update(self) -> None:
        """Record the state of the store after the commit."""
        self._copy.deleted.pop(self._model, None)
        for key in self._removed:
            self._copy.entries.pop(key, None)
            self._copy.configs.pop(key, None)
        self._record([*self._added, self._config_key])

    def _record(self, keys: Iterable[str]) -> None:
        """Record the objects of local files; one listing has all files of a version."""
        written = {key for key in keys if self._copy.local(key).is_file()}
        versions = by_version(self._copy, written)
        prefixes = [*versions.pop(None, []), *(f"{self._version_key(version)}/" for version in versions)]
        for prefix in prefixes:
            for stored in self._store.list(prefix):
                if stored.key in written:
                    self._copy.placed(stored, complete=stored.key not in self._placeholders)

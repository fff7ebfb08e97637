"""Deploys groups of models to one server: load, test, and restore the whole group if one model fails."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from repogen.artifacts.deployment import DeployAction, ModelDeployment
from repogen.artifacts.file_names import MANIFEST_FILE
from repogen.artifacts.serving import ControlMode
from repogen.deploy.plan import prepare
from repogen.errors import RepogenError, SmokeError
from repogen.files import is_file
from repogen.smoke.preparation import PreparedModel
from repogen.smoke.repository import smoke_served
from repogen.smoke.run_checks import raise_for_failures

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.serving import SmokeReport
    from repogen.deploy.live_server import LiveServer, Snapshot
    from repogen.deploy.plan import FetchVersions, Group, PlannedModel
    from repogen.errors import ErrorRecord

_WAIT_SECONDS = 0.2


@dataclass
class _Attempt:
    """The deployment of one model.

    Attributes:
        model: The model.
        before: What the server served before.
        loaded: The versions that this deploy loaded; None before they are served.
        smoke: Smoke tests of the new versions.
        error: Why it failed; None if it did not.
    """

    model: PlannedModel
    before: Snapshot
    loaded: tuple[int, ...] | None = None
    smoke: tuple[SmokeReport, ...] = ()
    error: ErrorRecord | None = None

    def is_changed(self, serving: tuple[int, ...]) -> bool:
        """Return whether another command changed what the server serves, after this one loaded its versions."""
        return self.loaded is not None and bool(serving) and serving not in (self.loaded, self.before.versions)

    def result(self, action: DeployAction, serving: tuple[int, ...] | None, note: str = "") -> ModelDeployment:
        """Return the model's part of the report."""
        return ModelDeployment(
            self.model.name,
            action,
            expected=self.model.versions,
            before=self.before.versions,
            serving=serving,
            note=note,
            smoke=self.smoke,
            error=self.error,
        )


@dataclass(frozen=True)
class GroupResult:
    """The deployment of a group.

    Attributes:
        models: Its models, without those that the server does not serve and that were not selected.
        complete: Whether every model was deployed.
        interrupted: Whether Ctrl-C ended it.
    """

    models: tuple[ModelDeployment, ...]
    complete: bool
    interrupted: bool = False


@dataclass(frozen=True)
class Rollout:
    """The deployment to one server.

    Attributes:
        server: The server.
        repository: The repository whose versions are deployed.
        poll_seconds: How long to wait for a server that polls.
        progress: Receives progress events.
        fetch: Downloads what a test of versions of a model reads.
    """

    server: LiveServer
    repository: Path
    poll_seconds: float
    progress: Progress
    fetch: FetchVersions

    def deploy(self, group: Group) -> GroupResult:
        """Deploy a group; if a model fails, or at Ctrl-C, restore what the server served before.

        Raises:
            SmokeError: The server did not respond before the first change.
            RepogenError: The store of the repository did not.
        """
        # all are read before the first request, which can change an ensemble together with its step
        snapshots = [(model, self.server.snapshot(model.name)) for model in group]
        attempts = [_Attempt(model, before) for model, before in snapshots if model.selected or before.versions]
        for attempt in attempts:  # to test what is restored
            self.fetch(attempt.model.name, attempt.before.versions)
        current, interrupted = attempts[0] if attempts else None, False
        try:
            for current in attempts:
                self._deploy_model(current)
            return GroupResult(tuple(self._success(attempt) for attempt in attempts), complete=True)
        except KeyboardInterrupt:
            interrupted = True
        except RepogenError as error:
            if current is not None:
                current.error = error.record
        except BaseException:
            self._go_back(attempts)
            raise
        try:
            models = self._go_back(attempts)
        except KeyboardInterrupt:  # a model that was restored before stays as it is
            interrupted, models = True, self._go_back(attempts)
        return GroupResult(tuple(models), complete=False, interrupted=interrupted)

    def unload(self, name: str) -> ModelDeployment:
        """Unload a model."""
        before = self.server.snapshot(name).versions
        self.progress.step(name, "unload")
        if before and not self.server.unload(name):
            note = (
                "the server is in mode poll or none: if it polls, it unloads a model that its repository no longer has"
            )
            return ModelDeployment(name, DeployAction.SKIPPED, before=before, serving=before, note=note)
        return ModelDeployment(name, DeployAction.UNLOADED, before=before, serving=())

    @property
    def _polls(self) -> bool:
        return self.server.mode is ControlMode.POLL

    def _deploy_model(self, attempt: _Attempt) -> None:
        name = attempt.model.name
        prepared = prepare(self.server.running.endpoint, self.repository / name)
        expected = tuple(reversed(prepared.versions))
        if self._polls or not self._load(name, expected, prepared):
            self._wait(attempt, expected)
        attempt.loaded = None if self._polls else expected
        self.progress.step(name, "smoke")
        try:
            attempt.smoke = tuple(smoke_served(self.server.running, self.server.client, prepared, self.server.limits))
            for report in attempt.smoke:
                self._require_passed(report)
        except RepogenError:
            self._require_unchanged(attempt)
            raise
        self._require_unchanged(attempt)

    def _require_unchanged(self, attempt: _Attempt) -> None:
        """Require that no other command changed a model since it was loaded, which also makes tests of it fail.

        Raises:
            SmokeError: Another command did.
        """
        name, serving = attempt.model.name, self._serving(attempt.model.name)
        if serving is not None and attempt.is_changed(serving):
            raise SmokeError(
                f"{name}: {self.server.address} serves {_versions_text(serving)}, but this command loaded "
                f"{_versions_text(attempt.loaded or ())}: another deploy changed it",
                "the change of the other deploy is kept; run one deploy to a server at a time",
                code="deploy.changed",
            )

    def _load(self, name: str, expected: tuple[int, ...], prepared: PreparedModel) -> bool:
        """Load the repository's versions; return False for a server that polls.

        After a failed deploy, the server uses the config of the restored version until the model's directory changes;
        a second request then replaces it.
        """
        self.progress.step(name, "load")
        for config in (None, prepared.config):
            if not self.server.load(name, config):
                return False
            serving = self.server.snapshot(name).versions
            if serving == expected:
                return True
        raise self._other_version_error(name, expected, serving)

    def _wait(self, attempt: _Attempt, expected: tuple[int, ...]) -> None:
        """Wait until a polling server has loaded the repository's versions.

        A failure that was in the server's index before may be one of an earlier poll.
        """
        name = attempt.model.name
        deadline = time.monotonic() + self.poll_seconds
        self.progress.step(name, f"wait for the server to poll, at most {self.poll_seconds:g} s")
        while (now := self.server.snapshot(name)).versions != expected:
            failures = {v: r for v, r in now.failures.items() if v in expected}
            is_new = failures != {v: r for v, r in attempt.before.failures.items() if v in expected}
            if failures and (is_new or time.monotonic() > deadline):
                reasons = "; ".join(f"version {version}: {reason}" for version, reason in failures.items())
                raise SmokeError(
                    f"{name}: {self.server.address} did not load it: {reasons}", self._hint(attempt), code="deploy.load"
                )
            if time.monotonic() > deadline:
                raise self._not_polled_error(name, expected, now.versions)
            time.sleep(_WAIT_SECONDS)

    def _require_passed(self, report: SmokeReport) -> None:
        try:
            raise_for_failures(report)
        except SmokeError as error:
            error.hint += f"; also check that the server's repository has the same content as {self.repository}"
            raise

    def _go_back(self, attempts: Sequence[_Attempt]) -> list[ModelDeployment]:
        """Restore a group, on a connection of its own; return its part of the report."""
        if self._polls:
            return [self._left(attempt) for attempt in attempts]
        with self.server.reconnected() as server:
            return replace(self, server=server).restore(attempts)

    def restore(self, attempts: Sequence[_Attempt]) -> list[ModelDeployment]:
        """Make the server serve what it served before.

        New ensembles are unloaded before their steps. Old steps are loaded before their ensembles: Triton does not load
        an ensemble that does not fit its steps.
        """
        for attempt in reversed(attempts):
            with suppress(RepogenError):  # the result is read from the server's index
                now = self.server.snapshot(attempt.model.name)
                is_new = not attempt.before.versions and not now.serves_like(attempt.before)
                if is_new and not attempt.is_changed(now.versions):
                    self.server.unload(attempt.model.name)
        return [self._restored(attempt) for attempt in attempts]

    def _restored(self, attempt: _Attempt) -> ModelDeployment:
        """Restore one model, test it, and return its part of the report."""
        name, before = attempt.model.name, attempt.before
        self.progress.step(name, "restore")
        try:
            now = self.server.snapshot(name)
            if attempt.is_changed(now.versions):
                return attempt.result(DeployAction.FAILED, now.versions, "not restored: another deploy changed it")
            if before.versions and not now.serves_like(before):
                self.server.load(name, before.pinned())
            serving = self.server.snapshot(name).versions
            problem, untested = self._test_restored(attempt) if serving == before.versions else ("", ())
        except RepogenError as error:
            # a server that crashed because of the new version loads it again when it restarts
            note = f"could not be restored: {error.message}; {self._rollback_hint(attempt)}"
            return attempt.result(DeployAction.FAILED, self._serving(name), note)
        if serving != before.versions:
            note = f"could not be restored: the server serves {_versions_text(serving)}"
            return attempt.result(DeployAction.FAILED, serving, note)
        if problem:
            return attempt.result(DeployAction.FAILED, serving, f"{problem}; {self._rollback_hint(attempt)}")
        return attempt.result(DeployAction.RESTORED, serving, self._restored_note(attempt, untested))

    def _test_restored(self, attempt: _Attempt) -> tuple[str, tuple[int, ...]]:
        """Return why the versions of before do not pass the smoke test, or an empty text; and those without a test."""
        directory, before = self.repository / attempt.model.name, attempt.before
        tested = tuple(v for v in sorted(before.versions) if is_file(directory / str(v) / MANIFEST_FILE))
        config = before.pinned()
        config.ClearField("version_policy")
        model = PreparedModel(directory, tested, config)
        for report in smoke_served(self.server.running, self.server.client, model, self.server.limits):
            try:
                raise_for_failures(report)
            except SmokeError as error:
                return f"serves what it served before, which also failed the smoke test: {error.message}", ()
        return "", tuple(version for version in before.versions if version not in tested)

    def _restored_note(self, attempt: _Attempt, untested: tuple[int, ...]) -> str:
        before = attempt.before.versions
        if not before:
            return "was not served before, and was unloaded"
        parts = [f"serves {_versions_text(before)} as before"]
        if untested:
            parts.append(f"{_versions_text(untested)} could not be tested: {self.repository} has no golden tensors")
        if before != attempt.model.versions:
            parts.append(
                f"{self.repository} still selects {_versions_text(attempt.model.versions)}, which the server loads "
                f"when it restarts: {self._rollback_hint(attempt)}"
            )
        return "; ".join(parts)

    def _success(self, attempt: _Attempt) -> ModelDeployment:
        now = self.server.snapshot(attempt.model.name)
        is_same = now.serves_like(attempt.before)
        return attempt.result(DeployAction.UNCHANGED if is_same else DeployAction.DEPLOYED, now.versions)

    def _left(self, attempt: _Attempt) -> ModelDeployment:
        """Return the result of a model on a polling server, which cannot be restored from here."""
        serving = self._serving(attempt.model.name)
        if attempt.error is not None:
            return attempt.result(DeployAction.FAILED, serving, self._hint(attempt))
        is_tested = attempt.smoke and all(report.passed for report in attempt.smoke)
        if is_tested and serving == attempt.model.versions:
            return attempt.result(DeployAction.DEPLOYED, serving)
        return attempt.result(DeployAction.SKIPPED, serving, "not tested: interrupted")

    def _serving(self, name: str) -> tuple[int, ...] | None:
        try:
            return self.server.snapshot(name).versions
        except RepogenError:
            return None

    def _hint(self, attempt: _Attempt) -> str:
        if attempt.error is not None and attempt.error.code == "deploy.not-polled":
            return "nothing was changed on the server"
        return (
            "the server polls its repository, so this command cannot restore what it served; to serve the earlier "
            f"version again, {self._rollback_hint(attempt)}"
        )

    def _rollback_hint(self, attempt: _Attempt) -> str:
        before = attempt.before.versions
        to = f" --to {before[0]}" if before and before != attempt.model.versions else ""
        return f"run `repogen rollback {attempt.model.name} --repository {self.repository}{to}`"

    def _not_polled_error(self, name: str, expected: tuple[int, ...], serving: tuple[int, ...]) -> SmokeError:
        return SmokeError(
            f"{name}: after {self.poll_seconds:g} s, {self.server.address} serves {_versions_text(serving)}, but the "
            f"repository selects {_versions_text(expected)}",
            "a server in mode none, such as `repogen serve` without --poll, never loads a new version: start it with "
            "--model-control-mode=explicit or `repogen serve --poll`. If the server polls, run `repogen deploy` with a "
            "--timeout longer than its --repository-poll-secs, and check that its repository has the same content as "
            f"{self.repository}",
            code="deploy.not-polled",
        )

    def _other_version_error(self, name: str, expected: tuple[int, ...], serving: tuple[int, ...]) -> SmokeError:
        return SmokeError(
            f"{name}: after loading, {self.server.address} serves {_versions_text(serving)}, but the repository "
            f"selects {_versions_text(expected)}",
            f"the server's --model-repository must have the same content as {self.repository}: mount or copy it there",
            code="deploy.other-version",
        )


def _versions_text(versions: Sequence[int]) -> str:
    """Return versions as text.

    >>> _versions_text([2]), _versions_text([3, 2]), _versions_text([])
    ('version 2', 'versions 3, 2', 'no version')
    """
    if not versions:
        return "no version"
    return f"version{'' if len(versions) == 1 else 's'} {', '.join(map(str, versions))}"

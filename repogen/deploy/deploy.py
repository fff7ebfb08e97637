"""Deploys models to servers, one after another, and stops at the first failure.

Before anything changes, the repository's versions are checked, and every server is contacted.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from repogen.artifacts.deployment import DeployAction, DeployReport, ModelDeployment, ServerDeployment
from repogen.attestation.signature import require_signed_model
from repogen.deploy.live_server import open_server
from repogen.deploy.lock import server_lock
from repogen.deploy.plan import no_fetch, plan
from repogen.deploy.rollout import Rollout
from repogen.errors import RepogenError, SmokeError, SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.artifacts.deployment import DeployOptions
    from repogen.artifacts.progress import Progress
    from repogen.deploy.live_server import LiveServer
    from repogen.deploy.plan import Fetch, FetchVersions, Group

POLL_SECONDS = 60.0
"""How long to wait for a polling server without ``--timeout``; Triton polls every 15 s by default."""


def deploy(repository: Path, options: DeployOptions, progress: Progress, fetch: Fetch = no_fetch) -> DeployReport:
    """Deploy models of a repository to servers.

    Args:
        repository: A repository that repogen built or synced; the servers' repositories have the same content.
        options: The flags.
        progress: Receives progress events.
        fetch: Downloads what is read of versions, if the repository is the copy of one in a store.

    Returns:
        What each server serves. A server that fails has an error in the report, and the servers after it are unchanged.

    Raises:
        RepogenError: The repository's versions cannot be deployed; see ``repogen.deploy.plan``. Nothing was changed.
    """
    if both := sorted({*options.models} & {*options.unload}):
        raise SpecError(
            f"{', '.join(both)} cannot be both deployed and unloaded",
            "remove --unload or the name",
            code="deploy.unload",
        )
    groups: tuple[Group, ...] = ()
    if options.models or not options.unload:
        groups = plan(repository, options.models, partial(fetch, whole=options.signer is not None))
    for model in (model for group in groups for model in group):
        require_signed_model(repository / model.name, model.versions, options.signer)
    run = _Run(repository, options, groups, progress, partial(fetch, whole=False))
    servers = [run.inspect(address) for address in options.servers]
    if options.dry_run or any(server.error is not None for server in servers):
        return DeployReport(repository, tuple(servers), dry_run=options.dry_run)
    for index, server in enumerate(servers):
        result = run.deploy(server)
        servers[index] = result.server
        if not result.complete:
            return DeployReport(repository, tuple(servers), interrupted=result.interrupted)
    return DeployReport(repository, tuple(servers))


@dataclass(frozen=True)
class _ServerResult:
    """The deployment to one server: its report, whether it is complete, and whether Ctrl-C ended it."""

    server: ServerDeployment
    complete: bool
    interrupted: bool = False


@dataclass(frozen=True)
class _Run:
    """One run of ``deploy``."""

    repository: Path
    options: DeployOptions
    groups: tuple[Group, ...]
    progress: Progress
    fetch: FetchVersions

    def inspect(self, address: str) -> ServerDeployment:
        """Return what a server serves of the models, or why it cannot be used; changes nothing."""
        server = ServerDeployment(address)
        try:
            with open_server(address, self.options.credentials, self.options.timeout) as live:
                self._require_models(live)
                return replace(server, models=tuple(self._skipped(live)))
        except RepogenError as error:
            return replace(server, error=error.record)

    def deploy(self, server: ServerDeployment) -> _ServerResult:
        """Deploy every group to a server, and unload models; stop at the first failure."""
        done: list[ModelDeployment] = []
        complete, interrupted, error, note, mode = False, False, None, "", None
        self.progress.step("", f"deploy to {server.server}")
        try:
            with (
                server_lock(server.server, self.options.timeout, self.progress),
                open_server(server.server, self.options.credentials, self.options.timeout) as live,
            ):
                before = live.serving()
                poll_seconds = self.options.timeout or POLL_SECONDS
                rollout = Rollout(live, self.repository, poll_seconds, self.progress, self.fetch)
                for group in self.groups:
                    result = rollout.deploy(group)
                    done += result.models
                    interrupted = result.interrupted
                    if not result.complete:
                        break
                else:
                    for name in self.options.unload:
                        done.append(rollout.unload(name))  # an error keeps the results of the models before
                    complete = True
                mode = live.mode
                with suppress(RepogenError):  # the report of the models has the reason
                    note = _note(live, before, {model.model for model in done})
        except KeyboardInterrupt:
            interrupted, complete = True, False
            server = self.inspect(server.server)
        except RepogenError as caught:
            error, complete = caught.record, False
        models = (*done, *_remaining(server, done))
        return _ServerResult(replace(server, mode=mode, models=models, note=note, error=error), complete, interrupted)

    def _require_models(self, live: LiveServer) -> None:
        """Check that the server's repository has the selected models.

        Raises:
            SmokeError: It lacks some.
        """
        existing = live.models()
        selected = [model.name for group in self.groups for model in group if model.selected]
        if missing := [name for name in selected if name not in existing]:
            raise SmokeError(
                f"{live.address}: the server's repository has no model {', '.join(missing)}; it has "
                f"{', '.join(sorted(existing)) or 'none'}",
                f"its --model-repository must have the same content as {self.repository}: mount or copy it there; a "
                "server in mode none, such as `repogen serve` without --poll, reads its repository only when it starts",
                code="deploy.no-such-model",
            )

    def _skipped(self, live: LiveServer) -> list[ModelDeployment]:
        """Return what the server serves before the deploy, also of the models to unload."""
        models = {model.name: model for group in self.groups for model in group}
        expected = {name: model.versions for name, model in models.items()} | dict.fromkeys(self.options.unload, ())
        versions = {name: live.snapshot(name).versions for name in expected}
        return [
            ModelDeployment(
                *(name, DeployAction.SKIPPED), expected=expected[name], before=versions[name], serving=versions[name]
            )
            for name in expected
            if name in self.options.unload or models[name].selected or versions[name]
        ]


def _note(live: LiveServer, before: Mapping[str, tuple[int, ...]], names: set[str]) -> str:
    """Return what the user should know about a server after a deploy of models ``names``."""
    changed = [
        f"{name} serves {', '.join(map(str, versions))}, before: {', '.join(map(str, before[name]))}"
        for name, versions in live.serving().items()
        if name not in names and versions != before.get(name, versions)
    ]
    also = (
        f"Triton also loaded other versions of models that were not deployed: {'; '.join(changed)}" if changed else ""
    )
    return "; ".join(part for part in (also, live.unready_reason(sorted(names))) if part)


def _remaining(server: ServerDeployment, done: list[ModelDeployment]) -> list[ModelDeployment]:
    """Return the models of an inspected server that were not reached."""
    names = {model.model for model in done}
    return [model for model in server.models if model.model not in names]

"""The report of `repogen deploy`: the versions of each model that each server serves."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from repogen.artifacts.serving import NO_CREDENTIALS, ControlMode
from repogen.errors import ErrorRecord, ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.attestation import TrustedSigner
    from repogen.artifacts.serving import Credentials, SmokeReport


@dataclass(frozen=True)
class DeployOptions:
    """Flags of ``repogen deploy``.

    Attributes:
        servers: ``HOST:PORT`` or ``unix:PATH`` of each server, in the order of the deploy.
        models: Names of the models; every model that repogen built if empty.
        unload: Names of models that the servers should no longer serve; ``models`` may then be empty.
        timeout: Seconds for loading a model, or for a polling server to load it; None for the default of the mode.
        dry_run: Report what the servers serve, and change nothing.
        credentials: How to connect.
        signer: Whose signatures the versions must have; None to require none.
    """

    servers: tuple[str, ...]
    models: tuple[str, ...] = ()
    unload: tuple[str, ...] = ()
    timeout: float | None = None
    dry_run: bool = False
    credentials: Credentials = field(default=NO_CREDENTIALS, repr=False)
    signer: TrustedSigner | None = None


class DeployAction(Enum):
    """What a deploy did with a model on a server."""

    DEPLOYED = "deployed"
    """The server serves the repository's versions from now on, and they passed the smoke test."""
    UNCHANGED = "unchanged"
    """The server served them before, and they passed the smoke test."""
    RESTORED = "restored"
    """A model of its group failed; the server serves what it served before, and that passed the smoke test."""
    FAILED = "failed"
    """It failed, and the server does not serve, or is not known to serve, what it served before."""
    UNLOADED = "unloaded"
    """The server no longer serves it, as requested."""
    SKIPPED = "skipped"
    """The deploy stopped before this model, nothing was to be done, or a server that polls has to unload it."""


@dataclass(frozen=True)
class ModelDeployment:
    """One model on one server.

    Attributes:
        model: Its name.
        action: What was done.
        expected: Versions that the repository selects, newest first.
        before: Versions that the server served before; None if unknown.
        serving: Versions that it serves now; None if unknown.
        note: What the user should know; may be empty.
        smoke: Smoke tests of the expected versions.
        error: Why it failed; None if it did not.
    """

    model: str
    action: DeployAction
    expected: tuple[int, ...] = ()
    before: tuple[int, ...] | None = None
    serving: tuple[int, ...] | None = None
    note: str = ""
    smoke: tuple[SmokeReport, ...] = ()
    error: ErrorRecord | None = None


@dataclass(frozen=True)
class ServerDeployment:
    """One server.

    Attributes:
        server: Its address.
        mode: Its control mode; None before a model was deployed. A server that rejects load requests counts as polling.
        models: One entry per model, steps before their ensembles.
        note: What the user should know; may be empty.
        error: Why the server could not be used; None if it could.
    """

    server: str
    mode: ControlMode | None = None
    models: tuple[ModelDeployment, ...] = ()
    note: str = ""
    error: ErrorRecord | None = None

    @property
    def is_complete(self) -> bool:
        """Whether every model was deployed."""
        complete = {DeployAction.DEPLOYED, DeployAction.UNCHANGED, DeployAction.UNLOADED}
        return self.error is None and all(model.action in complete for model in self.models)

    @property
    def errors(self) -> tuple[ErrorRecord, ...]:
        """Every error of the server and of its models."""
        errors = (self.error, *(model.error for model in self.models))
        return tuple(error for error in errors if error is not None)


@dataclass(frozen=True)
class DeployReport:
    """One run of ``repogen deploy``.

    Attributes:
        repository: The repository whose versions were deployed.
        servers: One entry per server, in order.
        interrupted: Whether Ctrl-C ended the run; the change under way was reversed.
        dry_run: Whether no change was made.
    """

    repository: Path
    servers: tuple[ServerDeployment, ...]
    interrupted: bool = False
    dry_run: bool = False

    @property
    def pending(self) -> tuple[tuple[str, ModelDeployment], ...]:
        """Server and model where a server does not serve the versions that the repository selects."""
        return tuple((s.server, model) for s in self.servers for model in s.models if model.serving != model.expected)

    @property
    def exit_code(self) -> int:
        """0, 130 after an interruption, or the smallest exit code of the errors."""
        if self.interrupted:
            return int(ExitCode.INTERRUPTED)
        return min((error.exit_code for server in self.servers for error in server.errors), default=int(ExitCode.OK))

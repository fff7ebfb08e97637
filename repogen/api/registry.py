"""``repogen.promote``, ``rollback_alias``, ``history``, ``sync``, ``follow``: releases through the MLflow registry."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.api.model_registry import open_registry
from repogen.api.spec import optional_spec
from repogen.api.working_directory import own_default
from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import NO_CREDENTIALS
from repogen.artifacts.sync import CHANGES, Followed, SyncOptions
from repogen.errors import RepogenError, machine_errors
from repogen.registry.gates.flags import declared_gates, with_flags
from repogen.registry.mlflow.uri import require_alias
from repogen.registry.promotion import promote as promotion
from repogen.registry.promotion.request import PromotionRequest
from repogen.registry.sync import sync as syncing
from repogen.repository.layout import archive_dir
from repogen.repository.ownership import require_synced
from repogen.stores.open import run

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from repogen.artifacts.attestation import TrustedSigner
    from repogen.artifacts.progress import Progress
    from repogen.artifacts.promotion import History, PromotionReport
    from repogen.artifacts.serving import Credentials
    from repogen.artifacts.sync import SyncReport
    from repogen.spec.models import Spec


def promote(  # noqa: PLR0913 - one parameter per option of `repogen promote`
    name: str,
    version: int | None = None,
    *,
    alias: str = "champion",
    gates: Sequence[str] = (),
    spec: Spec | Path | str | None = None,
    spec_required: bool = True,
    server: str = "embedded",
    credentials: Credentials = NO_CREDENTIALS,
    dry_run: bool = False,
    tracking_uri: str | None = None,
    progress: Progress | None = None,
) -> PromotionReport:
    """Point an alias of a registered model to a version that passes its gates, as ``repogen promote`` does.

    Example::

        report = repogen.promote("digits", alias="champion", gates=["parity=1e-4"])
        report.outcome.value  # 'promoted'

    Args:
        name: The registered model.
        version: Its version; the newest published one when None.
        alias: The alias to move.
        gates: Limits in the form of ``--gate``, such as ``latency.max_ratio=1.1`` or ``size=off``.
        spec: A spec file or a loaded spec, for the ``promotion:`` section of the model and the MLflow server.
        spec_required: Whether a spec without the model is an error.
        server: Triton server to measure on: ``embedded``, ``docker``, ``HOST:PORT`` or a plug-in's.
        credentials: TLS and headers of a server at ``HOST:PORT``.
        dry_run: Measure and evaluate, but move nothing.
        tracking_uri: MLflow server, instead of ``MLFLOW_TRACKING_URI`` and the spec's.
        progress: Receives progress events; silent by default.

    Returns:
        Every gate with its measurement and verdict, and what happened to the alias.

    Raises:
        repogen.errors.SpecError: The model, version or alias does not exist, or a gate, ``server`` or ``credentials``
            are not valid.
        repogen.errors.TrackingError: The registry cannot be reached, or the alias moved in the meantime.
    """
    loaded_spec = optional_spec(spec)
    root = Path() if loaded_spec is None else loaded_spec.root
    effective_gates = with_flags(declared_gates(loaded_spec, name, required=spec_required), gates)
    other_names = () if loaded_spec is None or name in loaded_spec.models else tuple(loaded_spec.models)
    request = PromotionRequest(
        name, version, alias, effective_gates, root, server, dry_run, credentials, other_names=other_names
    )
    return promotion.promote(open_registry(loaded_spec, tracking_uri), request, progress or Silent())


def rollback_alias(
    name: str,
    *,
    alias: str = "champion",
    spec: Spec | Path | str | None = None,
    dry_run: bool = False,
    tracking_uri: str | None = None,
) -> PromotionReport:
    """Move an alias back to the version that it pointed to before, without gates, as ``promote --rollback`` does.

    It does not change a repository; ``repogen.rollback`` does that.

    Args:
        name: The registered model.
        alias: The alias to move.
        spec: A spec file or a loaded spec, which names the MLflow server.
        dry_run: Move nothing.
        tracking_uri: MLflow server, instead of ``MLFLOW_TRACKING_URI`` and the spec's.

    Raises:
        repogen.errors.GateError: There is no earlier version.
        repogen.errors.TrackingError: The registry cannot be reached, or the alias moved in the meantime.
    """
    return promotion.rollback(open_registry(spec, tracking_uri), name, alias, dry_run=dry_run)


def history(
    name: str, *, alias: str | None = None, spec: Spec | Path | str | None = None, tracking_uri: str | None = None
) -> History:
    """Return which version each alias of a registered model pointed to, and when.

    Args:
        name: The registered model.
        alias: Only this alias; all when None.
        spec: A spec file or a loaded spec, which names the MLflow server.
        tracking_uri: MLflow server, instead of ``MLFLOW_TRACKING_URI`` and the spec's.

    Raises:
        repogen.errors.TrackingError: The registry cannot be reached.
    """
    return promotion.history(open_registry(spec, tracking_uri), name, alias)


def sync(  # noqa: PLR0913 - one parameter per option of `repogen sync`
    repository: Path | str = "model_repository",
    *,
    alias: str,
    models: Sequence[str] = (),
    dry_run: bool = False,
    prune: bool = False,
    signer: TrustedSigner | None = None,
    spec: Spec | Path | str | None = None,
    tracking_uri: str | None = None,
    progress: Progress | None = None,
) -> SyncReport:
    """Make a repository serve exactly the versions that an alias points to, as ``repogen sync`` does.

    Example::

        report = repogen.sync("prod", alias="champion")
        report.changed  # True

    Args:
        repository: A repository that only ``sync`` writes; created when it does not exist.
        alias: Serve the versions that it points to.
        models: Names of the models to look at; every registered one when empty.
        dry_run: Change nothing.
        prune: Delete old versions that are no longer needed, see ``repogen.prune``, and models without the alias.
        signer: Whose signatures new versions must have; none are required when None.
        spec: A spec file or a loaded spec, which names the MLflow server.
        tracking_uri: MLflow server, instead of ``MLFLOW_TRACKING_URI`` and the spec's.
        progress: Receives progress events; silent by default.

    Returns:
        What was done, by model and version.

    Raises:
        repogen.errors.SpecError: The alias is not valid, or a model is unknown.
        repogen.errors.PublishError: Another command writes the repository.
        repogen.errors.TrackingError: The registry cannot be reached.
    """
    require_alias(alias)
    loaded_spec = optional_spec(spec)
    options, events = SyncOptions(alias, tuple(models), dry_run, prune, signer), progress or Silent()

    def fetch(path: Path) -> list[Path]:
        # a version that is served again is read before; `run` calls this for a repository in a store only
        require_synced(path, alias)
        planned = syncing.sync(open_registry(loaded_spec, tracking_uri), path, replace(options, dry_run=True), Silent())
        changed = {version.model for version in planned.versions if version.action in CHANGES}
        archive = archive_dir(path)
        return [directory / name for directory in (path, archive) for name in changed]

    def action(path: Path) -> SyncReport:
        require_synced(path, alias)  # before mlflow is imported, which takes seconds
        return syncing.sync(open_registry(loaded_spec, tracking_uri), path, options, events)

    return run(own_default(repository), action, fetch=fetch, writes=True, progress=events)


def follow(  # noqa: PLR0913 - as `sync`, and where to listen
    repository: Path | str = "model_repository",
    *,
    alias: str,
    listen: str,
    interval: float = 60.0,
    models: Sequence[str] = (),
    prune: bool = False,
    signer: TrustedSigner | None = None,
    spec: Spec | Path | str | None = None,
    tracking_uri: str | None = None,
    progress: Progress | None = None,
) -> Generator[Followed, None, None]:
    """Sync a repository repeatedly: when MLflow reports that the alias was moved, and at every interval.

    MLflow 3 reports it with a webhook, which is signed with the secret in the environment variable
    REPOGEN_WEBHOOK_SECRET. A webhook only causes a sync: what is served is always read from the registry, so a lost
    webhook delays a change until the next interval. An error of one sync does not end the loop.

    Example::

        for followed in repogen.follow("prod", alias="champion", listen="0.0.0.0:8123"):
            print(followed.error or followed.report.changed)

    Args:
        repository: A repository that only ``sync`` writes; created when it does not exist.
        alias: Serve the versions that it points to.
        listen: ``HOST:PORT`` for webhooks; port 0 selects a free one.
        interval: Seconds between syncs without a webhook.
        models: Names of the models to look at; every registered one when empty.
        prune: As for ``sync``.
        signer: Whose signatures new versions must have; none are required when None.
        spec: A spec file or a loaded spec, which names the MLflow server.
        tracking_uri: MLflow server, instead of ``MLFLOW_TRACKING_URI`` and the spec's.
        progress: Receives progress events; silent by default.

    Yields:
        After each sync its report or its error, the address of the listener, and why requests were rejected.

    Raises:
        repogen.errors.SpecError: The alias is not valid, the secret is missing or too short, or it is not possible to
            listen on the address.
    """
    from repogen.registry.webhook.receiver import receiving  # noqa: PLC0415 - not for other commands
    from repogen.registry.webhook.signature import Verifier, secret_of  # noqa: PLC0415 - the same

    require_alias(alias)
    loaded_spec = optional_spec(spec)
    with receiving(listen, Verifier(secret_of(os.environ)), alias) as receiver:
        while True:
            report, error = None, None
            try:
                with machine_errors():
                    report = sync(
                        repository, alias=alias, models=models, prune=prune, signer=signer, spec=loaded_spec,
                        tracking_uri=tracking_uri, progress=progress,
                    )  # fmt: skip
            except RepogenError as failure:
                error = failure
            yield Followed(report, error, receiver.address, receiver.rejections())
            receiver.wait(interval)

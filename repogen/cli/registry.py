"""The release desk: ``promote``, ``history`` and ``sync``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from repogen.cli.group import DIRECTORY, FILE, SERVER, debug_option, errors, json_option, main, tracking_option
from repogen.errors import SpecError

if TYPE_CHECKING:
    from repogen.spec.models import Spec


@main.command()
@click.argument("name")
@click.argument("version", type=click.IntRange(min=1), required=False)
@click.option("--alias", default="champion", show_default=True, help="Alias to move.")
@click.option("gates", "--gate", multiple=True, metavar="GATE", help="parity=1e-3, latency.max_ratio=1.1, size=off, ….")
@click.option("--rollback", "back", is_flag=True, help="Go back to the version that served before, without gates.")
@click.option("--server", default="embedded", show_default=True, help=f"Triton to measure on: {SERVER}.")
@click.option("--dry-run", is_flag=True, help="Measure and judge, move nothing.")
@click.option("--spec", type=FILE, help="Spec with the model's promotion: section; repogen.yaml if there is one.")
@tracking_option
@json_option
@debug_option
def promote(  # noqa: PLR0913 - one parameter a flag
    *,
    name: str,
    version: int | None,
    alias: str,
    gates: tuple[str, ...],
    back: bool,
    server: str,
    dry_run: bool,
    spec: Path | None,
    tracking_uri: str | None,
    as_json: bool,
    debug: bool,
) -> None:
    """Point an alias of the registered model NAME to VERSION (default: the newest) if it passes its gates."""
    with errors(debug=debug, as_json=as_json):
        from repogen.registry.gates.flags import declared_gates, with_flags  # noqa: PLC0415 - the same
        from repogen.registry.mlflow.access import open_registry  # noqa: PLC0415 - the same
        from repogen.registry.mlflow.uri import tracking_of  # noqa: PLC0415 - the same
        from repogen.registry.promotion.promote import promote as go  # noqa: PLC0415 - the same
        from repogen.registry.promotion.promote import rollback as go_back  # noqa: PLC0415 - the same
        from repogen.registry.promotion.request import PromotionRequest  # noqa: PLC0415 - the same
        from repogen.reporting.github import guarded, tell_promotion  # noqa: PLC0415 - see the package's text
        from repogen.reporting.progress import progress_view  # noqa: PLC0415 - the same
        from repogen.reporting.promotion import promotion_json, promotion_text  # noqa: PLC0415 - the same

        if back and (version is not None or gates):
            raise SpecError("--rollback takes neither a VERSION nor --gate: it goes back one, without gates")
        loaded = _spec_at_hand(spec)
        root = Path() if loaded is None else loaded.root
        wanted = with_flags(declared_gates(loaded, name, required=spec is not None), gates)
        tracking = tracking_of(loaded, tracking_uri, Path())
        with progress_view(quiet=as_json) as progress:
            registry = open_registry(tracking)
            if back:
                report = go_back(registry, name, alias, dry_run=dry_run)
            else:
                request = PromotionRequest(name, version, alias, wanted, root, server, dry_run)
                report = go(registry, request, progress)
        click.echo(promotion_json(report) if as_json else guarded(promotion_text(report)))
        tell_promotion(report, loaded, err=as_json)
        sys.exit(report.exit_code)


@main.command()
@click.argument("name")
@click.option("--alias", help="Only this one; all when left out.")
@click.option("--spec", type=FILE, help="Spec that names the MLflow server; repogen.yaml if there is one.")
@tracking_option
@json_option
@debug_option
def history(
    *, name: str, alias: str | None, spec: Path | None, tracking_uri: str | None, as_json: bool, debug: bool
) -> None:
    """Show which version each alias of the registered model NAME pointed to when, and why."""
    with errors(debug=debug, as_json=as_json):
        from repogen.registry.mlflow.access import open_registry  # noqa: PLC0415 - the same
        from repogen.registry.mlflow.uri import tracking_of  # noqa: PLC0415 - the same
        from repogen.registry.promotion.promote import history as look_back  # noqa: PLC0415 - the same
        from repogen.reporting.github import guarded  # noqa: PLC0415 - see the package's text
        from repogen.reporting.promotion import history_json, history_text  # noqa: PLC0415 - the same

        registry = open_registry(tracking_of(_spec_at_hand(spec), tracking_uri, Path()))
        found = look_back(registry, name, alias)
        click.echo(history_json(found) if as_json else guarded(history_text(found)))


@main.command()
@click.option("--alias", required=True, help="Serve the versions that it points to, for example champion.")
@click.option("--repository", type=DIRECTORY, default=Path("model_repository"), show_default=True, metavar="DIR")
@click.option("models", "--model", multiple=True, metavar="NAME", help="Only this model; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--prune", is_flag=True, help="Delete the versions and models that are not served.")
@click.option("--spec", type=FILE, help="Spec that names the MLflow server; repogen.yaml if there is one.")
@tracking_option
@json_option
@debug_option
def sync(  # noqa: PLR0913 - one parameter a flag
    *,
    alias: str,
    repository: Path,
    models: tuple[str, ...],
    dry_run: bool,
    prune: bool,
    spec: Path | None,
    tracking_uri: str | None,
    as_json: bool,
    debug: bool,
) -> None:
    """Make a Triton repository serve what an alias of the registry points to."""
    with errors(debug=debug, as_json=as_json):
        from repogen.artifacts.sync import SyncOptions  # noqa: PLC0415 - the same
        from repogen.registry.mlflow.access import open_registry  # noqa: PLC0415 - the same
        from repogen.registry.mlflow.uri import tracking_of  # noqa: PLC0415 - the same
        from repogen.registry.sync.sync import sync as follow  # noqa: PLC0415 - the same
        from repogen.reporting.github import guarded  # noqa: PLC0415 - see the package's text
        from repogen.reporting.progress import progress_view  # noqa: PLC0415 - the same
        from repogen.reporting.sync import sync_json, sync_text  # noqa: PLC0415 - the same
        from repogen.repository.ownership import require_synced  # noqa: PLC0415 - the same

        require_synced(repository, alias)  # before MLflow is imported, which takes seconds
        tracking = tracking_of(_spec_at_hand(spec), tracking_uri, Path())
        with progress_view(quiet=as_json) as progress:
            options = SyncOptions(alias, models, dry_run, prune)
            report = follow(open_registry(tracking), repository, options, progress)
        click.echo(sync_json(report) if as_json else guarded(sync_text(report, debug=debug)))
        sys.exit(report.exit_code)


def _spec_at_hand(path: Path | None) -> Spec | None:
    """Return the spec that was named, else the one that lies here, if one does."""
    from repogen.spec.load import load_spec  # noqa: PLC0415 - see the package's text

    if path is None and not Path("repogen.yaml").is_file():
        return None
    return load_spec(path or Path("repogen.yaml"))

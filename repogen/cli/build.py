"""From a spec to a repository: ``init``, ``build`` and ``diagnose``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from repogen.cli.group import DIRECTORY, FILE, SERVER, debug_option, errors, json_option, main, tracking_option


@main.command()
@click.argument("directory", type=DIRECTORY, default=Path())
@click.option(
    "source", "--from", metavar="PATH", help="Write the spec for this model: file, directory, file.py:callable."
)
@click.option("--github", is_flag=True, help="Write a GitHub Actions workflow, too; only that beside a spec.")
@click.option("--force", is_flag=True, help="Overwrite files that are there.")
@debug_option
def init(directory: Path, *, source: str | None, github: bool, force: bool, debug: bool) -> None:
    """Write a commented, working repogen.yaml with a tiny model to DIRECTORY, or one for the model of --from."""
    with errors(debug=debug):
        from repogen.scaffold.describe import describe  # noqa: PLC0415 - see the package's text
        from repogen.scaffold.files import scaffold, scaffold_from  # noqa: PLC0415 - see the package's text

        model = None if source is None else describe(source, directory)
        written = () if model is None else scaffold_from(model, directory, force=force)
        if model is None or github:
            written += scaffold(directory, force=force, github=github)
        for path in written:
            click.echo(f"wrote {path}")
        target = "" if directory == Path() else f" {directory / 'repogen.yaml'}"
        first = f"{model.missing}, then " if model is not None and model.missing else ""
        click.echo(f"next: {first}repogen build{target}")


@main.command()
@click.argument("spec", type=FILE, default=Path("repogen.yaml"))
@click.option("models", "--model", multiple=True, metavar="NAME", help="Build only this model; may be repeated.")
@click.option("--repository", type=DIRECTORY, metavar="DIR", help="Publish here instead of the spec's repository.")
@click.option("--target", metavar="RELEASE", help="Build for this Triton release, such as 24.10, not the spec's.")
@click.option("--server", default="embedded", show_default=True, help=f"Triton for the smoke test: {SERVER}.")
@click.option("--no-smoke", is_flag=True, help="Publish without asking a real Triton.")
@click.option("--force", is_flag=True, help="Build and publish even what is unchanged.")
@click.option("--breaking", is_flag=True, help="Allow inputs and outputs that differ from the published version's.")
@click.option("--dry-run", is_flag=True, help="Do everything but track and publish.")
@click.option("--no-track", is_flag=True, help="Leave MLflow alone.")
@tracking_option
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Models built at a time.")
@click.option("--stage-dir", type=DIRECTORY, metavar="DIR", help="Stage here instead of beside the repository.")
@json_option
@debug_option
def build(  # noqa: PLR0913 - one parameter a flag
    *,
    spec: Path,
    models: tuple[str, ...],
    repository: Path | None,
    target: str | None,
    server: str,
    no_smoke: bool,
    force: bool,
    breaking: bool,
    dry_run: bool,
    no_track: bool,
    tracking_uri: str | None,
    jobs: int,
    stage_dir: Path | None,
    as_json: bool,
    debug: bool,
) -> None:
    """Export, verify, smoke-test and publish the models of SPEC (default: repogen.yaml)."""
    with errors(debug=debug, as_json=as_json):
        from repogen.build.pipeline import BuildOptions, build  # noqa: PLC0415 - the same
        from repogen.reporting.github import guarded, tell_build  # noqa: PLC0415 - the same
        from repogen.reporting.json_document import build_json  # noqa: PLC0415 - see the package's text
        from repogen.reporting.progress import progress_view  # noqa: PLC0415 - the same
        from repogen.reporting.text import build_text  # noqa: PLC0415 - the same
        from repogen.spec.load import load_spec  # noqa: PLC0415 - the same

        options = BuildOptions(
            models=models,
            repository=repository,
            server=None if no_smoke else server,
            force=force,
            dry_run=dry_run,
            allow_breaking=breaking,
            jobs=jobs,
            stage_dir=stage_dir,
            track=not no_track,
            tracking_uri=tracking_uri,
        )
        loaded = load_spec(spec, target)
        with progress_view(quiet=as_json) as progress:
            report = build(loaded, options, progress)
        click.echo(build_json(report) if as_json else guarded(build_text(report, debug=debug)))
        tell_build(report, loaded, err=as_json)
        sys.exit(report.exit_code)


@main.command()
@click.argument("model")
@click.option("--spec", type=FILE, default=Path("repogen.yaml"), show_default=True, help="Where the model is.")
@click.option("--target", metavar="RELEASE", help="For this Triton release, not the spec's.")
@json_option
@debug_option
def diagnose(*, model: str, spec: Path, target: str | None, as_json: bool, debug: bool) -> None:
    """Try every exporter on MODEL and name the first operator that each gets wrong; publishes nothing."""
    with errors(debug=debug, as_json=as_json):
        from repogen.build.pipeline import BuildOptions, build  # noqa: PLC0415 - the same
        from repogen.reporting.github import guarded  # noqa: PLC0415 - the same
        from repogen.reporting.json_document import build_json  # noqa: PLC0415 - see the package's text
        from repogen.reporting.progress import progress_view  # noqa: PLC0415 - the same
        from repogen.reporting.text import rungs_text  # noqa: PLC0415 - the same
        from repogen.spec.load import load_spec  # noqa: PLC0415 - the same

        options = BuildOptions(models=(model,), server=None, force=True, dry_run=True, try_all_exporters=True)
        loaded = load_spec(spec, target)
        with progress_view(quiet=as_json) as progress:
            report = build(loaded, options, progress)
        click.echo(build_json(report) if as_json else guarded(rungs_text(report.models[0], debug=debug)))
        sys.exit(report.exit_code)

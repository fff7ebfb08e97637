"""``repogen build`` and ``repogen diagnose``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal

import click

from repogen.api import build as api
from repogen.build.plan import AUTO_JOBS
from repogen.cli.completion import releases, server_names, spec_models
from repogen.cli.deploy import Connection, connection_options
from repogen.cli.group import (
    DIRECTORY,
    FILE,
    REPOSITORY,
    SERVER,
    control_header_option,
    debug_option,
    handle_errors,
    json_option,
    print_report,
    tracking_option,
)
from repogen.cli.signing import Signing, signing_options
from repogen.cli.spec_option import spec_or_default
from repogen.reporting.github import write_build
from repogen.reporting.json import as_dict
from repogen.reporting.plan_text import explain_text
from repogen.reporting.progress import progress_view
from repogen.reporting.text import build_text, diagnose_text
from repogen.spec.load import load_spec

if TYPE_CHECKING:
    from pathlib import Path


class _Jobs(click.ParamType[int | Literal["auto"]]):
    """A positive integer, or auto."""

    name = "N|auto"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | Literal["auto"]:
        """Return the number of models."""
        if value == AUTO_JOBS:
            return AUTO_JOBS
        try:
            jobs = int(str(value))
        except ValueError:
            jobs = 0
        if jobs < 1:
            self.fail(f"{value!r} is neither a positive integer nor auto", param, ctx)
        return jobs


@click.command()
@click.argument("spec", type=FILE, required=False)
@click.option(
    "models", "--model", multiple=True, metavar="NAME", shell_complete=spec_models,
    help="Build only this model; repeatable.",
)  # fmt: skip
@click.option("--repository", type=REPOSITORY, metavar="DIR|URL", help="Publish here instead of the spec's repository.")
@click.option(
    "--target", metavar="RELEASE", shell_complete=releases, help="Build for this Triton release, such as 24.10."
)
@click.option(
    "--server", default="embedded", show_default=True, shell_complete=server_names,
    help=f"Triton server for the smoke test: {SERVER}.",
)  # fmt: skip
@connection_options
@control_header_option
@click.option("--no-smoke", is_flag=True, help="Publish without testing on a real Triton server.")
@click.option("--force", is_flag=True, help="Also build and publish models that are up to date.")
@click.option("--allow-breaking", is_flag=True, help="Allow inputs and outputs that differ from the published version.")
@click.option(
    "adopt", "--adopt", multiple=True, metavar="NAME", shell_complete=spec_models,
    help="Take over a model that repogen did not build; repeatable.",
)  # fmt: skip
@click.option("--breaking", "allow_breaking", is_flag=True, hidden=True, help="Old name of --allow-breaking.")
@click.option("--dry-run", is_flag=True, help="Do everything except tracking and publishing.")
@click.option("--no-track", is_flag=True, help="Turn off MLflow tracking.")
@tracking_option
@click.option(
    "--jobs", type=_Jobs(), metavar="N|auto",
    help="Models to build in parallel (default: 1 with the local executor, else as many as the executor accepts); "
    "auto: one per processor, as far as memory allows.",
)  # fmt: skip
@click.option(
    "--executor", default="local", show_default=True, metavar="NAME[=ADDRESS]",
    help="Where to export and test: local, ray, ray=ADDRESS of a cluster, or a plug-in.",
)  # fmt: skip
@click.option(
    "--shard", metavar="I/N", help="Build the I-th of N parts of the models; ensembles stay with their steps."
)
@click.option(
    "plan", "--plan", type=FILE, metavar="FILE",
    help="Balance shards by the costs in this output of `repogen plan --json`.",
)  # fmt: skip
@click.option("--explain", is_flag=True, help="Show which steps ran or came from the cache, and why.")
@click.option("--stage-dir", type=DIRECTORY, metavar="DIR", help="Stage here instead of next to the repository.")
@signing_options
@click.option("--no-report", is_flag=True, help="Do not write an HTML report to build/reports next to SPEC.")
@json_option
@debug_option
def build(  # noqa: PLR0913 - one parameter per option
    *,
    spec: Path | None,
    models: tuple[str, ...],
    repository: Path | None,
    target: str | None,
    server: str,
    connection: Connection,
    no_smoke: bool,
    force: bool,
    allow_breaking: bool,
    adopt: tuple[str, ...],
    dry_run: bool,
    no_track: bool,
    tracking_uri: str | None,
    jobs: int | Literal["auto"] | None,
    executor: str,
    shard: str | None,
    plan: Path | None,
    explain: bool,
    stage_dir: Path | None,
    signing: Signing,
    no_report: bool,
    as_json: bool,
    debug: bool,
) -> None:
    """Export, verify, smoke-test and publish the models of SPEC.

    SPEC is a spec file (default: repogen.yaml). Models that are up to date are not built again.
    """
    with handle_errors(debug=debug, as_json=as_json):
        loaded_spec = load_spec(spec_or_default(spec), target)
        with progress_view(quiet=as_json) as progress:
            report = api.build(
                loaded_spec,
                models=models,
                repository=repository,
                server=None if no_smoke else server,
                credentials=connection.credentials(),
                force=force,
                allow_breaking=allow_breaking,
                adopt=adopt,
                dry_run=dry_run,
                track=not no_track,
                tracking_uri=tracking_uri,
                jobs=jobs,
                executor=executor,
                shard=shard,
                plan=plan,
                stage_dir=stage_dir,
                signing_key=signing.key(),
                report=not no_report,
                progress=progress,
            )
        print_report(
            lambda: "\n\n".join(
                filter(None, [explain_text(report) if explain else "", build_text(report, debug=debug)])
            ),
            lambda: as_dict(report),
            as_json=as_json,
        )
        write_build(report, loaded_spec, err=as_json)
        sys.exit(report.exit_code)


@click.command()
@click.argument("model", shell_complete=spec_models)
@click.option("--spec", type=FILE, metavar="FILE", help="Spec that contains the model; default: repogen.yaml.")
@click.option(
    "--target", metavar="RELEASE", shell_complete=releases, help="Export for this Triton release, such as 24.10."
)
@json_option
@debug_option
def diagnose(*, model: str, spec: Path | None, target: str | None, as_json: bool, debug: bool) -> None:
    """Try every exporter on MODEL; publish nothing.

    For each exporter that fails parity, names the first operator whose result differs from PyTorch's.
    """
    with handle_errors(debug=debug, as_json=as_json):
        loaded_spec = load_spec(spec_or_default(spec), target)
        with progress_view(quiet=as_json) as progress:
            report = api.build(
                loaded_spec,
                models=(model,),
                server=None,
                force=True,
                dry_run=True,
                try_all_exporters=True,
                report=False,
                progress=progress,
            )
        print_report(lambda: diagnose_text(report.models[0], debug=debug), lambda: as_dict(report), as_json=as_json)
        sys.exit(report.exit_code)

"""``repogen tune``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from repogen.api import tune as api
from repogen.artifacts.tune import PARAMETERS
from repogen.cli.completion import server_names, spec_models
from repogen.cli.group import (
    FILE,
    REPOSITORY,
    Integer,
    control_header_option,
    debug_option,
    handle_errors,
    json_option,
    print_report,
    tracking_option,
)
from repogen.cli.spec_option import spec_or_default
from repogen.reporting.github import write_tune
from repogen.reporting.json import as_dict
from repogen.reporting.progress import progress_view
from repogen.reporting.tune_text import tune_text

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.tune import Objective


@click.command()
@click.argument("model", shell_complete=spec_models)
@click.option(
    "--objective",
    type=click.Choice(("throughput", "latency")),
    default="throughput",
    show_default=True,
    help="Most rows per second, or lowest median latency.",
)
@click.option(
    "constraints",
    "--constraint",
    multiple=True,
    metavar="LIMIT",
    help='Limit to meet: "p99 < 20ms" (also p50, p95), "throughput > 500", "memory < 2GB"; repeatable.',
)
@click.option(
    "--budget",
    default="10m",
    show_default=True,
    metavar="TIME",
    help="Total time, such as 90s, 10m or 1h, for the trials and for builds with other optimization passes (at most "
    "half of it).",
)
@click.option("--trials", type=Integer(1, 10_000), default=50, show_default=True, help="Maximum number of trials.")
@click.option("--batch", type=Integer(1), default=1, show_default=True, help="Rows of each request.")
@click.option(
    "--concurrency",
    type=Integer(1, 4096),
    help="Concurrent requests; default: 16 (throughput) or 1 (latency).",
)
@click.option("--rounds", type=Integer(1, 1000), default=5, show_default=True, help="Rounds of the comparison.")
@click.option(
    "--seconds",
    type=click.FloatRange(0, 3600, min_open=True),
    default=1.0,
    show_default=True,
    help="Duration of each measurement in the comparison. In a trial, the first measurement takes 0.3 times as long, "
    "and each of the three others 0.6 times as long.",
)
@click.option(
    "--exclude",
    multiple=True,
    type=click.Choice(PARAMETERS),
    metavar="PARAMETER",
    help="Parameter that stays as in the spec, such as passes or instance_count; repeatable.",
)
@click.option("--write", is_flag=True, help="Write the chosen settings into the spec, if they are better.")
@click.option("--restart", is_flag=True, help="Discard the trials of an earlier run.")
@click.option("--spec", type=FILE, metavar="FILE", help="Spec of the model; default: repogen.yaml.")
@click.option("--repository", type=REPOSITORY, metavar="DIR|URL", help="Repository of the model; default: the spec's.")
@click.option(
    "--server",
    default="embedded",
    show_default=True,
    shell_complete=server_names,
    help="Triton server to measure on: embedded, docker, or the name of a plug-in server.",
)
@control_header_option
@click.option("--no-track", is_flag=True, help="Turn off MLflow tracking.")
@tracking_option
@json_option
@debug_option
def tune(  # noqa: PLR0913 - one parameter per option
    *,
    model: str,
    objective: Objective,
    constraints: tuple[str, ...],
    budget: str,
    trials: int,
    batch: int,
    concurrency: int | None,
    rounds: int,
    seconds: float,
    exclude: tuple[str, ...],
    write: bool,
    restart: bool,
    spec: Path | None,
    repository: Path | None,
    server: str,
    no_track: bool,
    tracking_uri: str | None,
    as_json: bool,
    debug: bool,
) -> None:
    """Search for the settings and passes that make MODEL fastest.

    First builds the model with other optimization passes, without publishing it. Each trial serves the published
    version, or one of these builds, with a different combination of Triton settings, and measures it with NVIDIA's
    perf_analyzer. The chosen config is then compared with the spec's and with Triton's auto-completed one. Ctrl-C stops
    the search and reports the best config so far; run the same command again to continue.
    """
    with handle_errors(debug=debug, as_json=as_json):
        with progress_view(quiet=as_json) as progress:
            report = api.tune(
                model,
                spec=spec_or_default(spec),
                repository=repository,
                objective=objective,
                constraints=constraints,
                budget=budget,
                trials=trials,
                batch=batch,
                concurrency=concurrency,
                rounds=rounds,
                seconds=seconds,
                exclude=exclude,
                write=write,
                restart=restart,
                server=server,
                track=not no_track,
                tracking_uri=tracking_uri,
                progress=progress,
            )
        print_report(lambda: tune_text(report, debug=debug), lambda: as_dict(report), as_json=as_json)
        write_tune(report, err=as_json)
        sys.exit(report.exit_code)

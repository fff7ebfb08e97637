"""``repogen bench``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from repogen.api import bench as api
from repogen.cli.completion import measured_models, server_names
from repogen.cli.deploy import Connection, connection_options
from repogen.cli.group import (
    FILE,
    REPOSITORY,
    SERVER,
    Integer,
    control_header_option,
    debug_option,
    handle_errors,
    json_option,
    print_report,
)
from repogen.cli.spec_option import optional_spec, spec_or_default
from repogen.reporting.bench_text import bench_text
from repogen.reporting.github import write_bench
from repogen.reporting.json import as_dict
from repogen.reporting.progress import progress_view

if TYPE_CHECKING:
    from pathlib import Path


class _Numbers(click.ParamType[tuple[int, ...]]):
    """Positive integers, separated by commas."""

    name = "N,N,…"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Return the numbers of ``1,8,32``."""
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(int(part) for part in str(value).split(","))
        except ValueError:
            numbers = ()
        if not numbers or min(numbers) < 1:
            self.fail(f"{value!r} is not a list of positive integers such as 1,8,32", param, ctx)
        return numbers


@click.command()
@click.argument("models", nargs=-1, metavar="[MODEL]...", shell_complete=measured_models)
@click.option("--batch", type=_Numbers(), default="1,8,32", show_default=True, help="Batch sizes to measure.")
@click.option(
    "--concurrency", type=_Numbers(), default="1,4,16", show_default=True, help="Numbers of concurrent requests."
)
@click.option("--rounds", type=Integer(1, 1000), default=5, show_default=True, help="Rounds to measure.")
@click.option(
    "--seconds",
    type=click.FloatRange(0, 3600, min_open=True),
    default=0.5,
    show_default=True,
    help="Duration of each measurement.",
)
@click.option(
    "--spec", type=FILE, metavar="FILE",
    help="Spec of the models; default: repogen.yaml, which may be missing if --repository is set.",
)  # fmt: skip
@click.option("--repository", type=REPOSITORY, metavar="DIR|URL", help="Repository of the models; default: the spec's.")
@click.option(
    "--server", default="embedded", show_default=True, shell_complete=server_names,
    help=f"Triton server to measure on: {SERVER}.",
)  # fmt: skip
@connection_options
@control_header_option
@json_option
@debug_option
def bench(  # noqa: PLR0913 - one parameter per option
    *,
    models: tuple[str, ...],
    batch: tuple[int, ...],
    concurrency: tuple[int, ...],
    rounds: int,
    seconds: float,
    spec: Path | None,
    repository: Path | None,
    server: str,
    connection: Connection,
    as_json: bool,
    debug: bool,
) -> None:
    """Measure PyTorch, ONNX Runtime and Triton side by side.

    Measures published models in interleaved rounds: PyTorch eager, torch.compile, ONNX Runtime in process, and Triton
    through gRPC, HTTP and shared memory. The default is every model of the spec, or, without a spec, of the repository.
    NVIDIA's perf_analyzer sends the requests to Triton.
    """
    with handle_errors(debug=debug, as_json=as_json):
        credentials = connection.credentials()
        path = spec_or_default(spec) if repository is None else optional_spec(spec)
        with progress_view(quiet=as_json) as progress:
            report = api.bench(
                models,
                spec=path,
                repository=repository,
                batch=batch,
                concurrency=concurrency,
                rounds=rounds,
                seconds=seconds,
                server=server,
                credentials=credentials,
                progress=progress,
            )
        print_report(lambda: bench_text(report, debug=debug), lambda: as_dict(report), as_json=as_json)
        write_bench(report, err=as_json)
        sys.exit(report.exit_code)

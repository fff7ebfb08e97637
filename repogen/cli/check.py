"""A repository on disk, whoever built it: ``check``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from repogen.cli.group import debug_option, errors, main
from repogen.errors import ExitCode
from repogen.targets import DEFAULT_RELEASE


@main.command()
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, metavar="[DIR|FILE]...")
@click.option(
    "--target", default=DEFAULT_RELEASE, show_default=True, metavar="RELEASE", help="Triton release to serve it."
)
@click.option(
    "form", "--format", type=click.Choice(["text", "json", "github"]), default="text", show_default=True,
    help="For people, for programs, or annotations of GitHub Actions.",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="Warnings are exit code 1, too.")
@click.option("--select", multiple=True, metavar="CODE", help="Only these: RG101, RG1 for a family; may be repeated.")
@click.option("--ignore", multiple=True, metavar="CODE", help="All but these; may be repeated.")
@debug_option
def check(  # noqa: PLR0913 - one parameter an option
    *,
    paths: tuple[Path, ...],
    target: str,
    form: str,
    strict: bool,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    debug: bool,
) -> None:
    """Say what Triton would refuse, crash on, or accept to your surprise (default: model_repository).

    Takes repositories, models and files in them; needs no server, and no repository of repogen's. Exit code 1 when
    there are errors.
    """
    with errors(debug=debug, as_json=form == "json"):
        from repogen.check.checker import Selection, check  # noqa: PLC0415 - see the package's text
        from repogen.reporting.findings import findings_github, findings_json, findings_text  # noqa: PLC0415 - the same

        given = paths or (Path("model_repository"),)
        found = check(*given, release=target, selection=Selection(_codes(select), _codes(ignore)))
        told = {"text": findings_text, "json": findings_json, "github": findings_github}[form](found)
        click.echo(told)
        bad = [finding for finding in found if strict or finding.severity == "error"]
        sys.exit(int(ExitCode.GATE if bad else ExitCode.OK))


def _codes(given: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(code for text in given for code in re.split(r"[,\s]+", text) if code)

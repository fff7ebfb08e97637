"""``repogen check``."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from repogen.check.checker import Selection
from repogen.check.checker import check as check_paths
from repogen.cli.group import debug_option, handle_errors
from repogen.errors import ExitCode
from repogen.reporting.annotations import finding_annotations
from repogen.reporting.json import findings_document
from repogen.reporting.text import findings_text
from repogen.targets import DEFAULT_RELEASE

if TYPE_CHECKING:
    from repogen.check.checker import CheckReport


@click.command()
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, metavar="[DIR|FILE]...")
@click.option(
    "--target", default=DEFAULT_RELEASE, show_default=True, metavar="RELEASE", help="Triton release that will serve it."
)
@click.option(
    "output_format", "--format", type=click.Choice(["text", "json", "github"]), default="text", show_default=True,
    help="Text, one JSON document, or GitHub Actions annotations.",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="Exit 1 on warnings as well.")
@click.option(
    "--select", multiple=True, metavar="CODE", help="Report only this code (RG101) or family (RG1); repeatable."
)
@click.option("--ignore", multiple=True, metavar="CODE", help="Do not report this code or family; repeatable.")
@debug_option
def check(  # noqa: PLR0913 - one parameter per option
    *,
    paths: tuple[Path, ...],
    target: str,
    output_format: str,
    strict: bool,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    debug: bool,
) -> None:
    """Report what Triton rejects, crashes on, or loads unexpectedly.

    Accepts repositories, model directories and files in them; the default is model_repository. Needs no server, and
    works on any repository, not only on those that repogen built. Exits with code 1 if there are errors.
    """
    with handle_errors(debug=debug, as_json=output_format == "json"):
        selection = Selection(_codes(select), _codes(ignore))
        report = check_paths(*(paths or (Path("model_repository"),)), release=target, selection=selection)
        click.echo(_RENDERERS[output_format](report))
        has_failures = any(strict or finding.severity == "error" for finding in report.findings)
        sys.exit(int(ExitCode.GATE if has_failures else ExitCode.OK))


def _text(report: CheckReport) -> str:
    return findings_text(report.findings, report.models)


def _json(report: CheckReport) -> str:
    return json.dumps(findings_document(report.findings, report.models), indent=2)


def _github(report: CheckReport) -> str:
    workspace = Path(os.environ.get("GITHUB_WORKSPACE") or ".")
    return "\n".join(annotation.command(workspace) for annotation in finding_annotations(report.findings))


_RENDERERS = {"text": _text, "json": _json, "github": _github}


def _codes(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(code for value in values for code in re.split(r"[,\s]+", value) if code)

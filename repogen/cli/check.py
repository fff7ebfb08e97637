"""``repogen check``."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from repogen.api import check as api
from repogen.cli.group import debug_option, handle_errors
from repogen.errors import ExitCode
from repogen.reporting.annotations import finding_annotations
from repogen.reporting.json import findings_document
from repogen.reporting.output import write_commands, write_json, write_text
from repogen.reporting.text import findings_text
from repogen.targets import DEFAULT_RELEASE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from repogen.triton_config.rules.findings import Finding


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
    "--select",
    multiple=True,
    metavar="CODE",
    help="Report only these codes (RG101) or families (RG1), separated by commas; repeatable.",
)
@click.option("--ignore", multiple=True, metavar="CODE", help="Do not report these codes or families; repeatable.")
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
        findings = api.check(
            *(paths or (Path("model_repository"),)), target=target, select=_codes(select), ignore=_codes(ignore)
        )
        _WRITERS[output_format](findings)
        has_failures = any(strict or finding.severity == "error" for finding in findings)
        sys.exit(int(ExitCode.GATE if has_failures else ExitCode.OK))


def _text(findings: Sequence[Finding]) -> None:
    write_text(findings_text(findings))


def _json(findings: Sequence[Finding]) -> None:
    write_json(findings_document(findings))


def _github(findings: Sequence[Finding]) -> None:
    workspace = Path(os.environ.get("GITHUB_WORKSPACE") or ".")
    write_commands([annotation.command(workspace) for annotation in finding_annotations(findings)], err=False)


_WRITERS = {"text": _text, "json": _json, "github": _github}


def _codes(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(code for value in values for code in re.split(r"[,\s]+", value) if code)

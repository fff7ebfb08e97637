"""What is installed, and what a spec may say: ``doctor`` and ``schema``."""

from __future__ import annotations

import sys

import click

from repogen.cli.group import debug_option, errors, json_option, main
from repogen.errors import ExitCode


@main.command()
@json_option
@debug_option
def doctor(*, as_json: bool, debug: bool) -> None:
    """Say what is installed, what is missing, and the command that mends it."""
    with errors(debug=debug, as_json=as_json):
        from repogen.doctor import diagnose  # noqa: PLC0415 - the same
        from repogen.reporting.doctor import diagnosis_json, diagnosis_text  # noqa: PLC0415 - see the package's text

        findings = diagnose()
        click.echo(diagnosis_json(findings) if as_json else diagnosis_text(findings))
        sys.exit(int(ExitCode.OK if all(finding.ok for finding in findings) else ExitCode.GATE))


@main.command()
def schema() -> None:
    """Print the JSON Schema of the spec; editors complete from it."""
    import json  # noqa: PLC0415 - see the package's text

    from repogen.spec.schema import json_schema  # noqa: PLC0415 - the same

    click.echo(json.dumps(json_schema(), indent=2))

"""``repogen doctor`` and ``repogen schema``."""

from __future__ import annotations

import sys

import click

from repogen.cli.group import debug_option, handle_errors, json_option, print_report
from repogen.doctor import diagnose
from repogen.errors import ExitCode
from repogen.reporting.json import doctor_document
from repogen.reporting.output import write_json
from repogen.reporting.text import doctor_text
from repogen.spec.schema import json_schema


@click.command()
@json_option
@debug_option
def doctor(*, as_json: bool, debug: bool) -> None:
    """Check this environment and print how to fix what is missing."""
    with handle_errors(debug=debug, as_json=as_json):
        checks = diagnose()
        print_report(lambda: doctor_text(checks), lambda: doctor_document(checks), as_json=as_json, wrap=False)
        sys.exit(int(ExitCode.OK if all(check.ok for check in checks) else ExitCode.GATE))


@click.command()
@debug_option
def schema(*, debug: bool) -> None:
    """Print the JSON Schema of the spec, for editors."""
    with handle_errors(debug=debug):
        write_json(json_schema())

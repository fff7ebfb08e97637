"""``repogen explain``."""

from __future__ import annotations

import sys

import click

from repogen.cli.completion import code_names
from repogen.cli.group import debug_option, handle_errors
from repogen.explain import codes
from repogen.explain import explain as page_of
from repogen.reporting.output import write_text


@click.command()
@click.argument("code", required=False, shell_complete=code_names)
@debug_option
def explain(code: str | None, *, debug: bool) -> None:
    """Print the page for a rule or error code.

    Without CODE, lists all codes; with a prefix, such as RG2, lists the rules whose codes start with it. Works offline.
    """
    with handle_errors(debug=debug):
        if code is None:
            write_text("\n".join(codes()))
        elif sys.stdout.isatty():
            from rich.console import Console  # noqa: PLC0415 - only on a terminal
            from rich.markdown import Markdown  # noqa: PLC0415 - the same

            Console(width=min(100, Console().width)).print(Markdown(page_of(code)))
        else:
            write_text(page_of(code).rstrip())

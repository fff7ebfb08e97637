"""``repogen init``."""

from __future__ import annotations

from pathlib import Path

import click

from repogen.cli.group import DIRECTORY, debug_option, handle_errors
from repogen.scaffold.describe import describe
from repogen.scaffold.description import Hints
from repogen.scaffold.files import scaffold, scaffold_from


@click.command()
@click.argument("directory", type=DIRECTORY, default=Path())
@click.option(
    "source",
    "--from",
    metavar="PATH",
    help="Write the spec for this: a file, a directory, a Triton repository, or file.py:callable.",
)
@click.option("--weights", metavar="FILE", help="With --from file.py:callable: weights to load into the model.")
@click.option("--examples", metavar="FILE", help="With --from: example inputs, a .npz file or file.py:callable.")
@click.option("--name", help="With --from: the model's name in Triton.")
@click.option("--github", is_flag=True, help="Also write a GitHub Actions workflow; if a spec exists, write only that.")
@click.option("--force", is_flag=True, help="Overwrite repogen.yaml, and the workflow of --github; never code.")
@debug_option
def init(  # noqa: PLR0913 - one parameter per option
    directory: Path,
    *,
    source: str | None,
    weights: str | None,
    examples: str | None,
    name: str | None,
    github: bool,
    force: bool,
    debug: bool,
) -> None:
    """Write a commented, working repogen.yaml.

    Writes the spec to DIRECTORY (default: the current one) for the model of --from, or else with a tiny model.
    """
    with handle_errors(debug=debug):
        spec = None if source is None else describe(source, directory, Hints(weights, examples, name))
        files = () if spec is None else scaffold_from(spec, directory, force=force)
        if spec is None or github:
            files += scaffold(directory, force=force, github=github)
        for path in files:
            click.echo(f"wrote {path}")
        for model in () if spec is None else spec.models:
            for line in model.comments:
                if line.startswith("CHECK"):
                    click.echo(f"{model.name}: {line}")
        for line in () if spec is None else spec.omitted:
            click.echo(f"not in the spec: {line}")
        argument = "" if directory == Path() else f" {directory / 'repogen.yaml'}"
        first = f"{spec.missing}, then " if spec is not None and spec.missing else ""
        adopt = "" if spec is None else "".join(f" --adopt {name}" for name in spec.adopt)
        click.echo(f"next: {first}repogen build{argument}{adopt}")

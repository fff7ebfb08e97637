"""Commands: flags -> Spec -> pipeline -> exit code. Heavy modules are imported by the command that needs them."""

from repogen.cli import about, build, checking, release, serving  # noqa: F401 - each adds its commands to main
from repogen.cli.frame import main

__all__ = ["main"]

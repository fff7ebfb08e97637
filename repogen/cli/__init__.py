"""Commands: flags -> API call -> report -> exit code. Heavy modules are imported by the command that needs them."""

from repogen.cli import about, build, check, registry, serving  # noqa: F401 - each adds its commands to main
from repogen.cli.group import main

__all__ = ["main"]

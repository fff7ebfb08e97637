"""Finds the executor that ``--executor`` names."""

from __future__ import annotations

from repogen.errors import SpecError
from repogen.executors.interface import Executor
from repogen.executors.local import Local
from repogen.plugins import load_instance, plugins

LOCAL = "local"


def find_executor(text: str) -> tuple[Executor, str]:
    """Return the executor of ``NAME`` or ``NAME=ADDRESS``, and the address; empty without one.

    Raises:
        SpecError: No executor has this name, or it does not implement the Protocol.
    """
    name, _, address = text.partition("=")
    if name == LOCAL:  # nearly every build; entry points need not be read
        return Local(), address
    registered = plugins("repogen.executors")
    if name not in registered:
        raise SpecError(
            f"{name!r} is not an executor",
            f"registered executors: {', '.join(sorted(registered))}",
            code="executor.unknown",
        )
    return load_instance("repogen.executors", name, Executor), address  # type: ignore[type-abstract] # a Protocol

"""The executor ``local``: models are built by worker processes on this machine, which share one Triton server."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from repogen.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.executors.interface import Workplace


class Local:
    """Builds on this machine."""

    name = "local"

    @contextmanager
    def open(self, workplace: Workplace, address: str) -> Iterator[None]:  # noqa: ARG002 - the Protocol fixes it
        """Yield None: the build starts its workers itself.

        Raises:
            SpecError: An address was given.
        """
        if address:
            raise SpecError(
                f"--executor local={address}: local does not accept an address",
                "write --executor local",
                code="executor.address",
            )
        yield None

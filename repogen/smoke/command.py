"""``repogen smoke``: every served version of a repository, tested on a real Triton."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.serving import ControlMode
from repogen.serving.commands import check_models, running_triton
from repogen.smoke.repository import smoke_repository

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.serving import SmokeReport


def smoke(repository: Path, names: tuple[str, ...], server: str, progress: Progress) -> list[SmokeReport]:
    """Put every served version of a repository to a real Triton.

    Args:
        repository: A repository built by repogen; only read.
        names: Models; all when empty.
        server: ``embedded``, ``docker`` or ``HOST:PORT``.
        progress: Hears of the steps.

    Raises:
        SpecError: There is no such repository or model.
        ServerError: No server could be had.
    """
    check_models(repository, names)
    with running_triton(repository, server, ControlMode.EXPLICIT, progress) as triton:
        progress.step("", "smoke")
        return smoke_repository(triton, repository, names)

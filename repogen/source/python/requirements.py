"""The pinned requirements of code for Triton's Python backend."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING

from repogen.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Sequence


def check_installed(requirements: Sequence[str]) -> None:
    """Check that the pinned requirements are the versions installed here, which the code is verified with.

    Raises:
        SourceError: A requirement is missing, or installed in another version.
    """
    problems: dict[str, str] = {}
    for requirement in requirements:
        name, version = requirement_name(requirement), requirement.partition("==")[2]
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            installed = "not installed"
        if installed != version:
            problems[requirement] = f"{name} is {installed} here, but requirements: pins {version}"
    if problems:
        raise SourceError(
            "; ".join(problems.values()),
            f"pip install {' '.join(problems)}, or pin the installed versions",
            code="source.requirements",
        )


def requirement_name(requirement: str) -> str:
    """Return the distribution of a requirement, without extras."""
    return requirement.partition("==")[0].partition("[")[0]

"""repogen: from a trained PyTorch model to a verified, versioned Triton model repository."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from repogen.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.triton_config.rules.findings import Finding

__all__ = ["__version__", "check"]


def check(*paths: Path | str, target: str = "24.10") -> list[Finding]:
    """Say what a Triton would refuse, die of, or accept to a user's surprise, in any model repository.

    Args:
        paths: Repositories, models' directories, or files in them.
        target: The Triton release that is to serve them.

    Returns:
        Findings with ``code``, ``severity`` (``error`` where Triton refuses or dies, else ``warning``), ``path``,
        ``line``, ``message``, ``hint`` and ``fix``, in the order of paths and lines.

    Raises:
        repogen.errors.SpecError: A path is not there, or the release is unknown.
    """
    # By name: `import repogen` stays free of protobuf, and every room may import it for its version.
    found: list[Finding] = import_module("repogen.check").check(*paths, release=target)
    return found

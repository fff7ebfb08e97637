"""``repogen.check``: findings about any model repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.check import checker
from repogen.targets import DEFAULT_RELEASE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from repogen.triton_config.rules.findings import Finding


def check(
    *paths: Path | str,
    target: str = DEFAULT_RELEASE,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> list[Finding]:
    """Return what Triton rejects, crashes on, or loads with unexpected behavior, in any model repository.

    It needs no server, works on any repository, and runs no code.

    Example::

        for finding in repogen.check("model_repository"):
            print(finding.path, finding.line, finding.code, finding.message)

    Args:
        paths: Repositories, model directories, or files in them.
        target: The Triton release that is to serve them.
        select: Codes, or prefixes of codes, to report; all when empty.
        ignore: Codes, or prefixes of codes, to leave out.

    Returns:
        Findings with ``code``, ``severity`` (``error`` where Triton rejects the model or crashes, else ``warning``),
        ``path``, ``line``, ``column``, ``message``, ``hint`` and ``fix``, in the order of paths and lines.

    Raises:
        repogen.errors.SpecError: A path does not exist or contains no model, or the release or a code is unknown.
    """
    selection = checker.Selection(tuple(select), tuple(ignore))
    return list(checker.check(*paths, release=target, selection=selection).findings)

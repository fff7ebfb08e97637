"""``repogen.check``: findings about any model repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.check import checker
from repogen.files.url import RepositoryUrl, location
from repogen.stores.open import run
from repogen.stores.selection import everything
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
        Findings with ``code``, ``severity`` (``error`` if Triton rejects the model, crashes on it, or serves wrong
        results; else ``warning``), ``path``, ``line``, ``column``, ``message``, ``hint`` and ``fix``, in the order of
        paths and lines.

    Raises:
        repogen.errors.SpecError: A path does not exist or contains no model, or the release or a code is unknown.
    """
    selection = checker.Selection(tuple(select), tuple(ignore))
    return list(check_report(paths, target, selection).findings)


def check_report(paths: Sequence[Path | str], release: str, selection: checker.Selection) -> checker.CheckReport:
    """Return findings and the number of models, as ``checker.check`` does, also for the URLs of repositories.

    Args:
        paths: Repositories, model directories, or files in them; URLs of repositories.
        release: The Triton release that is to serve them.
        selection: Which findings to report.
    """
    url = next((place for path in paths if isinstance(place := location(path), RepositoryUrl)), None)
    if url is None:
        return checker.check(*paths, release=release, selection=selection)

    def check_copy(directory: Path) -> checker.CheckReport:
        others = [directory if location(path) == url else path for path in paths]
        return check_report(others, release, selection)

    return run(url, check_copy, fetch=everything)

"""``repogen.smoke``: a published repository, tested on a real Triton server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.api.working_directory import own_default
from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import NO_CREDENTIALS
from repogen.stores.open import run
from repogen.stores.selection import served

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.serving import Credentials, SmokeReport


def smoke(
    repository: Path | str = "model_repository",
    *,
    models: Sequence[str] = (),
    server: str = "embedded",
    credentials: Credentials = NO_CREDENTIALS,
    progress: Progress | None = None,
) -> list[SmokeReport]:
    """Test every served version of a repository on a real Triton server over gRPC and HTTP, as ``repogen smoke`` does.

    Example::

        reports = repogen.smoke("model_repository", models=["digits"])
        all(report.passed for report in reports)  # True

    Args:
        repository: A repository that repogen built; it is only read.
        models: Names of the models to test; all when empty.
        server: ``embedded``, ``docker``, ``HOST:PORT`` or a plug-in's.
        credentials: TLS and headers of a server at ``HOST:PORT``.
        progress: Receives progress events; silent by default.

    Returns:
        One report per model and served version, with every check.

    Raises:
        repogen.errors.SpecError: The repository or a model does not exist, there is no model, or ``server`` or
            ``credentials`` are wrong.
        repogen.errors.ServerError: The server could not be installed, started or reached.
    """
    from repogen.smoke import repository as smoke_tests  # noqa: PLC0415 - imports gRPC, which --help does not need

    names, events = tuple(models), progress or Silent()
    return run(
        own_default(repository),
        lambda path: smoke_tests.smoke(path, names, server, events, credentials),
        fetch=lambda path: served(path, names),
        progress=events,
    )

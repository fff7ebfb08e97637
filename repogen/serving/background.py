"""A Triton that starts in a thread of its own, so that its start overlaps with export."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Self

from repogen.artifacts.serving import ControlMode

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from repogen.artifacts.serving import RunningTriton, TritonServer


class BackgroundTriton:
    """Starts a server on entry without waiting for it, and stops it on exit.

    Args:
        server: How to have a Triton.
        repository: What it serves, model by model, in explicit mode.
    """

    def __init__(self, server: TritonServer, repository: Path) -> None:
        """Keep the arguments; nothing runs yet."""
        self._server = server
        self._repository = repository
        self._running: Future[RunningTriton] = Future()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="triton")

    def _serve(self) -> None:
        """Enter and leave the server's context in one thread."""
        try:
            with self._server.running(self._repository, ControlMode.EXPLICIT, strict=True) as triton:
                self._running.set_result(triton)
                self._stop.wait()
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            if not self._running.done():
                self._running.set_exception(error)

    def wait(self) -> RunningTriton:
        """Return the server once it is live.

        Raises:
            ServerError: It did not start.
        """
        return self._running.result()

    def stop(self) -> None:
        """Begin to stop; whoever talks to the server finds it gone."""
        self._stop.set()

    def __enter__(self) -> Self:
        """Begin to start."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server and wait until it is gone."""
        self.stop()
        self._thread.join()

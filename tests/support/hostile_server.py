"""A server that sends fixed bytes, and then others without an end, fast or slowly."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def hostile_server(first: bytes, again: bytes = b"", *, pause: float = 0.0) -> Iterator[str]:
    """Run a server on this machine; yield its host and port.

    Args:
        first: What it sends to every connection, once a request has arrived.
        again: What it sends then, until the connection is closed; empty to close it.
        pause: Seconds between two of these.
    """
    ended = threading.Event()

    def respond(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(5)
            connection.recv(2**20)
            connection.sendall(first)
            while again and not ended.is_set():
                connection.sendall(again)
                time.sleep(pause)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(2**20):  # closing a connection with unread data would reset it
                pass

    def accept() -> None:
        while not ended.is_set():
            with suppress(TimeoutError):
                threads.append(threading.Thread(target=respond, args=[listener.accept()[0]]))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        threads = [threading.Thread(target=accept)]
        threads[0].start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            for thread in threads:
                thread.join()

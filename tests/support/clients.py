"""Clients of a served model: one request, and requests without pause."""

from __future__ import annotations

import threading
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

if TYPE_CHECKING:
    from collections.abc import Iterator


def ask(client: InferenceServerClient, name: str, size: int = 4) -> float:
    """Return the first output for an input of ones."""
    x = InferInput("x", [1, size], "FP32")
    x.set_data_from_numpy(np.ones((1, size), np.float32))
    y = client.infer(name, [x]).as_numpy("y")
    assert y is not None
    return float(y[0, 0])


@dataclass
class Load:
    """Clients that send requests without pause; their answers and failures.

    Attributes:
        address: The server.
        name: The model.
        answers: Every different answer.
        failures: Messages of failed requests.
        requests: Number of requests.
    """

    address: str
    name: str
    answers: set[float] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    requests: int = 0

    @contextmanager
    def running(self, clients: int = 2) -> Iterator[None]:
        """Send requests while the block runs."""
        end = threading.Event()
        threads = [threading.Thread(target=self._send, args=(end,)) for _ in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            end.set()
            for thread in threads:
                thread.join()

    def _send(self, end: threading.Event) -> None:
        with closing(InferenceServerClient(self.address)) as client:
            while not end.is_set():
                try:
                    self.answers.add(ask(client, self.name))
                except InferenceServerException as error:
                    self.failures.append(str(error))
                self.requests += 1

"""Publishes, deploys, rolls back and prunes while clients send requests: no request may fail or get a wrong response.

Each version of the model multiplies by its own number, and a response contains the number of the version that computed
it, so every response can be checked. One in ten published versions has wrong golden tensors: in explicit mode, its
deploy fails, and the server must restore the previous version. After one publish in five, the model is rolled back to
the previous version, the hold is released, and older versions are pruned.

Usage: python benchmarks/publish_under_load.py [--publishes 100] [--clients 4] [--mode explicit] [--mode poll]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from measure import middle
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # tests.support

import repogen
from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlMode
from repogen.reporting.table import table
from repogen.serving import commands, control
from repogen.serving.servers import find_server
from repogen.targets import DEFAULT_RELEASE, targets
from tests.support.scaled_models import Scaled, publish_scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MODEL = "scale"
BAD_EVERY = 10
ROLLBACK_EVERY = 5
HEADINGS = (
    *("mode", "publishes", "restored", "rollbacks", "prunes", "requests", "failed", "wrong", "requests/s"),
    "deploy, s",
)


@dataclass
class Traffic:
    """Requests of the clients, and what was wrong with them.

    Attributes:
        address: The server.
        allowed: Versions that may answer now: one, or two while the server changes from one to the other.
        requests: Number of requests.
        failures: Messages of failed requests.
        wrong: Answers that are not those of their version, or of a version that should no longer answer.
    """

    address: str
    allowed: frozenset[int] = frozenset({1})
    requests: int = 0
    failures: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _end: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self, clients: int) -> Iterator[None]:
        """Send requests while the block runs."""
        threads = [threading.Thread(target=self._send) for _ in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._end.set()
            for thread in threads:
                thread.join()

    def _send(self) -> None:
        x = InferInput("x", [1, 4], "FP32")
        x.set_data_from_numpy(np.ones((1, 4), np.float32))
        with closing(InferenceServerClient(self.address)) as client:
            while not self._end.is_set():
                allowed = self.allowed
                failure = wrong = ""
                try:
                    result = client.infer(MODEL, [x])
                    version, y = int(result.get_response().model_version), result.as_numpy("y")
                    allowed |= self.allowed
                    if y is None or not (y == version).all() or version not in allowed:
                        wrong = f"version {version} answered {y}; the versions that may answer are {sorted(allowed)}"
                except InferenceServerException as error:
                    failure = str(error)
                with self._lock:
                    self.requests += 1
                    self.failures += [failure] if failure else []
                    self.wrong += [wrong] if wrong else []


def publish(repository: Path, number: int, *, bad: bool) -> None:
    """Publish a version that multiplies by its number; the golden tensors of a bad one say something else."""
    published = publish_scaled(repository, MODEL, Scaled(float(number), golden=-1.0 if bad else None))
    if published != number:
        raise RuntimeError(f"published version {published}, not {number}")


@contextmanager
def served(repository: Path, mode: str) -> Iterator[str]:
    """Serve a repository; yield the address."""
    if mode == "poll":
        os.environ[control.VARIABLE] = "benchmark=benchmark"  # opens the index of a server on this machine
        with commands.serve(repository, "embedded", poll=True, progress=Silent()) as triton:
            yield triton.endpoint.grpc
        return
    server = find_server("embedded", targets()[DEFAULT_RELEASE], Silent())
    with server.running(repository, ControlMode.EXPLICIT) as triton:
        header = triton.endpoint.control
        if header is not None:
            os.environ[control.VARIABLE] = f"{header.key}={header.value}"
        yield triton.endpoint.grpc


@dataclass
class Trial:
    """The commands of one mode, and what they did.

    Attributes:
        mode: ``explicit`` or ``poll``.
        repository: The repository.
        address: The server.
        traffic: The clients.
        serving: Version that the server serves.
        seconds: Time of each deploy.
        restored: Deploys after which the server was back at the version before.
        rollbacks: Number of rollbacks.
        prunes: Number of prunes that deleted a version.
    """

    mode: str
    repository: Path
    address: str
    traffic: Traffic
    serving: int = 1
    seconds: list[float] = field(default_factory=list)
    restored: int = 0
    rollbacks: int = 0
    prunes: int = 0

    def publish(self, number: int) -> None:
        """Publish a version, and deploy it."""
        # a polling server cannot go back, so that a bad version would be served
        bad = self.mode == "explicit" and number % BAD_EVERY == 0
        self.change(number, lambda: publish(self.repository, number, bad=bad), bad=bad)

    def roll_back_and_prune(self, number: int) -> None:
        """Serve the version before, then this one again, and delete the versions before both."""
        repository = self.repository
        self.change(number - 1, lambda: repogen.rollback(MODEL, number - 1, repository=repository))
        self.rollbacks += 1
        self.change(number, lambda: repogen.rollback(MODEL, repository=repository, release=True))
        self.prunes += bool(repogen.prune(MODEL, keep=2, repository=repository).deleted)

    def change(self, number: int, command: Callable[[], object], *, bad: bool = False) -> None:
        """Run a command that changes what the repository serves, and deploy it."""
        both = frozenset({self.serving, number})
        if self.mode == "poll":
            self.traffic.allowed = both
        command()
        self.traffic.allowed = both
        begun = time.monotonic()
        report = repogen.deploy(MODEL, servers=[self.address], repository=self.repository)
        self.seconds.append(time.monotonic() - begun)
        require(report.exit_code == (6 if bad else 0))
        self.restored += bad
        self.serving = self.serving if bad else number
        self.traffic.allowed = frozenset({self.serving})

    def row(self, publishes: int, seconds: float) -> tuple[str, ...]:
        """Return the row of the table."""
        traffic = self.traffic
        counts = (publishes, self.restored, self.rollbacks, self.prunes, traffic.requests)
        wrong = (len(traffic.failures), len(traffic.wrong))
        return (self.mode, *map(str, (*counts, *wrong)), f"{traffic.requests / seconds:.0f}", middle(self.seconds))


def trial(mode: str, publishes: int, clients: int) -> tuple[tuple[str, ...], bool]:
    """Return the row of a mode, and whether every request and every deploy ended as it should."""
    with tempfile.TemporaryDirectory() as directory:
        repository = Path(directory) / "repository"
        publish(repository, 1, bad=False)
        with served(repository, mode) as address:
            require(repogen.deploy(MODEL, servers=[address], repository=repository).exit_code == 0)
            traffic, start = Traffic(address), time.monotonic()
            changes = Trial(mode, repository, address, traffic)
            with traffic.running(clients):
                for number in range(2, publishes + 2):
                    changes.publish(number)
                    if number % ROLLBACK_EVERY == ROLLBACK_EVERY - 1:
                        changes.roll_back_and_prune(number)
            row = changes.row(publishes, time.monotonic() - start)
    for problem in (traffic.failures + traffic.wrong)[:5]:
        print(problem, file=sys.stderr)
    return row, not traffic.failures and not traffic.wrong


def require(condition: bool) -> None:  # noqa: FBT001 - as an assertion, which -O would remove
    """Raise RuntimeError if a deploy did not end as it should."""
    if not condition:
        raise RuntimeError("a deploy did not end as it should")


def main() -> int:
    """Print one row per mode; return 1 when a request failed or an answer was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--publishes", type=int, default=100)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--mode", action="append", choices=("explicit", "poll"))
    options = parser.parse_args()
    rows = [trial(mode, options.publishes, options.clients) for mode in options.mode or ("explicit", "poll")]
    print(table(HEADINGS, [row for row, _ in rows]))
    return 0 if all(passed for _, passed in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

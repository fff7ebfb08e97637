"""Runs NVIDIA's perf_analyzer on a served model, and reads its result.

Source: https://github.com/triton-inference-server/perf_analyzer, docs/cli.md and docs/measurements_metrics.md. One run
measures three windows; ``-s`` disables the search for a stable measurement, because repogen repeats runs in rounds.
"""

from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.artifacts.bench import Sample, Variant
from repogen.errors import BenchError
from repogen.files import is_plain_name, open_regular
from repogen.repository.lock import file_lock
from repogen.serving.process import spawn_supervised, stop_supervised

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.artifacts.serving import Endpoint
    from repogen.bench.inputs import BenchInputs
    from repogen.bench.server import ServedModel

_WINDOWS = 3
_SIGNALED = 128
_MAX_WINDOW_SECONDS = 120.0
_EXTRA_SECONDS = 60.0
_MIN_REGION_BYTES = 2**20
# perf_analyzer accepts responses of 2 GiB to each of its concurrent requests
_MEMORY_BYTES = 4 * 2**30
_MEMORY_BYTES_PER_REQUEST = 2**26
_COPIES = 8
_MAX_OUTPUT_BYTES = 2**24
_ANY_DEVIATION = "1000000"
_HEADER = "-H"
"""Option for a header; its value is a secret."""
_COUNT = re.compile(r"Request count: (?P<count>\d+)")
_INDICES = re.compile(r"(?:_\d+_\d+)?$")
_TOO_SHORT = "Please use a larger time window"
_ERROR_WORDS = ("had error:", "rror:", "ailed", "rror")
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where perf_analyzer creates its regions


@dataclass(frozen=True)
class Load:
    """One measurement.

    Attributes:
        variant: ``grpc``, ``http``, or ``shm`` for gRPC with system shared memory.
        batch: Rows of each request; 0 for a model that does not batch.
        concurrency: Number of requests at a time.
        seconds: Duration.
    """

    variant: Variant
    batch: int
    concurrency: int
    seconds: float


@dataclass(frozen=True)
class LoadTarget:
    """What perf_analyzer sends requests to.

    Attributes:
        program: Directory of perf_analyzer, from ``install_perf_analyzer``.
        endpoint: The server.
        model: Name of the model on the server.
        version: Its version.
        data: File with the inputs, see ``BenchInputs.load_data``, in a temporary directory.
        output_bytes: Bytes of the outputs of one row, or of a request without a batch; 0 if unknown.
        tensors: Names of the inputs and outputs.
        entries: Number of entries of ``data``.
    """

    program: Path
    endpoint: Endpoint
    model: str
    version: int
    data: Path
    output_bytes: int = 0
    tensors: tuple[str, ...] = ()
    entries: int = 1

    def unmeasured(self, variant: Variant) -> str:
        """Return why a variant cannot be measured; empty if it can."""
        if variant == "http" and not self.endpoint.http:
            return "the HTTP address of the server is unknown"
        if variant == "http" and self.endpoint.http.startswith("unix:"):
            return "the server has no HTTP port that perf_analyzer can reach"
        if variant == "shm" and self.endpoint.kind != "embedded":
            return "only the embedded server shares the memory of this machine with repogen"
        if variant == "shm":
            return next((_in_use(region) for region in self.regions() if os.path.lexists(region)), "")
        return ""

    def regions(self) -> list[Path]:
        """Return the shared memory that perf_analyzer uses: one region per output, and one per input and entry."""
        names = self.region_names()
        names += [f"{name}_0_{entry}" for name in names for entry in range(self.entries)]
        return [_SHARED_MEMORY / name for name in names if is_plain_name(name)]

    def region_names(self) -> list[str]:
        """Return the names of the shared memory without indices: those of the tensors without slashes."""
        return [name.replace("/", "").replace("\\", "") for name in self.tensors]


def load_target(program: Path, served: ServedModel, inputs: BenchInputs, data: Path) -> LoadTarget:
    """Return what perf_analyzer sends requests to, and write their inputs.

    Args:
        program: Directory of perf_analyzer, from ``install_perf_analyzer``.
        served: The model.
        inputs: Its inputs.
        data: File for the inputs.

    Raises:
        BenchError: perf_analyzer cannot send the inputs.
    """
    data.write_text(inputs.load_data(), encoding="utf-8")
    config = served.model.config
    names = tuple(tensor.name for tensor in (*config.input, *config.output))
    address = (served.endpoint, served.model.served_as, served.version)
    return LoadTarget(program, *address, data, inputs.output_row_bytes, names, inputs.entries)


def measure(target: LoadTarget, load: Load) -> Sample:
    """Send requests for some time and return their latencies and the throughput.

    A slow model needs longer windows: they are extended until each has requests.

    Raises:
        BenchError: perf_analyzer cannot run here, or failed; the message is its last line.
    """
    window = load.seconds / _WINDOWS
    while True:
        # In the caller's directory, which is removed even if Ctrl-C interrupts the removal of this one.
        with tempfile.TemporaryDirectory(prefix="repogen-perf-", dir=target.data.parent) as directory:
            result = Path(directory) / "result.csv"
            arguments = [*_arguments(target, load, window), "-f", str(result)]
            log, status = _run(target, load, arguments, Path(directory), window)
            if result.is_file():
                return parse_result(_read(result), log)
        window *= 4
        if status > _SIGNALED:
            raise _crash(status - _SIGNALED, log)
        if _TOO_SHORT not in log or window > _MAX_WINDOW_SECONDS:
            raise _failure(log)


def memory_limit(target: LoadTarget, load: Load) -> int:
    """Return how much memory perf_analyzer may use, in bytes: for its libraries, threads, and copies of the tensors.

    A server could respond with more than the outputs of the model, which perf_analyzer itself does not limit.
    """
    per_row = target.output_bytes + target.data.stat().st_size
    per_request = _MEMORY_BYTES_PER_REQUEST + _COPIES * max(load.batch, 1) * per_row
    return _MEMORY_BYTES + load.concurrency * per_request


def parse_result(text: str, log: str) -> Sample:
    """Return the sample in perf_analyzer's CSV file and its output, which has the number of requests.

    Raises:
        BenchError: It has no measurement.
    """
    count = _COUNT.search(log)
    try:
        rows = list(csv.DictReader(text.splitlines()))
        p50, p95, p99 = (float(rows[-1][f"p{n} latency"]) / 1e3 for n in (50, 95, 99))
        return Sample(p50, p95, p99, float(rows[-1]["Inferences/Second"]), int(count["count"]) if count else 0)
    except (csv.Error, IndexError, KeyError, ValueError, TypeError) as error:
        raise _failure(log) from error


def _arguments(target: LoadTarget, load: Load, window: float) -> list[str]:
    endpoint = target.endpoint
    over_http = load.variant == "http"
    arguments = [
        *("-m", target.model, "-x", str(target.version), "--input-data", str(target.data)),
        *("-i", "http" if over_http else "grpc", "-u", endpoint.http if over_http else endpoint.grpc),
        *("-p", str(max(1, round(window * 1e3))), "-r", str(_WINDOWS), "-s", _ANY_DEVIATION),
        *("--concurrency-range", str(load.concurrency), "--percentile", "95"),
        *(("-b", str(load.batch)) if load.batch else ()),
    ]
    if load.variant == "shm":
        size = max(_MIN_REGION_BYTES, 2 * target.output_bytes * max(load.batch, 1))
        arguments += ["--shared-memory", "system", "--output-shared-memory-size", str(size)]
    return [*arguments, *(() if over_http else _credential_arguments(endpoint, load.variant))]


def _credential_arguments(endpoint: Endpoint, variant: Variant) -> Iterator[str]:
    """Yield the options for a gRPC connection with TLS, and for the headers of its requests."""
    credentials = endpoint.credentials
    if credentials.tls:
        yield "--ssl-grpc-use-ssl"
    files = {
        "root-certifications": credentials.root_certificates,
        "private-key": credentials.private_key,
        "certificate-chain": credentials.certificate_chain,
    }
    for name, file in files.items():
        if file is not None:
            yield from (f"--ssl-grpc-{name}-file", str(file.absolute()))
    control = endpoint.control.grpc if endpoint.control is not None and variant == "shm" else {}
    for key, value in {**credentials.headers, **control}.items():
        yield from (_HEADER, f"{key}:{value}")


def _run(target: LoadTarget, load: Load, arguments: list[str], directory: Path, window: float) -> tuple[str, int]:
    """Run perf_analyzer and return what it printed, and its status; a signal has 128 and its number.

    Raises:
        BenchError: It did not end in time, or shared memory that it would use exists already.
    """
    environment = ["env", f"LD_LIBRARY_PATH={target.program / 'lib'}"]
    command = [*environment, str(target.program / "bin" / "perf_analyzer"), *arguments]
    log = directory / "log"
    with _own_regions(target, load.variant):
        secrets = frozenset(value for option, value in pairwise(command) if option == _HEADER)
        supervisor = spawn_supervised(command, directory, log, directory.name, secrets, memory_limit(target, load))
        try:
            supervisor.wait(_EXTRA_SECONDS + 4 * _WINDOWS * window)
        except subprocess.TimeoutExpired as error:
            raise BenchError("perf_analyzer did not finish: the server does not respond", code="bench.load") from error
        finally:
            stop_supervised(supervisor)
    return _read(log), supervisor.returncode


def _read(path: Path) -> str:
    """Return what perf_analyzer wrote, which contains messages of the server."""
    with open_regular(path) as stream:
        return stream.read(_MAX_OUTPUT_BYTES).decode(errors="replace")


@contextmanager
def _own_regions(target: LoadTarget, variant: Variant) -> Iterator[None]:
    """Run one perf_analyzer at a time, and remove the shared memory that it leaves behind if it is killed.

    The names of its regions are not random, so two processes would use the same. It also uses and then removes regions
    that exist: those of another user, who could read what is in them, and those of another program of this user, whose
    name a hostile repository could know. So all are created here, before it starts.

    Raises:
        BenchError: One exists already.
    """
    names = target.region_names()
    with file_lock(target.program.parent / "perf_analyzer.lock"):
        before, start = set(_SHARED_MEMORY.iterdir()), time.time()
        try:
            if variant == "shm":
                _create_regions(target)
            yield
        finally:
            for region in set(_SHARED_MEMORY.iterdir()) - before:
                if _INDICES.sub("", region.name) not in names:
                    continue
                with suppress(FileNotFoundError):  # other processes create and remove files there
                    status = region.lstat()
                    if status.st_uid == os.getuid() and status.st_ctime >= start - 1:
                        region.unlink()


def _create_regions(target: LoadTarget) -> None:
    for region in target.regions():
        try:
            os.close(os.open(region, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            raise BenchError(_in_use(region), f"remove {region}", code="bench.load") from None


def _in_use(region: Path) -> str:
    return f"the shared memory {region} exists already, and perf_analyzer would use it"


def _crash(number: int, log: str) -> BenchError:
    return BenchError(
        f"perf_analyzer crashed ({signal.Signals(number).name})",
        "its memory is limited: the server may have sent larger responses than the model's outputs",
        code="bench.load",
        details=log[-20_000:],
    )


def _failure(log: str) -> BenchError:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    usage = next((index for index, line in enumerate(lines) if line.startswith("Usage:")), len(lines))
    matches = (next((line for line in lines[:usage] if word in line), "") for word in _ERROR_WORDS)
    reason = next(filter(None, matches), "it printed no error")
    return BenchError(
        f"perf_analyzer failed: {reason}", "`repogen doctor` checks it", code="bench.load", details=log[-20_000:]
    )

"""Runs one reader on mutated inputs, with limits on time and memory, and stores the inputs that it fails on."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import re
import resource
import signal
import time
import traceback
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from repogen.errors import ExitCode, RepogenError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fuzz.mutations import Mutator

Read: TypeAlias = "Callable[[Path], object]"
"""Reads the fuzzed file; a text that it returns, without values of the file, is the outcome of the input."""

CPU_SECONDS = 20.0
"""CPU time that a reader may use for one input of at most ``MAX_BYTES``."""

WALL_SECONDS = 300.0
"""Time after which a reader that does not use the CPU, or does not return to Python, is killed."""

MEMORY = 2**31
"""Bytes of address space that a reader may use in addition to what the process uses when fuzzing starts."""

MAX_BYTES = 65_536
PROGRESS = ".progress.json"
"""File in the target's directory with the result so far."""

_SAVE_SECONDS = 2.0
_MAX_POOL = 3000
_CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Target:
    """A reader to fuzz.

    Attributes:
        name: Its name on the command line.
        file: Path of the fuzzed file, relative to the directory that ``prepare`` receives.
        prepare: Writes the other files into an empty directory, and returns the function that reads the fuzzed file.
        seeds: Returns the inputs to start with.
        mutate: Makes new inputs of them.
        isolated: Whether the reader runs in a worker process, which reports a crash of native code, a hang and a lack
            of memory as errors.
    """

    name: str
    file: str
    prepare: Callable[[Path], Read]
    seeds: Callable[[], list[bytes]]
    mutate: Mutator
    isolated: bool = False


@dataclass
class Result:
    """The result of a run.

    Attributes:
        executions: Number of inputs.
        accepted: Number of inputs that were read without an error.
        seconds: Wall time.
        outcomes: Number of different outcomes: errors, by class and words of the message.
        failures: One line per different failure: exception and place.
        contained: The same for failures that a worker process contains: crashes of native code, hangs, lack of memory.
    """

    executions: int = 0
    accepted: int = 0
    seconds: float = 0.0
    outcomes: int = 0
    failures: list[str] = field(default_factory=list)
    contained: list[str] = field(default_factory=list)


class HangError(BaseException):
    """The reader used more than ``CPU_SECONDS``."""


class Fuzzer:
    """Fuzzes one target in this process.

    Args:
        target: The reader.
        directory: An empty directory for its files.
        failures: Directory for the inputs that it fails on.
        seed: Seed of the mutations.
    """

    def __init__(self, target: Target, directory: Path, failures: Path, seed: int) -> None:
        """Prepare the target's files."""
        self._target = target
        self._read = target.prepare(directory)
        self._path = directory / target.file
        self._failures = failures
        self._random = Random(seed)  # noqa: S311 - not for cryptography
        self._pool = list(dict.fromkeys(target.seeds()))
        self._outcomes: set[str] = set()
        self._start = self._saved = time.monotonic()
        self._progress = directory / PROGRESS
        self.result = Result()

    def run(self, seconds: float, executions: int | None = None) -> Result:
        """Read every seed, then mutated inputs until the time is over, or a number of inputs is reached."""
        with _limits():
            for seed in tuple(self._pool):
                self._execute(seed)
            while time.monotonic() - self._start < seconds and self.result.executions != executions:
                data = self._target.mutate(self._random, self._random.choice(self._pool), self._pool)[:MAX_BYTES]
                if self._execute(data) and len(self._pool) < _MAX_POOL:
                    self._pool.append(data)
        self._save()
        return self.result

    def _save(self) -> None:
        """Store the result, in case native code crashes the process later."""
        self._saved = time.monotonic()
        self.result.seconds = self._saved - self._start
        self.result.outcomes = len(self._outcomes)
        self._progress.write_text(json.dumps(asdict(self.result)), encoding="utf-8")

    def _execute(self, data: bytes) -> bool:
        """Read one input; return whether its outcome is new."""
        if time.monotonic() - self._saved > _SAVE_SECONDS:
            self._save()
        self._path.write_bytes(data)
        self.result.executions += 1
        outcome = self._outcome(data)
        is_new = outcome not in self._outcomes
        self._outcomes.add(outcome)
        return is_new

    def _outcome(self, data: bytes) -> str:
        try:
            with _time_limit():
                text = self._read(self._path)
        except RepogenError as error:
            if error.exit_code is not ExitCode.BUG:
                return f"{error.code} {words(error.message)}"
            self._fail(error, data)
            return "bug"
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - every other exception is a failure
            return self._fail(error, data)
        self.result.accepted += 1
        return f"accepted {text}" if isinstance(text, str) else "accepted"

    def _fail(self, error: BaseException, data: bytes) -> str:
        line = f"{type(error).__name__} at {_place(error)}: {str(error)[:120]!r}"
        kind = line.partition(": ")[0]
        contained = self._target.isolated and isinstance(error, (HangError, MemoryError))
        failures = self.result.contained if contained else self.result.failures
        if not any(failure.startswith(kind) for failure in failures):
            failures.append(line)
            self._failures.mkdir(parents=True, exist_ok=True)
            stem = self._failures / f"{self._target.name}-{os.getpid()}-{len(failures)}{'c' * contained}"
            stem.with_suffix(".bin").write_bytes(data)
            stem.with_suffix(".txt").write_text(
                "".join(traceback.format_exception(error))[-20_000:], encoding="utf-8", errors="replace"
            )
        return kind


def words(message: str) -> str:
    """Return the words of a message without numbers and quoted text, which depend on the input."""
    return " ".join(re.findall(r"[a-z]{2,}", re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "", message[:300])))[:120]


def _place(error: BaseException) -> str:
    """Return file and line of the innermost frame in repogen's code."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if str(_CHECKOUT / "repogen") in frame.filename]
    frame = own[-1] if own else frames[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    warnings.simplefilter("ignore")
    size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGESIZE")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, before[1]))
    handler = signal.signal(signal.SIGPROF, _hang)
    try:
        yield
    finally:
        signal.signal(signal.SIGPROF, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    faulthandler.dump_traceback_later(WALL_SECONDS, exit=True)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()


def _hang(_signal: int, _frame: object) -> NoReturn:
    raise HangError(f"more than {CPU_SECONDS:.0f} s of CPU time")

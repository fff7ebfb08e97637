"""Fuzzes readers: ``python -m tests.fuzz.run [NAME]... [--seconds 60] [--seed 0] [--failures DIRECTORY]``.

Each target runs in a process of its own, which is started again if native code crashes it. Prints one line per target,
and exits with 1 if a target failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.engine import PROGRESS, Fuzzer, Result, Target
from tests.fuzz.targets import TARGETS

_CHECKOUT = Path(__file__).resolve().parents[2]
_RESTART_SECONDS = 5.0


def main() -> int:
    """Run the targets one after another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--seconds", type=float, default=60.0, help="per target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--failures", type=Path, default=Path("build/fuzz"), help="directory for inputs that fail")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        Fuzzer(TARGETS[options.names[0]], options.child, options.failures, options.seed).run(options.seconds)
        return 0
    failed = False
    for name in options.names or TARGETS:
        result = fuzz(TARGETS[name], options.seconds, options.seed, options.failures)
        print(describe(name, result), flush=True)
        failed |= bool(result.failures)
    return int(failed)


def describe(name: str, result: Result) -> str:
    """Return one line about a run, and one line per failure."""
    rate = result.executions / result.seconds if result.seconds else 0
    counts = f"{result.executions} executions in {result.seconds:.0f} s ({rate:.0f}/s), {result.accepted} accepted"
    contained = [f"contained by the worker: {line}" for line in result.contained]
    lines = [f"{name}: {counts}, {result.outcomes} outcomes, {len(result.failures)} failures"]
    return "\n  ".join([*lines, *result.failures, *contained])


def fuzz(target: Target, seconds: float, seed: int, failures: Path) -> Result:
    """Fuzz a target in other processes; a crash of native code is a failure unless the target is isolated."""
    total, deadline = Result(), time.monotonic() + seconds
    while not total.executions or deadline - time.monotonic() > _RESTART_SECONDS:
        with tempfile.TemporaryDirectory(prefix="repogen-fuzz-") as folder:
            arguments = [target.name, "--child", folder, "--failures", str(failures.absolute()), "--seed", str(seed)]
            remaining = max(deadline - time.monotonic(), 1.0)
            outcome = subprocess.run(
                [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz.run", *arguments, "--seconds", str(remaining)],
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                cwd=_CHECKOUT,
            )
            _add(total, Path(folder) / PROGRESS)
            if outcome.returncode:
                _record_crash(total, target, Path(folder), failures, outcome)
        seed += 1
    return total


def _add(total: Result, progress: Path) -> None:
    part = Result(**json.loads(progress.read_text(encoding="utf-8"))) if progress.exists() else Result()
    total.executions += part.executions
    total.accepted += part.accepted
    total.seconds += part.seconds
    total.outcomes = max(total.outcomes, part.outcomes)
    total.failures += part.failures
    total.contained += part.contained


def _record_crash(
    total: Result, target: Target, folder: Path, failures: Path, outcome: subprocess.CompletedProcess[str]
) -> None:
    """Record a process that was ended by a signal in native code, or by an error of the fuzzer itself."""
    total.executions += 1
    frame = next((line.strip() for line in outcome.stderr.splitlines() if line.startswith("  File")), "no frame")
    line = f"the process ended with status {outcome.returncode}: {frame}"
    crashes = total.contained if target.isolated and outcome.returncode < 0 else total.failures
    crashes.append(line)
    failures.mkdir(parents=True, exist_ok=True)
    stem, file = failures / f"{target.name}-crash-{len(crashes)}", folder / target.file
    stem.with_suffix(".bin").write_bytes(file.read_bytes() if file.exists() else b"")
    stem.with_suffix(".txt").write_text(outcome.stderr[-20_000:], encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())

"""`make conformance`: prints the correct verdict of each case, repogen's, and a plain export script's.

``python -m tests.conformance.run [--case NAME]... [--jobs 2] [--no-naive] [--markdown FILE]``; exits with 1 if one of
repogen's verdicts is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conformance.build import ENVIRONMENT, Outcome, build, prepare
from tests.conformance.cases import BY_NAME, CASES
from tests.conformance.table import markdown, plain, summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conformance.case import Case

_NAIVE = Path(__file__).with_name("naive.py")
_NAIVE_SECONDS = 120
# Models in one spec: few enough that results are printed regularly.
_CHUNK = 12


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Attributes:
        case: The case.
        outcome: The result of `repogen build`.
        one: The plain script's verdict with one exporter; empty when it was not run.
        both: Its verdict when it also tries the other exporter.
    """

    case: Case
    outcome: Outcome
    one: str = ""
    both: str = ""

    @property
    def correct(self) -> bool:
        """Whether repogen's verdict is correct."""
        return self.case.is_correct(self.outcome.verdict)


def naive(case: Case, directory: Path) -> tuple[str, str]:
    """Return the plain script's verdicts with one exporter and with both; a timeout counts as a rejection."""
    entry = {**case.twin, **{key: value for key, value in case.entry.items() if value}}
    job = directory / f"{case.name}.json"
    job.write_text(json.dumps(entry), encoding="utf-8")
    scratch = directory / f"{case.name}_naive"
    scratch.mkdir(exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "-P", str(_NAIVE), str(job), str(scratch)],
        cwd=directory,
        env=os.environ | ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            out, _ = process.communicate(timeout=_NAIVE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
    verdicts = [json.loads(line)["verdict"] for line in out.splitlines() if line.startswith('{"exporter"')]
    verdicts = verdicts or ["rejected"]
    return verdicts[0], verdicts[-1]


def run(cases: Sequence[Case], directory: Path, jobs: int, *, with_naive: bool) -> list[Row]:
    """Build cases in chunks, and print and return the results."""
    rows: list[Row] = []
    for start in range(0, len(cases), _CHUNK):
        chunk = cases[start : start + _CHUNK]
        project = directory / f"project-{start}"
        prepare(chunk, project)
        outcomes = build(chunk, project, jobs)
        scripts = {case.name: ("", "") for case in chunk}
        if with_naive:
            with ThreadPoolExecutor(jobs) as pool:
                scripts = dict(zip(scripts, pool.map(lambda case: naive(case, project), chunk), strict=True))  # noqa: B023
        finished = [Row(case, outcomes[case.name], *scripts[case.name]) for case in chunk]
        print(plain(finished, header=not rows), flush=True)  # noqa: T201 - a program that prints
        rows += finished
    return rows


def main() -> None:
    """Run the chosen cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", choices=sorted(BY_NAME), metavar="NAME", help="run only this case")
    parser.add_argument("--jobs", type=int, default=2, help="number of models to build in parallel")
    parser.add_argument("--no-naive", action="store_true", help="do not run the plain script")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the table to FILE")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the projects in DIR")
    options = parser.parse_args()
    cases = [BY_NAME[name] for name in options.case] if options.case else CASES
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="repogen-conformance-") as scratch:
        rows = run(cases, options.keep or Path(scratch), options.jobs, with_naive=not options.no_naive)
    print(summary(rows, time.monotonic() - start))  # noqa: T201 - a program that prints
    if options.markdown:
        options.markdown.write_text(markdown(rows), encoding="utf-8")
    sys.exit(any(not row.correct for row in rows))


if __name__ == "__main__":
    main()

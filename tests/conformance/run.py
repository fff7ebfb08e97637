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
# Models in one spec: few enough that the table grows while one watches.
_TOGETHER = 12


@dataclass(frozen=True)
class Row:
    """One case's line of the table.

    Attributes:
        case: The case.
        ours: What `repogen build` says.
        one: A plain script's verdict with one exporter; empty when it was not asked.
        both: Its verdict when it also tries the other one.
    """

    case: Case
    ours: Outcome
    one: str = ""
    both: str = ""

    @property
    def right(self) -> bool:
        """Whether our verdict is the true one."""
        return self.case.is_right(self.ours.verdict)


def naive(case: Case, directory: Path) -> tuple[str, str]:
    """Return a plain script's verdict with one exporter, and with both; what takes too long is refused."""
    entry = {**case.twin, **{key: value for key, value in case.entry.items() if value}}
    job = directory / f"{case.name}.json"
    job.write_text(json.dumps(entry), encoding="utf-8")
    workplace = directory / f"{case.name}_naive"
    workplace.mkdir(exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "-P", str(_NAIVE), str(job), str(workplace)],
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
    verdicts = verdicts or ["refused"]
    return verdicts[0], verdicts[-1]


def run(cases: Sequence[Case], directory: Path, jobs: int, *, with_naive: bool) -> list[Row]:
    """Build cases a dozen at a time, and say what came of them."""
    rows: list[Row] = []
    for start in range(0, len(cases), _TOGETHER):
        some = cases[start : start + _TOGETHER]
        project = directory / f"project-{start}"
        prepare(some, project)
        outcomes = build(some, project, jobs)
        others = {case.name: ("", "") for case in some}
        if with_naive:
            with ThreadPoolExecutor(jobs) as pool:
                others = dict(zip(others, pool.map(lambda case: naive(case, project), some), strict=True))  # noqa: B023
        fresh = [Row(case, outcomes[case.name], *others[case.name]) for case in some]
        print(plain(fresh, header=not rows), flush=True)  # noqa: T201 - a program that prints
        rows += fresh
    return rows


def main() -> None:
    """Run the chosen cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", choices=sorted(BY_NAME), metavar="NAME", help="only this one")
    parser.add_argument("--jobs", type=int, default=2, help="models at a time")
    parser.add_argument("--no-naive", action="store_true", help="leave the plain script out")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there, too")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the projects there")
    chosen = parser.parse_args()
    cases = [BY_NAME[name] for name in chosen.case] if chosen.case else CASES
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="repogen-zoo-") as scratch:
        rows = run(cases, chosen.keep or Path(scratch), chosen.jobs, with_naive=not chosen.no_naive)
    print(summary(rows, time.monotonic() - begun))  # noqa: T201 - a program that prints
    if chosen.markdown:
        chosen.markdown.write_text(markdown(rows), encoding="utf-8")
    sys.exit(any(not row.right for row in rows))


if __name__ == "__main__":
    main()

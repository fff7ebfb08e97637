"""How often `repogen check` and the real Triton say the same of a model repository.

``python benchmarks/check_agreement.py [--only PREFIX] [--truth FILE] [--given FILE] [--keep DIR]``: repositories that
load, each with one thing changed, are loaded by the embedded Triton as users run it (auto-complete on). What came of
each is the truth that the linter's verdict is held against. ``--truth`` writes it as JSON, ``--given`` reads one in
place of asking Triton (``benchmarks/agreement/truth.json`` is that of the last full run, which the tests use, too),
``--keep`` leaves each variant's repository in a directory of its own.

The server's core is the real one. The onnxruntime backend is repogen's imitation, made lenient for sequences. Where
NVIDIA's stock backend was measured, or its source read, its verdict replaces the imitation's (``on_stock_backend``).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from agreement.triton import Judge, LenientTriton, started_whole
from agreement.values import Said, Truth, excuse, on_stock_backend
from agreement.variants import all_variants

from repogen import check
from repogen.errors import SpecError
from repogen.reporting.table import table

if TYPE_CHECKING:
    from agreement.triton import Verdict
    from agreement.values import Variant

SERVERS = 2
LANES = 3
"""How many models one server loads at once: a load mostly waits."""


@dataclass
class Court:
    """Has Triton judge variants, several at once.

    Attributes:
        repositories: Where they are written.
        total: How many there are.
        found: What came of those that were judged, by name.
    """

    repositories: Path
    total: int
    found: dict[str, Truth] = field(default_factory=dict)

    def truths(self, variants: list[Variant], scratch: Path) -> list[Truth]:
        """Write every variant, and have it judged; those that were loading when a server died again, alone."""
        triton = LenientTriton.prepared(scratch / "backends")
        waiting: SimpleQueue[Variant] = SimpleQueue()
        for variant in variants:
            variant.write(self.repositories / variant.folder)
            waiting.put(variant)
        judges = [Judge(triton, scratch / f"served-{number}") for number in range(SERVERS)]
        try:
            with ThreadPoolExecutor(SERVERS * LANES) as pool:
                lanes = [pool.submit(self._work, judge, waiting) for judge in judges for _ in range(LANES)]
            suspects = [suspect for lane in lanes for suspect in lane.result()]
            for suspect in suspects:
                self._judge(suspect, judges[0])
        finally:
            for judge in judges:
                judge.close()
        return [self.found[name] for name in sorted(self.found)]

    def _work(self, judge: Judge, waiting: SimpleQueue[Variant]) -> list[Variant]:
        """Judge what waits; return those that another's death took along."""
        suspects = []
        with suppress(Empty):
            while True:
                variant = waiting.get_nowait()
                if not self._judge(variant, judge):
                    suspects.append(variant)
        return suspects

    def _judge(self, variant: Variant, judge: Judge) -> bool:
        """Have it judged; tell whether that succeeded."""
        repository = self.repositories / variant.folder
        if variant.whole or not variant.base.renamable:
            verdict: Verdict | None = started_whole(judge.triton, repository)
        else:
            verdict = judge.loaded(repository, variant.base.name)
        if verdict is None:
            return False
        by_backend = variant.group == "core" and "TritonModelException" in verdict[1]
        group = "backend" if by_backend else variant.group
        truth = on_stock_backend(Truth(variant.name, variant.base.name, group, *verdict))
        self.found[variant.name] = truth
        print(f"{len(self.found)}/{self.total} {truth.name}: {truth.outcome}", file=sys.stderr, flush=True)
        return True


def given(path: Path, variants: list[Variant], repositories: Path) -> list[Truth]:
    """Return the truths that a file has of these variants, and write their repositories."""
    known = {entry["name"]: on_stock_backend(Truth(**entry)) for entry in json.loads(path.read_text(encoding="utf-8"))}
    found = [variant for variant in variants if variant.name in known]
    for variant in found:
        variant.write(repositories / variant.folder)
    return [known[variant.name] for variant in found]


def judged(repository: Path) -> Said:
    """Return the worst severity that `repogen check` reports; a repository without a model is rejected."""
    try:
        severities = {finding.severity for finding in check(repository)}
    except SpecError as error:
        if error.code != "check.nothing":
            raise
        return "nothing"
    return "error" if "error" in severities else "warning" if severities else "nothing"


def print_counts(truths: list[Truth]) -> None:
    """Print how many variants of each group came to what."""
    outcomes = ("accept", "refuse", "crash", "hang", "wrong")
    counts = Counter[tuple[str, str]]((truth.group, truth.outcome) for truth in truths)
    groups = sorted({truth.group for truth in truths})
    rows = [(group, *(str(counts[group, outcome]) for outcome in outcomes)) for group in groups]
    print(table(("judged by", *outcomes), rows))


def print_agreement(truths: list[Truth], said: dict[str, Said]) -> None:
    """Print truth against verdict, of the server's core and of the backend, and each variant on which they differ."""
    for title, mine in (
        ("rules of the server's core, judged by the server", [t for t in truths if t.group != "backend"]),
        (
            "rules of the ONNX Runtime backend, judged by repogen's imitation",
            [t for t in truths if t.group == "backend"],
        ),
    ):
        print(f"\n{title}")
        counts = Counter[tuple[str, Said]]((truth.outcome, said[truth.name]) for truth in mine)
        rows = [
            (outcome, *(str(counts[outcome, verdict]) for verdict in ("nothing", "warning", "error")))
            for outcome in ("accept", "refuse", "crash", "hang", "wrong")
        ]
        print(table(("Triton", "check: nothing", "warnings only", "errors"), rows))
    differing = [truth for truth in truths if (truth.outcome == "accept") != (said[truth.name] != "error")]
    explained = [truth for truth in differing if excuse(truth)]
    print(f"\n{len(truths) - len(differing)} of {len(truths)} agree; of the others {len(explained)} are explained:")
    for truth in sorted(differing, key=lambda truth: (not excuse(truth), truth.name)):
        kind = "false accept" if truth.outcome != "accept" else "false reject"
        why = excuse(truth) or truth.message.partition("\n")[0]
        print(f"  {truth.name}: {kind if not excuse(truth) else 'explained'}: {why}")


def main() -> None:
    """Judge, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="variants whose names begin so; several, separated by commas")
    parser.add_argument("--truth", type=Path, help="write the truth as JSON")
    parser.add_argument("--given", type=Path, help="a truth written before")
    parser.add_argument("--keep", type=Path, help="leave the repositories here")
    arguments = parser.parse_args()
    variants = [variant for variant in all_variants() if variant.name.startswith(tuple(arguments.only.split(",")))]
    with tempfile.TemporaryDirectory(prefix="repogen-bench-") as folder:
        scratch = Path(folder)
        repositories = arguments.keep or scratch / "repositories"
        if arguments.given:
            truths = given(arguments.given, variants, repositories)
        else:
            truths = Court(repositories, len(variants)).truths(variants, scratch)
        if arguments.truth:
            document = json.dumps([asdict(truth) for truth in truths], indent=1, ensure_ascii=False)
            arguments.truth.write_text(document + "\n", encoding="utf-8")
        print_counts(truths)
        folders = {variant.name: variant.folder for variant in variants}
        print_agreement(truths, {truth.name: judged(repositories / folders[truth.name]) for truth in truths})


if __name__ == "__main__":
    main()

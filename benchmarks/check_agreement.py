"""How often `repogen check` agrees with Triton about model repositories.

``python benchmarks/check_agreement.py [--only PREFIX] [--write-results FILE] [--results FILE] [--keep DIR]``: variants
of repositories that load, each with one change, are loaded by the embedded Triton with auto-complete, as users run it.
The findings of `check` are compared with the results. ``--write-results`` writes the results as JSON. ``--results``
reads such a file instead of running Triton; ``benchmarks/agreement/server_results.json`` is that of the last full run,
which the tests also use. ``--keep`` keeps the repositories of the variants.

The core of the server is Triton's own. The onnxruntime backend is repogen's reimplementation, made lenient for
sequences. Where NVIDIA's backend was measured, or its source read, its result is used instead (``on_stock_backend``).
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

from agreement.triton import LenientTriton, VariantServer, start_repository
from agreement.values import ServerResult, Severity, explanation, on_stock_backend
from agreement.variants import all_variants

from repogen import check
from repogen.errors import SpecError
from repogen.reporting.table import table

if TYPE_CHECKING:
    from agreement.triton import LoadResult
    from agreement.values import Variant

SERVERS = 2
LOADS_PER_SERVER = 3
"""How many models one server loads at the same time; most of a load is waiting."""
OUTCOMES = ("accept", "reject", "crash", "hang", "wrong")


@dataclass
class Measurement:
    """Loads variants on Triton servers, several at the same time.

    Attributes:
        repositories: The directory that the variants are written to.
        total: The number of variants.
        results: The results so far, by name.
    """

    repositories: Path
    total: int
    results: dict[str, ServerResult] = field(default_factory=dict)

    def run(self, variants: list[Variant], scratch: Path) -> list[ServerResult]:
        """Write and load every variant; those that were loading while a server crashed are loaded again alone."""
        triton = LenientTriton.prepared(scratch / "backends")
        pending: SimpleQueue[Variant] = SimpleQueue()
        for variant in variants:
            variant.write(self.repositories / variant.folder)
            pending.put(variant)
        servers = [VariantServer(triton, scratch / f"served-{number}") for number in range(SERVERS)]
        try:
            with ThreadPoolExecutor(SERVERS * LOADS_PER_SERVER) as pool:
                futures = [pool.submit(self._work, each, pending) for each in servers for _ in range(LOADS_PER_SERVER)]
            undecided = [variant for future in futures for variant in future.result()]
            for variant in undecided:
                self._load(variant, servers[0])
        finally:
            for server in servers:
                server.close()
        return [self.results[name] for name in sorted(self.results)]

    def _work(self, server: VariantServer, pending: SimpleQueue[Variant]) -> list[Variant]:
        """Load pending variants; return those without a result because another variant crashed the server."""
        undecided = []
        with suppress(Empty):
            while True:
                variant = pending.get_nowait()
                if not self._load(variant, server):
                    undecided.append(variant)
        return undecided

    def _load(self, variant: Variant, server: VariantServer) -> bool:
        """Load a variant and record the result; return whether there is one."""
        repository = self.repositories / variant.folder
        if variant.whole or not variant.base.renamable:
            loaded: LoadResult | None = start_repository(server.triton, repository)
        else:
            loaded = server.load(repository, variant.base.name)
        if loaded is None:
            return False
        by_backend = variant.group == "core" and "TritonModelException" in loaded[1]
        group = "backend" if by_backend else variant.group
        result = on_stock_backend(ServerResult(variant.name, variant.base.name, group, *loaded))
        self.results[variant.name] = result
        print(f"{len(self.results)}/{self.total} {result.name}: {result.outcome}", file=sys.stderr, flush=True)
        return True


def read_results(path: Path, variants: list[Variant], repositories: Path) -> list[ServerResult]:
    """Return the results of these variants in a file, and write the repositories of the variants."""
    entries = json.loads(path.read_text(encoding="utf-8"))
    results = {entry["name"]: on_stock_backend(ServerResult(**entry)) for entry in entries}
    recorded = [variant for variant in variants if variant.name in results]
    for variant in recorded:
        variant.write(repositories / variant.folder)
    return [results[variant.name] for variant in recorded]


def highest_severity(repository: Path) -> Severity:
    """Return the highest severity that `repogen check` reports; ``nothing`` for a repository without models.

    A directory without models that contains a repository is an error.
    """
    try:
        severities = {finding.severity for finding in check(repository)}
    except SpecError as error:
        if error.code not in {"check.nothing", "check.path"}:
            raise
        return "nothing" if error.code == "check.nothing" else "error"
    return "error" if "error" in severities else "warning" if severities else "nothing"


def print_counts(results: list[ServerResult]) -> None:
    """Print the number of variants by group and outcome."""
    counts = Counter[tuple[str, str]]((result.group, result.outcome) for result in results)
    groups = sorted({result.group for result in results})
    rows = [(group, *(str(counts[group, outcome]) for outcome in OUTCOMES)) for group in groups]
    print(table(("decided by", *OUTCOMES), rows))


def print_agreement(results: list[ServerResult], severities: dict[str, Severity]) -> None:
    """Print outcomes by severity, for the core and for the backend, and each variant on which they differ."""
    for title, part in (
        ("rules of Triton's core, compared with Triton", [each for each in results if each.group != "backend"]),
        (
            "rules of the ONNX Runtime backend, compared with repogen's reimplementation",
            [each for each in results if each.group == "backend"],
        ),
    ):
        print(f"\n{title}")
        counts = Counter[tuple[str, Severity]]((result.outcome, severities[result.name]) for result in part)
        rows = [
            (outcome, *(str(counts[outcome, severity]) for severity in ("nothing", "warning", "error")))
            for outcome in OUTCOMES
        ]
        print(table(("Triton", "check: nothing", "warnings only", "errors"), rows))
    print_differences([each for each in results if _differs(each, severities[each.name])], len(results))


def print_differences(differing: list[ServerResult], total: int) -> None:
    """Print each variant on which `check` and Triton differ, unexplained ones first."""
    explained = [result for result in differing if explanation(result)]
    print(f"\n{total - len(differing)} of {total} agree; of the others, {len(explained)} are explained:")
    for result in sorted(differing, key=lambda result: (bool(explanation(result)), result.name)):
        kind = "false accept" if result.outcome != "accept" else "false reject"
        reason = explanation(result) or result.message.partition("\n")[0]
        print(f"  {result.name}: {'explained' if explanation(result) else kind}: {reason}")


def _differs(result: ServerResult, severity: Severity) -> bool:
    return (result.outcome == "accept") is (severity == "error")


def main() -> None:
    """Load the variants or read results, and compare them with the findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="prefixes of the names of variants, separated by commas")
    parser.add_argument("--write-results", type=Path, metavar="FILE", help="write the results as JSON")
    parser.add_argument("--results", type=Path, metavar="FILE", help="use these results instead of running Triton")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the repositories here")
    arguments = parser.parse_args()
    variants = [variant for variant in all_variants() if variant.name.startswith(tuple(arguments.only.split(",")))]
    with tempfile.TemporaryDirectory(prefix="repogen-bench-") as folder:
        scratch = Path(folder)
        repositories = arguments.keep or scratch / "repositories"
        if arguments.results:
            results = read_results(arguments.results, variants, repositories)
        else:
            results = Measurement(repositories, len(variants)).run(variants, scratch)
        if arguments.write_results:
            document = json.dumps([asdict(result) for result in results], indent=1, ensure_ascii=False)
            arguments.write_results.write_text(document + "\n", encoding="utf-8")
        print_counts(results)
        folders = {variant.name: variant.folder for variant in variants}
        severities = {result.name: highest_severity(repositories / folders[result.name]) for result in results}
        print_agreement(results, severities)


if __name__ == "__main__":
    main()

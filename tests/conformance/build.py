"""Runs `repogen build` on cases and returns its verdicts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from shutil import copy
from typing import TYPE_CHECKING, Any

import yaml

from repogen.targets import DEFAULT_RELEASE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conformance.case import Case

MODELS = Path(__file__).parent / "models"
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
_SPEC = "repogen.yaml"
# The parity cases of these models are fast; the time limit is for models that hang.
_DEFAULTS = {"limits": {"timeout_seconds": 300}, "parity": {"budget_seconds": 10}}


@dataclass(frozen=True)
class Outcome:
    """The result of a case.

    Attributes:
        verdict: ``batch``, ``single`` or ``rejected:CODE``; ``ran`` when code ran that must not; ``crashed`` without
            a result.
        why: The reason for the rejection or for not batching, in one line.
        exporter: The exporter whose graph was published.
        max_batch_size: As published.
        max_abs_diff: The largest difference from the reference.
        seconds: All steps.
    """

    verdict: str
    why: str = ""
    exporter: str = ""
    max_batch_size: int | None = None
    max_abs_diff: float | None = None
    seconds: float = 0.0


def prepare(cases: Sequence[Case], directory: Path) -> None:
    """Write the files of cases, and the models that all cases share, into a project directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in MODELS.glob("*.py"):
        copy(path, directory)
    for case in cases:
        if case.files is not None:
            (directory / case.name).mkdir(exist_ok=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # PyTorch deprecates formats that are still in use
                case.files(directory / case.name)


def build(cases: Sequence[Case], directory: Path, jobs: int, release: str = DEFAULT_RELEASE) -> dict[str, Outcome]:
    """Build cases as one spec for a Triton release, in a prepared directory.

    A case that makes the spec invalid gets the spec's error as its verdict, and the others are built without it. When
    a build ends without a report, each of its cases is built again separately.
    """
    outcomes: dict[str, Outcome] = {}
    remaining = list(cases)
    while remaining:
        document = _run(remaining, directory, jobs, release)
        if document is None and len(remaining) > 1:
            return outcomes | {case.name: build([case], directory, 1, release)[case.name] for case in remaining}
        outcomes |= _outcomes(document, remaining)
        remaining = [case for case in remaining if case.name not in outcomes]
    return {case.name: _with_bait(case, outcomes[case.name], directory) for case in cases}


def _run(cases: Sequence[Case], directory: Path, jobs: int, release: str) -> dict[str, Any] | None:
    spec = {"target": {"triton": release}, "defaults": _DEFAULTS, "models": {case.name: case.entry for case in cases}}
    (directory / _SPEC).write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    flags = ["--no-smoke", "--no-track", "--json", "--jobs", str(jobs)]
    process = subprocess.run(
        [sys.executable, "-m", "repogen", "build", _SPEC, *flags],
        cwd=directory,
        env=os.environ | ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        document: dict[str, Any] = json.loads(process.stdout)
    except ValueError:
        (directory / "crash.txt").write_text(process.stdout + process.stderr, encoding="utf-8")
        return None
    return document


def _outcomes(document: dict[str, Any] | None, cases: Sequence[Case]) -> dict[str, Outcome]:
    """Return the outcomes in a report: all of them, or those of the models that make the spec invalid."""
    if document is None:
        return {case.name: Outcome("crashed", "see crash.txt of its project") for case in cases}
    if document["models"]:
        return {model["name"]: _outcome(model) for model in document["models"]}
    code = document["error"]["code"]
    problems = {problem["key"]: problem["what"] for problem in reversed(document.get("problems", []))}
    invalid = {key.split(".")[1]: f"{key}: {what}" for key, what in problems.items() if key.startswith("models.")}
    if not invalid:
        invalid = {case.name: document["error"]["message"] for case in cases}
    return {name: Outcome(f"rejected:{code}", why) for name, why in invalid.items()}


def _outcome(model: dict[str, Any]) -> Outcome:
    seconds = sum(model["seconds"].values())
    error = model["error"]
    if error is not None:
        return Outcome(f"rejected:{error['code']}", error["message"], seconds=seconds)
    return Outcome(
        "batch" if model["max_batch_size"] else "single",
        model["batch_reason"] or "",
        model["exporter"],
        model["max_batch_size"],
        model["parity"]["max_abs_diff"],
        seconds,
    )


def _with_bait(case: Case, outcome: Outcome, directory: Path) -> Outcome:
    """Return the verdict ``ran`` if code in the case's files was run."""
    ran = (directory / case.name / "bait").exists()
    return Outcome("ran", "code in its files was run", seconds=outcome.seconds) if ran else outcome

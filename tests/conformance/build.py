"""Asks the real `repogen build` for its verdicts."""

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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conformance.case import Case

MODELS = Path(__file__).parent / "models"
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
_SPEC = "repogen.yaml"
# The sweep's cases are many and cheap here; the limit is for what hangs.
_DEFAULTS = {"limits": {"timeout_seconds": 300}, "parity": {"budget_seconds": 10}}


@dataclass(frozen=True)
class Outcome:
    """What came of a case.

    Attributes:
        verdict: ``batch``, ``single`` or ``refused:CODE``; ``ran`` when what must not run did, ``crashed`` without an
            answer.
        why: Why it was refused or does not batch, in one line.
        rung: The exporter whose graph was published.
        max_batch_size: As published.
        max_abs_diff: The largest difference from the reference.
        seconds: All steps.
    """

    verdict: str
    why: str = ""
    rung: str = ""
    max_batch_size: int | None = None
    max_abs_diff: float | None = None
    seconds: float = 0.0


def prepare(cases: Sequence[Case], directory: Path) -> None:
    """Write the files of cases, and the models that all of them share, to a project's directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in MODELS.glob("*.py"):
        copy(path, directory)
    for case in cases:
        if case.files is not None:
            (directory / case.name).mkdir(exist_ok=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # PyTorch deprecates formats that teams still have
                case.files(directory / case.name)


def build(cases: Sequence[Case], directory: Path, jobs: int) -> dict[str, Outcome]:
    """Build cases as one spec, in a directory that was prepared.

    A case that keeps the spec from being loaded gets the spec's problem for its verdict, and the others are built
    without it. When a build ends without an answer, each of its cases is built again by itself.
    """
    done: dict[str, Outcome] = {}
    left = list(cases)
    while left:
        document = _run(left, directory, jobs)
        if document is None and len(left) > 1:
            return done | {case.name: build([case], directory, 1)[case.name] for case in left}
        told = _told(document, left)
        done |= told
        left = [case for case in left if case.name not in told]
    return {case.name: _unless_it_ran(case, done[case.name], directory) for case in cases}


def _run(cases: Sequence[Case], directory: Path, jobs: int) -> dict[str, Any] | None:
    spec = {"defaults": _DEFAULTS, "models": {case.name: case.entry for case in cases}}
    (directory / _SPEC).write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    flags = ["--no-smoke", "--no-track", "--json", "--jobs", str(jobs)]
    done = subprocess.run(
        [sys.executable, "-m", "repogen", "build", _SPEC, *flags],
        cwd=directory,
        env=os.environ | ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        document: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        (directory / "crash.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
        return None
    return document


def _told(document: dict[str, Any] | None, cases: Sequence[Case]) -> dict[str, Outcome]:
    """Return the outcomes that a document decides: all of them, or those of the models that spoil the spec."""
    if document is None:
        return {case.name: Outcome("crashed", "see crash.txt of its project") for case in cases}
    if document["models"]:
        return {model["name"]: _outcome(model) for model in document["models"]}
    code = document["error"]["code"]
    problems = {problem["key"]: problem["what"] for problem in reversed(document.get("problems", []))}
    spoilers = {key.split(".")[1]: f"{key}: {what}" for key, what in problems.items() if key.startswith("models.")}
    if not spoilers:
        spoilers = {case.name: document["error"]["message"] for case in cases}
    return {name: Outcome(f"refused:{code}", why) for name, why in spoilers.items()}


def _outcome(model: dict[str, Any]) -> Outcome:
    seconds = sum(model["seconds"].values())
    error = model["error"]
    if error is not None:
        return Outcome(f"refused:{error['code']}", error["message"], seconds=seconds)
    return Outcome(
        "batch" if model["max_batch_size"] else "single",
        model["batch_reason"] or "",
        model["exporter"],
        model["max_batch_size"],
        model["parity"]["max_abs_diff"],
        seconds,
    )


def _unless_it_ran(case: Case, outcome: Outcome, directory: Path) -> Outcome:
    ran = (directory / case.name / "bait").exists()
    return Outcome("ran", "it ran what must not run", seconds=outcome.seconds) if ran else outcome

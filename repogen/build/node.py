"""The process of a task on the machine that an executor chose: builds one model up to its smoke test.

The command line is ``python -P -m repogen.build.node ROOT INPUTS OUTPUTS PARENT``. Each step is one JSON object on
standard output. The result is in the output files, like a failure of the model: the exit status is 0 then.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic_core import to_json

from repogen.artifacts.serving import SmokeReport
from repogen.artifacts.versions import StagedVersion
from repogen.build.model_run import ModelRun
from repogen.build.order import FETCHED, ORDER, ORDER_FILE, REPOSITORY, Order, Result, build_environment
from repogen.build.plan import BuildOptions, BuildPlan
from repogen.build.session import open_session
from repogen.build.steps import verify_model
from repogen.build.verified import files_of, with_names
from repogen.errors import ExitCode, ExportError, RepogenError
from repogen.executors import process
from repogen.spec.models import Spec
from repogen.worker.job import Outcome
from repogen.worker.subreaper import end_with

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType
    from typing import TextIO

    from repogen.errors import ErrorRecord

_LATER_STEPS = frozenset({"configure", "stage", "server", "smoke"})


@dataclass(frozen=True)
class _Steps:
    """Progress that is sent to the build.

    Attributes:
        stream: Receives one JSON object per line.
    """

    stream: TextIO

    def step(self, model: str, step: str) -> None:
        """Send a step of the model."""
        if model:
            self.stream.write(json.dumps({"step": step}) + "\n")
            self.stream.flush()

    def note(self, model: str, text: str) -> None:
        """Ignore a note: it is in the report as well."""

    def download(self, what: str, done: int, total: int) -> None:
        """Ignore a download."""


def main() -> None:
    """Run the task that the command line names."""
    root, inputs, outputs = map(Path, sys.argv[1:4])
    end_with(int(sys.argv[4]), signal.SIGTERM)
    signal.signal(signal.SIGTERM, _interrupt)
    # What libraries print must not be read as steps.
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    order = ORDER.validate_json((inputs / ORDER_FILE).read_bytes())
    try:
        result = build_order(order, root, inputs, outputs, _Steps(stream))
    except KeyboardInterrupt:  # the executor that would remove them may have been killed
        for directory in (inputs, outputs):
            shutil.rmtree(directory, ignore_errors=True)
        sys.exit(int(ExitCode.INTERRUPTED))
    new = outputs / f".{process.RESULT}"
    new.write_bytes(to_json(result, by_alias=True, inf_nan_mode="constants"))
    new.rename(outputs / process.RESULT)


def build_order(order: Order, root: Path, inputs: Path, outputs: Path, progress: _Steps) -> Result:
    """Build the model of an order up to its smoke test; a failure of the model is in the result.

    Args:
        order: What to build.
        root: A copy of the spec's directory.
        inputs: The input files; the staging directory is in it.
        outputs: Receives the files of the model.
        progress: Receives each step.
    """
    if differences := _differences(order.environment):
        return Result(error=_other_environment(differences).record)
    plan = _plan(order, root, inputs / REPOSITORY)
    cancelled = threading.Event()
    run, error = ModelRun(order.name, progress, cancelled), None
    try:
        with open_session(plan, progress, None, cancelled) as opened:
            fetched = inputs / FETCHED
            session = replace(opened, fetched=fetched if fetched.is_dir() else None)
            try:
                verify_model(session, run, order.threads)
            except RepogenError as failure:
                error = failure.record
            return _result(run, outputs, error)
    except RepogenError as failure:  # there is no Triton for this machine, for example
        return Result(error=failure.record)


def _plan(order: Order, root: Path, repository: Path) -> BuildPlan:
    templates = None if order.templates is None else root / order.templates
    spec = Spec(
        root / order.file,
        repository,
        order.release,
        templates,
        order.models,
        {},
        gpu=order.gpu,
        registry=order.registry,
    )
    options = BuildOptions(
        models=(order.name,),
        repository=repository,
        server=order.server,
        force=not order.use_cache,
        dry_run=True,
        track=False,
        try_all_exporters=order.try_all_exporters,
        report=False,
    )
    return BuildPlan(spec, options, repository, (order.name,), (order.name,), {})


def _result(run: ModelRun, outputs: Path, error: ErrorRecord | None) -> Result:
    """Return what was recorded, and link the files of the model, which are removed with the staging directory."""
    outcome, staged = run.result(Outcome), run.result(StagedVersion)
    built = outcome.result if outcome is not None and not isinstance(outcome.result, RepogenError) else None
    for name, path in ({} if built is None else files_of(built)).items():
        shutil.copyfile(path, outputs / name)
    return Result(
        run.diagnostics,
        None if built is None else with_names(built),
        run.result(SmokeReport),
        "" if staged is None else staged.manifest.content_sha256,
        {step: seconds for step, seconds in run.seconds.items() if step in _LATER_STEPS},
        error,
    )


def _differences(expected: Mapping[str, str]) -> list[str]:
    own = build_environment()
    names = sorted({*expected, *own})
    pairs = [(name, expected.get(name, "none"), own.get(name, "none")) for name in names]
    return [f"{name} {there[:12]} instead of {here[:12]}" for name, here, there in pairs if here != there]


def _other_environment(differences: Sequence[str]) -> ExportError:
    return ExportError(
        f"the machine {socket.gethostname()} has {', '.join(differences)}",
        "install the same packages on every machine: the manifest records what a version was built with",
        code="executor.environment",
    )


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()

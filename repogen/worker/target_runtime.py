"""The target release's own ONNX Runtime: it must load a graph, and decides the dims of its outputs.

Triton compares config.pbtxt with the shapes that ONNX Runtime infers when it loads a graph, which may differ from those
in the file and between versions of ONNX Runtime. The embedded Triton's private packages for the target are used where
they are installed, in a process of their own, which may crash. Otherwise the installed ONNX Runtime is used.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from repogen.errors import ParityError, ServerError, first_line
from repogen.onnx_graph import session
from repogen.repository.golden import GOLDEN_JSON, GOLDEN_NPZ, golden_from_json
from repogen.serving.environment import without_secrets
from repogen.serving.install import locate
from repogen.validate.compare import difference
from repogen.validate.runtime import OTHER_EXPORTER, OnnxModel, load_hint

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from repogen.artifacts.built_model import Golden, OnnxArtifact
    from repogen.onnx_graph.written_shapes import OutputShapes
    from repogen.serving.install import Installation
    from repogen.targets import Target

_SCRIPT = Path(__file__).with_name("target_session.py")
_RESULTS = "target-results.npz"
_MAX_LOG_BYTES = 64 * 1024


class TargetDriftError(ParityError):
    """The target's ONNX Runtime disagrees with the original, unlike the installed one."""


@dataclass
class TargetRuntime:
    """The ONNX Runtime of a target release; a context manager that ends its process.

    The process starts with the first graph and is used for the next ones, without keeping a graph in memory.

    Attributes:
        target: The target release.
        installation: Where its packages are; None if they are not installed.
        threads: Number of compute threads.
    """

    target: Target
    installation: Installation | None
    threads: int
    _process: _Process | None = field(default=None, init=False, repr=False)

    def __enter__(self) -> Self:
        """Return the runtime."""
        return self

    def __exit__(self, *_: object) -> None:
        """End its process."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def load(self, artifact: OnnxArtifact) -> OutputShapes:
        """Return the shape of each output as ONNX Runtime infers it.

        Raises:
            ParityError: It cannot load the graph, or crashes.
        """
        if self.installation is None:
            return OnnxModel(artifact).output_shapes
        run = self._run(self.installation, artifact)
        if run.failure:
            raise ParityError(
                f"{self._name} cannot load the model: {run.failure}",
                load_hint(run.failure, artifact),
                code="parity.load",
                details=run.failure,
            )
        return run.shapes

    def check(self, artifact: OnnxArtifact, golden_dir: Path) -> None:
        """Compare its outputs with those of the golden cases; nothing is compared if it is not installed.

        Raises:
            ParityError: It fails or crashes on a case, or its outputs differ.
        """
        if self.installation is None:
            return
        golden = golden_from_json((golden_dir / GOLDEN_JSON).read_text(encoding="utf-8"))
        run = self._run(self.installation, artifact, golden, golden_dir)
        if run.failure:
            raise ParityError(
                f"{self._name} failed at {golden.cases[run.case].name}: {run.failure}",
                _hint(run.case),
                code="parity.runtime",
                details=run.failure,
            )
        with np.load(golden_dir / GOLDEN_NPZ) as expected, np.load(artifact.path.with_name(_RESULTS)) as actual:
            for index, case in enumerate(golden.cases):
                outputs = {tensor.name: expected[tensor.key] for tensor in case.outputs}
                returned = {tensor.name: actual[tensor.key] for tensor in case.outputs}
                if reason := difference(outputs, returned, golden.tolerances).reason:
                    raise TargetDriftError(
                        f"{self._name} disagrees with the original, unlike the installed ONNX Runtime: {case.name}: "
                        f"{reason}",
                        _hint(index),
                        code="parity.drift",
                    )
        artifact.path.with_name(_RESULTS).unlink()

    @property
    def _name(self) -> str:
        return f"ONNX Runtime {self.target.onnxruntime} (of Triton {self.target.release})"

    def _run(
        self,
        installation: Installation,
        artifact: OnnxArtifact,
        golden: Golden | None = None,
        golden_dir: Path = Path(),
    ) -> _Run:
        cases = [
            {"inputs": {tensor.name: tensor.key for tensor in case.inputs}}
            | {"outputs": {tensor.name: tensor.key for tensor in case.outputs}}
            for case in (golden.cases if golden is not None else ())
        ]
        job = {
            "model": str(artifact.path),
            "cases": cases,
            "golden": str(golden_dir / GOLDEN_NPZ),
            "results": str(artifact.path.with_name(_RESULTS)),
        }
        if self._process is None:
            self._process = _Process(installation, self.threads)
        events, failure = self._process.run(job)
        if failure:
            self.__exit__()
        if "error" in events:
            failure = first_line(RuntimeError(events["error"]), artifact.path.parent)
        shapes = {
            name: tuple(size if isinstance(size, int) else None for size in shape)
            for name, shape in events.get("shapes", {}).items()
        }
        return _Run(shapes, events.get("case", 0), failure)


class _Process:
    """A process with the target's packages.

    Args:
        installation: Where they are.
        threads: Number of compute threads.
    """

    def __init__(self, installation: Installation, threads: int) -> None:
        """Start it; it imports ONNX Runtime."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end
        self._process = subprocess.Popen(
            [installation.python.executable, "-I", "-S", "-B", _SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=without_secrets(),
            text=True,
            errors="replace",
        )
        self._send({"site": str(installation.site), "session": session.__file__, "threads": threads})

    def run(self, job: Mapping[str, object]) -> tuple[dict[str, Any], str]:
        """Return the events of a job, later ones over earlier ones, and how the process ended; empty if it did not."""
        self._send(job)
        events: dict[str, Any] = {}
        for line in self._process.stdout or ():
            events |= json.loads(line)
            if "done" in events:
                return events, ""
        status = self._process.wait()
        if status < 0:
            return events, f"it crashed ({signal.Signals(-status).name})"
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _MAX_LOG_BYTES))
        lines = self._log.read(_MAX_LOG_BYTES).decode(errors="replace").strip().splitlines()
        return events, lines[-1] if lines else f"its process exited with {status}"

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        with suppress(BrokenPipeError), self._process:  # waits, and closes the pipes
            pass
        self._log.close()

    def _send(self, document: Mapping[str, object]) -> None:
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # it ended, which the next read notices
                self._process.stdin.write(json.dumps(document) + "\n")
                self._process.stdin.flush()


@dataclass(frozen=True)
class _Run:
    """The events of one job.

    Attributes:
        shapes: Shapes of the outputs; empty if the graph was not loaded.
        case: Index of the last case.
        failure: Why it failed; empty if it did not.
    """

    shapes: OutputShapes
    case: int
    failure: str


def _hint(case: int) -> str:
    """Return what to do about a case that fails; the first one has the example sizes."""
    newer = "choose a newer target.triton, whose ONNX Runtime may have fixed it"
    return f"narrow dims: to the sizes that your clients send, or {newer}" if case else f"{newer}; or {OTHER_EXPORTER}"


def target_runtime(target: Target, threads: int) -> TargetRuntime:
    """Return the target's ONNX Runtime, from the embedded Triton's packages if they are installed."""
    try:
        installation = locate(target.onnxruntime)
    except ServerError:  # no wheel, or no Python for it
        return TargetRuntime(target, None, threads)
    return TargetRuntime(target, installation if installation.has(installation.site) else None, threads)

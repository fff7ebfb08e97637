"""The target release's own ONNX Runtime: it must load a graph, and decides the dims of its outputs.

Triton compares config.pbtxt with the shapes that ONNX Runtime infers when it loads a graph, which may differ from those
in the file and between versions of ONNX Runtime. The embedded Triton's private packages for the target are used where
they are installed, in a process of their own, which may crash. Otherwise the installed ONNX Runtime is used.
"""

from __future__ import annotations

import json
import signal
import subprocess
from dataclasses import dataclass
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
    from repogen.artifacts.built_model import Golden, OnnxArtifact
    from repogen.onnx_graph.written_shapes import OutputShapes
    from repogen.serving.install import Installation
    from repogen.targets import Target

_SCRIPT = Path(__file__).with_name("target_session.py")
_RESULTS = "target-results.npz"


@dataclass(frozen=True)
class TargetRuntime:
    """The ONNX Runtime of a target release.

    Attributes:
        target: The target release.
        installation: Where its packages are; None if they are not installed.
        threads: Number of compute threads.
    """

    target: Target
    installation: Installation | None
    threads: int

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
                    raise ParityError(
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
            "site": str(installation.site),
            "session": session.__file__,
            "model": str(artifact.path),
            "threads": self.threads,
            "cases": cases,
            "golden": str(golden_dir / GOLDEN_NPZ),
            "results": str(artifact.path.with_name(_RESULTS)),
        }
        process = subprocess.run(
            [installation.python.executable, "-I", "-S", "-B", _SCRIPT],
            input=json.dumps(job),
            env=without_secrets(),
            capture_output=True,
            text=True,
            check=False,
        )
        return _read(process, artifact.path.parent)


@dataclass(frozen=True)
class _Run:
    """The events of one process.

    Attributes:
        shapes: Shapes of the outputs; empty if the graph was not loaded.
        case: Index of the last case.
        failure: Why it failed; empty if it did not.
    """

    shapes: OutputShapes
    case: int
    failure: str


def _read(process: subprocess.CompletedProcess[str], directory: Path) -> _Run:
    events: dict[str, Any] = {}
    for line in process.stdout.splitlines():
        events |= json.loads(line)
    failure = first_line(RuntimeError(events["error"]), directory) if "error" in events else ""
    if process.returncode < 0:
        failure = f"it crashed ({signal.Signals(-process.returncode).name})"
    elif process.returncode:
        lines = process.stderr.strip().splitlines()
        failure = lines[-1] if lines else f"its process exited with {process.returncode}"
    shapes = {
        name: tuple(size if isinstance(size, int) else None for size in shape)
        for name, shape in events.get("shapes", {}).items()
    }
    return _Run(shapes, events.get("case", 0), failure)


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
    installed = (installation.site / "stamp.json").is_file()
    return TargetRuntime(target, installation if installed else None, threads)

"""Specs, published versions without a real graph, and fakes for the parts of a build that others implement."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.built_model import BatchReport, BuiltModel, FileRecord, ImportedCode, OnnxArtifact, ParityReport
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.artifacts.tracking import Tracked
from repogen.artifacts.versions import Manifest, Provenance
from repogen.build.fingerprint import build_inputs, fingerprint, registered
from repogen.build.plan import BuildOptions, BuildPlan
from repogen.build.session import BuildSession
from repogen.errors import TrackingError
from repogen.repository.digest import sha256_bytes
from repogen.repository.manifest import manifest_to_json
from repogen.spec.load import load_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from repogen.artifacts.report import BuildReport, ModelReport
    from repogen.artifacts.versions import StagedVersion
    from repogen.build.tracking import TrackingSession
    from repogen.spec.models import Spec

SIGNATURE = Signature((TensorSpec("x", "float32", ("batch", 2)),), (TensorSpec("y", "float32", ("batch", 2)),))
PLAIN = "{source: {factory: models.py:build}, inputs: {x: {dtype: float32, shape: [2]}}}"


def write_spec(directory: Path, **models: str) -> Spec:
    """Return a spec with models; the value of each is its block as YAML, or ``PLAIN``."""
    directory.mkdir(exist_ok=True)
    (directory / "models.py").touch()
    path = directory / "repogen.yaml"
    path.write_text("models:\n" + "".join(f"  {name}: {block}\n" for name, block in models.items()))
    return load_spec(path)


def ensemble_of(*steps: str) -> str:
    """Return the block of an ensemble."""
    return f"{{source: {{kind: ensemble, steps: [{', '.join(f'{{model: {step}}}' for step in steps)}]}}}}"


@dataclass
class RecordedProgress:
    """A Progress that keeps the steps that it received, as ``model: step``."""

    steps: list[str] = field(default_factory=list)

    def step(self, model: str, step: str) -> None:
        """Keep a step."""
        self.steps.append(f"{model}: {step}")

    def note(self, model: str, text: str) -> None:
        """Ignore a note."""

    def download(self, what: str, done: int, total: int) -> None:
        """Ignore a download."""


@dataclass
class FakeTracker:
    """A BuildTracker in memory.

    Attributes:
        failing: Names of the methods that raise a TrackingError.
        calls: The methods that were called, with the model or the status.
    """

    failing: tuple[str, ...] = ()
    calls: list[str] = field(default_factory=list)

    def _call(self, method: str, detail: str) -> None:
        self.calls.append(f"{method} {detail}")
        if method in self.failing:
            raise TrackingError(f"{method} failed", "start the server")

    def start(self, models: Mapping[str, Mapping[str, str]]) -> None:
        """Record the models."""
        assert all(tags["repogen.source"] for tags in models.values())
        self._call("start", ",".join(models))

    def log(
        self, staged: StagedVersion, built: BuiltModel, report: ModelReport, page: str, repository: Path
    ) -> Tracked:
        """Register version 7."""
        assert page
        assert built.artifact.exporter
        assert repository.name
        self._call("log", f"{staged.name} {report.status.value}")
        return Tracked("run", 7)

    def log_page(self, name: str, page: str) -> None:
        """Record a new report."""
        assert "published" in page
        self._call("log_page", name)

    def log_failed(self, report: ModelReport, page: str) -> None:
        """Record a failure."""
        assert page
        self._call("log_failed", report.name)

    def confirm(self, name: str, content: str, version: int, registered: int | None = None) -> None:
        """Record a confirmation."""
        assert content
        self._call("confirm", f"{name} {version} {registered}")

    def finish(self, report: BuildReport | None, page: str, html: str = "") -> None:
        """Record the end."""
        assert page or report is None
        assert not html or report is not None
        self._call("finish", "interrupted" if report is None else "complete")


def session_of(
    spec: Spec, staging: Path, *, tracking: TrackingSession | None = None, **options: object
) -> BuildSession:
    """Return a build session for all models of a spec, without a Triton."""
    values = BuildOptions(**options)  # type: ignore[arg-type] # the test's own
    plan = BuildPlan(spec, values, spec.repository, tuple(spec.models), tuple(spec.models), {})
    return BuildSession(plan, RecordedProgress(), staging, None, tracking, threading.Event())


def built_model(directory: Path) -> BuiltModel:
    """Return the result of a worker; its files need not exist."""
    artifact = OnnxArtifact(
        directory / "model.onnx", external_data=False, signature=SIGNATURE, opset=20, ir_version=9, nodes=3,
        exporter="dynamo",
    )  # fmt: skip
    return BuiltModel(
        artifact, directory, 4, ParityReport(()), BatchReport(batchable=True, max_batch_size=8), ImportedCode({}, {})
    )


@pytest.fixture
def publish_version() -> Callable[..., Path]:
    """Return a function that writes a version as a build of today would publish it."""

    def write(spec: Spec, name: str, version: int = 1, *, in_registry: bool = False) -> Path:
        inputs = build_inputs(spec, name)
        inputs = fingerprint(registered(inputs) if in_registry else inputs, ImportedCode({}, {}))
        directory = spec.repository / name / str(version)
        directory.mkdir(parents=True)
        config = f'name: "{name}"\nmax_batch_size: 8\n'
        files = {"config.pbtxt": config.encode(), "model.onnx": b"graph"}
        for file, content in files.items():
            (directory / file).write_bytes(content)
        (directory.parent / "config.pbtxt").write_text(config)
        records = tuple(FileRecord(file, sha256_bytes(content), len(content)) for file, content in files.items())
        origin = Provenance({}, "", inputs["spec"], inputs, spec.release, "dynamo", 20, 9, 4, 3, 2, 1e-6, 1e-5)
        manifest = Manifest(name, 8, SIGNATURE, records, origin)
        (directory / "manifest.json").write_text(manifest_to_json(manifest))
        return directory

    return write

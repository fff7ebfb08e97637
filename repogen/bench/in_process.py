"""The variants of one model that run in process, each in a process of its own: PyTorch and ONNX Runtime."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from repogen.artifacts.bench import Sample, Unmeasured, Variant
from repogen.artifacts.file_names import MODEL_FILE
from repogen.bench.jobs import TorchJob
from repogen.bench.runner import Runner, start_onnxruntime, start_torch
from repogen.errors import BenchError, RepogenError, SpecError
from repogen.files import is_directory
from repogen.files.replacement import trust_of
from repogen.machine import available_processors
from repogen.registry.mlflow.access import fetch_model
from repogen.registry.mlflow.uri import tracking_of
from repogen.spec.sources import MlflowSource
from repogen.worker.requirements import require_installed
from repogen.worker.target_runtime import target_runtime

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.bench.inputs import BenchInputs
    from repogen.bench.jobs import RunnerEvent
    from repogen.bench.server import ServedModel
    from repogen.files.replacement import Identity
    from repogen.spec.models import Spec
    from repogen.targets import Target

_NO_MODULE = {
    "onnx": "its source is an ONNX file, not a PyTorch module",
    "python": "its source is code for Triton's Python backend, not a PyTorch module",
    "ensemble": "it is an ensemble, whose steps can be measured one by one",
}
_LOAD_SECONDS = 600.0
_REPLACED = BenchError(
    "a file of the model changed while it was loaded, and another user can replace it", code="source.replaced"
)


@dataclass(frozen=True)
class Subject:
    """What runs in process.

    Attributes:
        served: The model on the server.
        inputs: Its inputs.
        batches: Batch sizes to measure.
        spec: The spec; None without one.
        target: The target release, whose ONNX Runtime is used.
        work_dir: Empty directory.
    """

    served: ServedModel
    inputs: BenchInputs
    batches: tuple[int, ...]
    spec: Spec | None
    target: Target
    work_dir: Path

    @property
    def version_dir(self) -> Path:
        """Directory of the version."""
        return self.served.model.directory / str(self.served.version)


@dataclass
class InProcess:
    """The running variants; a context manager that ends them.

    Attributes:
        subject: What runs.
        unmeasured: Variants that do not run, and why.
        notes: What the user should know.
        versions: Versions of PyTorch and ONNX Runtime.
    """

    subject: Subject
    unmeasured: list[Unmeasured] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    _runners: dict[Variant, Runner] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)
    _inputs: dict[str, Identity] = field(default_factory=dict)

    def __enter__(self) -> Self:
        """Start every variant that can run, and wait until all are warmed up."""
        with self._stack:
            files = self._input_files()
            self._inputs = self._replaceable()
            for variant in ("eager", "compile", "onnxruntime"):
                self._start(variant, files)
            for variant, runner in tuple(self._runners.items()):
                self._wait(variant, runner)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes."""
        self._stack.close()

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The variants that run."""
        return tuple(self._runners)

    def measure(self, variant: Variant, batch: int, seconds: float) -> Sample | None:
        """Measure one variant; None if it failed now, after which it does not run any more."""
        try:
            return self._runners[variant].measure(batch, seconds)
        except RepogenError as error:
            self._drop(variant, _REPLACED if self._replaceable() != self._inputs else error)
            return None

    def memory_bytes(self) -> dict[str, int]:
        """Return the largest resident memory of each variant that runs."""
        return {variant: runner.memory_bytes for variant, runner in self._runners.items()}

    def _start(self, variant: Variant, files: dict[int, Path]) -> None:
        directory = self.subject.work_dir / variant
        directory.mkdir()
        try:
            start = self._onnxruntime if variant == "onnxruntime" else self._torch
            self._runners[variant] = self._stack.enter_context(start(variant, files, directory))
        except RepogenError as error:
            self._drop(variant, error)

    def _wait(self, variant: Variant, runner: Runner) -> None:
        result: RunnerEvent | RepogenError
        try:
            result = runner.wait(self._load_seconds())
        except RepogenError as error:
            result = error
        if self._replaceable() != self._inputs:  # the result may quote a private file that a link led to
            result = _REPLACED
        if isinstance(result, RepogenError):
            self._drop(variant, result)
        else:
            self._record(variant, result)

    def _replaceable(self) -> dict[str, Identity]:
        """Return the files of the model's source that another user could replace, with their identities."""
        spec, name = self.subject.spec, self.subject.served.model.name
        if spec is None or name not in spec.models:
            return {}
        source, trust = spec.models[name].source, trust_of(spec.root)
        named = [getattr(source, key) for key in source.files]
        paths = [spec.root / path for path in (*named, getattr(source, "model", None)) if isinstance(path, str)]
        return trust.identities((*paths, *trust.files(filter(is_directory, paths))))

    def _record(self, variant: Variant, event: RunnerEvent) -> None:
        name = "onnxruntime (in process)" if variant == "onnxruntime" else "torch"
        self.versions[name] = event.version
        self.notes += [event.note] if event.note else []

    def _drop(self, variant: Variant, error: RepogenError) -> None:
        self._runners.pop(variant, None)  # the stack ends its process
        self.unmeasured.append(Unmeasured(variant, error.message))

    def _load_seconds(self) -> float:
        spec, name = self.subject.spec, self.subject.served.model.name
        model = None if spec is None else spec.models.get(name)
        return _LOAD_SECONDS if model is None else model.limits.timeout_seconds

    def _input_files(self) -> dict[int, Path]:
        files = {batch: self.subject.work_dir / f"batch-{batch}.npz" for batch in self.subject.batches}
        for batch, path in files.items():
            self.subject.inputs.save(path, batch)
        return files

    def _torch(self, variant: Variant, files: dict[int, Path], directory: Path) -> Runner:
        """Start PyTorch.

        Raises:
            RepogenError: The model has no PyTorch module, or its files cannot be downloaded.
        """
        subject, name = self.subject, self.subject.served.model.name
        model = None if subject.spec is None else subject.spec.models.get(name)
        if subject.spec is None or model is None:
            raise BenchError("no spec describes the model" if subject.spec is None else "the spec does not have it")
        if reason := _NO_MODULE.get(model.source.kind):
            raise BenchError(reason)
        require_installed([model])
        fetched = None
        if isinstance(model.source, MlflowSource):
            fetched = directory / "fetched"
            fetched.mkdir()
            root, source = subject.spec.root, model.source
            code_base = root if source.trust_pickle else None
            fetched = fetch_model(tracking_of(subject.spec, None, root), source.uri, fetched, code_base)
        job = TorchJob(
            compiled=variant == "compile",
            model=model,
            root=subject.spec.root,
            fetched=fetched,
            inputs=files,
            names=tuple(subject.inputs.graph),
            version_dir=subject.version_dir,
            batched=subject.inputs.batched,
            threads=available_processors(),
            commands=directory / "commands",
            work_dir=directory,
        )
        return start_torch(job)

    def _onnxruntime(self, _: Variant, files: dict[int, Path], directory: Path) -> Runner:
        """Start ONNX Runtime.

        Raises:
            SpecError: The version has no graph, or the target's ONNX Runtime is not installed.
        """
        config = self.subject.served.model.config
        model = self.subject.version_dir / (config.default_model_filename.lstrip("/") or MODEL_FILE)
        if config.HasField("ensemble_scheduling"):
            raise SpecError("it is an ensemble, whose steps can be measured one by one")
        if config.backend not in {"", "onnxruntime"} or not model.exists():
            raise SpecError(f"it is not an ONNX model but {config.backend or config.platform or 'unknown'}")
        runtime = target_runtime(self.subject.target, available_processors())
        if runtime.installation is None:
            raise SpecError(f"ONNX Runtime {self.subject.target.onnxruntime} is not installed: repogen server install")
        return start_onnxruntime(model, files, list(self.subject.inputs.graph), runtime.installation, directory)

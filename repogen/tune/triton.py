"""The test bed on Triton: a published model, served with any settings and measured by NVIDIA's perf_analyzer."""

from __future__ import annotations

import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.artifacts.built_model import BatchReport, OnnxArtifact
from repogen.artifacts.file_names import CONFIG_FILE, DATA_FILE, MODEL_FILE, PYTHON_FILE
from repogen.artifacts.named_file import is_named_file
from repogen.artifacts.steps import PythonArtifact
from repogen.artifacts.tune import Figures
from repogen.bench.inputs import golden_inputs
from repogen.bench.load import Load, load_target, measure
from repogen.bench.server import serve_model
from repogen.errors import BenchError, SpecError
from repogen.files import is_file, read_text
from repogen.machine import available_processors
from repogen.repository.golden import first_golden_inputs
from repogen.repository.manifest import read_manifest
from repogen.smoke.preparation import override_config
from repogen.triton_config.render.model import configure
from repogen.triton_config.render.model_facts import RenderOptions, VerifiedModel
from repogen.triton_config.text.parse import parse, parse_file
from repogen.tune.space import PASSES, TunableModel, with_settings
from repogen.worker.template import render_template

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.artifacts.bench import Sample
    from repogen.artifacts.built_model import Artifact
    from repogen.artifacts.serving import Endpoint
    from repogen.artifacts.tune import Settings
    from repogen.artifacts.versions import Manifest
    from repogen.bench.load import LoadTarget
    from repogen.bench.server import ServedModel, ServerChoice
    from repogen.spec.models import ModelSpec, Spec
    from repogen.triton_config.text.parse import ModelConfig

_ENSEMBLE = "ensemble"
_WARM_UP_SECONDS = 0.2


@dataclass(frozen=True)
class LoadShape:
    """The requests of every measurement.

    Attributes:
        batch: Rows of each request.
        concurrency: Number of requests at a time.
    """

    batch: int
    concurrency: int


@dataclass(frozen=True)
class ServedCandidate:
    """A config that is served, and whose outputs are correct.

    Attributes:
        served: The model on its server.
        target: What perf_analyzer sends requests to.
        shape: The requests.
    """

    served: ServedModel
    target: LoadTarget
    shape: LoadShape

    def measure(self, seconds: float) -> Figures:
        """Send requests for some time.

        Raises:
            BenchError: perf_analyzer failed, or the server exited.
        """
        return Figures.of(self._sample(seconds), self.served.memory_bytes)

    def _sample(self, seconds: float) -> Sample:
        batch = self.shape.batch if self.served.model.config.max_batch_size else 0
        try:
            return measure(self.target, Load("grpc", batch, self.shape.concurrency, seconds))
        except BenchError as error:
            raise self.served.death(error) from error


@dataclass
class TritonTestBed:
    """Serves a published model with any settings; each config gets a server of its own.

    Attributes:
        spec: The spec.
        name: The model.
        directory: Its directory in the repository.
        version: The version to measure.
        choice: The server.
        program: Directory of perf_analyzer.
        shape: The requests.
        work_dir: Directory for temporary files.
        endpoint: Properties of the server; set by ``probe``.
        graphs: The same model built with other optimization passes, by the value of ``passes``.
    """

    spec: Spec
    name: str
    directory: Path
    version: int
    choice: ServerChoice
    program: Path
    shape: LoadShape
    work_dir: Path
    endpoint: Endpoint | None = None
    graphs: dict[str, TritonTestBed] = field(default_factory=dict)

    @property
    def version_dir(self) -> Path:
        """Directory of the version."""
        return self.directory / str(self.version)

    @cached_property
    def manifest(self) -> Manifest:
        """Manifest of the version.

        Raises:
            SpecError: repogen did not build it.
        """
        try:
            return read_manifest(self.version_dir)
        except FileNotFoundError as error:
            raise SpecError(
                f"{self.name}: repogen did not build version {self.version}, so its settings can't be rendered",
                "publish the model with `repogen build`",
                code="tune.not-built",
            ) from error

    def check(self) -> None:
        """Check that the model can be tuned, before a server is started.

        Raises:
            SpecError: It has no settings, or the published version differs from the spec.
        """
        size, largest = self._model_spec.triton.max_batch_size, self.manifest.max_batch_size
        if self.manifest.provenance.exporter == _ENSEMBLE:
            raise SpecError(
                f"{self.name} is an ensemble, which has no settings of its own", "tune its steps", code="tune.ensemble"
            )
        if size not in ("auto", largest):
            raise SpecError(
                f"{self.name}: the spec has max_batch_size {size}, but version {self.version} was built with {largest}",
                "publish the spec with `repogen build` first",
                code="tune.outdated",
            )
        if largest and self.shape.batch > largest:
            raise SpecError(
                f"{self.name}: requests of {self.shape.batch} rows exceed max_batch_size, which is {largest}",
                f"use --batch {largest}",
                code="tune.batch",
            )

    @property
    def model(self) -> TunableModel:
        """What decides which parameters apply."""
        is_graph = (self.version_dir / MODEL_FILE).is_file()
        facts = (
            self.manifest.max_batch_size,
            is_graph,
            available_processors(),
            self._has_gpu,
            self.spec.gpu,
            self.shape.batch,
            tuple(self.graphs),
        )
        return TunableModel(self._model_spec.triton, *facts)

    def probe(self) -> Figures:
        """Serve the published config once, compare its outputs, and find out what the server can do.

        Raises:
            RepogenError: The published model cannot be served or measured.
        """
        with serve_model(self.choice, self.directory) as served:
            self.endpoint = served.endpoint
            if not served.endpoint.sees_files:
                raise SpecError(
                    f"--server {self.choice.kind} serves its own copy of the model, whose config repogen can't change",
                    "use --server embedded or docker on that machine",
                    code="tune.server",
                )
            with self._candidate(served) as candidate:
                return candidate.measure(_WARM_UP_SECONDS)

    @contextmanager
    def open(self, settings: Settings) -> Iterator[ServedCandidate]:
        """Serve the config with these settings while the block runs; see ``TestBed``."""
        bed = self.graphs.get(str(settings.get(PASSES)), self)
        with (
            serve_model(self.choice, bed.directory, bed.config(settings)) as served,
            self._candidate(served) as candidate,
        ):
            candidate.measure(_WARM_UP_SECONDS)
            yield candidate

    def add_graph(self, passes: str, directory: Path, version: int) -> None:
        """Add the model built with other passes.

        Args:
            passes: The value of ``passes``.
            directory: Its directory in another repository.
            version: Its version.
        """
        self.graphs[passes] = replace(self, directory=directory, version=version, graphs={})

    @contextmanager
    def open_automatic(self) -> Iterator[ServedCandidate]:
        """Serve the model with the config that Triton completes from the model file alone.

        Raises:
            RepogenError: Triton cannot complete it, or its outputs are wrong with that config.
        """
        backend = "onnxruntime" if self.model.is_graph else "python"
        minimal = parse(f'name: "{self.name}" backend: "{backend}"', "the empty config")
        with serve_model(self.choice, self.directory, minimal) as served:
            completed = served.client.config(served.model.served_as, served.version)
            complete = replace(served, model=replace(served.model, config=completed))
            with self._candidate(complete) as candidate:
                candidate.measure(_WARM_UP_SECONDS)
                yield candidate

    def config(self, settings: Settings) -> ModelConfig:
        """Return the config with these settings, as ``repogen build`` would write it.

        Raises:
            ConfigError: The settings violate a rule.
        """
        triton = with_settings(self.model, settings)
        size = self.model.max_batch_size if triton.max_batch_size == "auto" else triton.max_batch_size
        verified = VerifiedModel(
            self._artifact,
            BatchReport(batchable=size > 0, max_batch_size=size),
            self._labels,
            partial(first_golden_inputs, self.version_dir),
        )
        spec, model = self.spec, self._model_spec.model_copy(update={"triton": triton})
        options = RenderOptions(self.choice.target, spec.templates, spec.root, spec.gpu)
        if spec.templates is None:
            rendered = configure(self.name, model, verified, options)
        else:
            renderer = partial(render_template, self.work_dir, threading.Event())
            rendered = configure(self.name, model, verified, options, renderer)
        config = parse(rendered.text, f"config.pbtxt of {self.name}")
        return override_config(config, version=self.version, has_gpu=self._has_gpu)[0]

    @property
    def overrides(self) -> tuple[str, ...]:
        """The fields of the published config that this server cannot use, one line each."""
        config = parse_file(self.directory / CONFIG_FILE, f"config.pbtxt of {self.name}")
        return override_config(config, version=self.version, has_gpu=self._has_gpu)[1]

    @property
    def _has_gpu(self) -> bool:
        return self.endpoint is not None and self.endpoint.has_gpu

    @property
    def _model_spec(self) -> ModelSpec:
        return self.spec.models[self.name]

    @cached_property
    def _artifact(self) -> Artifact:
        manifest, origin = self.manifest, self.manifest.provenance
        if not self.model.is_graph:
            return PythonArtifact(self.version_dir / PYTHON_FILE, manifest.signature)
        return OnnxArtifact(
            path=self.version_dir / MODEL_FILE,
            external_data=(self.version_dir / DATA_FILE).is_file(),
            signature=manifest.signature,
            opset=origin.opset,
            ir_version=origin.ir_version,
            nodes=origin.nodes_optimized,
            exporter=origin.exporter,
        )

    @cached_property
    def _labels(self) -> dict[str, list[str]]:
        """Class names that came from the model itself, as they were published."""
        config = parse_file(self.directory / CONFIG_FILE, f"config.pbtxt of {self.name}")
        names = {tensor.name: tensor.label_filename for tensor in config.output if is_named_file(tensor.label_filename)}
        files = {name: self.directory / file for name, file in names.items()}
        texts = {name: read_text(path) for name, path in files.items() if is_file(path)}
        return {name: text.removesuffix("\n").split("\n") for name, text in texts.items()}

    @contextmanager
    def _candidate(self, served: ServedModel) -> Iterator[ServedCandidate]:
        """Compare the outputs with the golden tensors, and yield the candidate; its inputs are removed at the end.

        Raises:
            BenchError: They differ.
        """
        inputs = golden_inputs(served)
        with tempfile.TemporaryDirectory(dir=self.work_dir) as directory:
            target = load_target(self.program, served, inputs, Path(directory) / "inputs.json")
            yield ServedCandidate(served, target, self.shape)

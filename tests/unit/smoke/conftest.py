"""A simulated Triton that serves by its config, with flaws to select."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tritonclient.grpc.model_config_pb2 import ModelConfig

from repogen.artifacts.serving import Endpoint
from repogen.smoke.deployed_model import DeployedModel, WireCase
from repogen.smoke.inference import (
    Counts,
    ModelMetadata,
    NoResponseError,
    RefusedError,
    SequencePosition,
    TensorMetadata,
    WireTensor,
)
from repogen.triton_config.text.parse import parse
from repogen.triton_config.text.view import tensor_views

if TYPE_CHECKING:
    from repogen.artifacts.tensors import Arrays

CONFIG = """
name: "double" backend: "onnxruntime" max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: 2 }
output { name: "y" data_type: TYPE_FP32 dims: 2 }
instance_group { count: 1 kind: KIND_CPU }
dynamic_batching { }
"""


@dataclass
class SimulatedTriton:
    """Serves ``y = 2 * x`` by its config; each flaw is one way for a server to be wrong."""

    model_config: ModelConfig
    flaws: frozenset[str] = frozenset()
    totals: Counts = field(default_factory=lambda: Counts(0, 0))
    requests: int = 0
    dead: bool = False
    positions: list[SequencePosition | None] = field(default_factory=list)

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint of an embedded server."""
        return Endpoint("127.0.0.1:1", "", "", "embedded", "2.51.0", "simulated", sees_files=True, has_gpu=False)

    def alive(self) -> bool:
        """Return whether it has not exited."""
        return not self.dead

    def log_tail(self, lines: int = 40) -> str:
        """Return a fixed text."""
        return f"last of {lines}: segmentation fault"

    def provide(self, requirements: Sequence[str]) -> None:
        """Accept no requirements."""
        assert not requirements

    def live(self) -> bool:
        """Return whether it has not exited."""
        return not self.dead

    def ready(self, model: str, version: int) -> bool:
        """Return whether this is the served version."""
        return (model, version) == (self.model_config.name, 1) and "not ready" not in self.flaws

    def metadata(self, model: str, version: int) -> ModelMetadata:
        """Return the metadata of the config."""
        shift = 1 if "metadata" in self.flaws else 0
        dims = (-1, 2 + shift) if self.model_config.max_batch_size else (2 + shift,)
        sides = (tensor_views(self.model_config.input), tensor_views(self.model_config.output))
        tensors = [{t.name: TensorMetadata("FP32", dims) for t in side} for side in sides]
        return ModelMetadata((str(version),) if model else (), tensors[0], tensors[1])

    def config(self, model: str, version: int) -> ModelConfig:
        """Return the config with a default."""
        filled = ModelConfig()
        filled.CopyFrom(self.model_config)
        filled.instance_group[0].name = f"{model}_{version}"
        if "config" in self.flaws:
            filled.instance_group[0].count = 2
        return filled

    def counts(self, model: str, version: int) -> Counts:
        """Return the totals."""
        assert self.ready(model, version)
        return self.totals

    def infer(
        self,
        model: str,
        version: int,
        inputs: Sequence[WireTensor],
        position: SequencePosition | None = None,
        max_bytes: int | None = None,
    ) -> Arrays:
        """Reject requests that the config forbids, else return the outputs."""
        self.positions.append(position)
        assert self.ready(model, version)
        assert max_bytes is not None
        self.requests += 1
        if "dies" in self.flaws or "hangs" in self.flaws:
            self.dead = "dies" in self.flaws
            raise NoResponseError("DEADLINE_EXCEEDED")
        (x,) = inputs
        rows = len(x.array) if self.model_config.max_batch_size else 0
        if rows > self.model_config.max_batch_size and "any batch" not in self.flaws:
            raise RefusedError("INVALID_ARGUMENT", f"batch-size must be <= {self.model_config.max_batch_size}")
        if x.dtype != "FP32" and "any dtype" not in self.flaws:
            raise RefusedError("INTERNAL" if "late rejection" in self.flaws else "INVALID_ARGUMENT", "data-type")
        self.totals = Counts(self.totals.inferences + max(rows, 1), self.totals.executions + 1)
        return {"y": self._double(np.asarray(x.array, np.float32))}

    def _double(
        self, x: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        y = x * np.float32(2)
        if "large batches" in self.flaws and len(y) > 4:
            y[-1] = y[0]
        if "numbers" in self.flaws:
            y = y + np.float32(0.5)
        if "nan" in self.flaws:
            y.flat[0] = np.nan
        return y

    def burst(
        self,
        model: str,
        version: int,
        requests: Sequence[Sequence[WireTensor]],
        positions: Sequence[SequencePosition] = (),
        max_bytes: int | None = None,
    ) -> list[Arrays]:
        """Infer all requests; two of them in one execution."""
        each: list[SequencePosition | None] = list(positions) or [None] * len(requests)
        outputs = [self.infer(model, version, *request, max_bytes) for request in zip(requests, each, strict=True)]
        if "never joins" not in self.flaws:
            self.totals = Counts(self.totals.inferences, self.totals.executions - 1)
        return outputs[::-1] if "mixes a burst" in self.flaws else outputs

    def load(self, model: str, config: str | None, files: Mapping[str, bytes]) -> None:
        """Not simulated; tested on the real server."""
        raise NotImplementedError(model, config, files)

    def unload(self, model: str) -> None:
        """Not simulated; tested on the real server."""
        raise NotImplementedError(model)


Simulated = Callable[..., tuple[SimulatedTriton, DeployedModel]]


@pytest.fixture
def simulated() -> Simulated:
    """Return a function that creates a simulated server with flaws, and the deployed model to test on it."""

    def create(*flaws: str, config: str = CONFIG) -> tuple[SimulatedTriton, DeployedModel]:
        model_config = parse(config, "test")
        shape = (3, 2) if model_config.max_batch_size else (2,)
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        case = WireCase("batch=3", 3 if model_config.max_batch_size else 0, {"x": x}, {"y": x * np.float32(2)})
        server = SimulatedTriton(model_config, frozenset(flaws))
        dtypes, tolerances = {"x": "FP32"}, {"y": (1e-3, 1e-5)}
        return server, DeployedModel(server, model_config.name, 1, model_config, dtypes, (case,), tolerances)

    return create

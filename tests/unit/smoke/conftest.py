"""A Triton in memory that keeps the rules, and can be told to break one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tritonclient.grpc.model_config_pb2 import ModelConfig

from repogen.artifacts.serving import Endpoint
from repogen.smoke.deployed_model import Case, Subject
from repogen.smoke.inference import Counts, ModelMetadata, NoAnswerError, RefusedError, TensorMetadata, Turn, WireTensor
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

    told: ModelConfig
    flaws: frozenset[str] = frozenset()
    counted: Counts = field(default_factory=lambda: Counts(0, 0))
    requests: int = 0
    dead: bool = False
    turns: list[Turn | None] = field(default_factory=list)

    @property
    def endpoint(self) -> Endpoint:
        """An embedded server's."""
        return Endpoint("127.0.0.1:1", "", "", "embedded", "2.51.0", "simulated", sees_files=True, has_gpu=False)

    def alive(self) -> bool:
        """Unless it died."""
        return not self.dead

    def log_tail(self, lines: int = 40) -> str:
        """The same words whatever ``lines`` is."""
        return f"last of {lines}: segmentation fault"

    def provide(self, requirements: Sequence[str]) -> None:
        """Need nothing."""
        assert not requirements

    def live(self) -> bool:
        """Unless it died."""
        return not self.dead

    def ready(self, model: str, version: int) -> bool:
        """The one model's one version."""
        return (model, version) == (self.told.name, 1) and "not ready" not in self.flaws

    def metadata(self, model: str, version: int) -> ModelMetadata:
        """As configured."""
        shift = 1 if "metadata" in self.flaws else 0
        dims = (-1, 2 + shift) if self.told.max_batch_size else (2 + shift,)
        sides = (tensor_views(self.told.input), tensor_views(self.told.output))
        tensors = [{t.name: TensorMetadata("FP32", dims) for t in side} for side in sides]
        return ModelMetadata((str(version),) if model else (), tensors[0], tensors[1])

    def config(self, model: str, version: int) -> ModelConfig:
        """As told, with defaults filled in."""
        filled = ModelConfig()
        filled.CopyFrom(self.told)
        filled.instance_group[0].name = f"{model}_{version}"
        if "config" in self.flaws:
            filled.instance_group[0].count = 2
        return filled

    def counts(self, model: str, version: int) -> Counts:
        """Of everything inferred so far."""
        assert self.ready(model, version)
        return self.counted

    def infer(self, model: str, version: int, inputs: Sequence[WireTensor], turn: Turn | None = None) -> Arrays:
        """Refuse what the config forbids, else answer."""
        self.turns.append(turn)
        assert self.ready(model, version)
        self.requests += 1
        if "dies" in self.flaws or "hangs" in self.flaws:
            self.dead = "dies" in self.flaws
            raise NoAnswerError("DEADLINE_EXCEEDED")
        (x,) = inputs
        rows = len(x.array) if self.told.max_batch_size else 0
        if rows > self.told.max_batch_size and "any batch" not in self.flaws:
            raise RefusedError("INVALID_ARGUMENT", f"batch-size must be <= {self.told.max_batch_size}")
        if x.dtype != "FP32" and "any dtype" not in self.flaws:
            raise RefusedError("INTERNAL" if "late refusal" in self.flaws else "INVALID_ARGUMENT", "data-type")
        self.counted = Counts(self.counted.inferences + max(rows, 1), self.counted.executions + 1)
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
        self, model: str, version: int, requests: Sequence[Sequence[WireTensor]], turns: Sequence[Turn] = ()
    ) -> list[Arrays]:
        """Answer all; two of them in one execution, unless told not to."""
        places: list[Turn | None] = list(turns) or [None] * len(requests)
        answers = [self.infer(model, version, request, turn) for request, turn in zip(requests, places, strict=True)]
        if "never joins" not in self.flaws:
            self.counted = Counts(self.counted.inferences, self.counted.executions - 1)
        return answers[::-1] if "mixes a burst" in self.flaws else answers

    def load(self, model: str, config: str | None, files: Mapping[str, bytes]) -> None:
        """Not simulated: the real server is asked in tests/integration."""
        raise NotImplementedError(model, config, files)

    def unload(self, model: str) -> None:
        """Not simulated, as above."""
        raise NotImplementedError(model)


Simulated = Callable[..., tuple[SimulatedTriton, Subject]]


@pytest.fixture
def simulated() -> Simulated:
    """Return a maker of a simulated server, flaws by name, and the subject to test on it."""

    def make(*flaws: str, config: str = CONFIG) -> tuple[SimulatedTriton, Subject]:
        told = parse(config, "test")
        shape = (3, 2) if told.max_batch_size else (2,)
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        case = Case("batch=3", 3 if told.max_batch_size else 0, {"x": x}, {"y": x * np.float32(2)})
        subject = Subject("double", told.name, 1, told, {"x": "FP32"}, (case,), {"y": (1e-3, 1e-5)})
        return SimulatedTriton(told, frozenset(flaws)), subject

    return make

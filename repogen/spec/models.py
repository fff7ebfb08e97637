"""The spec as typed, frozen data; `load.py` makes it from YAML and says where every problem stands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

MODEL_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$"
INT32_MAX = 2**31 - 1

DtypeName = Literal[
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64"
]
StrictInt = Annotated[int, Field(strict=True, ge=-(2**31), le=INT32_MAX)]
Size = Annotated[int, Field(strict=True, ge=1, le=INT32_MAX)]
Count = Annotated[int, Field(strict=True, ge=0, le=INT32_MAX)]
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Tolerance = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
DimName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
TensorName = Annotated[str, Field(min_length=1, max_length=256)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class SourceSpec(_Model):
    """Where the model comes from: a callable that returns a ``torch.nn.Module``."""

    kind: Literal["torch"] = "torch"
    factory: str = Field(description='"file.py:callable" relative to the spec, or "package.module:callable"')
    kwargs: dict[str, object] = Field(default_factory=dict, description="Keyword arguments of the factory")
    weights: str | None = Field(default=None, description="safetensors, or .pt read with weights_only=True")


class InputSpec(_Model):
    """One input: dtype, full shape with symbolic dims by name, and how example values are drawn."""

    dtype: DtypeName
    shape: tuple[Size | DimName, ...]
    range: tuple[StrictInt, StrictInt] | None = Field(default=None, description="Inclusive, for integers")
    fill: Literal["zeros", "ones"] | None = None


class DimSpec(_Model):
    """Bounds of a symbolic dim, inclusive, and the size used to export (never 1)."""

    min: Size = 1
    max: Size
    example: Annotated[int, Field(strict=True, ge=2, le=INT32_MAX)] | None = None


class ExportSpec(_Model):
    """How the model becomes ONNX."""

    exporter: Literal["auto", "dynamo", "torchscript"] = "auto"
    opset: Literal["auto"] | Size = "auto"
    external_data: bool = Field(default=False, description="Weights beside the model even under 2 GB")
    allow_tracer_warnings: tuple[str, ...] = Field(
        default=(), description='"file.py:line" of value-dependent branches that are meant to be frozen'
    )


class ParitySpec(_Model):
    """How close ONNX Runtime must come to PyTorch; without rtol and atol the dtype decides."""

    rtol: Tolerance | None = None
    atol: Tolerance | None = None
    seed: Count = 0
    seeds: Annotated[int, Field(strict=True, ge=1, le=100)] = Field(default=2, description="Seeds at the example size")
    budget_seconds: Seconds = 30.0


class LimitsSpec(_Model):
    """What the worker process may use."""

    timeout_seconds: Seconds = 900.0
    memory_mb: Annotated[int, Field(strict=True, ge=256, le=INT32_MAX)] | None = None


class DynamicBatchingSpec(_Model):
    """Triton's dynamic batcher."""

    preferred_batch_size: tuple[Size, ...] = ()
    max_queue_delay_microseconds: Count = 0
    preserve_ordering: bool = False


class InstanceGroupSpec(_Model):
    """Triton's instance group."""

    count: Size = 1
    kind: Literal["KIND_AUTO", "KIND_CPU", "KIND_GPU"] = "KIND_CPU"
    gpus: tuple[Count, ...] = ()
    name: TensorName | None = None


class LatestPolicy(_Model):
    """Serve the newest versions."""

    num_versions: Size = 1


class VersionPolicySpec(_Model):
    """Which versions Triton serves; exactly one of the three."""

    latest: LatestPolicy | None = None
    all: Literal[True] | None = None
    specific: tuple[Size, ...] | None = None


class TritonSpec(_Model):
    """What config.pbtxt says beyond the signature."""

    max_batch_size: Literal["auto"] | Count = "auto"
    dynamic_batching: DynamicBatchingSpec | None = None
    instance_group: tuple[InstanceGroupSpec, ...] = ()
    version_policy: VersionPolicySpec | None = None


class ModelSpec(_Model):
    """One model, defaults merged in."""

    source: SourceSpec
    inputs: dict[TensorName, InputSpec] = Field(default_factory=dict)
    examples: str | None = Field(default=None, description='"file.npz", or "file.py:callable" (batch -> name: array)')
    outputs: tuple[TensorName, ...] = Field(default=(), description="Output names; the exporter's own if left out")
    dims: dict[DimName, DimSpec] = Field(default_factory=dict)
    export: ExportSpec = ExportSpec()
    optimize: tuple[Literal["onnxsim"], ...] = ()
    parity: ParitySpec = ParitySpec()
    limits: LimitsSpec = LimitsSpec()
    triton: TritonSpec = TritonSpec()


class TargetSpec(_Model):
    """The Triton release that will serve the repository."""

    triton: str = "24.10"


class SpecFile(_Model):
    """The whole file, as the JSON Schema describes it."""

    repository: str = "model_repository"
    target: TargetSpec = TargetSpec()
    templates: str | None = Field(default=None, description="Directory whose templates override repogen's own")
    defaults: dict[str, object] = Field(default_factory=dict, description="Anything a model may say")
    models: dict[Annotated[str, Field(pattern=MODEL_NAME)], ModelSpec] = Field(min_length=1)


class Location(_Model):
    """A place in the spec file; line and column count from 1."""

    line: int
    column: int


class Spec(_Model):
    """A loaded spec: paths absolute, defaults merged, every model valid.

    Attributes:
        path: The spec file.
        repository: Output repository.
        release: Triton release, a key of ``values.target.targets()``.
        templates: Directory of template overrides.
        models: Models by name, in file order.
        locations: Key path (``models.digits.source``) -> place, for messages of later steps.
    """

    path: Path
    repository: Path
    release: str
    templates: Path | None
    models: dict[str, ModelSpec]
    locations: dict[str, Location]

    @property
    def root(self) -> Path:
        """Directory that relative paths of the spec start from."""
        return self.path.parent

    def where(self, key_path: str) -> str:
        """Return ``file:line:col`` of ``key_path`` or of its nearest parent that has a place."""
        parts = key_path.split(".")
        while parts:
            place = self.locations.get(".".join(parts))
            if place is not None:
                return f"{self.path.name}:{place.line}:{place.column}"
            parts.pop()
        return self.path.name

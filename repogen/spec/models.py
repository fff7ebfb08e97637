"""The spec as typed, frozen data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

from pydantic import Discriminator, Field, StrictBool, Tag, ValidationInfo, field_validator, model_validator

from repogen.plugins import is_built_in, plugins
from repogen.spec.check import CheckSpec
from repogen.spec.gates import PromotionSpec
from repogen.spec.plugin_fields import Registered, check_options, must_be_error, plugin_options
from repogen.spec.sources import SourceSpec
from repogen.triton_config.sections.base import (
    INT32_MAX,
    AnySize,
    Count,
    Seconds,
    Section,
    Size,
    TensorName,
    Tolerance,
    must_be,
)
from repogen.triton_config.sections.model import TritonSpec

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import GetJsonSchemaHandler
    from pydantic_core import CoreSchema

MODEL_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$"
MODEL_NAME_RULE = "letters, digits, _ and -, the first a letter or digit, at most 128"

DtypeName = Annotated[
    Literal[
        "bool",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "int8",
        "int16",
        "int32",
        "int64",
        "bfloat16",
        "float16",
        "float32",
        "float64",
        "string",
    ],
    must_be("one of bool, uint8-64, int8-64, bfloat16, float16, float32, float64, string"),
]
DimName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]

ShapeItem = Annotated[AnySize | DimName, must_be("an integer >= 1 or the name of a dim")]
# Without must_be: Range describes both.
_Int64 = Annotated[int, Field(strict=True, ge=-(2**63), le=2**63 - 1)]
Range = Annotated[tuple[_Int64, _Int64], must_be("two integers, [lowest, highest]")]
AutoOrSize = Annotated[Literal["auto"] | AnySize, must_be("auto or an integer >= 1")]
ExampleSize = Annotated[int, Field(strict=True, ge=2, le=INT32_MAX), must_be("an integer >= 2")]
Examples = Annotated[
    Annotated[str, Field(min_length=1)] | Annotated[tuple[str, ...], Field(min_length=1)],
    must_be("a file, a list of files, or file.py:callable"),
]
MemoryMb = Annotated[int, Field(strict=True, ge=256, le=INT32_MAX), must_be("an integer >= 256")]
Release = Annotated[str, must_be('a release in quotes, such as "24.10"')]


class InputSpec(Section):
    """An input: dtype, full shape with symbolic dims by name, and the values of examples."""

    dtype: DtypeName = Field(description="Data type of the elements")
    shape: tuple[ShapeItem, ...] = Field(description="Full shape with the batch: sizes, and names of dynamic dims")
    range: Range | None = Field(
        default=None,
        description="Lowest and highest random value, for integers; an input with at least 8 values contains both",
    )
    fill: Literal["zeros", "ones"] | None = Field(
        default=None, description="Example values that are all 0 or all 1, instead of random values"
    )


class OutputSpec(Section):
    """An output of Python code: dtype and full shape; a dim that is also in an input has the same size."""

    dtype: DtypeName = Field(description="Data type of the elements")
    shape: tuple[ShapeItem, ...] = Field(description="Full shape with the batch: sizes, and names of dynamic dims")


OutputsSpec = Annotated[
    Annotated[tuple[TensorName, ...], Tag("list")] | Annotated[dict[TensorName, OutputSpec], Tag("mapping")],
    Discriminator(lambda value: "mapping" if isinstance(value, dict) else "list"),
]


class DimSpec(Section):
    """Inclusive bounds of a symbolic dim, and the size used for the export (never 1)."""

    min: Size = Field(default=1, description="Smallest size, inclusive")
    max: Size = Field(description="Largest size, inclusive")
    example: ExampleSize | None = Field(
        default=None, description="Size of the first run and of the export, 2 or more; chosen automatically if omitted"
    )


class ExportSpec(Section):
    """Options for the export to ONNX."""

    exporter: Annotated[str, Registered("repogen.exporters", ("auto",))] = Field(
        default="auto",
        description="auto tries the exporters that accept the source, one after another; dynamo and torchscript "
        "include their variants, such as dynamo-eager",
    )
    options: dict[str, object] = Field(default_factory=dict, description="Options of the exporter, if it has any")
    opset: AutoOrSize = Field(
        default="auto",
        description="auto: 20, or the target's newest if that is older; an ONNX file keeps its own if possible",
    )
    external_data: StrictBool = Field(default=False, description="Store weights in a separate file even below 2 GB")
    allow_tracer_warnings: tuple[str, ...] = Field(
        default=(),
        description='"file.py:line" of each branch on tensor values for which tracing may keep only one side',
    )
    custom_translations: str | None = Field(
        default=None, description='"ops.py:table": operator -> onnxscript function, for dynamo'
    )
    custom_symbolics: str | None = Field(
        default=None, description='"ops.py:symbolics": "domain::operator" -> symbolic function, for TorchScript'
    )

    @property
    def exporters(self) -> list[str]:
        """The registered exporters that ``exporter`` selects; ``torchscript`` also selects ``torchscript-eager``."""
        names = plugins("repogen.exporters")
        return [name for name in names if self.exporter in {"auto", name} or name.startswith(f"{self.exporter}-")]

    @field_validator("options")
    @classmethod
    def _check_options(cls, options: dict[str, object], info: ValidationInfo) -> dict[str, object]:
        exporter = info.data.get("exporter")
        if options and exporter == "auto":
            raise must_be_error("left out when exporter is auto")
        if exporter is not None:
            check_options("repogen.exporters", exporter, options)
        return options


_PASSES = Registered("repogen.passes")


class PassSpec(Section):
    """An optimization pass: its name, or a mapping with its name and options."""

    name: Annotated[str, _PASSES] = Field(description="Name of the pass")
    options: dict[str, object] = Field(
        default_factory=dict, description="Options of the pass, if it has any", validate_default=True
    )
    gain: StrictBool | None = Field(
        default=None,
        description="Whether the result is used only if it is measurably faster; if omitted, the default of the pass",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: object) -> object:
        return value if isinstance(value, (dict, PassSpec)) else {"name": _PASSES.check(value)}

    @field_validator("options")
    @classmethod
    def _check_options(cls, options: dict[str, object], info: ValidationInfo) -> dict[str, object]:
        name = info.data.get("name")
        if name is not None:
            # Another package is not imported for a pass without options: it may take long.
            check_options("repogen.passes", name, options, required=is_built_in("repogen.passes", name))
        return options

    @property
    def files(self) -> dict[str, str]:
        """The options that are files or callables, by the name of the option."""
        if not self.options:
            return {}
        names = getattr(plugin_options("repogen.passes", self.name), "files", ())
        return {name: value for name in names if isinstance(value := self.options.get(name), str)}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, object]:
        """Accept the name alone, and describe the options of each pass."""
        mapping = handler.resolve_ref_schema(handler(schema))
        conditions = []
        for name in sorted(plugins("repogen.passes")):
            options = plugin_options("repogen.passes", name)
            if options is not None and options.model_fields:
                then = {"properties": {"options": options.model_json_schema()}}
                conditions.append({"if": {"properties": {"name": {"const": name}}}, "then": then})
        return {"anyOf": [mapping["properties"]["name"], {**mapping, "allOf": conditions} if conditions else mapping]}


AUTO: Final = "auto"
_AUTO_LOSSY = ("int8-dynamic",)
_AUTO_LOSSLESS = ("ir-cleanup", "ort-fusions", "onnxruntime-offline")

OptimizeSpec = Annotated[
    Annotated[Annotated[Literal["auto"], must_be("auto or a list of passes")], Tag("auto")]
    | Annotated[tuple[PassSpec, ...], Tag("list")],
    Discriminator(lambda value: "list" if isinstance(value, (list, tuple)) else "auto"),
]


class QualitySpec(Section):
    """A metric that your code computes from outputs, by which lossy passes are judged; higher is better."""

    callable: str = Field(description='"file.py:callable" or "package.module:callable": (predict, data) -> value')
    data: str | None = Field(default=None, description="File passed to the callable, relative to the spec")
    metric: str | None = Field(default=None, min_length=1, description="Name of the metric, if there are several")
    max_drop: Tolerance = Field(description="Budget: largest drop below the value of the original model")


class ParitySpec(Section):
    """Allowed difference from the original model: ``atol + rtol * |expected|`` for each value."""

    rtol: Tolerance | None = Field(default=None, description="Relative to each value; depends on the dtype if omitted")
    atol: Tolerance | None = Field(
        default=None, description="Absolute; depends on the dtype and the magnitude of each output if omitted"
    )
    seed: Count = Field(default=0, description="First seed of the random inputs")
    seeds: Annotated[int, Field(strict=True, ge=1, le=100), must_be("an integer from 1 to 100")] = Field(
        default=2, description="Number of seeds at the example size"
    )
    budget_seconds: Seconds = Field(default=30.0, description="Time after which optional parity cases are skipped")


class LimitsSpec(Section):
    """Limits of the worker process."""

    timeout_seconds: Seconds = Field(default=900.0, description="Time limit of the worker process, in seconds")
    memory_mb: MemoryMb | None = Field(
        default=None,
        description="Limit of the resident memory of the worker and its descendants, in MiB; none if omitted",
    )


class ResourcesSpec(Section):
    """What a build of the model needs, for choosing a machine.

    It does not change what is published, except for rounding in the golden tensors.
    """

    cpus: Annotated[int, Field(strict=True, ge=1, le=1024), must_be("an integer from 1 to 1024")] = Field(
        default=1,
        description="Processors that an executor such as ray reserves on another machine; also the number of compute "
        "threads there",
    )
    memory_mb: MemoryMb | None = Field(
        default=None, description="Memory in MiB; if omitted, `--jobs auto` uses what the last build needed"
    )
    gpus: Annotated[int, Field(strict=True, ge=0, le=64), must_be("an integer from 0 to 64")] = Field(
        default=0, description="GPUs"
    )


class ModelSpec(Section):
    """A model, with defaults merged in."""

    description: str = Field(default="", max_length=4000, description="What the model does, for MLflow's pages")
    source: SourceSpec = Field(description="Where the model comes from")
    inputs: dict[TensorName, InputSpec] = Field(
        default_factory=dict, description="Inputs by name; omit them if the source or the examples determine them"
    )
    examples: Examples | None = Field(
        default=None, description='Example inputs: "file.py:callable", or one or more .npz or .safetensors files'
    )
    outputs: OutputsSpec = Field(
        default=(),
        description="Names of outputs, the model's own if omitted; for Python code, a mapping with dtypes and shapes",
    )
    dims: dict[DimName, DimSpec] = Field(default_factory=dict, description="Bounds of the dynamic dims, by name")
    export: ExportSpec = ExportSpec()
    optimize: OptimizeSpec = Field(
        default=(), description="Optimization passes, in order; auto tries some of them and keeps those that help"
    )
    quality: QualitySpec | None = Field(default=None, description="How lossy passes are judged")
    parity: ParitySpec = ParitySpec()
    limits: LimitsSpec = LimitsSpec()
    resources: ResourcesSpec = ResourcesSpec()
    triton: TritonSpec = TritonSpec()
    promotion: PromotionSpec = PromotionSpec()

    @property
    def passes(self) -> tuple[PassSpec, ...]:
        """The optimization passes; those of ``auto`` are all kept only if they are faster."""
        if self.optimize != AUTO:
            return self.optimize
        names = (*(_AUTO_LOSSY if self.quality is not None else ()), *_AUTO_LOSSLESS)
        return tuple(PassSpec(name=name, gain=True) for name in names)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The outputs in order; empty if the spec does not name them."""
        return tuple(self.outputs)

    @property
    def declared_outputs(self) -> dict[str, OutputSpec]:
        """The outputs of Python code with dtype and shape; empty for other models."""
        return self.outputs if isinstance(self.outputs, dict) else {}


class TargetSpec(Section):
    """The Triton release and the device that will serve the repository."""

    triton: Release = Field(default="24.10", description='Triton release in quotes, such as "24.10"')
    device: Literal["cpu", "gpu"] = Field(
        default="cpu",
        description="Device of ONNX models without an instance_group or tensorrt; Python models without an "
        "instance_group run on the CPU",
    )


class MlflowSpec(Section):
    """MLflow settings; builds are tracked if this section, --tracking-uri or MLFLOW_TRACKING_URI is set."""

    tracking_uri: str = Field(
        default="sqlite:///mlflow.db",
        min_length=1,
        description="URI of the MLflow server; --tracking-uri and MLFLOW_TRACKING_URI take precedence",
    )
    experiment: str = Field(
        default="repogen", min_length=1, max_length=256, description="Name of the MLflow experiment"
    )
    register_models: bool = Field(
        default=True, alias="register", description="Whether published versions are registered"
    )


class SpecFile(Section):
    """The spec file."""

    repository: str = Field(
        default="model_repository",
        description="Directory or URL of the model repository",
    )
    target: TargetSpec = TargetSpec()
    templates: str | None = Field(default=None, description="Directory with templates that replace those of repogen")
    mlflow: MlflowSpec | None = None
    check: CheckSpec = Field(default=CheckSpec(), description="Settings of `repogen check`")
    defaults: dict[str, object] = Field(default_factory=dict, description="Settings for all models")
    models: dict[Annotated[str, Field(pattern=MODEL_NAME)], ModelSpec] = Field(
        min_length=1, description="Models by name"
    )


class Location(NamedTuple):
    """A position in the spec file; line and column (in characters) are counted from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Spec:
    """A loaded spec: absolute paths, merged defaults, valid models.

    Attributes:
        path: The spec file.
        repository: Output repository.
        release: Triton release that ``find_target`` knows.
        templates: Directory of template overrides.
        models: Models by name, in file order.
        mlflow: Settings for MLflow; None if builds are not tracked.
        locations: Key path (``models.digits.outputs[0]``) -> position, for messages of later steps; inherited values
            have their position in ``defaults``.
        display_path: The spec's path as the user wrote it; the file's name if empty.
        gpu: Whether models without instance_group run on GPUs.
        notes: What the user should know about the whole spec.
        registry: URIs of the MLflow server and registry of ``mlflow`` sources, without credentials; empty if not known.
        ignored_rules: Codes of rules, or their first characters, whose warnings are not reported.
    """

    path: Path
    repository: Path
    release: str
    templates: Path | None
    models: dict[str, ModelSpec]
    locations: dict[str, Location]
    mlflow: MlflowSpec | None = None
    display_path: str = ""
    gpu: bool = False
    notes: tuple[str, ...] = ()
    registry: str = ""
    ignored_rules: tuple[str, ...] = ()

    @property
    def root(self) -> Path:
        """Directory that paths in the spec are relative to."""
        return self.path.parent

    def where(self, key_path: str) -> str:
        """Return ``file:line:col`` of ``key_path``, or of its closest parent with a position."""
        file = self.display_path or self.path.name
        while key_path:
            position = self.locations.get(key_path)
            if position is not None:
                return f"{file}:{position.line}:{position.column}"
            key_path = key_path[: max(key_path.rfind("."), key_path.rfind("["), 0)]
        return file

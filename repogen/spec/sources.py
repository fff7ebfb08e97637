"""Options of each ``source.kind``; a kind is an entry point of the group ``repogen.sources``.

An entry point's name is the kind, and its value is a subclass of ``SourceOptions``; see ``repogen.source.interface``.
"""

from __future__ import annotations

import re
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias, get_args

from pydantic import Field, StrictBool, TypeAdapter
from pydantic_core import core_schema

from repogen.artifacts.steps import PINNED
from repogen.errors import SpecError
from repogen.plugins import load_plugin, plugins
from repogen.triton_config.sections.base import AnySize, Section, TensorName, must_be

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue

DEFAULT_KIND = "torch"
Path = Annotated[str, Field(min_length=1, max_length=4096)]
Precision = Annotated[Literal["float32", "float16"], must_be("float32 or float16")]
ModelUri = Annotated[
    Annotated[str, Field(pattern=r"^(models|runs):/.+")],
    must_be("models:/NAME/VERSION, models:/NAME@ALIAS or runs:/RUN/PATH"),
]


class SourceOptions(Section):
    """Base class for the options of one kind of source.

    Attributes:
        kind: The kind; a subclass narrows it to ``Literal["its name"]``.
        files: Names of the options that are paths of input files, relative to the spec. They must exist when the spec
            is loaded, and a change to their contents starts a new build.
        loader: ``package.module:function`` of the ``repogen.source.interface.SourceLoader``. It is imported only in
            the process that builds the model.
    """

    kind: str

    files: ClassVar[tuple[str, ...]] = ()
    loader: ClassVar[str]


class TorchSource(SourceOptions):
    """A callable that returns a ``torch.nn.Module``."""

    kind: Literal["torch"] = "torch"
    factory: str = Field(description='"file.py:callable" relative to the spec, or "package.module:callable"')
    kwargs: dict[str, object] = Field(default_factory=dict, description="Keyword arguments of the factory")
    weights: str | None = Field(
        default=None, description="safetensors file, or a torch.save file that is read with weights_only=True"
    )
    dtype: Precision | None = Field(
        default=None, description="Cast floating-point weights to this; if omitted, only bfloat16 is cast, to float32"
    )

    files: ClassVar[tuple[str, ...]] = ("weights",)
    loader: ClassVar[str] = "repogen.source.torch.loader:load_torch"


_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")


def is_hub_id(model: str) -> bool:
    """Return whether a model may be on the Hugging Face Hub; other texts are paths of directories only.

    >>> [is_hub_id(model) for model in ("google-bert/bert-base-cased", "./bert", "/data/bert", "a/b/c")]
    [True, False, False, False]
    """
    return _HUB_ID.fullmatch(model) is not None


class HuggingFaceSource(SourceOptions):
    """A transformers model: a local directory or a model ID on the Hugging Face Hub."""

    kind: Literal["huggingface"]
    model: Path = Field(description="Directory relative to the spec, or a Hub ID such as google-bert/bert-base-cased")
    revision: str | None = Field(
        default=None, min_length=1, description="Commit on the Hub; set it so that the files cannot change"
    )
    task: str = Field(
        default="auto",
        min_length=1,
        description="Task, such as text-classification; auto uses the architecture in config.json",
    )
    trust_remote_code: StrictBool = Field(default=False, description="Run the Python code stored with the weights")
    dtype: Precision | None = Field(
        default=None,
        description="Cast floating-point weights to this; if omitted, to that of config.json, or float32 for bfloat16",
    )

    loader: ClassVar[str] = "repogen.source.huggingface.loader:load_huggingface"


class TorchExportSource(SourceOptions):
    """A ``.pt2`` file written by ``torch.export.save``."""

    kind: Literal["torch_export"]
    path: Path = Field(description="Path of the file")

    files: ClassVar[tuple[str, ...]] = ("path",)
    loader: ClassVar[str] = "repogen.source.torch.exported_program:load_program"


class TorchScriptSource(SourceOptions):
    """A ``.pt`` archive written by ``torch.jit.save``."""

    kind: Literal["torchscript"]
    path: Path = Field(description="Path of the file")

    files: ClassVar[tuple[str, ...]] = ("path",)
    loader: ClassVar[str] = "repogen.source.torch.loader:load_torchscript"


class OnnxSource(SourceOptions):
    """An existing ONNX file."""

    kind: Literal["onnx"]
    path: Path = Field(description="Path of the file")
    reference: str | None = Field(
        default=None, description='Expected outputs: answers.npz, or "models.py:build", which returns a torch module'
    )

    files: ClassVar[tuple[str, ...]] = ("path",)
    loader: ClassVar[str] = "repogen.source.onnx.loader:load_onnx"


class MlflowSource(SourceOptions):
    """An MLflow model with the pytorch or onnx flavor."""

    kind: Literal["mlflow"]
    uri: ModelUri = Field(description="models:/NAME/VERSION, models:/NAME@ALIAS or runs:/…")
    trust_pickle: StrictBool = Field(default=False, description="Unpickle the pytorch flavor, which can run code")

    loader: ClassVar[str] = "repogen.source.mlflow.loader:load_mlflow"


Requirement = Annotated[
    Annotated[str, Field(pattern=PINNED)],
    must_be("NAME==VERSION: the server must have the version that was tested"),
]


PythonVersion = Annotated[
    Annotated[str, Field(pattern=r"^3\.[0-9]{1,2}$")], must_be('a version of Python in quotes, such as "3.12"')
]


class PythonSource(SourceOptions):
    """Code for Triton's Python backend: a file that defines the class ``TritonPythonModel``."""

    kind: Literal["python"]
    path: Path = Field(description="Path of the file, which is published as model.py (with pack, as packed_model.py)")
    data: tuple[Path, ...] = Field(default=(), description="Files that are published next to model.py")
    requirements: tuple[Requirement, ...] = Field(
        default=(), description="Packages that the code imports besides NumPy, each NAME==VERSION"
    )
    pack: StrictBool = Field(
        default=False, description="Publish the packages of requirements with the code, so that the server needs none"
    )
    pack_for: tuple[PythonVersion, ...] = Field(
        default=(),
        description="Python versions to pack for; if empty: that of the target's image, and the one that runs repogen "
        "if it is 3.12 or older",
    )

    files: ClassVar[tuple[str, ...]] = ("path",)
    loader: ClassVar[str] = "repogen.source.python.loader:load_python"


class StepSpec(Section):
    """One step of an ensemble."""

    model: Annotated[str, Field(min_length=1, max_length=128)] = Field(description="A model of this spec")
    version: AnySize | None = Field(default=None, description="The newest version if omitted")
    inputs: dict[TensorName, TensorName] = Field(
        default_factory=dict, description="Tensor of the ensemble for each input of the model; the same name if omitted"
    )
    outputs: dict[TensorName, TensorName] = Field(
        default_factory=dict,
        description="Tensor of the ensemble for each output of the model; the same name if omitted",
    )


class EnsembleSource(SourceOptions):
    """Models of this spec, connected by their tensors."""

    kind: Literal["ensemble"]
    steps: Annotated[tuple[StepSpec, ...], Field(min_length=1)] = Field(description="Steps, in any order")

    loader: ClassVar[str] = "repogen.source.ensemble.loader:load_ensemble"


def source_kinds() -> list[str]:
    """Return the registered kinds, sorted."""
    return sorted(plugins("repogen.sources"))


@cache
def source_options(kind: str) -> type[SourceOptions]:
    """Return the options model of a kind.

    Raises:
        SpecError: The kind is not registered, its plug-in fails to import, or it is not a valid options model.
    """
    options = load_plugin("repogen.sources", kind)
    if isinstance(options, type) and issubclass(options, SourceOptions):
        field = options.model_fields["kind"]
        if get_args(field.annotation) == (kind,) and hasattr(options, "loader"):
            return options
    raise SpecError(
        f"the source kind {kind!r} is not a subclass of {SourceOptions.__module__}.{SourceOptions.__name__} with "
        f"kind: Literal[{kind!r}] and a loader",
        "fix or uninstall the plug-in that registers it",
        code="plugin.interface",
    )


def _kind(value: object) -> object:
    return value.get("kind", DEFAULT_KIND) if isinstance(value, dict) else getattr(value, "kind", DEFAULT_KIND)


def _validate(kind: str, value: object) -> SourceOptions:
    return source_options(kind).model_validate(value)


class _ByKind:
    """Validates and describes a source with the options model of its kind, which is imported on first use."""

    @staticmethod
    def __get_pydantic_core_schema__(source: object, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        del source, handler
        choices: dict[Any, core_schema.CoreSchema] = {
            kind: core_schema.no_info_plain_validator_function(partial(_validate, kind)) for kind in source_kinds()
        }
        any_model = core_schema.simple_ser_schema("any")  # each model serializes itself
        return core_schema.tagged_union_schema(choices, _kind, serialization=any_model)

    @staticmethod
    def __get_pydantic_json_schema__(core: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        del core
        choices: dict[Any, core_schema.CoreSchema] = {
            kind: TypeAdapter(source_options(kind)).core_schema for kind in source_kinds()
        }
        return handler(core_schema.tagged_union_schema(choices, _kind))


SourceSpec: TypeAlias = Annotated[SourceOptions, _ByKind]
"""The options of any registered kind."""

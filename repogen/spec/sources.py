"""Where a model comes from: one class for each ``source.kind``."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Discriminator, Field, StrictBool, Tag

from repogen.artifacts.steps import PINNED
from repogen.triton_config.sections.base import AnySize, Section, TensorName, must_be

DEFAULT_KIND = "torch"
Path = Annotated[str, Field(min_length=1, max_length=4096)]
Precision = Annotated[Literal["float32", "float16"], must_be("float32 or float16")]
ModelUri = Annotated[
    Annotated[str, Field(pattern=r"^(models|runs):/.+")],
    must_be("models:/NAME/VERSION, models:/NAME@ALIAS or runs:/RUN/PATH"),
]


class TorchSource(Section):
    """A callable that returns a ``torch.nn.Module``."""

    kind: Literal["torch"] = "torch"
    factory: str = Field(description='"file.py:callable" relative to the spec, or "package.module:callable"')
    kwargs: dict[str, object] = Field(default_factory=dict, description="Keyword arguments of the factory")
    weights: str | None = Field(default=None, description="safetensors, or .pt read with weights_only=True")
    dtype: Precision | None = Field(default=None, description="What floating weights are cast to; bfloat16 always is")

    files: ClassVar[tuple[str, ...]] = ("weights",)


class HuggingFaceSource(Section):
    """A model of transformers: a directory, or a name on the hub."""

    kind: Literal["huggingface"]
    model: Path = Field(description="Directory relative to the spec, or a hub id such as google-bert/bert-base-cased")
    revision: str | None = Field(default=None, min_length=1, description="Commit on the hub; pin it")
    task: str = Field(default="auto", min_length=1, description="Such as text-classification; auto reads the config")
    trust_remote_code: StrictBool = Field(default=False, description="Run Python code that lies beside the weights")
    dtype: Precision | None = Field(default=None, description="What floating weights are cast to; bfloat16 always is")

    files: ClassVar[tuple[str, ...]] = ()


class TorchExportSource(Section):
    """A ``.pt2`` of ``torch.export.save``."""

    kind: Literal["torch_export"]
    path: Path

    files: ClassVar[tuple[str, ...]] = ("path",)


class TorchScriptSource(Section):
    """A ``.pt`` archive of ``torch.jit.save``."""

    kind: Literal["torchscript"]
    path: Path

    files: ClassVar[tuple[str, ...]] = ("path",)


class OnnxSource(Section):
    """An ONNX file that exists already."""

    kind: Literal["onnx"]
    path: Path
    reference: str | None = Field(
        default=None, description='What it must agree with: answers.npz, or "models.py:build", a torch callable'
    )

    files: ClassVar[tuple[str, ...]] = ("path",)


class MlflowSource(Section):
    """A model that MLflow keeps, of the pytorch or the onnx flavor."""

    kind: Literal["mlflow"]
    uri: ModelUri = Field(description="models:/NAME/VERSION, models:/NAME@ALIAS or runs:/…")
    trust_pickle: StrictBool = Field(default=False, description="Unpickle the pytorch flavor, which may run code")

    files: ClassVar[tuple[str, ...]] = ()


Requirement = Annotated[
    Annotated[str, Field(pattern=PINNED)],
    must_be("NAME==VERSION: what was tested is what the server must have"),
]


class PythonSource(Section):
    """Code that Triton's Python backend runs: a file with a class ``TritonPythonModel``."""

    kind: Literal["python"]
    path: Path = Field(description="Served as model.py")
    data: tuple[Path, ...] = Field(default=(), description="Files that lie beside model.py where it is served")
    requirements: tuple[Requirement, ...] = Field(default=(), description="What it imports beyond NumPy, each pinned")

    files: ClassVar[tuple[str, ...]] = ("path",)


class StepSpec(Section):
    """One model of an ensemble."""

    model: Annotated[str, Field(min_length=1, max_length=128)] = Field(description="A model of this spec")
    version: AnySize | None = Field(default=None, description="The newest when left out")
    inputs: dict[TensorName, TensorName] = Field(
        default_factory=dict, description="Its inputs: tensors of the ensemble; the same names when left out"
    )
    outputs: dict[TensorName, TensorName] = Field(default_factory=dict, description="Its outputs: what they become")


class EnsembleSource(Section):
    """Models of this spec, one feeding the next."""

    kind: Literal["ensemble"]
    steps: Annotated[tuple[StepSpec, ...], Field(min_length=1)]

    files: ClassVar[tuple[str, ...]] = ()


KINDS: dict[str, type[Section]] = {
    "torch": TorchSource,
    "huggingface": HuggingFaceSource,
    "torch_export": TorchExportSource,
    "torchscript": TorchScriptSource,
    "onnx": OnnxSource,
    "mlflow": MlflowSource,
    "python": PythonSource,
    "ensemble": EnsembleSource,
}


def _kind(value: object) -> object:
    return value.get("kind", DEFAULT_KIND) if isinstance(value, dict) else getattr(value, "kind", DEFAULT_KIND)


SourceSpec: TypeAlias = Annotated[
    Annotated[TorchSource, Tag("torch")]
    | Annotated[HuggingFaceSource, Tag("huggingface")]
    | Annotated[TorchExportSource, Tag("torch_export")]
    | Annotated[TorchScriptSource, Tag("torchscript")]
    | Annotated[OnnxSource, Tag("onnx")]
    | Annotated[MlflowSource, Tag("mlflow")]
    | Annotated[PythonSource, Tag("python")]
    | Annotated[EnsembleSource, Tag("ensemble")],
    Discriminator(_kind),
]

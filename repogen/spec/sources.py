"""Where a model comes from: one class for each ``source.kind``."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Discriminator, Field, StrictBool, Tag

from repogen.spec.base import Section, must_be

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


KINDS: dict[str, type[Section]] = {
    "torch": TorchSource,
    "huggingface": HuggingFaceSource,
    "torch_export": TorchExportSource,
    "torchscript": TorchScriptSource,
    "onnx": OnnxSource,
    "mlflow": MlflowSource,
}


def _kind(value: object) -> object:
    return value.get("kind", DEFAULT_KIND) if isinstance(value, dict) else getattr(value, "kind", DEFAULT_KIND)


SourceSpec: TypeAlias = Annotated[
    Annotated[TorchSource, Tag("torch")]
    | Annotated[HuggingFaceSource, Tag("huggingface")]
    | Annotated[TorchExportSource, Tag("torch_export")]
    | Annotated[TorchScriptSource, Tag("torchscript")]
    | Annotated[OnnxSource, Tag("onnx")]
    | Annotated[MlflowSource, Tag("mlflow")],
    Discriminator(_kind),
]

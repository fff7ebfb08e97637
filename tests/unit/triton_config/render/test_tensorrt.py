"""``triton.tensorrt``: profiles and warmups from the declared sizes, and what cannot be written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from repogen.artifacts.built_model import BatchReport, OnnxArtifact
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.errors import ConfigError
from repogen.spec.models import DimSpec, ModelSpec
from repogen.spec.sources import TorchSource
from repogen.targets import target_of
from repogen.triton_config.render.model import configure
from repogen.triton_config.render.model_facts import RenderOptions, VerifiedModel
from repogen.triton_config.rules.config_rules import config_findings
from repogen.triton_config.sections.model import TritonSpec
from repogen.triton_config.text.parse import parse

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig as Message

    from repogen.artifacts.versions import ModelConfig

IMAGES = Signature(
    (TensorSpec("image", "float32", ("batch", 3, "height", "width")), TensorSpec("scale", "float32", ("batch", 1))),
    (TensorSpec("logits", "float32", ("batch", 10)),),
)
DIMS = {"batch": DimSpec(max=32), "height": DimSpec(min=64, max=256, example=224), "width": DimSpec(min=64, max=128)}


def configured(
    triton: dict[str, Any],
    *,
    signature: Signature = IMAGES,
    dims: dict[str, DimSpec] | None = None,
    largest: int = 16,
    release: str = "24.10",
) -> ModelConfig:
    """Configure a model whose measured largest batch is ``largest``."""
    graph = OnnxArtifact(
        Path("model.onnx"), external_data=False, signature=signature, opset=20, ir_version=9, nodes=3, exporter="dynamo"
    )
    batch = BatchReport(batchable=largest > 0, max_batch_size=largest, reason="" if largest else "rows mix")
    model = ModelSpec(
        source=TorchSource(factory="models.py:build"),
        dims=DIMS if dims is None else dims,
        triton=TritonSpec.model_validate(triton),
    )
    return configure("vision", model, VerifiedModel(graph, batch), RenderOptions(target_of(release)))


def message(config: ModelConfig) -> Message:
    """Return a config as Triton reads it."""
    return parse(config.text, "config.pbtxt")


def parameters(config: ModelConfig) -> dict[str, str]:
    """Return the parameters of the only accelerator."""
    (accelerator,) = message(config).optimization.execution_accelerators.gpu_execution_accelerator
    assert accelerator.name == "tensorrt"
    return dict(accelerator.parameters)


def test_profiles_are_the_declared_sizes() -> None:
    """The batch begins at 1 and ends at max_batch_size; the usual size is the preferred batch and the example."""
    batching = {"preferred_batch_size": [4, 8]}
    config = configured({"tensorrt": {}, "dynamic_batching": batching})
    assert parameters(config) == {
        "trt_profile_min_shapes": "image:1x3x64x64,scale:1x1",
        "trt_profile_opt_shapes": "image:8x3x224x64,scale:8x1",
        "trt_profile_max_shapes": "image:16x3x256x128,scale:16x1",
    }
    assert [group.kind for group in message(config).instance_group] == [1]  # KIND_GPU
    assert config_findings(message(config), "vision", target_of("24.10")) == []


def test_warmups_build_the_engines_before_traffic() -> None:
    """One request of the smallest, usual and largest sizes each."""
    warmups = message(configured({"tensorrt": {}})).model_warmup
    assert [(warmup.name, warmup.batch_size) for warmup in warmups] == [
        ("tensorrt_smallest", 1),
        ("tensorrt_usual", 16),
        ("tensorrt_largest", 16),
    ]
    dims = [{name: list(tensor.dims) for name, tensor in warmup.inputs.items()} for warmup in warmups]
    assert dims[0] == {"image": [3, 64, 64], "scale": [1]}
    assert dims[2] == {"image": [3, 256, 128], "scale": [1]}


@pytest.mark.parametrize(
    ("triton", "names"),
    [({"tensorrt": {"warmup": False}}, []), ({"tensorrt": {}, "model_warmup": [{"name": "own"}]}, ["own"])],
)
def test_warmups_can_be_set_or_turned_off(triton: dict[str, Any], names: list[str]) -> None:
    """The spec's own warmups replace those of TensorRT."""
    assert [warmup.name for warmup in message(configured(triton)).model_warmup] == names


def test_all_settings_are_written() -> None:
    """Own parameters are added, and replace repogen's; the note has the same engine as a trtexec command."""
    settings = {
        "precision": "fp16",
        "cache": "/var/cache/tensorrt",
        "workspace_mb": 512,
        "parameters": {"trt_builder_optimization_level": 5, "trt_profile_max_shapes": "image:2x3x64x64,scale:2x1"},
    }
    config = configured({"tensorrt": settings})
    expected = {
        "precision_mode": "FP16",
        "max_workspace_size_bytes": "536870912",
        "trt_engine_cache_enable": "true",
        "trt_engine_cache_path": "/var/cache/tensorrt",
        "trt_timing_cache_enable": "true",
        "trt_timing_cache_path": "/var/cache/tensorrt",
        "trt_builder_optimization_level": "5",
        "trt_profile_max_shapes": "image:2x3x64x64,scale:2x1",
    }
    assert expected.items() <= parameters(config).items()
    (note,) = config.notes
    assert note.endswith(
        "trtexec --onnx=model.onnx --minShapes=image:1x3x64x64,scale:1x1 --optShapes=image:16x3x224x64,scale:16x1 "
        "--maxShapes=image:16x3x256x128,scale:16x1 --fp16"
    )


def test_model_that_does_not_batch() -> None:
    """Its first dim has the declared sizes, and warmups have full shapes."""
    config = configured({"tensorrt": {}}, largest=0)
    assert parameters(config)["trt_profile_max_shapes"] == "image:32x3x256x128,scale:32x1"
    assert list(message(config).model_warmup[0].inputs["image"].dims) == [1, 3, 64, 64]


def test_static_model_needs_no_profile() -> None:
    """An engine for one size has no profile, and one warmup builds it."""
    fixed = Signature((TensorSpec("x", "float32", (2, 4)),), (TensorSpec("y", "float32", (2, 4)),))
    config = configured({"tensorrt": {}}, signature=fixed, dims={}, largest=0)
    assert parameters(config) == {}
    assert [warmup.name for warmup in message(config).model_warmup] == ["tensorrt_smallest"]
    assert config.notes[0].endswith("trtexec --onnx=model.onnx")


@pytest.mark.parametrize(
    ("triton", "options", "reason", "where"),
    [
        ({"precision": "fp16"}, {"release": "26.07"}, "no effect in Triton 26.07", "tensorrt.precision"),
        (
            {},
            {"dims": {"batch": DimSpec(max=32), "height": DimSpec(max=8)}},
            "dim 'width' of input 'image'",
            "tensorrt",
        ),
        (
            {},
            {"signature": Signature((TensorSpec("x:0", "float32", ("batch", 4)),), IMAGES.outputs)},
            "input 'x:0' cannot be written",
            "tensorrt",
        ),
    ],
)
def test_what_cannot_be_written(triton: dict[str, Any], options: dict[str, Any], reason: str, where: str) -> None:
    """The error has the key of the spec, and says what to declare."""
    with pytest.raises(ConfigError, match=reason) as caught:
        configured({"tensorrt": triton}, **options)
    assert (caught.value.code, caught.value.where) == ("config.tensorrt", f"models.vision.triton.{where}")
    assert caught.value.hint

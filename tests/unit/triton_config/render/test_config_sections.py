"""Sections that do not match the graph: each is rejected at its key in the spec."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from repogen.artifacts.built_model import BatchReport, OnnxArtifact
from repogen.errors import ConfigError
from repogen.spec.models import ModelSpec
from repogen.spec.sources import TorchSource
from repogen.targets import DEFAULT_RELEASE, targets
from repogen.triton_config.render.model import configure
from repogen.triton_config.render.model_facts import RenderOptions, VerifiedModel
from repogen.triton_config.sections.model import TritonSpec
from repogen.triton_config.text.parse import parse
from tests.support import config_sections

if TYPE_CHECKING:
    from repogen.artifacts.tensors import Signature
    from repogen.artifacts.versions import ModelConfig

GROWING = config_sections.signature(
    {"x": ("float32", ("batch", 4)), "before": ("float32", ("batch", "seen")), "count": ("int64", ("batch", 1))},
    {"y": ("batch", 4), "after": ("batch", "seen")},
)
STATE = {"input_name": "before", "output_name": "after"}
START = [{"kind": "CONTROL_SEQUENCE_START"}]


def configured(
    signature: Signature, triton: dict[str, Any], root: Path = Path(), labels: dict[str, tuple[str, ...]] | None = None
) -> ModelConfig:
    """Configure a model named m, which batches up to 8."""
    artifact = OnnxArtifact(Path("model.onnx"), False, signature, 20, 9, 3, "dynamo")  # noqa: FBT003 - external data
    spec = ModelSpec(source=TorchSource(factory="models.py:build"), triton=TritonSpec.model_validate(triton))
    verified = VerifiedModel(artifact, BatchReport(batchable=True, max_batch_size=8), labels or {})
    return configure("m", spec, verified, RenderOptions(targets()[DEFAULT_RELEASE], root=root))


def sequence(**keys: object) -> dict[str, Any]:
    """Return a section with sequence_batching."""
    return {"sequence_batching": keys}


REJECTED: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown control": (
        sequence(control_input=[{"name": "start", "control": START}]),
        "sequence_batching.control_input[0]",
        "control input 'start' is not in the graph",
    ),
    "flag of a type that Triton does not feed": (
        sequence(control_input=[{"name": "count", "control": START}]),
        "sequence_batching.control_input[0]",
        "Triton fills CONTROL_SEQUENCE_START as INT32, FP32 or BOOL, but input 'count' is INT64",
    ),
    "control of another shape": (
        sequence(control_input=[{"name": "x", "control": START}]),
        "sequence_batching.control_input[0]",
        "RG206 control input 'x' has dims [ batch, 4 ] in the graph, but Triton sends one value per row",
    ),
    "values of another type": (
        sequence(control_input=[{"name": "count", "control": [{**START[0], "int32_false_true": [0, 1]}]}]),
        "sequence_batching.control_input[0]",
        "RG205 control input 'count' is TYPE_INT32 in the config and int64 in the graph",
    ),
    "unknown state": (
        sequence(state=[{"input_name": "before", "output_name": "then"}]),
        "sequence_batching.state[0]",
        "state output 'then' is not in the graph",
    ),
    "state without a size": (
        sequence(state=[STATE]),
        "sequence_batching.state[0]",
        "state 'before' has a dynamic dim, which needs a size at the start of a sequence",
    ),
    "state of another type": (
        sequence(state=[{**STATE, "data_type": "TYPE_FP16", "initial_state": [{"dims": [1], "zero_data": True}]}]),
        "sequence_batching.state[0].data_type",
        "RG205 state input 'before' is TYPE_FP16 in the config and float32 in the graph",
    ),
    "unknown input": ({"input": {"z": {}}}, "input.z", "contains 'z', which is not an input that clients see"),
    "an input that clients do not see": (
        {**sequence(state=[{**STATE, "initial_state": [{"dims": [1], "zero_data": True}]}]), "input": {"before": {}}},
        "input.before",
        "contains 'before', which is not an input that clients see",
    ),
    "an image of one dim": (
        {"input": {"x": {"format": "FORMAT_NHWC"}}},
        "input.x.format",
        "RG124 input 'x' has FORMAT_NHWC and 1 dim, but needs 3",
    ),
    "optional": ({"input": {"x": {"optional": True}}}, "input.x.optional", "RG124 input 'x' is optional"),
    "dims of other elements": (
        {"output": {"y": {"dims": [3]}}},
        "output.y.reshape",
        "RG114 output 'y' reshapes [ 3 ] to [ 4 ]",
    ),
    "reshape to a shape other than the graph's": (
        {"output": {"y": {"dims": [4], "reshape": {"shape": [2, 2]}}}},
        "output.y.reshape",
        "output 'y' is reshaped to [2, 2], but the graph has [4]",
    ),
    "a ragged matrix": (
        {"max_batch_size": 8, "input": {"x": {"allow_ragged_batch": True}}},
        "input.x.allow_ragged_batch",
        "RG206 input 'x' has allow_ragged_batch, which concatenates rows",
    ),
    "made from nothing": (
        {
            "max_batch_size": 8,
            "batch_input": [{"kind": "BATCH_ITEM_SHAPE", "target_name": ["count"], "source_input": ["z"]}],
        },
        "batch_input[0]",
        "source_input 'z' is not in the graph",
    ),
    "golden without any": ({"model_warmup": [{"data": "golden"}]}, "model_warmup", "but the model has none"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_section_is_rejected_at_its_key(name: str) -> None:
    """The error names the key and the mismatch."""
    triton, key, message = REJECTED[name]
    with pytest.raises(ConfigError) as caught:
        configured(GROWING, triton)
    assert message in caught.value.message
    assert caught.value.where == f"models.m.triton.{key}"


def test_growing_state_starts_with_the_size_of_the_spec() -> None:
    """The state itself keeps its dynamic dim."""
    state = {**STATE, "initial_state": [{"dims": [1], "zero_data": True}]}
    (rendered,) = parse(configured(GROWING, sequence(state=[state])).text, "test").sequence_batching.state
    assert (list(rendered.dims), list(rendered.initial_state[0].dims)) == ([-1], [1])


def test_labels_of_the_spec_take_precedence(tmp_path: Path) -> None:
    """Files with CRLF are supported; a label may contain U+2028."""
    (tmp_path / "classes.txt").write_bytes("a\u2028b\r\nc\r\n".encode())
    triton = {"output": {"y": {"label_filename": "classes.txt"}}}
    config = configured(GROWING, triton, tmp_path, labels={"y": ("p", "q"), "after": ("r",)})
    assert sorted(file.content for file in config.named_files) == ["a\u2028b\nc\n".encode(), b"r\n"]


@pytest.mark.parametrize(("content", "message"), [(b"\xff", "is not UTF-8"), (None, "can't be read: No such file")])
def test_invalid_label_file_is_rejected(content: bytes | None, message: str, tmp_path: Path) -> None:
    """The error names the file."""
    if content is not None:
        (tmp_path / "classes.txt").write_bytes(content)
    with pytest.raises(ConfigError, match=f"classes.txt {message}"):
        configured(GROWING, {"output": {"y": {"label_filename": "classes.txt"}}}, tmp_path)


@pytest.mark.parametrize("size", [3, 5])
def test_initial_values_must_have_the_size_of_the_state(size: int, tmp_path: Path) -> None:
    """Triton rejects a short file and silently truncates a long one."""
    (tmp_path / "first.bin").write_bytes(bytes(4 * size))
    state = {**STATE, "initial_state": [{"dims": [4], "data_file": "first.bin"}]}
    with pytest.raises(ConfigError, match=rf"first.bin has {4 * size} bytes, but dims \[4\] of float32 need 16"):
        configured(GROWING, sequence(state=[state]), tmp_path)

"""Numbers that a model computes from sizes."""

from __future__ import annotations

import io
import math
from typing import Any

import onnxruntime
import pytest
import torch
from torch import nn

from repogen.errors import ExportError
from repogen.export.size_arithmetic import SIZE_TRANSLATIONS
from repogen.export.symbolics import register_symbolics
from repogen.export.translations import TRANSLATIONS


class Steps(nn.Module):
    """Creates ranges and sizes from a size that is multiplied by a float."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return ranges of floats and integers, and tensors of rounded sizes."""
        n = x.shape[0]
        floats = torch.arange(0, n * 0.1, 0.1), torch.arange(n * 0.3 - 1.5)
        integers = (torch.arange(0.5, n * 0.7, dtype=dtype) for dtype in (torch.int64, torch.int32))
        sizes = math.floor(n * 0.29), math.ceil(n * 0.7 + 0.1), n // 3, n * 2 - 1, round(n * 0.5)
        return *floats, *integers, *(torch.full((size,), n * 0.1) for size in sizes), x * (n**0.5)


@pytest.mark.filterwarnings("ignore")
def test_sizes_are_multiplied_in_float64() -> None:
    """In float32, ranges have another length for about a third of the sizes."""
    program = torch.onnx.export(
        Steps(),
        (torch.ones(8),),
        dynamo=True,
        dynamic_shapes={"x": {0: "n"}},
        custom_translation_table=TRANSLATIONS,
        verbose=False,
    )
    assert program is not None
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    for n in range(6, 130):
        expected = Steps()(torch.ones(n))
        for actual, tensor in zip(session.run(None, {"x": torch.ones(n).numpy()}), expected, strict=True):
            torch.testing.assert_close(torch.tensor(actual), tensor)


def test_rounding_to_digits_is_rejected() -> None:
    """Python rounds the decimal representation of a number."""
    with pytest.raises(ExportError) as caught:
        SIZE_TRANSLATIONS[round](1.25, 1)
    assert caught.value.code == "export.no-translation"


class Range(nn.Module):
    """Adds a range that depends on a size."""

    def __init__(self, step: float) -> None:
        """Keep the step."""
        super().__init__()
        self.step = step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the length of the range."""
        return x.sum() + torch.arange(0, x.shape[0] * self.step, self.step)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scripted", [False, True])
def test_range_of_floats_in_torchscript(scripted: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Its length is computed in float32, so it is rejected; a range of integers is not."""
    register_symbolics(20)
    names: Any = {"input_names": ["x"], "dynamic_axes": {"x": [0]}, "opset_version": 20, "dynamo": False}
    for step in (0.1, 2):
        module: Any = torch.jit.script(Range(step)) if scripted else Range(step)
        content: Any = io.BytesIO()  # buffers work, though not declared
        if isinstance(step, int):
            torch.onnx.export(module, (torch.ones(8),), content, **names)
        else:
            with pytest.raises(ExportError, match=r"length of torch\.arange"):
                torch.onnx.export(module, (torch.ones(8),), content, **names)

"""Shifts of integers keep their type, and return what PyTorch returns."""

from __future__ import annotations

from typing import Any

import onnxruntime
import pytest
import torch
from torch import nn

from repogen.export.translations import TRANSLATIONS
from repogen.onnx_graph.kernel_gaps import fill_kernel_gaps

DTYPES = (torch.uint8, torch.int8, torch.int16, torch.int64)


class Shifts(nn.Module):
    """Shifts integers of each type to both sides, by numbers and by tensors."""

    def forward(self, x: torch.Tensor, count: torch.Tensor) -> list[torch.Tensor]:
        """Return values of each type."""
        return [result for dtype in DTYPES for result in self.shifted(x.to(dtype), count.to(dtype))]

    def shifted(self, x: torch.Tensor, count: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return values of the type of ``x``."""
        by_numbers = (x >> 4, x << 3, x >> 70, x << -1)
        functions = (torch.bitwise_right_shift(x, count), torch.bitwise_left_shift(x, 5))
        return (*by_numbers, *functions, x << count, 100 >> (count & 3))


@pytest.mark.filterwarnings("ignore")
def test_shifts_agree_with_pytorch() -> None:
    """For all counts, also those beyond the bits of the type, and negative ones."""
    x = torch.tensor([-(2**63), 2**63 - 1, 0, 1, 2**31 - 5, -128, 127, -(2**15)]).expand(70, 8).contiguous()
    count = (torch.arange(70)[:, None] - 3).expand(70, 8).contiguous()
    shapes = {"x": {0: "rows"}, "count": {0: "rows"}}
    options: Any = {"dynamo": True, "custom_translation_table": TRANSLATIONS, "dynamic_shapes": shapes}
    program = torch.onnx.export(Shifts(), (x[:2], count[:2]), opset_version=20, verbose=False, **options)
    assert program is not None
    fill_kernel_gaps(program.model)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    results = session.run(None, {"x": x.numpy(), "count": count.numpy()})
    for actual, expected in zip(results, Shifts()(x, count), strict=True):
        assert torch.tensor(actual).dtype == expected.dtype
        assert torch.equal(torch.tensor(actual), expected)

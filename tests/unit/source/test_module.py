"""What is done to a module before it is exported, and what is refused."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

from repogen.errors import SourceError
from repogen.source.torch.module import prepare


def quantized() -> nn.Module:
    """Return a dynamically quantized module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates what people still deploy
        made: nn.Module = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 2)), {nn.Linear})  # type: ignore[no-untyped-call] # as torch declares it
    return made


def test_wrappers_are_taken_off_and_said() -> None:
    """``torch.compile`` and ``DataParallel``, one in the other."""
    inner = nn.Linear(4, 2).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations in torch's own import of the compiler
        wrapped: Any = torch.compile(nn.DataParallel(inner))
    module, notes = prepare(wrapped.eval(), None)
    assert module is inner
    assert notes == ("the model was taken out of torch.compile", "the model was taken out of DataParallel")


def test_bfloat16_is_cast_and_said() -> None:
    """Triton's ONNX Runtime backend serves no bfloat16; other precisions stay."""
    module, notes = prepare(nn.Sequential(nn.Linear(4, 2).bfloat16(), nn.Linear(2, 2).half()).eval(), None)
    assert {p.dtype for p in module.parameters()} == {torch.float32, torch.float16}
    assert notes == (
        "2 tensors were cast from bfloat16 to float32: Triton's ONNX Runtime backend does not serve bfloat16",
    )


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_wanted_precision_is_given(dtype: str) -> None:
    """To all floating weights; integers stay."""
    module = nn.BatchNorm1d(4).double().eval()
    made, notes = prepare(module, dtype)
    assert made.running_mean.dtype == getattr(torch, dtype)
    assert made.num_batches_tracked.dtype == torch.int64
    assert notes == (f"4 tensors were cast from float64 to {dtype}",)


def test_the_cache_of_a_language_model_is_switched_off() -> None:
    """Wherever its config hangs."""

    class Config:
        use_cache = True

    inner: Any = nn.Linear(4, 2)
    inner.config = Config()  # as transformers' modules have one
    _, notes = prepare(nn.Sequential(inner).eval(), None)
    assert inner.config.use_cache is False
    assert notes == ("config.use_cache was switched off: the graph returns logits, not a key-value cache",)


def test_quantized_modules_are_refused_with_the_way_to_quantize() -> None:
    """After the export, not before."""
    with pytest.raises(SourceError, match=r"^module '0' is quantized \(torch\.ao\.nn\.quantized") as caught:
        prepare(quantized(), None)
    assert (caught.value.code, "onnxruntime.quantization" in caught.value.hint) == ("source.quantized", True)

"""Tests for preparing a module for export."""

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
        warnings.simplefilter("ignore")  # torch deprecates an API that is still in use
        module: nn.Module = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 2)), {nn.Linear})  # type: ignore[no-untyped-call] # as torch declares it
    return module


def test_wrappers_are_removed_with_a_note() -> None:
    """``torch.compile`` and ``DataParallel``, nested."""
    inner = nn.Linear(4, 2).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations in torch's own import of the compiler
        wrapped: Any = torch.compile(nn.DataParallel(inner))
    module, notes = prepare(wrapped.eval(), None)
    assert module is inner
    assert notes == ("removed the torch.compile wrapper of the model", "removed the DataParallel wrapper of the model")


def test_bfloat16_is_cast_with_a_note() -> None:
    """ONNX Runtime has few bfloat16 operators on a CPU; other dtypes are unchanged."""
    module, notes = prepare(nn.Sequential(nn.Linear(4, 2).bfloat16(), nn.Linear(2, 2).half()).eval(), None)
    assert {p.dtype for p in module.parameters()} == {torch.float32, torch.float16}
    assert notes == ("cast 2 tensors from bfloat16 to float32: ONNX Runtime has few bfloat16 operators on a CPU",)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_requested_dtype_is_applied(dtype: str) -> None:
    """All floating-point tensors are cast; integers are unchanged."""
    module = nn.BatchNorm1d(4).double().eval()
    prepared, notes = prepare(module, dtype)
    assert prepared.running_mean.dtype == getattr(torch, dtype)
    assert prepared.num_batches_tracked.dtype == torch.int64
    assert notes == (f"cast 4 tensors from float64 to {dtype}",)


def test_key_value_cache_is_disabled() -> None:
    """The config may belong to a submodule."""

    class Config:
        use_cache = True

    inner: Any = nn.Linear(4, 2)
    inner.config = Config()  # like modules of transformers
    _, notes = prepare(nn.Sequential(inner).eval(), None)
    assert inner.config.use_cache is False
    assert [note.partition(":")[0] for note in notes] == [
        "published without the key-value cache (config.use_cache is set to False)"
    ]


def test_compiled_parts_are_restored() -> None:
    """A submodule behind ``torch.compile``, and a module after ``module.compile()``: both would compile every run."""
    model: Any = nn.Sequential(nn.Linear(4, 2), nn.ReLU()).eval()
    inner = model[0]
    model[0] = torch.compile(inner)
    model.compile()
    module, notes = prepare(model, None)
    assert notes == ("removed torch.compile from Sequential, 0",)
    assert module is model
    assert module.get_submodule("0") is inner
    assert model._compiled_call_impl is None  # noqa: SLF001 - torch has no public way to ask


def test_compiled_functions_run_uncompiled() -> None:
    """An export breaks the compiled code of a function, and compiling takes long."""
    calls: list[object] = []

    def backend(graph: Any, inputs: object) -> Any:
        calls.append(inputs)
        return graph.forward

    @torch.compile(backend=backend)
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    class Doubled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = double(x)
            return result

    try:
        module, _ = prepare(Doubled().eval(), None)
        x = torch.ones(2, 3)
        torch.export.export(module, (x,), strict=False)
        assert module(x).tolist() == [[2.0] * 3] * 2
        assert calls == []
    finally:
        torch.compiler.set_stance("default")
    assert double(x).tolist() == [[2.0] * 3] * 2
    assert len(calls) == 1


def test_quantized_module_is_rejected() -> None:
    """The hint is to quantize the ONNX file instead."""
    with pytest.raises(SourceError, match=r"^module '0' is quantized dynamically \(torch\.ao\.nn\.quantized") as caught:
        prepare(quantized(), None)
    assert (caught.value.code, "onnxruntime.quantization" in caught.value.hint) == ("source.quantized", True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_quantized_embedding_is_rejected(kind: Any) -> None:
    """Its table is packed as well, and has the precision that the owner chose for it alone."""
    ao: Any = torch.ao.quantization
    model = nn.Sequential(kind(20, 4)).eval()
    model[0].qconfig = ao.float_qparams_weight_only_qconfig
    with pytest.raises(SourceError, match=r"^module '0' is a quantized embedding \(torch\.ao\.nn\.quantized") as caught:
        prepare(ao.convert(ao.prepare(model)), None)
    assert caught.value.code == "source.quantized"


@pytest.mark.filterwarnings("ignore")
def test_module_with_fixed_scales_is_accepted() -> None:
    """TorchScript's exporter translates what FX quantized statically."""
    from torch.ao.quantization import get_default_qconfig_mapping  # noqa: PLC0415 - deprecated, and only needed here
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx  # noqa: PLC0415 - the same

    quantize: Any = prepare_fx
    convert: Any = convert_fx
    mapping = get_default_qconfig_mapping("fbgemm")
    module = convert(quantize(nn.Sequential(nn.Linear(4, 2)).eval(), mapping, (torch.ones(1, 4),)))
    prepared, _ = prepare(module, None)
    assert prepared is module


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("per_channel", [False, True])
def test_fake_quantize_modules_are_replaced_if_their_observers_are_off(per_channel: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """An exporter cannot follow their switches, which are tensors."""
    observer: Any = torch.ao.quantization.MovingAveragePerChannelMinMaxObserver
    options = {"observer": observer, "quant_min": -127, "quant_max": 127, "dtype": torch.qint8}
    options |= {"qscheme": torch.per_channel_symmetric, "ch_axis": 0}
    if not per_channel:
        observer = torch.ao.quantization.MovingAverageMinMaxObserver
        options = {"observer": observer, "quant_min": 0, "quant_max": 127, "dtype": torch.quint8}
    make: Any = torch.ao.quantization.FusedMovingAvgObsFakeQuantize
    shared = make(**options)
    model: Any = nn.Sequential(shared, shared)
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    model(x * 0.7)
    model.eval().apply(torch.ao.quantization.disable_observer)
    expected = model(x)
    module, notes = prepare(model, None)
    assert notes == ("replaced 1 FakeQuantize modules by their fixed scales: their observers are off",)
    torch.testing.assert_close(module(x), expected, rtol=0, atol=0)

"""Precisions other than float32."""

from __future__ import annotations

from tests.conformance.case import Case, of_factory, signature

_FLOAT = signature(x="float32 batch 4")

CASES = (
    Case("bf16_weights", of_factory("precisions.py:brain", _FLOAT), "batch", "bf16 weights are served as float32"),
    Case(
        "bf16_as_half",
        of_factory("precisions.py:brain", signature(x="float16 batch 4"), dtype="float16"),
        "batch",
        "float16 because the spec requests it",
    ),
    Case("half", of_factory("precisions.py:half", signature(x="float16 batch 4")), "batch", "float16 in and out"),
    Case("double", of_factory("precisions.py:double", signature(x="float64 batch 4")), "batch", "float64 in and out"),
    Case("inner_half", of_factory("precisions.py:InnerHalf"), "batch", "a part of it computes in float16"),
    Case(
        "uint8_image",
        of_factory("precisions.py:Bytes", signature(image="uint8 batch 16 16 3 0..255")),
        "batch",
        "a uint8 image, channels last",
    ),
    Case(
        "int32_and_bool",
        of_factory("precisions.py:Small", signature(codes="int32 batch 6 0..19", keep="bool batch 6")),
        "batch",
        "codes and booleans",
    ),
    Case("real_spectrum", of_factory("precisions.py:RealSpectrum"), "batch", "complex numbers only inside the model"),
    Case(
        "complex_output",
        of_factory("precisions.py:Spectrum"),
        "rejected:source.output-dtype",
        "Triton has no complex type",
    ),
    Case(
        "bf16_output",
        of_factory("precisions.py:ToBrain"),
        "rejected:source.output-dtype",
        "no bfloat16 before 26.03",
    ),
    Case(
        "dynamic_quantized",
        of_factory("precisions.py:quantized"),
        "rejected:source.quantized",
        "packed weights are not tensors, and no exporter supports them",
    ),
)

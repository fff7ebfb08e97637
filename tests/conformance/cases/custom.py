"""A custom operator, with what each exporter needs and without."""

from __future__ import annotations

from tests.conformance.case import Case, of_factory

_MODEL = of_factory("custom.py:SoftClipped")

CASES = (
    Case(
        "custom_translations",
        {**_MODEL, "export": {"custom_translations": "custom.py:table"}},
        "batch",
        "dynamo is told how to write the operator",
    ),
    Case(
        "custom_symbolics",
        {**_MODEL, "export": {"exporter": "torchscript", "custom_symbolics": "custom.py:symbolics"}},
        "batch",
        "TorchScript is told how to write the operator",
    ),
    Case("custom_operator", _MODEL, "refused:export.no-translation", "nobody said how to write it in ONNX"),
)

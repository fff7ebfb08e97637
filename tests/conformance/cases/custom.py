"""A custom operator, with and without the translation that each exporter requires."""

from __future__ import annotations

from tests.conformance.case import Case, of_factory

_MODEL = of_factory("custom.py:SoftClipped")

CASES = (
    Case(
        "custom_translations",
        {**_MODEL, "export": {"custom_translations": "custom.py:table"}},
        "batch",
        "a translation for dynamo is provided",
    ),
    Case(
        "custom_symbolics",
        {**_MODEL, "export": {"exporter": "torchscript", "custom_symbolics": "custom.py:symbolics"}},
        "batch",
        "a symbolic function for TorchScript is provided",
    ),
    Case("custom_operator", _MODEL, "rejected:export.no-translation", "no translation to ONNX is provided"),
)

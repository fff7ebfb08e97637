"""An ONNX file's inputs and outputs, for a spec."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.tensors import DTYPES
from repogen.errors import SpecError
from repogen.scaffold.description import Found, flow, model_name, shape_text

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import ModelProto, ValueInfoProto

_BY_ONNX = {dtype.onnx: dtype.name for dtype in DTYPES.values()}


def describe_onnx(path: Path, shown: str) -> Found:
    """Read a graph's signature; its weights stay where they are.

    Args:
        path: The file.
        shown: The same, as seen from the spec.

    Raises:
        SpecError: It can't be read.
    """
    import onnx  # noqa: PLC0415 - half a second, for this alone
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - the same

    try:
        model = onnx.load(path, load_external_data=False)
    except (DecodeError, OSError, ValueError) as error:
        raise SpecError(
            f"{path} cannot be read as ONNX: {error}", "export or download it again", code="init.from"
        ) from error
    if not model.graph.output:
        raise SpecError(f"{path} holds no graph", "export or download it again", code="init.from")
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    return Found(
        model_name(path.stem),
        {"kind": "onnx", "path": shown},
        (_versions(model), *(_line("in ", v) for v in inputs), *(_line("out", v) for v in model.graph.output)),
        _keys(inputs),
    )


def _versions(model: ModelProto) -> str:
    opset = next((entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"}), 0)
    made = f", written by {model.producer_name}" if model.producer_name.isprintable() and model.producer_name else ""
    return f"The graph is of opset {opset}, IR {model.ir_version}{made}:"


def _line(side: str, value: ValueInfoProto) -> str:
    return f"  {side} {flow(value.name)}: {_dtype(value)} {shape_text(_shape(value))}"


def _dtype(value: ValueInfoProto) -> str:
    number = value.type.tensor_type.elem_type
    return _BY_ONNX.get(number, "a type that Triton does not serve")


def _shape(value: ValueInfoProto) -> list[int | str]:
    dims = value.type.tensor_type.shape.dim
    return [dim.dim_value if dim.dim_value > 0 else dim.dim_param or "?" for dim in dims]


def _keys(inputs: list[ValueInfoProto]) -> tuple[str, ...]:
    """Return what may be said of the inputs: all of it is optional, since the file knows its own."""
    integers = [value for value in inputs if "int" in _dtype(value)]
    lines = ["# Inputs and dynamic dims come from the file. What may be added:"]
    if integers:
        name, dtype = flow(integers[0].name), _dtype(integers[0])
        shape = [dim if isinstance(dim, int) or dim.isidentifier() else "batch" for dim in _shape(integers[0])]
        lines += [
            "# CHECK the range of integers: without one they are drawn from 0 and 1.",
            f"# inputs: {{{name}: {{dtype: {dtype}, shape: {shape_text(shape)}, range: [0, 1]}}}}",
        ]
    lines += [
        "# dims: {batch: {min: 1, max: 32}}   # what parity is proved over, by the names of the dims",
        "# examples: examples.npz             # real inputs",
        "# In source, reference: answers.npz or models.py:build makes parity compare with the original model.",
    ]
    return tuple(lines)

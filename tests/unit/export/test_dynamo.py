"""Errors of torch.export become one line with a hint."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.errors import ExportError
from repogen.export.dynamo import _recorded_sizes, _with_line, explain

SIGNATURE = Signature(
    (TensorSpec("left", "float32", ("batch", 4)), TensorSpec("right", "float32", ("batch", "time"))), ()
)
CALL_SITE = (
    '\nThe following call raised this error:\n  File "/project/net.py", line 7, in forward\n    if x.sum() > 0:\n'
)


def chained(outer: str, inner: Exception) -> ExportError:
    """Return the explanation of an error with a cause."""
    error = RuntimeError(outer)
    error.__cause__ = inner
    return explain(error, SIGNATURE)


@pytest.mark.parametrize(
    ("source", "dim", "axis", "name"),
    [
        ("inputs['args'][0].shape[0]", "batch", 0, "left"),
        ("inputs['args'][1].shape[1]", "time", 1, "right"),
    ],
)
def test_specialized_dim_is_reported_with_its_input(source: str, dim: str, axis: int, name: str) -> None:
    """In terms of the spec: dim, input, axis, and the size that it is fixed to."""
    text = f"You marked L['args'] as dynamic but your code inferred a static shape of 2 for dimension {source}."
    error = chained("export failed", ValueError(text))
    assert (error.code, error.message) == (
        "export.specialized-dim",
        f"dim {dim!r} (axis {axis} of input {name!r}) is declared dynamic, but the model fixes it to 2",
    )
    assert "reshape(2, -1)" in error.hint
    fixed = SIGNATURE.inputs[name == "right"].shape
    shape = ", ".join("2" if size == dim else str(size) for size in fixed)
    assert f"{name}: {{dtype: float32, shape: [{shape}]}}" in error.hint  # for the code of a library


class Frozen(torch.nn.Module):
    """Reads a size into a constant."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Divide by it."""
        return x / torch.Tensor([x.shape[0]])


def test_line_that_fixes_a_size_is_named() -> None:
    """The error of torch.export does not name it."""
    shapes: Any = ({0: torch.export.Dim("n")},)
    with _recorded_sizes() as lines, pytest.raises(Exception, match=r"inferred a static shape|specializ"):
        torch.export.export(Frozen(), (torch.ones(5, 2),), dynamic_shapes=shapes, strict=False)
    error = _with_line(ExportError("the model fixes it to 5", "use -1", code="export.specialized-dim"), lines)
    assert error.message.startswith("the model fixes it to 5, at test_dynamo.py:")
    assert "torch.tensor([…])" in error.hint


def test_data_dependent_branch_has_a_location() -> None:
    """The error has the file, the line and the code of the branch."""
    error = chained("failed", RuntimeError(f"Could not guard on data-dependent expression u0 > 0{CALL_SITE}"))
    assert (error.code, error.where) == ("export.data-dependent", "/project/net.py:7")
    assert "`if x.sum() > 0:`" in error.message
    assert "torch.where" in error.hint


def test_data_dependent_branch_without_a_location() -> None:
    """The error has no location if torch does not report one."""
    error = chained("failed", RuntimeError("Could not guard on data-dependent expression"))
    assert (error.code, error.where) == ("export.data-dependent", "")


def test_operator_without_translation_is_reported() -> None:
    """By its name, without a list of overloads."""
    error = chained("failed", RuntimeError("No ONNX function found for aten.igamma.default. Failure message: …"))
    assert (error.code, error.message) == (
        "export.no-translation",
        "operator aten.igamma.default has no ONNX translation",
    )


def test_other_errors_report_the_innermost_cause() -> None:
    """In one line; the rest is in the details."""
    error = chained("Failed to export the model\nwith many lines", TypeError("\n  cannot do that\nmore"))
    assert error.message == "torch.export failed: TypeError: cannot do that"
    assert "with many lines" in error.details


NODE = "%amax : [num_users=1] = call_function[target=torch.ops.aten.amax.default](args = (%x,), kwargs = {})"


@pytest.mark.parametrize(
    "text", [f"Error when translating node {NODE}. See the stack trace.", f"While executing {NODE}"]
)
def test_operator_that_cannot_be_exported_is_named(text: str) -> None:
    """With the reason, but without the signature of the exporter's function."""
    error = chained(text, ValueError("Required parameter 'dim' is not provided. Signature: aten_amax(self, dim)"))
    assert error.message == (
        "the export of operator aten.amax.default failed: ValueError: Required parameter 'dim' is not provided."
    )
    assert (error.code, error.hint) == (
        "export.dynamo",
        "replace it in the model, or set export.custom_translations",
    )

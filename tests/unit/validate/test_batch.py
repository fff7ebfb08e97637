"""Measurement of batching, for every way in which a model cannot be batched."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest
import torch
from torch import nn

from repogen.artifacts.built_model import BatchReport
from repogen.errors import ConfigError, ExitCode
from repogen.source.common.examples import DrawnExamples, StoredExamples
from repogen.spec.models import InputSpec, ParitySpec
from repogen.validate.batch import check_batch
from repogen.validate.compare import Comparison
from repogen.validate.tolerance import limits, tolerances_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from repogen.artifacts.source import Examples, SourceModel

    AsSource = Callable[..., SourceModel]


class Of(nn.Module):
    """A function of x, with a layer's weights."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Keep the function."""
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply it."""
        return self.function(x)


def measure(
    source: SourceModel,
    requested: int | Literal["auto"] = "auto",
    onnx_model: Callable[..., dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]] | None = None,
) -> BatchReport:
    """Measure a source; its ONNX model is the original by default."""
    by_output = limits(source.signature, ParitySpec())
    allowed = tolerances_of(source.reference(source.examples(source.example_sizes, 0)), by_output)
    return check_batch(Comparison(source, onnx_model or source.reference, by_output), allowed, requested, 0)


def test_independent_rows_can_be_batched(as_source: AsSource) -> None:
    """Up to the maximum of the dim, or the requested size."""
    source = as_source(Of(lambda x: x.softmax(-1)))
    assert measure(source) == BatchReport(batchable=True, max_batch_size=8)
    assert measure(source, 4) == BatchReport(batchable=True, max_batch_size=4)


def test_size_above_the_dim_is_rejected(as_source: AsSource) -> None:
    """A max_batch_size above the maximum of the dim is an error."""
    with pytest.raises(ConfigError, match="'batch' is verified up to 8 only"):
        measure(as_source(Of(lambda x: x + 1)), 64)


@pytest.mark.parametrize(("requested", "size"), [(7, 7), (14, 7), (14, 14)])
def test_requested_batch_below_the_maximum_of_the_dim(as_source: AsSource, requested: int, size: int) -> None:
    """No parity case has this size, so a batch of it is run, and its first half."""

    def late(x: torch.Tensor) -> torch.Tensor:
        return x + (torch.arange(len(x)) >= 6)[:, None] * x[:1] if len(x) == size else x

    with pytest.raises(ConfigError, match=f"alone than in a batch of {size}"):
        measure(as_source(Of(late), batch={"max": 64}), requested)


@pytest.mark.parametrize("most", [2, 3, 4])
def test_small_maximum_is_not_exceeded(as_source: AsSource, most: int) -> None:
    """The model never gets a batch larger than its dim permits."""

    def guarded(x: torch.Tensor) -> torch.Tensor:
        if len(x) > most:
            raise ValueError("too many rows")
        return x + 1

    source = as_source(Of(guarded), batch={"max": most})
    assert measure(source) == BatchReport(batchable=True, max_batch_size=most)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: x @ x.T, "has a different shape for one row than"),
        (lambda x: x - x.mean(0), "a row has a different output alone than in a batch of 2"),
        (lambda x: (x - x.mean(0)) / (x.std(0, unbiased=False) + 1), "a row has a different output alone"),
        (lambda x: x.cumsum(0), "a row has a different output alone"),
        (lambda _: torch.ones(3, 4), "axis 0 is not the batch"),
        (lambda x: x.sum(), "has shape [] for a batch of 1"),
        (lambda x: x.T, "has shape [4, 1] for a batch of 1"),
        (lambda x: x.reshape(2, -1, 4), "has shape [2"),
        (lambda x: x[:1], "has shape [1, 4] for a batch of 2"),
    ],
)
def test_reason_is_reported(as_source: AsSource, function: Callable[[torch.Tensor], torch.Tensor], words: str) -> None:
    """For contrastive logits, batch statistics, running sums, constants, scalars, and other layouts."""
    sized = Of(lambda x: function(x if len(x) != 1 or words != "has shape [2" else torch.cat([x, x])))
    report = measure(as_source(sized))
    assert (report.batchable, report.max_batch_size) == (False, 0)
    assert words in report.reason
    assert "PyTorch" in report.reason


def test_guessed_values_are_named_where_batching_fails(as_source: AsSource) -> None:
    """They may be the only cause; a batch that is possible needs no declaration."""
    declare = "ids: only the integers 0 and 1 were tested; set inputs: {ids: {range: [0, …]}}"
    assert declare in measure(replace(as_source(Of(lambda x: x - x.mean(0))), declare=declare)).reason
    assert not measure(replace(as_source(Of(lambda x: x + 1)), declare=declare)).reason


def test_rows_that_depend_on_their_position_are_detected(as_source: AsSource) -> None:
    """Such as a model that adds the row number."""
    source = as_source(Of(lambda x: x + torch.arange(len(x)).reshape(-1, 1)))
    report = measure(source)
    assert "has a different output" in report.reason
    assert report.compared


def test_requested_batching_that_is_impossible_is_an_error(as_source: AsSource) -> None:
    """With the reason and exit code 5."""
    with pytest.raises(ConfigError, match="max_batch_size is 4, but the model cannot be batched: a row") as e:
        measure(as_source(Of(lambda x: x - x.mean(0))), 4)
    assert (e.value.code, e.value.exit_code) == ("config.not-batchable", ExitCode.CONFIG)


def test_max_batch_size_of_zero_skips_the_measurement(as_source: AsSource) -> None:
    """Even if the model can be batched."""
    assert measure(as_source(Of(lambda x: x)), 0).reason == "the spec sets max_batch_size: 0"


def test_onnx_model_is_measured(as_source: AsSource) -> None:
    """Rows may be independent in PyTorch only."""
    source = as_source(Of(lambda x: x))
    report = measure(source, onnx_model=lambda inputs: {"output": inputs["x"] - inputs["x"].mean(0)})
    assert report.reason.endswith("; measured with ONNX Runtime")


@pytest.mark.parametrize(
    ("inputs", "dims", "words"),
    [
        ({"x": [3, 4]}, {}, "not one shared dynamic dim"),
        ({"x": []}, {}, "not one shared dynamic dim"),
        ({"x": ["batch", 4]}, {"batch": {"min": 2, "max": 8}}, "has a minimum of 2"),
        ({"x": ["batch", "batch"]}, {}, "also another axis of input 'x'"),
    ],
)
def test_inputs_without_a_batch_axis_are_reported(
    as_source: AsSource, inputs: dict[str, list[int | str]], dims: dict[str, dict[str, int]], words: str
) -> None:
    """For fixed axes, scalars, a minimum above 1, and a batch on two axes."""
    report = measure(as_source(Of(lambda x: x * 2), inputs, **dims))
    assert words in report.reason
    assert not report.compared


def test_size_that_fails_is_reported(as_source: AsSource) -> None:
    """For a model that supports even batches only."""

    def paired(x: torch.Tensor) -> torch.Tensor:
        if len(x) % 2:
            raise ValueError("pairs, please")
        return x

    assert (
        "a batch of 1 fails: the PyTorch model failed: ValueError: pairs, please"
        in measure(as_source(Of(paired))).reason
    )


@pytest.mark.parametrize("examples", ["ones", "stored"])
def test_equal_rows_cannot_verify_batching(as_source: AsSource, examples: str) -> None:
    """``x - x.mean(0)`` gives the same result for equal rows alone and in a batch."""
    source = as_source(Of(lambda x: x - x.mean(0)))
    inputs = source.signature.inputs
    examples_of_equal_rows: Examples = DrawnExamples({"x": InputSpec(dtype="float32", shape=("batch", 4), fill="ones")})
    if examples == "stored":
        examples_of_equal_rows = StoredExamples(({"x": np.ones((1, 4), np.float32)},), "e.npz", inputs)
    constant = replace(source, examples=examples_of_equal_rows)
    assert "batching cannot be verified" in measure(constant).reason

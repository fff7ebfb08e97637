"""Batchability by experiment, for every way in which a model may not batch."""

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
from repogen.spec.models import InputSpec
from repogen.validate.batch import check_batch
from repogen.validate.compare import Comparison

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


def judge(
    source: SourceModel,
    asked: int | Literal["auto"] = "auto",
    onnx_model: Callable[..., dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]] | None = None,
) -> BatchReport:
    """Judge a source whose ONNX model is, by default, as good as the original."""
    allowed = {output.name: (1e-3, 1e-5) for output in source.signature.outputs}
    return check_batch(Comparison(source, onnx_model or source.reference, allowed), asked, 0)


def test_rows_that_are_answered_one_by_one_batch(as_source: AsSource) -> None:
    """Up to the dim's maximum, or what was asked for."""
    source = as_source(Of(lambda x: x.softmax(-1)))
    assert judge(source) == BatchReport(batchable=True, max_batch_size=8)
    assert judge(source, 4) == BatchReport(batchable=True, max_batch_size=4)


def test_more_than_was_proved_is_refused(as_source: AsSource) -> None:
    """max_batch_size above the dim's maximum is an error, also where the spec declares no inputs to compare with."""
    with pytest.raises(ConfigError, match="'batch' is verified up to 8 only"):
        judge(as_source(Of(lambda x: x + 1)), 64)


@pytest.mark.parametrize("most", [2, 3, 4])
def test_a_small_maximum_is_not_exceeded(as_source: AsSource, most: int) -> None:
    """A model that refuses more than its dim allows is never given more."""

    def guarded(x: torch.Tensor) -> torch.Tensor:
        if len(x) > most:
            raise ValueError("too many rows")
        return x + 1

    source = as_source(Of(guarded), batch={"max": most})
    assert judge(source) == BatchReport(batchable=True, max_batch_size=most)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: x @ x.T, "has another shape for one row than"),
        (lambda x: x - x.mean(0), "a row gives another output alone than in a batch of 2"),
        (lambda x: (x - x.mean(0)) / (x.std(0, unbiased=False) + 1), "a row gives another output alone"),
        (lambda x: x.cumsum(0), "a row gives another output alone"),
        (lambda _: torch.ones(3, 4), "axis 0 is not the batch"),
        (lambda x: x.sum(), "has shape [] for a batch of 1"),
        (lambda x: x.T, "has shape [4, 1] for a batch of 1"),
        (lambda x: x.reshape(2, -1, 4), "has shape [2"),
        (lambda x: x[:1], "has shape [1, 4] for a batch of 2"),
    ],
)
def test_a_model_that_does_not_batch_says_why(
    as_source: AsSource, function: Callable[[torch.Tensor], torch.Tensor], words: str
) -> None:
    """Contrastive logits, batch statistics, running sums, constants, scalars, other layouts."""
    sized = Of(lambda x: function(x if len(x) != 1 or words != "has shape [2" else torch.cat([x, x])))
    report = judge(as_source(sized))
    assert (report.batchable, report.max_batch_size) == (False, 0)
    assert words in report.reason
    assert "PyTorch" in report.reason


def test_rows_that_look_at_their_position_are_found(as_source: AsSource) -> None:
    """Adding the row's number is seen when rows are computed alone."""
    source = as_source(Of(lambda x: x + torch.arange(len(x)).reshape(-1, 1)))
    assert "gives another output" in judge(source).reason


def test_what_was_asked_for_and_cannot_be_is_an_error(as_source: AsSource) -> None:
    """With the reason, the way out, and exit code 5."""
    with pytest.raises(ConfigError, match="max_batch_size is 4, but the model cannot be batched: a row") as e:
        judge(as_source(Of(lambda x: x - x.mean(0))), 4)
    assert (e.value.code, e.value.exit_code) == ("config.not-batchable", ExitCode.CONFIG)


def test_nothing_is_measured_when_zero_was_asked_for(as_source: AsSource) -> None:
    """Even a model that batches does not then."""
    assert judge(as_source(Of(lambda x: x)), 0).reason == "the spec sets max_batch_size: 0"


def test_the_onnx_model_is_measured_too(as_source: AsSource) -> None:
    """An exporter may freeze what PyTorch keeps apart."""
    source = as_source(Of(lambda x: x))
    report = judge(source, onnx_model=lambda inputs: {"output": inputs["x"] - inputs["x"].mean(0)})
    assert report.reason.endswith("(ONNX Runtime)")


@pytest.mark.parametrize(
    ("inputs", "dims", "words"),
    [
        ({"x": [3, 4]}, {}, "not one shared dynamic dim"),
        ({"x": []}, {}, "not one shared dynamic dim"),
        ({"x": ["batch", 4]}, {"batch": {"min": 2, "max": 8}}, "has a minimum of 2"),
        ({"x": ["batch", "batch"]}, {}, "also another axis of input 'x'"),
    ],
)
def test_inputs_that_no_batch_fits_are_refused(
    as_source: AsSource, inputs: dict[str, list[int | str]], dims: dict[str, dict[str, int]], words: str
) -> None:
    """Fixed axes, scalars, a minimum above 1, a batch on two axes."""
    assert words in judge(as_source(Of(lambda x: x * 2), inputs, **dims)).reason


def test_a_size_that_fails_is_a_reason(as_source: AsSource) -> None:
    """A model that takes pairs only is told apart from one that mixes."""

    def paired(x: torch.Tensor) -> torch.Tensor:
        if len(x) % 2:
            raise ValueError("pairs, please")
        return x

    assert (
        "a batch of 1 fails: the PyTorch model failed: ValueError: pairs, please" in judge(as_source(Of(paired))).reason
    )


@pytest.mark.parametrize("examples", ["ones", "stored"])
def test_rows_that_are_all_alike_prove_nothing(as_source: AsSource, examples: str) -> None:
    """``x - x.mean(0)`` is blameless on constant rows, so constant rows are no witness."""
    source = as_source(Of(lambda x: x - x.mean(0)))
    inputs = source.signature.inputs
    alike: Examples = DrawnExamples({"x": InputSpec(dtype="float32", shape=("batch", 4), fill="ones")})
    if examples == "stored":
        alike = StoredExamples(({"x": np.ones((1, 4), np.float32)},), "e.npz", inputs)
    constant = replace(source, examples=alike)
    assert "batching cannot be verified" in judge(constant).reason

"""Rows of a batch that depend on each other only for some inputs, and the number of forward passes that show it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn

from repogen.source.common.examples import StoredExamples
from repogen.spec.models import ModelSpec
from repogen.validate.validation import prove

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from repogen.artifacts.built_model import BatchReport
    from repogen.artifacts.source import SourceModel
    from repogen.artifacts.tensors import Array, Arrays

    AsSource = Callable[..., SourceModel]


class Of(nn.Module):
    """A function of x."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Keep the function."""
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply it."""
        return self.function(x)


def measured(source: SourceModel, directory: Path) -> BatchReport:
    """Validate a source against itself."""
    spec = ModelSpec.model_validate({"source": {"factory": "m.py:f"}})
    return prove(source, source.reference, spec, directory / "golden").batch


def positive(source: SourceModel) -> SourceModel:
    """Return the source with stored examples that are all positive, as images and counts are."""
    rows = np.random.default_rng(0).uniform(0.2, 1.0, (12, 4)).astype(np.float32)
    return replace(source, examples=StoredExamples(({"x": rows},), "e.npz", source.signature.inputs))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2 if x.sum() > 0 else x - 1,
        lambda x: x - x.mean(0) if x.min() < 0 else x * 2,
        lambda x: x / x.abs().max() if x.abs().max() > 5 else x,
        lambda x: x * 2 if x.abs().mean() > 0.15 else x - x.mean(0),
    ],
    ids=["sign of the sum", "any negative value", "any large value", "only small values"],
)
def test_branch_that_no_example_reaches_is_found(
    as_source: AsSource, tmp_path: Path, function: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """All examples take one branch of the model; negated and rescaled rows in one batch take the other."""
    report = measured(positive(as_source(Of(function))), tmp_path)
    assert not report.batchable
    assert "negated and rescaled rows" in report.reason


@pytest.mark.parametrize(("error", "batchable"), [(3e-3, True), (3e-2, False)])
def test_rounding_that_larger_inputs_amplify_is_allowed(
    as_source: AsSource, tmp_path: Path, error: float, *, batchable: bool
) -> None:
    """DETR's encoder differs by 4e-3 between a row alone and in a batch if the image is multiplied by 10."""

    def function(x: torch.Tensor) -> torch.Tensor:
        is_large = x.abs().amax(1, keepdim=True) > 5
        return x * (1 + error * is_large) if len(x) > 1 else x

    assert measured(positive(as_source(Of(function))), tmp_path).batchable is batchable


def columns_of_scales(x: torch.Tensor) -> torch.Tensor:
    """Mix rows only in a column that is ten million times smaller than the others."""
    return torch.cat([1e3 * x[:, :3], 1e-4 * (x[:, 3:] - x[:, 3:].mean(0))], 1)


def loudest_row(x: torch.Tensor) -> torch.Tensor:
    """Raise all values to eight decades below the largest value of the batch, as log-mel features are."""
    log = x.square().clamp(min=1e-10).log10()
    return log.maximum(log.max() - 8)


def large_rows(x: torch.Tensor) -> torch.Tensor:
    """Change large rows by less than ten times the tolerance, by the number of large rows in the batch."""
    is_large = x.abs().amax(1, keepdim=True) > 5
    return x * (1 + 3e-3 * is_large * (is_large.sum() > 1))


def large_sums(x: torch.Tensor) -> torch.Tensor:
    """Take another branch for a sum that ten times the examples do not reach."""
    return x * 2 if x.sum() < 200 else x


@pytest.mark.parametrize("function", [columns_of_scales, loudest_row, large_rows, large_sums])
def test_output_that_changes_with_the_other_rows_only_is_found(
    as_source: AsSource, tmp_path: Path, function: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """The size of the batch stays the same, so rounding explains nothing, and the tolerance is each value's own."""
    report = measured(positive(as_source(Of(function))), tmp_path)
    assert "if only the other rows change" in report.reason


def fill_gaps(x: torch.Tensor) -> torch.Tensor:
    """Replace NaN by the means of the batch."""
    return torch.where(x.isnan(), x.nanmean(0), x)


@pytest.mark.parametrize(
    "function", [lambda x: x[~x.isnan().any(1)], lambda x: x[~x.isnan().all(1)], fill_gaps], ids=["any", "all", "fill"]
)
def test_rows_that_depend_on_each_other_only_for_nan_are_found(
    as_source: AsSource, tmp_path: Path, function: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """No example has NaN; rows of users' data have."""
    assert "and one row has NaN" in measured(positive(as_source(Of(function))), tmp_path).reason


@pytest.mark.parametrize("function", [lambda x: x.nan_to_num(), lambda x: x.cumsum(1)])
def test_rows_with_nan_alone_do_not_prevent_batches(
    as_source: AsSource, tmp_path: Path, function: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """The other rows stay the same."""
    assert measured(positive(as_source(Of(function))), tmp_path).batchable


def test_rows_that_are_dropped_only_for_zeros_are_found(as_source: AsSource, tmp_path: Path) -> None:
    """A row of zeros is padding for such a model."""
    report = measured(positive(as_source(Of(lambda x: x[x.abs().sum(1) > 0]))), tmp_path)
    assert report.reason.endswith("a batch of 3 has 1 output row; measured with the PyTorch model")


def repeated(x: torch.Tensor) -> torch.Tensor:
    """Set each row to zero that equals an earlier row."""
    equal = (x[:, None] == x[None]).all(-1)
    return x * ~torch.tril(equal, diagonal=-1).any(1, keepdim=True)


def above_quota(x: torch.Tensor) -> torch.Tensor:
    """Set the third and later rows to zero whose first value is large."""
    large = x[:, :1] > 3.0
    return x * ~(large & (large.cumsum(0) > 2))


@pytest.mark.parametrize("function", [repeated, above_quota])
def test_rows_that_affect_only_similar_rows_are_found(
    as_source: AsSource, tmp_path: Path, function: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """No batch of different random rows shows it; a batch of copies of one row does."""
    report = measured(positive(as_source(Of(function))), tmp_path)
    assert "with copies of itself" in report.reason


def winsorized(x: torch.Tensor) -> torch.Tensor:
    """Limit values to three standard deviations from the mean of at least ten rows."""
    if len(x) < 10:
        return x
    mean, limit = x.mean(0), 3 * x.std(0)
    return x.clamp(mean - limit, mean + limit)


def shares(x: torch.Tensor) -> torch.Tensor:
    """Divide each row by the number of rows that equal it, if there are others."""
    counts = (x[:, None] == x[None]).all(-1).sum(1, keepdim=True)
    return x / torch.where((counts < len(x)).any(), counts, 1)


@pytest.mark.parametrize(
    ("function", "dtype"), [(winsorized, "float32"), (shares, "int64")], ids=["winsorized", "shares"]
)
def test_rows_that_mix_next_to_an_extreme_row_or_copies_are_found(
    as_source: AsSource, tmp_path: Path, function: Callable[[torch.Tensor], torch.Tensor], dtype: str
) -> None:
    """No value is far from the mean of two rows, and a batch of copies of one row has one group."""
    rows = np.random.default_rng(0).uniform(1, 100, (40, 4)).astype(dtype)
    source = as_source(Of(function), {"x": ["batch", 4]}, batch={"max": 16})
    specs = tuple(replace(spec, dtype=dtype) for spec in source.signature.inputs)
    source = replace(
        source,
        signature=replace(source.signature, inputs=specs),
        examples=StoredExamples(({"x": rows},), "e.npz", specs),
    )
    assert "with copies of itself" in measured(source, tmp_path).reason


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("column", [0, 3])
def test_rows_that_mix_only_in_order_are_found(as_source: AsSource, tmp_path: Path, sign: int, column: int) -> None:
    """A model may smooth rows if they are in the order of their times."""

    def smoothed(x: torch.Tensor) -> torch.Tensor:
        is_sorted = len(x) > 2 and bool((sign * x[:, column].diff() > 0).all())
        return torch.cat([x[:1], (x[1:] + x[:-1]) / 2]) if is_sorted else x

    assert "in another order" in measured(positive(as_source(Of(smoothed))), tmp_path).reason


class Velocity(nn.Module):
    """Counts the rows of a batch that have the same card and another shop."""

    def forward(self, card: torch.Tensor, shop: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
        """Add the counts to the amounts."""
        return amount + ((card[:, None] == card) & (shop[:, None] != shop)).sum(1)


def same_card(x: torch.Tensor) -> torch.Tensor:
    """Count earlier rows with the same second value and another fourth one."""
    is_equal = x[:, None] == x[None]
    return x[:, :1] + torch.tril(is_equal[..., 1] & ~is_equal[..., 3], diagonal=-1).sum(1, keepdim=True)


@pytest.mark.parametrize("most", [2, 8])
def test_rows_that_affect_only_rows_with_some_equal_values_are_found(
    as_source: AsSource, tmp_path: Path, most: int
) -> None:
    """Neither random rows nor copies show it, whether the values are inputs or columns of one."""
    inputs: dict[str, list[int | str]] = {"card": ["batch"], "shop": ["batch"], "amount": ["batch"]}
    report = measured(as_source(Velocity(), inputs, batch={"max": most}), tmp_path)
    assert "next to rows that share some of its values" in report.reason
    report = measured(positive(as_source(Of(same_card))), tmp_path)
    assert "next to rows that share some of its values" in report.reason


class Change(nn.Module):
    """Subtracts the amounts of earlier, or of later, payments of the same card at the same shop."""

    def __init__(self, sign: int) -> None:
        """Choose 1 for earlier payments, and -1 for later ones."""
        super().__init__()
        self.sign = sign

    def forward(self, card: torch.Tensor, shop: torch.Tensor, hour: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
        """Return the changes."""
        is_same = (card[:, None] == card) & (shop[:, None] == shop)
        is_before = is_same & (self.sign * (hour[:, None] - hour) > 0)
        return amount - torch.where(is_before, amount, 0.0).sum(1)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("most", [2, 8])
def test_rows_that_affect_only_later_rows_with_some_equal_values_are_found(
    as_source: AsSource, tmp_path: Path, most: int, sign: int
) -> None:
    """Only one of two rows changes: that with the larger value of an input."""
    inputs: dict[str, list[int | str]] = {name: ["batch"] for name in ("card", "shop", "hour", "amount")}
    report = measured(as_source(Change(sign), inputs, batch={"max": most}), tmp_path)
    assert "next to rows that share some of its values" in report.reason


def running_maximum(x: torch.Tensor) -> torch.Tensor:
    """Raise all values to eight decades below the largest value of this row and the rows before it."""
    log = x.square().clamp(min=1e-10).log10()
    return log.maximum(log.amax((1, 2)).cummax(0).values[:, None, None] - 8)


def filled_forward(x: torch.Tensor) -> torch.Tensor:
    """Replace NaN by the values of the row before."""
    before = torch.cat([torch.zeros_like(x[:1]), x[:-1]])
    return torch.where(x.isnan(), before, x)


@pytest.mark.parametrize(
    ("function", "words"),
    [(running_maximum, "if only the other rows change"), (filled_forward, "and one row has NaN")],
)
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("most", [2, 8])
def test_rows_that_affect_only_the_rows_on_one_side_are_found(
    as_source: AsSource,
    tmp_path: Path,
    function: Callable[[torch.Tensor], torch.Tensor],
    words: str,
    most: int,
    *,
    backward: bool,
) -> None:
    """The rows before or after a row change, whichever it depends on."""
    module = Of(lambda x: function(x.flip(0)).flip(0) if backward else function(x))
    source = as_source(module, {"x": ["batch", 3, 4]}, batch={"max": most})
    rows = np.random.default_rng(0).uniform(0.2, 1.0, (12, 3, 4)).astype(np.float32)
    examples = StoredExamples(({"x": rows},), "e.npz", source.signature.inputs)
    assert words in measured(replace(source, examples=examples), tmp_path).reason


@pytest.mark.parametrize("magnitude", [1e-7, 1e5])
def test_mixed_rows_are_found_at_every_magnitude(as_source: AsSource, tmp_path: Path, magnitude: float) -> None:
    """An absolute tolerance of 1e-5 would accept any output of 1e-7."""
    report = measured(as_source(Of(lambda x: (x - x.mean(0)) * magnitude)), tmp_path)
    assert "a row has a different output alone" in report.reason


def test_rows_of_parity_cases_are_joined(as_source: AsSource, tmp_path: Path) -> None:
    """A model that mixes rows of long sequences only: no batch at the example size shows it."""
    module = Of(lambda x: x - x.mean(0) if x.shape[1] > 10 else x)
    source = as_source(module, {"x": ["batch", "time"]}, time={"max": 16, "example": 4})
    report = measured(source, tmp_path)
    assert re.search(r"alone than in a batch of \d at time=", report.reason)


def test_rows_of_cases_with_equal_sizes_are_joined(as_source: AsSource, tmp_path: Path) -> None:
    """A model that mixes small rows at the smallest size if some are negative: no example is, and copies are larger."""
    module = Of(lambda x: x + x.abs().mean(0) if x.shape[1] == 4 and x.sum() < 0.1 and x.abs().max() < 2 else x)
    source = as_source(module, {"x": ["batch", "time"]}, batch={"max": 8}, time={"min": 4, "max": 16, "example": 8})
    rows = np.random.default_rng(0).uniform(0.2, 1.0, (12, 16)).astype(np.float32)

    def examples(sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        return {"x": rows[np.arange(seed, seed + sizes["batch"]) % 12, : sizes["time"]]}

    report = measured(replace(source, examples=examples), tmp_path)
    assert "together with rows of other cases at time=4" in report.reason


@pytest.mark.parametrize("factor", [1.0, 0.0])
def test_rows_that_mix_in_large_batches_only_are_found(as_source: AsSource, tmp_path: Path, factor: float) -> None:
    """At small sizes of the other dims; at the example sizes if outputs at small sizes do not depend on the inputs."""

    def late(x: torch.Tensor) -> torch.Tensor:
        y = x * (factor if x.shape[1] < 8 else 1.0)
        return torch.where((torch.arange(len(x)) >= 17)[:, None], y + y[:1], y)

    source = as_source(Of(late), {"x": ["batch", "time"]}, batch={"max": 24}, time={"min": 4, "max": 16, "example": 8})
    report = measured(source, tmp_path)
    assert "a row has a different output alone than in a batch of 24" in report.reason


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.softmax(-1),
        lambda x: x.clamp(min=1e-3).log(),
        lambda x: x.sqrt(),
        lambda x: torch.where(x > 0, x, -torch.inf),
        lambda x: x.pow(5) * 1e3,
    ],
)
def test_independent_rows_stay_batchable(
    as_source: AsSource, tmp_path: Path, function: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Also where negated values give NaN, and where outputs are infinite or very large."""
    assert measured(positive(as_source(Of(function))), tmp_path).batchable


def test_model_that_rejects_other_values_is_batchable(as_source: AsSource, tmp_path: Path) -> None:
    """Negated and rescaled rows are tried, and need not be supported."""

    def checked(x: torch.Tensor) -> torch.Tensor:
        if x.abs().max() > 5:
            raise ValueError("small values, please")
        return x * 2

    assert measured(positive(as_source(Of(checked))), tmp_path).batchable


def test_forward_passes_are_reused(as_source: AsSource, tmp_path: Path) -> None:
    """The measurement adds few passes to those of the parity cases."""
    source = as_source(Of(lambda x: x * 2), batch={"max": 32})
    passes = passes_of(source, tmp_path)
    assert len(passes) <= 70
    assert sum(passes) <= 4 * 300


def test_large_batches_do_not_multiply_the_cost_of_large_inputs(as_source: AsSource, tmp_path: Path) -> None:
    """All passes together compute eight times what the largest batch at the largest size does."""
    side = {"min": 32, "max": 128, "example": 112}
    inputs: dict[str, list[int | str]] = {"image": ["batch", "height", "width"]}
    source = as_source(Image(), inputs, batch={"max": 16}, height=side, width=side)
    assert sum(passes_of(source, tmp_path)) <= 8 * 16 * 128 * 128


def passes_of(source: SourceModel, directory: Path) -> list[int]:
    """Return the number of input values of each pass of the published model."""
    passes = []

    def counted(inputs: Arrays) -> dict[str, Array]:
        passes.append(sum(array.size for array in inputs.values()))
        return source.reference(inputs)

    prove(source, counted, ModelSpec.model_validate({"source": {"factory": "m.py:f"}}), directory / "golden")
    return passes


class Image(nn.Module):
    """Scales images."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return twice the image."""
        return image * 2

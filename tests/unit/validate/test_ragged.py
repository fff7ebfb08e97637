"""Measurement of ragged batches: rows of different lengths, formed as Triton forms them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

from repogen.errors import ConfigError
from repogen.repository.golden import GOLDEN_JSON, GOLDEN_NPZ
from repogen.spec.models import ParitySpec
from repogen.triton_config.sections.model import TritonSpec
from repogen.validate.compare import Comparison
from repogen.validate.golden import GoldenRecorder
from repogen.validate.ragged import ROW, check_ragged, row_dims
from repogen.validate.tolerance import limits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from repogen.artifacts.source import SourceModel

    AsSource = Callable[..., SourceModel]

RAGGED: dict[str, Any] = {
    "max_batch_size": 8,
    "input": {"values": {"allow_ragged_batch": True}},
    "batch_output": [{"target_name": ["output"], "source_input": ["values"]}],
}
COUNTS = [{"kind": "BATCH_ELEMENT_COUNT", "target_name": ["counts"], "source_input": ["values"]}]


class Double(nn.Module):
    """Independent elements."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return twice the values."""
        return values * 2


class Centered(nn.Module):
    """Mixes all rows of a batch."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Subtract the mean of the whole batch."""
        return values - values.mean()


class CenteredRows(nn.Module):
    """Mixes the elements of a row, and not the rows of a batch."""

    def forward(self, values: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Subtract the mean of each row."""
        ends = torch.cumsum(counts, 0)
        row = (torch.arange(len(values))[:, None] >= ends).sum(1).clamp(max=len(counts) - 1)
        sums = torch.zeros(len(counts)).index_add(0, row, values)
        return values - (sums / counts)[row]


def measure(source: SourceModel, golden: GoldenRecorder | None = None, **triton: object) -> int:
    """Return the measured max_batch_size."""
    allowed = {output.name: (1e-3, 1e-5) for output in source.signature.outputs}
    section = TritonSpec.model_validate({**RAGGED, **triton})
    comparison = Comparison(source, source.reference, limits(source.signature, ParitySpec()))
    return check_ragged(comparison, allowed, section, 0, golden or GoldenRecorder()).max_batch_size


def output_section(source: SourceModel) -> dict[str, Any]:
    """Return the batch_output of a source's only output."""
    return {"batch_output": [{"target_name": [source.signature.outputs[0].name], "source_input": ["values"]}]}


def test_independent_rows_of_different_lengths_are_batched(as_source: AsSource, tmp_path: Path) -> None:
    """The golden cases are rows of different lengths, each a request of its own."""
    source, golden = as_source(Double(), {"values": ["n"]}, n={"max": 64}), GoldenRecorder()
    assert measure(source, golden, **output_section(source)) == 8
    golden.write(tmp_path, ROW, {source.signature.outputs[0].name: (0.0, 0.0)})
    cases = json.loads((tmp_path / GOLDEN_JSON).read_text(encoding="utf-8"))["cases"]
    arrays = np.load(tmp_path / GOLDEN_NPZ)
    assert {case["batch"] for case in cases} == {1}
    assert len({arrays[case["inputs"][0]["key"]].shape for case in cases}) > 1


def test_model_that_mixes_within_a_row_is_batched(as_source: AsSource) -> None:
    """batch_input gives it the lengths of the rows."""
    source = as_source(CenteredRows(), {"values": ["n"], "counts": ["r"]}, n={"max": 64}, r={"max": 16})
    assert measure(source, batch_input=COUNTS, **output_section(source)) == 8


def test_dims_of_rows_and_elements(as_source: AsSource) -> None:
    """Those of a batch_input and its source."""
    source = as_source(CenteredRows(), {"values": ["n"], "counts": ["r"]}, n={"max": 64}, r={"max": 16})
    section = TritonSpec.model_validate({**RAGGED, "batch_input": COUNTS})
    assert row_dims(source.signature, section) == {"r": "n"}


def test_rows_that_affect_each_other_are_detected(as_source: AsSource) -> None:
    """The mean of the batch changes with the other rows."""
    source = as_source(Centered(), {"values": ["n"]}, n={"max": 64})
    with pytest.raises(ConfigError, match="row 0 has a different output alone than in a batch of 8 rows"):
        measure(source, **output_section(source))


def test_output_without_batch_output_needs_a_row_for_each_request(as_source: AsSource) -> None:
    """Triton would return the first elements only."""
    source = as_source(Double(), {"values": ["n"]}, n={"max": 64})
    with pytest.raises(ConfigError, match=r"has shape \[3\] for 1 rows: name a batch_output"):
        measure(source, batch_output=[])


@pytest.mark.parametrize(
    ("shape", "dims", "message"),
    [
        (["n", 4], {"n": {"max": 64}}, r"has shape \['n', 4\], and must have one dynamic dim"),
        (["n"], {"n": {"max": 3}}, r"two rows of different lengths need 4 elements, and dims.n.max is 3"),
    ],
)
def test_dims_that_do_not_allow_a_ragged_batch_are_reported(
    as_source: AsSource, shape: list[int | str], dims: dict[str, dict[str, int]], message: str
) -> None:
    """The message says which dim."""
    source = as_source(Double(), {"values": shape}, **dims)
    with pytest.raises(ConfigError, match=message):
        measure(source, **output_section(source))


def test_values_per_request_are_limited_by_their_dim(as_source: AsSource) -> None:
    """The graph was verified for up to 4 requests."""
    source = as_source(CenteredRows(), {"values": ["n"], "counts": ["r"]}, n={"max": 64}, r={"max": 4})
    with pytest.raises(ConfigError, match=r"'counts' has 8 values, but dims.r.max is 4"):
        measure(source, batch_input=COUNTS, **output_section(source))

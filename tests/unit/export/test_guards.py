"""An export freezes branches on sizes; exporters report sizes that take another branch."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from repogen.export.fallback_chain import export_with, fallback_chain
from repogen.onnx_graph.normalize import NormalizeOptions
from repogen.spec.models import ExportSpec
from repogen.targets import targets

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from repogen.artifacts.source import SourceModel


class Branching(nn.Module):
    """Adds one where a condition on the length holds."""

    def __init__(self, condition: Callable[[int], bool]) -> None:
        """Keep the condition."""
        super().__init__()
        self.condition = condition

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Branch."""
        return x + 1 if self.condition(x.shape[1]) else x * 2


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
@pytest.mark.parametrize(
    ("condition", "violations"),
    [
        (lambda n: n == 10, {10}),
        (lambda n: n > 20, {21}),
        (lambda n: n * 2 == 26 and n > 0, {13}),
        (lambda n: n % 4 != 0, {5}),
    ],
)
def test_sizes_that_take_the_other_branch_are_reported(
    as_source: Callable[..., SourceModel],
    tmp_path: Path,
    exporter: str,
    condition: Callable[[int], bool],
    violations: set[int],
) -> None:
    """All conditions are false at 16; tracing reports sizes next to the numbers of the condition."""
    source = as_source(Branching(condition), {"x": ["batch", "time"]}, time={"min": 4, "max": 32})
    assert source.dims["time"].example == 16
    spec = ExportSpec(exporter=exporter)
    options = NormalizeOptions(source.signature, targets()["24.10"], external_data=False, exporter=exporter)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations of the exporters, as in the worker
        artifact = export_with(fallback_chain(source.origin, spec)[0], source, spec, options, tmp_path)
    sizes = {sizes["time"] for sizes in artifact.guard_violations}
    assert violations <= sizes or (exporter == "torchscript" and violations == {13})
    assert all(set(sizes) == {"batch", "time"} for sizes in artifact.guard_violations)


@pytest.mark.filterwarnings("ignore")
def test_condition_that_divides_by_zero_at_some_sizes(as_source: Callable[..., SourceModel], tmp_path: Path) -> None:
    """Such as that of adaptive pooling; these sizes are measured."""
    source = as_source(Branching(lambda n: n % (n // 8) != 0), {"x": ["batch", "time"]}, time={"min": 4, "max": 32})
    options = NormalizeOptions(source.signature, targets()["24.10"], external_data=False, exporter="dynamo")
    spec = ExportSpec(exporter="dynamo")
    artifact = export_with(fallback_chain(source.origin, spec)[0], source, spec, options, tmp_path)
    assert {"batch": source.dims["batch"].example, "time": 4} in artifact.guard_violations


def test_model_without_branches_has_no_guard_violations(as_source: Callable[..., SourceModel], tmp_path: Path) -> None:
    """No additional sizes are measured."""
    source = as_source(nn.Linear(4, 2))
    options = NormalizeOptions(source.signature, targets()["24.10"], external_data=False, exporter="dynamo")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the same
        artifact = export_with(fallback_chain(source.origin, ExportSpec())[0], source, ExportSpec(), options, tmp_path)
    assert artifact.guard_violations == ()

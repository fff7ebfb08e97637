"""Equal values that a model puts into an order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from repogen.validate.ties import orders_equal_values

if TYPE_CHECKING:
    from repogen.artifacts.tensors import Array, Arrays


def branch(inputs: Arrays) -> dict[str, Array]:
    """Run a model with a branch that torch compiles."""
    x = torch.from_numpy(inputs["x"])
    y: torch.Tensor = torch.cond(x.sum() > 0, torch.clone, torch.neg, (x.sort(dim=0).values,))
    return {"y": y.numpy()}


@pytest.mark.parametrize(("values", "has_ties"), [([1.0, 1.0], True), ([1.0, 2.0], False)])
def test_model_with_a_branch_runs_afterward(values: list[float], *, has_ties: bool) -> None:
    """Torch keeps the compiled branch, which fails without the mode that it was compiled in."""
    inputs = {"x": np.array(values, np.float32)}
    before = branch(inputs)
    assert orders_equal_values(branch, inputs) is has_ties
    np.testing.assert_array_equal(branch(inputs)["y"], before["y"])

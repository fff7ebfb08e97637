"""Golden requests of one sequence: each has the states that the one before returned."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

from repogen.repository.golden import GOLDEN_JSON, GOLDEN_NPZ, SEQUENCE_ID, SEQUENCE_REQUEST
from repogen.triton_config.sections.model import TritonSpec
from repogen.validate.golden import GoldenRecorder
from repogen.validate.transitions import record_transitions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from repogen.artifacts.source import SourceModel

    AsSource = Callable[..., SourceModel]


class Running(nn.Module):
    """Adds up its inputs over a sequence."""

    def forward(self, x: torch.Tensor, start: torch.Tensor, number: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """Return the new total."""
        return before + x + 100 * start + 0 * number


INPUTS = {"x": ["batch", 4], "start": ["batch", 1], "number": ["batch", 1], "before": ["batch", 4]}


def recorded(source: SourceModel, directory: Path, **state: object) -> list[dict[str, Any]]:
    """Return the arrays of each recorded request: inputs by name, and the output."""
    name = source.signature.outputs[0].name
    sequence = {
        "control_input": [
            {"name": "start", "control": [{"kind": "CONTROL_SEQUENCE_START", "fp32_false_true": [2.0, 1.0]}]},
            {"name": "number", "control": [{"kind": "CONTROL_SEQUENCE_CORRID"}]},
        ],
        "state": [{"input_name": "before", "output_name": name, **state}],
    }
    golden = GoldenRecorder()
    record_transitions(source, TritonSpec.model_validate({"sequence_batching": sequence}), 0, golden)
    golden.write(directory, "batch", {name: (0.0, 0.0)})
    arrays = np.load(directory / GOLDEN_NPZ)
    document = json.loads((directory / GOLDEN_JSON).read_text(encoding="utf-8"))
    assert all(case["name"].startswith(SEQUENCE_REQUEST) and case["batch"] == 1 for case in document["cases"])
    return [
        {tensor["name"]: arrays[tensor["key"]] for tensor in (*case["inputs"], *case["outputs"])}
        for case in document["cases"]
    ]


def test_states_are_those_of_the_request_before(as_source: AsSource, tmp_path: Path) -> None:
    """The first starts with zeros; the controls are what Triton feeds."""
    source = as_source(Running(), INPUTS)
    output = source.signature.outputs[0].name
    requests = recorded(source, tmp_path)
    assert [request["start"].item() for request in requests] == [1.0, 2.0, 2.0]
    assert {request["number"].item() for request in requests} == {float(SEQUENCE_ID)}
    assert not requests[0]["before"].any()
    for earlier, later in pairwise(requests):
        np.testing.assert_array_equal(later["before"], earlier[output])
    assert not np.array_equal(requests[0]["x"], requests[1]["x"])


@pytest.mark.parametrize("state", [{"initial_state": [{"data_file": "first.bin"}]}, {"dims": [-1]}])
def test_unknown_first_state_is_not_recorded(as_source: AsSource, tmp_path: Path, state: dict[str, object]) -> None:
    """The smoke test then reports that transitions were not compared."""
    assert recorded(as_source(Running(), INPUTS), tmp_path, **state) == []

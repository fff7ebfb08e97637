"""A model with states, built from a spec: the smoke test compares the transitions of a sequence with PyTorch's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import repogen
from repogen.artifacts.report import Status

if TYPE_CHECKING:
    from pathlib import Path

MODELS = '''\
import torch


class Total(torch.nn.Module):
    """Adds up the inputs of a sequence, twice those of its first request."""

    def forward(self, x, start, before):
        after = before + x + x * start
        return after.tanh(), after
'''
SPEC = """\
models:
  total:
    source: {factory: "models.py:Total"}
    inputs:
      x: {dtype: float32, shape: [batch, 4]}
      start: {dtype: float32, shape: [batch, 1], fill: ones}
      before: {dtype: float32, shape: [batch, 4], fill: zeros}
    outputs: [y, after]
    dims: {batch: {max: 8}}
    export: {exporter: torchscript}
    triton:
      sequence_batching:
        oldest: {max_candidate_sequences: 8}
        control_input: [{name: start, control: [{kind: CONTROL_SEQUENCE_START}]}]
        state: [{input_name: before, output_name: after}]
"""


@pytest.mark.first
def test_requests_of_a_sequence_are_compared(tmp_path: Path) -> None:
    """Each output depends on the states that Triton kept."""
    (tmp_path / "models.py").write_text(MODELS, encoding="utf-8")
    (tmp_path / "repogen.yaml").write_text(SPEC, encoding="utf-8")
    (model,) = repogen.build(repogen.load_spec(tmp_path / "repogen.yaml")).models
    assert model.status is Status.PUBLISHED, model.error
    checks = {check.name: check for check in model.smoke.checks} if model.smoke is not None else {}
    transitions = checks["sequence of 3 requests"]
    assert transitions.passed
    assert not transitions.warning
    assert transitions.detail.startswith("outputs with the states of the preceding requests: max_abs_diff")

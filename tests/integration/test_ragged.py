"""A ragged model from the spec in docs/reference/config.md: published, tested with rows of several lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import repogen
from repogen.artifacts.report import Status

if TYPE_CHECKING:
    from pathlib import Path

MODELS = '''\
import torch


class Softmax(torch.nn.Module):
    """Softmax over the elements of each row, and the number of elements."""

    def forward(self, values, counts):
        ends = torch.cumsum(counts.to(torch.int64), 0)
        row = (torch.arange(values.shape[0])[:, None] >= ends[None, :]).to(torch.int64).sum(1)
        member = (row[:, None] == torch.arange(counts.shape[0])[None, :]).to(values.dtype)
        exponents = values.exp()
        return exponents / (member @ (member * exponents[:, None]).sum(0)), member.sum(0)
'''
SPEC = """\
models:
  ragged:
    source: {factory: "models.py:Softmax"}
    inputs:
      values: {dtype: float32, shape: [elements]}
      counts: {dtype: int32, shape: [requests]}
    outputs: [y, lengths]
    dims: {elements: {max: 256}, requests: {max: 16}}
    triton:
      max_batch_size: 16
      dynamic_batching: {max_queue_delay_microseconds: 20000}
      input: {values: {allow_ragged_batch: true}}
      batch_input: [{kind: BATCH_ELEMENT_COUNT, target_name: [counts], source_input: [values]}]
      batch_output: [{kind: BATCH_SCATTER_WITH_INPUT_SHAPE, target_name: [y], source_input: [values]}]
"""


@pytest.mark.first
def test_ragged_model_is_built_and_served_in_batches_of_different_lengths(tmp_path: Path) -> None:
    """The model mixes the elements of a row; each row's response equals PyTorch's for this row alone."""
    (tmp_path / "models.py").write_text(MODELS, encoding="utf-8")
    (tmp_path / "repogen.yaml").write_text(SPEC, encoding="utf-8")
    report = repogen.build(repogen.load_spec(tmp_path / "repogen.yaml"))
    (model,) = report.models
    assert model.status is Status.PUBLISHED, model.error
    checks = {check.name: check for check in model.smoke.checks} if model.smoke is not None else {}
    assert checks["dynamic batching"].passed
    assert not checks["dynamic batching"].warning
    assert checks["batches"].warning  # batch_input has one value for each request, so a request has one row
    config = (tmp_path / "model_repository" / "ragged" / "config.pbtxt").read_text(encoding="utf-8")
    assert config.count("dims: [ -1 ]") == 2
    assert len([name for name in checks if name.startswith("golden row=1,elements=")]) > 1


def test_counts_that_the_graph_does_not_read(tmp_path: Path) -> None:
    """Triton fills them in, so no note says that clients must send them."""
    code = f"{MODELS[: MODELS.index('        ends')]}        return 2 * values, values.mean()[None]\n"
    (tmp_path / "models.py").write_text(code, encoding="utf-8")
    spec = SPEC.replace("max_batch_size: 16", "max_batch_size: 0").replace("      dynamic_batching:", "      #")
    (tmp_path / "repogen.yaml").write_text(spec, encoding="utf-8")
    (model,) = repogen.build(repogen.load_spec(tmp_path / "repogen.yaml"), server=None).models
    assert model.status is Status.PUBLISHED, model.error
    assert not [note for note in model.notes if "clients must" in note]

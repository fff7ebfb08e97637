"""Reads of tensors into Python: those that depend on values are errors, those that depend on shapes are not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from repogen.errors import ExportError
from repogen.export.interface import ExportRequest
from repogen.export.torchscript import export_traced
from repogen.export.trace_guards import record_reads
from repogen.plugins import NoOptions
from repogen.spec.models import ExportSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from repogen.artifacts.source import SourceModel


class Reading(nn.Module):
    """Branches on what a function reads from the input or the weights."""

    def __init__(self, read: Callable[[torch.Tensor, torch.Tensor], object]) -> None:
        """Keep the function."""
        super().__init__()
        self.read = read
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Branch on the value read."""
        return x + self.weight if self.read(x, self.weight) else x - self.weight


def export(source: SourceModel, directory: Path, *allowed: str) -> Any:
    """Trace ``source``."""
    args = tuple(torch.from_numpy(array) for array in source.examples(source.example_sizes, 0).values())
    spec = ExportSpec(allow_tracer_warnings=allowed)
    return export_traced(ExportRequest(source, args, 17, directory, spec, NoOptions())).model


@pytest.mark.parametrize(
    "read",
    [
        lambda x, _: bool(x.sum() > 0),
        lambda x, _: bool(x[0, 0].item() > 0),
        lambda x, _: bool(int(x[0, 0])),
        lambda x, _: bool(float(x.max()) > 0),
        lambda x, _: bool((x * x.shape[0]).sum() + 1 > 2),
        lambda x, _: bool(x.detach().numpy()[0, 0] > 0),
        lambda x, _: bool(x.tolist()[0][0] > 0),
        lambda x, _: bool([1, 2, 3][(x[0, 0] > 0).long()]),
        lambda x, w: bool((x @ w).sum() > 0),
        lambda x, _: bool(0.5 in x),
        lambda x, _: bool((torch.ones_like(x) * x).sum() > 0),
        lambda x, _: bool(json.dumps(x.flatten().tolist())),
        lambda x, _: torch.equal(x, x * 2),
        lambda x, w: torch.allclose(w, x[0]),
        lambda x, _: x.sum().is_nonzero(),
        lambda x, _: bool((x.data if x.dim() else x).sum() > 0),
        # the number of elements depends on the values
        lambda x, _: bool(x[x > 3].shape[0] > 0),
        lambda x, _: len(x[x > 3]) > 0,
        lambda x, _: bool(list(x[x[:, 0] > 0])),
        lambda x, _: bool((x > 3).nonzero().numel() > 0),
        lambda x, _: bool(torch.where(x > 3)[0].size(0)),
        lambda x, _: bool(torch.masked_select(x, x > 3).shape[0] > 1),
        lambda x, _: bool(torch.unique(x).shape[0] > 2),
        lambda x, w: bool(w[x[0] > 0].shape[0] > 1),
        lambda x, _: bool(torch.zeros(int(x.max())).shape[0] > 1),
        lambda x, _: bool((x[x > 3] * 2).reshape(-1, 1).relu().shape[0] > 0),
        lambda x, w: bool(torch.cat([w, x[x > 3]]).shape[0] > 4),
    ],
)
def test_reads_of_values_are_rejected_with_their_line(
    as_source: Callable[..., SourceModel], tmp_path: Path, read: Callable[..., object]
) -> None:
    """Through arithmetic, mixed with shapes, and through every method that returns Python values."""
    with pytest.raises(ExportError) as caught:
        export(as_source(Reading(read)), tmp_path)
    line = read.__code__.co_firstlineno
    assert caught.value.code == "export.data-dependent"
    assert f"test_trace_guards.py:{line}" in caught.value.message
    assert caught.value.where == f"{__file__}:{line}"
    assert "torch.where" in caught.value.hint
    assert str(tmp_path) not in caught.value.message


@pytest.mark.parametrize(
    "read",
    [
        lambda x, _: bool(x.shape[0] > 1),
        lambda x, _: bool(x.size(0) * 2 + 1 > 3),
        lambda x, _: bool(int(torch.tensor(x.shape).prod()) > 4),
        lambda x, _: bool(len(x) > 1),
        lambda x, _: bool(x.dim() == 2),
        lambda x, _: bool(x.dtype == torch.float32),
        lambda _, w: bool(w.sum() > 0),
        lambda *_: bool(torch.arange(4).sum() > 3),
        lambda x, _: bool(torch.ones_like(x).sum() > 0),
        lambda x, _: bool(x.new_zeros(2).any()),
        lambda _, w: torch.equal(w, w * 2),
        lambda x, _: bool(list(x)),
        lambda _, w: bool(w[w > 3].shape[0] > 0),
        lambda x, _: bool(x[torch.tensor([0, 0])].shape[0] > 1),
        lambda x, _: bool((x * x.sum()).reshape(x.shape[0], -1).shape[0] > 1),
        lambda x, _: bool(x[(x.argmax(0) > 0).long()].shape[0] > 1),
        lambda x, w: bool(torch.cat([w, x[0]]).shape[0] > 4),
        lambda x, _: bool(torch.zeros(x.shape[0], 2).nonzero().shape[0]),
    ],
)
def test_reads_of_shapes_and_weights_are_accepted(
    as_source: Callable[..., SourceModel], tmp_path: Path, read: Callable[..., object]
) -> None:
    """Sizes, arithmetic on sizes, dtypes, constants and parameters."""
    graph = export(as_source(Reading(read)), tmp_path)
    assert len(graph.graph.inputs) == 1


def library_read(tensor: torch.Tensor) -> bool:
    """Read a tensor as a library function."""
    return bool(torch.Tensor.__bool__(tensor.sum() > 0))


def test_read_in_a_library_has_the_librarys_location(as_source: Callable[..., SourceModel], tmp_path: Path) -> None:
    """The location is the innermost frame outside of torch, not the model that calls it."""
    with pytest.raises(ExportError) as caught:
        export(as_source(Reading(lambda x, _: library_read(x))), tmp_path)
    assert caught.value.where == f"{__file__}:{library_read.__code__.co_firstlineno + 2}"


class Packed(nn.Module):
    """Unpacks the outputs of a recurrent layer; PyTorch compares the lengths of the rows in Python."""

    def __init__(self) -> None:
        """Create the layer."""
        super().__init__()
        self.gru = nn.GRU(4, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs; the length of a row depends on its values."""
        lengths = (x.abs().sum(2) > 0).sum(1)
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        outputs: torch.Tensor = pad_packed_sequence(self.gru(packed)[0], batch_first=True)[0]
        return outputs


@pytest.mark.filterwarnings("ignore")
def test_reads_of_packed_lengths_are_accepted(as_source: Callable[..., SourceModel], tmp_path: Path) -> None:
    """The exporter translates the packing as a whole, so nothing is frozen."""
    graph = export(as_source(Packed(), {"x": ["batch", 3, 4]}), tmp_path)
    assert "GRU" in {node.op_type for node in graph.graph}


def test_allowed_locations_are_matched_by_file_and_line(as_source: Callable[..., SourceModel], tmp_path: Path) -> None:
    """By the file name, or more of the path, and the exact line."""

    def read(x: torch.Tensor, _: object) -> object:
        return bool(x.sum() > 0)

    source, line = as_source(Reading(read)), read.__code__.co_firstlineno + 1
    for location in (f"test_trace_guards.py:{line}", f"export/test_trace_guards.py:{line}"):
        assert export(source, tmp_path, "other.py:1", location).graph.inputs[0].name == "x"
    for location in (
        f"test_trace_guards.py:{line + 1}",
        f"other.py:{line}",
        f"source/test_trace_guards.py:{line}",
    ):
        with pytest.raises(ExportError, match="tracing would freeze a branch"):
            export(source, tmp_path, location)


def test_recording_ends_with_the_block() -> None:
    """The tensor methods are restored, and reads outside of a trace are not recorded."""
    before = torch.Tensor.item
    with record_reads(1) as reads:
        during = torch.Tensor.item
        assert torch.ones(1).item() == 1.0
    assert during is not before
    assert torch.Tensor.item is before
    assert reads.values == []

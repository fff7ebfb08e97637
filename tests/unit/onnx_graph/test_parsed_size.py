"""The bound for the memory of a parsed file: hostile files are above it, real models are not."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING
from unittest.mock import Mock

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from repogen.check.checker import check
from repogen.files.content import ContentError
from repogen.onnx_graph import facts, parsed_size
from repogen.onnx_graph.facts import parse_model, read_graph
from repogen.onnx_graph.parsed_size import needs_more_memory
from tests.support.graphs import matmul

if TYPE_CHECKING:
    from pathlib import Path

    from google.protobuf.message import Message

OUTPUT = b"\x62\x03\x0a\x01y"
# Two bytes each: an empty message in a field of the message around them.
NESTED = {
    "nodes": (b"\x0a\x00", [0x3A]),
    "initializers": (b"\x2a\x00", [0x3A]),
    "sparse initializers": (b"\x7a\x00", [0x3A]),
    "values": (b"\x6a\x00", [0x3A]),
    "operator sets": (b"\x42\x00", []),
    "attributes": (b"\x2a\x00", [0x3A, 0x0A]),
    "graphs": (b"\x5a\x00", [0x3A, 0x0A, 0x2A]),
    "tensors": (b"\x52\x00", [0x3A, 0x0A, 0x2A]),
    "types": (b"\x7a\x00", [0x3A, 0x0A, 0x2A]),
    "external data": (b"\x6a\x00", [0x3A, 0x2A]),
    "dims of a value": (b"\x0a\x00", [0x3A, 0x6A, 0x12, 0x0A, 0x12]),
}
TEXTS = {
    "names of inputs of a node": (b"\x0a\x00", [0x3A, 0x0A]),
    "strings of a tensor": (b"\x32\x00", [0x3A, 0x2A]),
    "strings of an attribute": (b"\x4a\x00", [0x3A, 0x0A, 0x2A]),
}


def delimited(key: int, content: bytes) -> bytes:
    """Return a field with a length."""
    size, encoded = len(content), bytearray([key])
    while size > 127:
        encoded.append(size & 127 | 128)
        size >>= 7
    return bytes([*encoded, size]) + content


def hostile(kind: str, size: int) -> bytes:
    """Return a file of many empty values, about ``size`` bytes."""
    unit, keys = (NESTED | TEXTS)[kind]
    content = unit * (size // len(unit))
    for key in reversed(keys[1:]):
        content = delimited(key, content)
    graph = delimited(0x3A, (content if keys else b"") + OUTPUT)
    return b"\x08\x09" + (b"" if keys else content) + graph


def bound(content: bytes) -> int:
    """Return the upper bound, for which every message is read."""
    return sum(parsed_size._parsed_bytes(content, 2**62, 0))  # noqa: SLF001 - the exact number


def counted(message: Message) -> int:
    """Return the bound of a message that was parsed."""
    total = 208
    for field, value in message.ListFields():
        items = list(value) if field.is_repeated else [value]
        if field.message_type is not None:
            total += sum(map(counted, items))
        elif field.type in {field.TYPE_STRING, field.TYPE_BYTES}:
            total += sum(40 + len(item.encode() if isinstance(item, str) else item) for item in items)
        elif field.GetOptions().packed:
            total += 40 + len(items) * (20 if field.cpp_type == field.CPPTYPE_INT64 else 4)
        else:
            total += 20 * len(items)
    return total


@pytest.mark.parametrize("kind", [*NESTED, *TEXTS])
def test_many_small_parts_are_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A file of 32 MB needed 3 GB; here, 200 kB and a limit of 1 MB."""
    monkeypatch.setattr(facts, "_MAX_EXPANDED_BYTES", 2**20)
    (tmp_path / "model.onnx").write_bytes(hostile(kind, 200_000))
    with pytest.raises(ContentError, match="has so many nodes, names and numbers that they need more than 1 GiB"):
        parse_model(tmp_path / "model.onnx")


def test_check_reports_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As RG210, with what to do about a model that is stored that way."""
    monkeypatch.setattr(facts, "_MAX_EXPANDED_BYTES", 2**20)
    version = tmp_path / "m" / "1"
    version.mkdir(parents=True)
    (version / "model.onnx").write_bytes(hostile("nodes", 200_000))
    (tmp_path / "m" / "config.pbtxt").write_text('name: "m"\nbackend: "onnxruntime"\n')
    (finding,) = [finding for finding in check(tmp_path).findings if finding.code == "RG210"]
    assert finding.hint.startswith("store the weights as raw data")


def test_one_message_in_many_messages_is_bounded() -> None:
    """Types that contain types: the parser rejects more than 100, and the scan does not go deeper."""
    content = b""
    for _ in range(2000):
        content = delimited(0x0A, delimited(0x22, content))
    assert needs_more_memory(delimited(0x3A, delimited(0x6A, delimited(0x12, content))), 10)


@pytest.mark.parametrize(
    "content", [b"\x3a", b"\x3a\x05\x0a", b"\x3a" + b"\xff" * 12, b"\x0b\x0c" * 9, b"\x07" * 9, b""]
)
def test_malformed_files_end_the_scan(content: bytes) -> None:
    """The parser has the error."""
    assert needs_more_memory(content, 10**6) is False
    assert bound(content) < 1000


def test_large_weights_and_graphs_are_below_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file with large weights, the nodes are not read; in a large graph, only as many as necessary."""
    fields = Mock(wraps=parsed_size._fields)
    monkeypatch.setattr(parsed_size, "_fields", fields)
    nodes = [helper.make_node("Relu", [f"v{n}"], [f"v{n + 1}"], name=f"node{n}", alpha=0.5) for n in range(2000)]
    proto = matmul(w=np.zeros((4, 3), np.float32))
    proto.graph.node.extend(nodes)
    for index in range(5):
        tensor = TensorProto(name=f"w{index}", data_type=TensorProto.FLOAT, dims=[2**18], raw_data=bytes(2**20))
        proto.graph.initializer.append(tensor)
    content = proto.SerializeToString()
    assert not needs_more_memory(content, 16 * 2**20 + 4 * len(content))
    assert fields.call_count < 10
    assert not needs_more_memory(content, 2 * 2**20 + len(content))
    assert fields.call_count > 2000


@pytest.mark.parametrize("values", [[0, 1, 127, 128, 2**40, -1] * 300, [1] * 100_000, [300] * 70_000, [-1] * 20_000])
def test_runs_of_integers_are_counted_exactly(values: list[int]) -> None:
    """In blocks, across their ends, and with other fields between them."""
    attributes = [
        onnx.AttributeProto(name="a", ints=values, floats=[float(n % 7) for n in range(100 + len(values))]),
        onnx.AttributeProto(name="b", strings=[b"LEAF", b"BRANCH_LEQ"] * 100, ints=[1]),
    ]
    tensor = TensorProto(name="t", dims=[len(values)], int64_data=values, string_data=[b""] * 10, float_data=[1.5] * 9)
    node = onnx.NodeProto(op_type="TreeEnsembleClassifier", attribute=attributes)
    graph = onnx.GraphProto(node=[node], initializer=[tensor], name="g")
    proto = onnx.ModelProto(ir_version=8, graph=graph)
    assert bound(proto.SerializeToString()) == counted(proto)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=300), st.lists(st.floats(width=32), max_size=300))
def test_numbers_are_counted_exactly(integers: list[int], floats: list[float]) -> None:
    """Whatever they are."""
    attribute = onnx.AttributeProto(name="a", ints=integers, floats=floats, i=1)
    proto = onnx.ModelProto(graph=onnx.GraphProto(node=[onnx.NodeProto(attribute=[attribute])]))
    assert bound(proto.SerializeToString()) == counted(proto)


@given(st.binary(max_size=300))
def test_any_bytes_end_the_scan(content: bytes) -> None:
    """No error other than that of the parser."""
    assert bound(content) >= 208


def test_a_real_graph_is_read(tmp_path: Path) -> None:
    """The limit is far above it."""
    onnx.save_model(matmul(), tmp_path / "model.onnx")
    graph, findings = read_graph(tmp_path / "model.onnx")
    assert graph is not None
    assert findings == []


_MEASURE = """
import resource, sys
from pathlib import Path
import onnx
content = sys.stdin.buffer.read()
def resident(): return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
before = resident()
model = onnx.ModelProto()
model.ParseFromString(content)
print(resident() - before)
"""


@pytest.mark.full
@pytest.mark.parametrize("kind", [*NESTED, *TEXTS])
def test_the_bound_holds(kind: str) -> None:
    """Memory that a parsed file really needs, at most 16 MiB more than the bound, which is for large files."""
    content = hostile(kind, 2**21)
    output = subprocess.run([sys.executable, "-c", _MEASURE], input=content, capture_output=True, check=True).stdout
    assert int(output) <= bound(content) + 2**24

"""Repositories that Triton loads: small graphs of Identity nodes, with a config for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from agreement.values import Base, Model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnx import ModelProto, ValueInfoProto

Port: TypeAlias = "tuple[str, int, Sequence[int | str]]"
"""Name, element type and shape of a graph's input; its output has the same type and shape."""

FP32, FP16, FP64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE
INT64, INT32, INT8, UINT8 = TensorProto.INT64, TensorProto.INT32, TensorProto.INT8, TensorProto.UINT8
BOOL, STRING = TensorProto.BOOL, TensorProto.STRING


def _value(port: Port) -> ValueInfoProto:
    return helper.make_tensor_value_info(*port)


def model_proto(ports: Sequence[tuple[Port, str]], unused: Sequence[Port] = ()) -> ModelProto:
    """Return a graph that copies each input to the output named next to it; no node reads the ``unused`` inputs."""
    nodes = [helper.make_node("Identity", [port[0]], [output]) for port, output in ports]
    inputs = [_value(port) for port in (*(port for port, _ in ports), *unused)]
    outputs = [_value((output, port[1], port[2])) for port, output in ports]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def identity(*ports: tuple[Port, str], unused: Sequence[Port] = ()) -> bytes:
    """Return ``model_proto`` as the content of a file."""
    content: bytes = model_proto(ports, unused).SerializeToString()
    return content


def _added(*, external: bool) -> bytes:
    """Return ``y = x + w``, where ``w`` is stored in ``weights.bin``, or is an input with a default."""
    proto = model_proto([(("x", FP32, ("N", 4)), "y")])
    weight = numpy_helper.from_array(np.ones(4, np.float32), "w")
    if external:
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        entry = weight.external_data.add()
        entry.key, entry.value = "location", "weights.bin"
    else:
        proto.graph.input.append(_value(("w", FP32, (4,))))
    proto.graph.initializer.append(weight)
    proto.graph.node[0].CopyFrom(helper.make_node("Add", ["x", "w"], ["y"]))
    content: bytes = proto.SerializeToString()
    return content


def tensor(kind: str, name: str, data_type: str, dims: str, more: str = "") -> str:
    """Return one ``input`` or ``output`` of a config."""
    return f'{kind} {{\n  name: "{name}"\n  data_type: TYPE_{data_type}\n  dims: [ {dims} ]\n{more}}}\n'


HEAD = 'backend: "onnxruntime"\n'
XY4 = tensor("input", "x", "FP32", "4") + tensor("output", "y", "FP32", "4")
BATCH = HEAD + "max_batch_size: 8\n" + XY4
ROWS = identity((("x", FP32, ("N", 4)), "y"))
PLAIN = HEAD + tensor("input", "x", "FP32", "-1, 4") + tensor("output", "y", "FP32", "-1, 4")
DYNAMIC = """\
dynamic_batching {
  preferred_batch_size: [ 2, 4 ]
  max_queue_delay_microseconds: 100
  preserve_ordering: true
  default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 1000 max_queue_size: 16 }
}
"""
PRIORITY = """\
dynamic_batching {
  priority_levels: 3
  default_priority_level: 2
  default_queue_policy { timeout_action: DELAY allow_timeout_override: true }
  priority_queue_policy { key: 1 value { timeout_action: REJECT max_queue_size: 4 } }
}
"""
CONTROLS = """\
  control_input {
    name: "start"
    control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] }
  }
  control_input {
    name: "ready"
    control { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] }
  }
  control_input {
    name: "end"
    control { kind: CONTROL_SEQUENCE_END bool_false_true: [ false, true ] }
  }
  control_input {
    name: "corrid"
    control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 }
  }
"""
DIRECT = (
    "sequence_batching {\n"
    "  max_sequence_idle_microseconds: 5000000\n"
    "  direct { max_queue_delay_microseconds: 10 minimum_slot_utilization: 0.5 }\n" + CONTROLS + "}\n"
)
OLDEST = """\
sequence_batching {
  oldest {
    max_candidate_sequences: 4
    preferred_batch_size: [ 2, 4 ]
    max_queue_delay_microseconds: 100
  }
  control_input {
    name: "start"
    control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }
  }
}
"""
STATE = """\
sequence_batching {
  direct { }
  state {
    input_name: "before"
    output_name: "after"
    data_type: TYPE_FP32
    dims: [ 4 ]
    initial_state { name: "zero" data_type: TYPE_FP32 dims: [ 4 ] zero_data: true }
  }
}
"""
BUFFER = "use_same_buffer_for_input_output: true use_growable_memory: true"
STATE_FILE = STATE.replace("zero_data: true", 'data_file: "first"')
CONTROL_PORTS: tuple[Port, ...] = (
    ("start", FP32, ("N", 1)),
    ("ready", INT32, ("N", 1)),
    ("end", BOOL, ("N", 1)),
    ("corrid", TensorProto.UINT64, ("N", 1)),
)
STATEFUL = identity((("x", FP32, ("N", 4)), "y"), (("before", FP32, ("N", 4)), "after"))
WARMUP = """\
model_warmup {
  name: "first"
  batch_size: 2
  count: 1
  inputs { key: "x" value { data_type: TYPE_FP32 dims: [ 4 ] random_data: true } }
}
"""
INSTANCES = """\
instance_group {
  name: "workers"
  count: 1
  kind: KIND_CPU
  rate_limiter { resources { name: "r" global: true count: 2 } priority: 1 }
}
"""
OPTIMIZATION = """\
optimization {
  graph { level: 1 }
  priority: PRIORITY_DEFAULT
  input_pinned_memory { enable: true }
  output_pinned_memory { enable: false }
  gather_kernel_buffer_threshold: 0
  eager_batching: false
}
"""
PARAMETERS = """\
parameters { key: "intra_op_thread_count" value { string_value: "1" } }
metric_tags { key: "team" value: "vision" }
response_cache { enable: false }
model_transaction_policy { decoupled: false }
version_policy { latest { num_versions: 1 } }
"""
DTYPES = (("FP16", FP16), ("FP64", FP64), ("INT32", INT32), ("INT8", INT8), ("UINT8", UINT8), ("BOOL", BOOL))
RAGGED = """\
batch_input {
  kind: BATCH_ACCUMULATED_ELEMENT_COUNT
  target_name: "index"
  data_type: TYPE_FP32
  source_input: "x"
}
"""
ENSEMBLE = """\
platform: "ensemble"
max_batch_size: 8
input { name: "in" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "out" data_type: TYPE_FP32 dims: [ 4 ] }
ensemble_scheduling {
  step {
    model_name: "first"
    model_version: -1
    input_map { key: "x" value: "in" }
    output_map { key: "y" value: "middle" }
  }
  step {
    model_name: "second"
    model_version: 1
    input_map { key: "x" value: "middle" }
    output_map { key: "y" value: "out" }
  }
}
"""


def _dtypes() -> Model:
    ports = [((f"x_{name}", dtype, ("N", 2)), f"y_{name}") for name, dtype in DTYPES]
    config = HEAD + "max_batch_size: 4\n"
    for name, _ in DTYPES:
        config += tensor("input", f"x_{name}", name, "2") + tensor("output", f"y_{name}", name, "2")
    return Model("dtypes", config, identity(*ports))


def _rows(name: str, more: str, **options: object) -> Base:
    """Return a base over ``ROWS``, batched."""
    return Base((Model(name, BATCH + more, ROWS, **options),))  # type: ignore[arg-type] # fields of Model


def _one(name: str, config: str, graph: bytes, **options: object) -> Base:
    return Base((Model(name, config, graph, **options),))  # type: ignore[arg-type] # fields of Model


def _pair(data_type: str, dims: str, more: str = "", out: str | None = None) -> str:
    return tensor("input", "x", data_type, dims, more) + tensor("output", "y", data_type, out or dims, more)


RESHAPE = "  reshape { shape: [ ] }\n"
IMAGE = tensor("input", "x", "FP32", "3, -1, -1", "  format: FORMAT_NCHW\n") + tensor(
    "output", "y", "FP32", "3, -1, -1"
)
TWO = (
    tensor("input", "a", "FP64", "-1")
    + tensor("input", "b", "INT64", "-1, 2")
    + tensor("output", "c", "FP64", "-1")
    + tensor("output", "d", "INT64", "-1, 2")
)
SCATTERED = (
    "max_batch_size: 8\n"
    + tensor("input", "x", "FP32", "-1", "  allow_ragged_batch: true\n")
    + tensor("output", "y", "FP32", "-1")
    + 'batch_output { target_name: "y" source_input: "x" }\n'
)
VALUES = identity((("x", FP32, ("M",)), "y"))
ACCELERATED = """\
instance_group { kind: KIND_GPU }
optimization { execution_accelerators { gpu_execution_accelerator {
  name: "tensorrt"
  parameters { key: "precision_mode" value: "FP16" }
} } }
"""


def _inferred() -> bytes:
    """Return ``y = x @ w``; the file declares the last dim of ``y`` as M, but it is 4."""
    proto = model_proto([(("x", FP32, ("N", 4)), "y")])
    proto.graph.node[0].CopyFrom(helper.make_node("MatMul", ["x", "w"], ["y"]))
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((4, 4), np.float32), "w"))
    proto.graph.output[0].CopyFrom(_value(("y", FP32, ("N", "M"))))
    content: bytes = proto.SerializeToString()
    return content


INFERRED = _inferred()
_ALL = [
    _one("plain", PLAIN, ROWS),
    _rows("batch", ""),
    _one("named", 'name: "named"\n' + BATCH, ROWS),
    _one("platform", BATCH.replace(HEAD, 'platform: "onnxruntime_onnx"\n'), ROWS),
    _one("bare", HEAD, ROWS),
    _rows("dynamic", DYNAMIC),
    _rows("priority", PRIORITY),
    _one("reshape", HEAD + "max_batch_size: 4\n" + _pair("INT64", "1", RESHAPE), identity((("x", INT64, ("N",)), "y"))),
    _one("reshaped", BATCH.replace("dims: [ 4 ]", "dims: [ 2, 2 ] reshape { shape: [ 4 ] }"), ROWS),
    _one("scalar", HEAD + _pair("FP32", "1"), identity((("x", FP32, ()), "y"))),
    _one("fixed", HEAD + _pair("FP32", "2, 4"), identity((("x", FP32, (2, 4)), "y"))),
    _one("vector", HEAD + _pair("INT32", "-1"), identity((("x", INT32, ("N",)), "y"))),
    _one("image", HEAD + "max_batch_size: 2\n" + IMAGE, identity((("x", FP32, ("N", 3, "H", "W")), "y"))),
    _one("two", HEAD + TWO, identity((("a", FP64, ("N",)), "c"), (("b", INT64, ("N", 2)), "d"))),
    Base((_dtypes(),)),
    _one("text", HEAD + "max_batch_size: 4\n" + _pair("STRING", "1"), identity((("x", STRING, ("N", 1)), "y"))),
    _one("direct", BATCH + DIRECT, identity((("x", FP32, ("N", 4)), "y"), unused=CONTROL_PORTS)),
    _one("oldest", BATCH + OLDEST, identity((("x", FP32, ("N", 4)), "y"), unused=[("start", INT32, ("N", 1))])),
    _one("state", BATCH + STATE, STATEFUL),
    _one("statefile", BATCH + STATE_FILE, STATEFUL, extra={"initial_state/first": bytes(16)}),
    _rows("versions", "version_policy { specific { versions: [ 1, 3 ] } }\n", versions=("1", "2", "3")),
    _one(
        "labels",
        BATCH.replace('name: "y"\n', 'name: "y"\n  label_filename: "labels.txt"\n'),
        ROWS,
        extra={"labels.txt": b"a\nb\nc\nd\n"},
    ),
    _rows("warmup", WARMUP),
    _rows(
        "warmupfile",
        WARMUP.replace("random_data: true", 'input_data_file: "sample"'),
        extra={"warmup/sample": bytes(32)},
    ),
    _rows("instances", INSTANCES),
    _rows("optimized", OPTIMIZATION),
    _rows("parameters", PARAMETERS),
    _rows("filename", 'default_model_filename: "net.onnx"\n', file="net.onnx"),
    _one("external", PLAIN, _added(external=True), extra={"1/weights.bin": np.ones(4, np.float32).tobytes()}),
    _one("optional", PLAIN + tensor("input", "w", "FP32", "4", "  optional: true\n"), _added(external=False)),
    _one("unicode", BATCH.replace('"x"', '"größe"'), identity((("größe", FP32, ("N", 4)), "y"))),
    _one(
        "ragged",
        HEAD
        + "max_batch_size: 8\n"
        + tensor("input", "x", "FP32", "-1", "  allow_ragged_batch: true\n")
        + tensor("input", "z", "FP32", "4")
        + tensor("output", "y", "FP32", "4")
        + RAGGED,
        identity((("z", FP32, ("N", 4)), "y"), unused=[("x", FP32, ("M",)), ("index", FP32, ("K",))]),
    ),
    _one("scatter", HEAD + SCATTERED, identity((("x", FP32, ("M",)), "y"))),
    _one("flat", HEAD + _pair("FP32", "-1").replace("dims", "allow_ragged_batch: true\n  dims", 1), VALUES),
    _one("inferred", BATCH, INFERRED),
    _one(
        "growable",
        BATCH
        + STATE.replace("zero_data: true }", "zero_data: true }\n    " + BUFFER)
        + "instance_group { kind: KIND_CPU }\n",
        STATEFUL,
    ),
    _one("accelerated", BATCH + ACCELERATED, ROWS),
    Base((Model("ensemble", ENSEMBLE), Model("first", BATCH, ROWS), Model("second", BATCH, ROWS))),
]
BASES = {base.name: base for base in _ALL}
"""The base repositories by name."""

"""Sections of config.pbtxt that a spec can set, each with a graph; used for golden files and with a real Triton."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper

from repogen.artifacts.built_model import Golden, GoldenCase, GoldenTensor
from repogen.artifacts.tensors import DTYPES, Signature, TensorSpec
from repogen.repository.golden import GOLDEN_JSON, GOLDEN_NPZ, golden_to_json
from tests.support import graphs

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import ModelProto

    from repogen.artifacts.tensors import Arrays

    Shape = tuple[int | str, ...]

FILES = {"classes.txt": b"cat\ndog\n", "ten.bin": np.full(4, 10, np.float32).tobytes()}
"""Files of the spec's directory."""


_ATTRIBUTES: dict[str, dict[str, Any]] = {"Split": {"axis": 1}}
_CONSTANTS: dict[str, Any] = {
    "one": np.int64(1),
    "five": np.int64(5),
    "table": np.ones(1, np.float32),
    "axis": np.array([1], np.int64),
}


@dataclass(frozen=True)
class Case:
    """A model and the ``triton:`` section of its spec.

    Attributes:
        signature: Inputs and outputs of the graph.
        triton: The section.
        largest: The measured batch size; 0 if rows are not independent.
        nodes: Nodes of the graph: operator, inputs, outputs.
    """

    signature: Signature
    triton: dict[str, Any]
    largest: int = 8
    nodes: tuple[tuple[str, list[str], list[str]], ...] = field(default=())

    def graph(self) -> ModelProto:
        """Return the ONNX model."""
        nodes = [
            helper.make_node(operator, inputs, outputs, **_ATTRIBUTES.get(operator, {}))
            for operator, inputs, outputs in self.nodes
        ]
        graph_inputs, graph_outputs = (
            [graphs.value(spec.name, list(spec.shape), DTYPES[spec.dtype].onnx) for spec in specs]
            for specs in (self.signature.inputs, self.signature.outputs)
        )
        return graphs.model(nodes, graph_inputs, graph_outputs, **_CONSTANTS)


def signature(inputs: dict[str, tuple[str, Shape]], outputs: dict[str, Shape]) -> Signature:
    """Return a signature; outputs are float32."""
    return Signature(
        tuple(TensorSpec(name, dtype, shape) for name, (dtype, shape) in inputs.items()),
        tuple(TensorSpec(name, "float32", shape) for name, shape in outputs.items()),
    )


_ROW = ("batch", 4)
_FLAG = ("batch", 1)
COUNTER = signature(
    {
        "x": ("float32", _ROW),
        "start": ("float32", _FLAG),
        "ready": ("int32", _FLAG),
        "end": ("bool", _FLAG),
        "number": ("uint64", _FLAG),
        "before": ("float32", _ROW),
    },
    {"total": _ROW, "after": _ROW},
)
CONTROLS = Signature(COUNTER.inputs[:-1], (TensorSpec("y", "float32", _ROW),))
_COUNTER_NODES = (("Add", ["before", "x"], ["after"]), ("Identity", ["after"], ["total"]))
_PLAIN = signature({"x": ("float32", _ROW)}, {"y": _ROW})
_ECHO = (("Identity", ["x"], ["y"]),)
IMAGES = signature(
    {"image": ("float32", ("batch", 3, 4, 4)), "grid": ("float32", ("batch", 2, 2)), "ids": ("int64", ("batch", "n"))},
    {"same": ("batch", 3, 4, 4), "scores": ("batch", 2), "grid_out": ("batch", 2, 2)},
)
_IMAGE_NODES = (
    ("Identity", ["image"], ["same"]),
    ("Identity", ["grid"], ["grid_out"]),
    ("Split", ["grid"], ["first", "second"]),
    ("Squeeze", ["first", "axis"], ["scores"]),
)
RAGGED = signature({"values": ("float32", ("total",)), "counts": ("float32", ("rows",))}, {"y": ("total",)})

GROWABLE: dict[str, Any] = {
    "sequence_batching": {
        "control_input": [
            {"name": name, "control": [{"kind": f"CONTROL_SEQUENCE_{kind}"}]}
            for name, kind in (("start", "START"), ("ready", "READY"), ("end", "END"), ("number", "CORRID"))
        ],
        "state": [
            {
                "input_name": "before",
                "output_name": "after",
                "use_same_buffer_for_input_output": True,
                "use_growable_memory": True,
            }
        ],
    }
}
"""States in memory that only a GPU has."""

CASES: dict[str, Case] = {
    "sequence_direct": Case(
        COUNTER,
        {
            "sequence_batching": {
                "direct": {"max_queue_delay_microseconds": 100, "minimum_slot_utilization": 0.5},
                "max_sequence_idle_microseconds": 5_000_000,
                "control_input": [
                    {"name": "start", "control": [{"kind": "CONTROL_SEQUENCE_START"}]},
                    {"name": "ready", "control": [{"kind": "CONTROL_SEQUENCE_READY", "int32_false_true": [0, 1]}]},
                    {"name": "end", "control": [{"kind": "CONTROL_SEQUENCE_END"}]},
                    {"name": "number", "control": [{"kind": "CONTROL_SEQUENCE_CORRID"}]},
                ],
                "state": [{"input_name": "before", "output_name": "after"}],
            }
        },
        nodes=_COUNTER_NODES,
    ),
    "sequence_oldest": Case(
        COUNTER,
        {
            "sequence_batching": {
                "oldest": {
                    "max_candidate_sequences": 4,
                    "preferred_batch_size": [2, 4],
                    "max_queue_delay_microseconds": 100,
                    "preserve_ordering": True,
                },
                "control_input": [
                    {"name": "start", "control": [{"kind": "CONTROL_SEQUENCE_START", "fp32_false_true": [-1.0, 1.0]}]},
                    {"name": "ready", "control": [{"kind": "CONTROL_SEQUENCE_READY"}]},
                    {"name": "end", "control": [{"kind": "CONTROL_SEQUENCE_END", "bool_false_true": [True, False]}]},
                    {
                        "name": "number",
                        "control": [{"kind": "CONTROL_SEQUENCE_CORRID", "data_type": "TYPE_UINT64"}],
                    },
                ],
                "state": [
                    {
                        "input_name": "before",
                        "output_name": "after",
                        "data_type": "TYPE_FP32",
                        "dims": [4],
                        "initial_state": [
                            {"name": "ten", "data_type": "TYPE_FP32", "dims": [4], "data_file": "ten.bin"}
                        ],
                    }
                ],
            }
        },
        nodes=_COUNTER_NODES,
    ),
    "sequence_alone": Case(
        signature({"x": ("float32", (4,)), "before": ("float32", (4,))}, {"total": (4,), "after": (4,)}),
        {
            "sequence_batching": {
                "iterative_sequence": True,
                "state": [
                    {"input_name": "before", "output_name": "after", "initial_state": [{"zero_data": True}]},
                ],
            }
        },
        largest=0,
        nodes=_COUNTER_NODES,
    ),
    "sequence_one_buffer": Case(
        COUNTER,
        {
            "sequence_batching": {
                "control_input": [
                    {"name": name, "control": [{"kind": f"CONTROL_SEQUENCE_{kind}"}]}
                    for name, kind in (("start", "START"), ("ready", "READY"), ("end", "END"), ("number", "CORRID"))
                ],
                "state": [
                    {
                        "input_name": "before",
                        "output_name": "after",
                        "use_same_buffer_for_input_output": True,
                    }
                ],
            }
        },
        nodes=_COUNTER_NODES,
    ),
    "tensors": Case(
        IMAGES,
        {
            "input": {
                "image": {"format": "FORMAT_NCHW"},
                "grid": {"dims": [4], "reshape": {"shape": [2, 2]}},
                "ids": {"format": "FORMAT_NONE", "optional": False, "allow_ragged_batch": False},
            },
            "output": {
                "scores": {"label_filename": "classes.txt"},
                "grid_out": {"dims": [1, 4, 1], "reshape": {"shape": [2, 2]}},
            },
            "model_warmup": [{"sizes": {"n": 3}}],
        },
        nodes=_IMAGE_NODES,
    ),
    "ragged": Case(
        RAGGED,
        {
            "max_batch_size": 16,
            "dynamic_batching": {},
            "input": {"values": {"allow_ragged_batch": True}},
            "batch_input": [
                {
                    "kind": "BATCH_ELEMENT_COUNT",
                    "target_name": ["counts"],
                    "source_input": ["values"],
                    "data_type": "TYPE_FP32",
                },
            ],
            "batch_output": [
                {"kind": "BATCH_SCATTER_WITH_INPUT_SHAPE", "target_name": ["y"], "source_input": ["values"]}
            ],
        },
        largest=16,
        nodes=(("Identity", ["values"], ["y"]),),
    ),
    "golden_warmup": Case(
        _PLAIN,
        {
            "model_warmup": [{"name": "golden", "data": "golden", "batch_size": 2}],
            "default_model_filename": "model.onnx",
        },
        nodes=_ECHO,
    ),
    # The table contains ones only, so every row of the warmup's batch must be a golden row.
    "golden_warmup_of_a_batch": Case(
        signature({"ids": ("int64", _FLAG)}, {"y": _FLAG}),
        {"model_warmup": [{"data": "golden", "batch_size": 8}]},
        nodes=(
            ("Sub", ["ids", "one"], ["apart"]),
            ("Mul", ["apart", "five"], ["place"]),
            ("Gather", ["table", "place"], ["y"]),
        ),
    ),
    "golden_warmup_of_sequences": Case(
        CONTROLS,
        {
            "sequence_batching": {
                "control_input": [
                    {"name": name, "control": [{"kind": f"CONTROL_SEQUENCE_{kind}"}]}
                    for name, kind in (("start", "START"), ("ready", "READY"), ("end", "END"), ("number", "CORRID"))
                ],
            },
            "model_warmup": [{"data": "golden"}, {"name": "zeros", "data": "zero"}],
        },
        nodes=_ECHO,
    ),
}


def write_files(directory: Path) -> None:
    """Write the files that the sections name."""
    for name, content in FILES.items():
        (directory / name).write_bytes(content)


def write_golden(directory: Path, signature: Signature, outputs: Arrays | None = None) -> None:
    """Write golden tensors of two rows: ones, for every input."""
    inputs = {
        spec.name: np.ones([2 if isinstance(dim, str) else dim for dim in spec.shape], spec.dtype)
        for spec in signature.inputs
    }
    output_arrays = outputs or {}
    case = GoldenCase(
        "batch=2",
        2,
        tuple(GoldenTensor(name, f"in.{name}") for name in inputs),
        tuple(GoldenTensor(name, f"out.{name}") for name in output_arrays),
    )
    golden = Golden((case,), dict.fromkeys(output_arrays, (1e-5, 1e-6)))
    (directory / GOLDEN_JSON).write_text(golden_to_json(golden), encoding="utf-8")
    arrays: dict[str, Any] = {f"in.{name}": array for name, array in inputs.items()}
    arrays |= {f"out.{name}": array for name, array in output_arrays.items()}
    np.savez(directory / GOLDEN_NPZ, **arrays)

"""Runs an ONNX model in ONNX Runtime."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir
import onnxruntime

from repogen.errors import ParityError, first_line
from repogen.onnx_graph.session import open_session, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from repogen.artifacts.built_model import OnnxArtifact
    from repogen.artifacts.source import Reference
    from repogen.artifacts.tensors import Array, Arrays

OTHER_EXPORTER = "try another exporter: `repogen diagnose` shows the result of each"
"""Hint for a graph that does not match the original."""
_NO_KERNEL = re.compile(r"Could not find an implementation for (\w+)\(\d+\) node with name '([^']*)'")
_OTHER_RESULTS = frozenset(
    {"Shape", "Size", "ArgMax", "ArgMin", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal", "IsNaN"}
)
"""Operators whose results do not have the type of their inputs."""
_UNSAFE_FOR_NAN = frozenset({"Loop", "RoiAlign", "DynamicQuantizeLinear"})
"""Operators that may not end, or may read memory outside of a tensor, for NaN; so may the code that became them.

The scale of dynamic quantization is that of a whole batch: with a NaN in it, all rows are NaN.
"""


class OnnxModel:
    """A session on the CPU execution provider.

    Args:
        artifact: The model.

    Attributes:
        operators: Names of the graph's operators, including those of subgraphs and functions.
        wrong_sizes: Names and axes of outputs whose sizes differ from those that the graph declares.

    Raises:
        ParityError: ONNX Runtime cannot load the model.
    """

    def __init__(self, artifact: OnnxArtifact) -> None:
        """Load the model."""
        self._directory = artifact.path.parent
        options = onnxruntime.SessionOptions()
        # Spinning threads would take the cores from PyTorch, which runs alternately.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        try:
            self._session = open_session(artifact.path, options)
        except Exception as error:
            reason = first_line(error, self._directory)
            raise ParityError(
                f"ONNX Runtime {onnxruntime.__version__} cannot load the model: {reason}",
                load_hint(str(error), artifact),
                code="parity.load",
                details=str(error),
            ) from error
        # The memory of the largest batch would otherwise be kept while PyTorch, which runs alternately, needs as much.
        self._run_options = onnxruntime.RunOptions()
        self._run_options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._outputs = [output.name for output in artifact.signature.outputs]
        self._declared = [output.shape for output in artifact.signature.outputs]
        self.operators = frozenset(artifact.operators)
        self.wrong_sizes: set[tuple[str, int]] = set()

    @property
    def output_shapes(self) -> dict[str, tuple[int | None, ...]]:
        """The shape of each output as ONNX Runtime infers it; None for a dynamic size."""
        return {
            output.name: tuple(size if isinstance(size, int) else None for size in output.shape)
            for output in self._session.get_outputs()
        }

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs by name.

        Raises:
            ParityError: ONNX Runtime failed on these inputs.
        """
        try:
            values = run(self._session, self._outputs, inputs, self._run_options)
        except Exception as error:
            raise ParityError(
                f"ONNX Runtime failed: {first_line(error, self._directory)}", code="parity.runtime", details=str(error)
            ) from error
        self.wrong_sizes.update(
            (name, axis)
            for name, shape, value in zip(self._outputs, self._declared, values, strict=True)
            for axis, (declared, size) in enumerate(zip(shape, value.shape, strict=False))
            if isinstance(declared, int) and declared != size
        )
        return dict(zip(self._outputs, values, strict=True))


def accepts_nan(model: Reference) -> bool:
    """Return whether a test of a model with NaN ends, and shows something: it may raise an error."""
    return not isinstance(model, OnnxModel) or not _UNSAFE_FOR_NAN & model.operators


def load_hint(reason: str, artifact: OnnxArtifact) -> str:
    """Return what to do about a graph that ONNX Runtime cannot load."""
    missing = _NO_KERNEL.search(reason)
    if missing is None:
        return OTHER_EXPORTER
    if origin := _origin_of_float64(ir.load(artifact.path), missing[1], missing[2]):
        again = "; export the model again in float32" if artifact.exporter == "onnx" else origin.fix
        return f"ONNX Runtime does not have {missing[1]} in float64: {origin.what}{again}"
    specs = (*artifact.signature.inputs, *artifact.signature.outputs)
    if any(spec.dtype == "float16" for spec in specs):
        return "ONNX Runtime supports this operator in float32, not in float16: set source: {dtype: float32}"
    return OTHER_EXPORTER


@dataclass(frozen=True)
class _Origin:
    """Where float64 values come from, and what to do."""

    what: str
    fix: str


def _origin_of_float64(model: ir.Model, operator: str, name: str) -> _Origin | None:
    """Return where the float64 values of a node come from; None if it has none."""
    nodes = [node for graph in model.graphs() for node in graph if (node.op_type, node.name or "") == (operator, name)]
    doubles = [value for value in _origins(nodes) if _is_float64(value)]
    inputs = [value.name for value in doubles if value.is_graph_input()]
    weights = [value.name for value in doubles if value.is_initializer() and value.shape and value.shape.rank()]
    if inputs and weights:
        fix = "; declare the input as float32, and set source: {dtype: float32}"
        return _Origin(f"input {inputs[0]!r} and weight {weights[0]!r} are float64", fix)
    if inputs:
        fix = "; declare it as float32 if the model accepts that, or call .float() on it in forward"
        return _Origin(f"input {inputs[0]!r} is float64", fix)
    if weights:
        return _Origin(f"weight {weights[0]!r} is float64", "; set source: {dtype: float32}")
    return _Origin("forward converts a tensor to float64", "; use float32 there") if doubles else None


def _origins(nodes: Sequence[ir.Node]) -> list[ir.Value]:
    """Return the values that nodes depend on, up to those that were converted to another type."""
    pending = [value for node in nodes for value in node.inputs if value is not None]
    values: dict[ir.Value, None] = {}
    while pending:
        value = pending.pop(0)
        node = value.producer()
        if value not in values and not (node is not None and node.op_type in _OTHER_RESULTS):
            values[value] = None
            if node is not None and node.op_type != "Cast":
                pending += [each for each in node.inputs if each is not None]
    return list(values)


def _is_float64(value: ir.Value) -> bool:
    producer = value.producer()
    if producer is not None and producer.op_type == "Cast":
        return producer.attributes["to"].as_int() == ir.DataType.DOUBLE
    dtype = value.dtype if value.const_value is None else value.const_value.dtype
    return dtype == ir.DataType.DOUBLE

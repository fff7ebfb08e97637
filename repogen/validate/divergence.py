"""Finds the first operator whose inputs match the graph but whose output does not.

Values are matched, not names: an exporter fuses, folds and renames operators, but the values that it computes must be
among those of the graph. An operator matches if its output is among them, in any order of elements, or if the output
of an operator that depends on it is. With a tolerance below the rounding of fused operators, no value matches after
them: operators whose values are missing in the graph also at a larger tolerance, at which a value that depends on them
is there, are skipped.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
import torch

from repogen.artifacts.built_model import Divergence
from repogen.onnx_graph.session import open_session, run
from repogen.validate.tolerance import Limit, tolerances_of
from repogen.validate.trace import trace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.artifacts.tensors import Array, Arrays
    from repogen.validate.trace import Operation, Trace

    _Flat = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

_PROBE = "all-values.onnx"
_SIMILAR = 10.0
"""How much larger the difference of an intermediate value may be than that of the outputs."""
_LARGEST_NOISE = 1e-2
"""A larger difference, relative to the magnitude of a value, is not due to rounding."""
_MOVES = frozenset(
    {"aten.t", "aten.transpose", "aten.permute", "aten.view", "aten.reshape", "aten.expand", "aten.unsqueeze"}
)
"""Operators that only move values, so they cannot differ themselves."""


def first_divergence(module: torch.nn.Module, path: Path, inputs: Arrays, limit: Limit) -> Divergence | None:
    """Run the module and the graph, and compare their intermediate values.

    Args:
        module: A module that takes positional tensors, in the order of ``inputs``.
        path: The graph.
        inputs: A case in which the outputs differ.
        limit: How far a value may differ, at its own magnitude.

    Returns:
        The first operator that differs; None if every value of the module is in the graph.
    """
    recorded = trace(module, tuple(torch.from_numpy(np.array(array)) for array in inputs.values()))
    arrays, output_names = _graph_values(path, inputs)
    values = _GraphValues(arrays, limit)
    # An output of the module must equal the graph's output at the same position, not any other value.
    outputs = dict(zip(recorded.outputs, output_names, strict=True))
    output_arrays = {key: arrays[name] for key, name in outputs.items()}
    matches = _matches(recorded, values, output_arrays)
    similar_values = _GraphValues(arrays, _larger_limit(recorded, output_arrays))
    similar = _matches(recorded, similar_values, output_arrays)
    producers = {key: index for index, operation in enumerate(recorded.operations) for key in operation.outputs}
    folded: list[Operation] = []
    for index, operation in enumerate(recorded.operations):
        if matches[index] or not all(matches[producers[key]] for key in operation.inputs if key in producers):
            continue
        # exporters fold them, for example the transpose of a weight into Gemm
        if operation.name in _MOVES and not _is_comparable(operation, recorded, values, outputs):
            folded.append(operation)
            matches[index] = True
            continue
        if similar[index] and not _is_among(operation, recorded, similar_values):
            matches[index] = True  # fused with an operator that depends on it
            continue
        return _divergence(operation, recorded, values, outputs)
    return _divergence(folded[0], recorded, values, outputs) if folded else None


def _graph_values(path: Path, inputs: Arrays) -> tuple[dict[str, Array], list[str]]:
    """Return the top-level values of the graph by ``operator name``, and the keys of its outputs, in order."""
    model = onnx.load_model(path, load_external_data=False)
    operators = {name: node.op_type for node in model.graph.node for name in node.output if name}
    outputs = [output.name for output in model.graph.output]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in operators if name not in outputs)
    probe = path.with_name(_PROBE)  # in the same directory, because of external data
    onnx.save_model(model, probe)
    try:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        session = open_session(probe, options)
        names = [output.name for output in session.get_outputs()]
        arrays = run(session, names, inputs)
    finally:
        probe.unlink()
    keys = {name: f"{operators.get(name, '')} {name}" for name in names}
    values = {keys[name]: array for name, array in zip(names, arrays, strict=True) if isinstance(array, np.ndarray)}
    return values, [keys[name] for name in outputs]


class _GraphValues:
    """The values of a graph, by number of elements."""

    def __init__(self, values: Arrays, limit: Limit) -> None:
        self._limit = limit
        self._values = values
        self._by_size: dict[int, list[tuple[str, Array]]] = defaultdict(list)
        for name, array in values.items():
            if array.dtype.kind in "fiub":
                self._by_size[array.size].append((name, array))

    def contain(self, array: Array) -> bool:
        """Return whether a value has the elements of the array, in any order."""
        flat, tolerance = _flat(array), self._tolerance(array)
        return any(self._equal_elements(flat, _flat(other), tolerance) for _, other in self._by_size[array.size])

    def equal(self, first: Array, second: Array) -> bool:
        """Return whether two arrays have the same elements in the same order."""
        return first.size == second.size and _close(_flat(first), _flat(second), self._tolerance(first))

    def _equal_elements(self, first: _Flat, second: _Flat, tolerance: tuple[float, float]) -> bool:
        # Most values differ in their bounds, which are cheap to compare.
        if not _close(np.array([first.min(), first.max()]), np.array([second.min(), second.max()]), tolerance):
            return False
        return _close(first, second, tolerance) or _close(np.sort(first), np.sort(second), tolerance)

    def _tolerance(self, array: Array) -> tuple[float, float]:
        return tolerances_of({"": _flat(array)}, {"": self._limit})[""]

    def get(self, name: str) -> Array | None:
        """Return a value by its name."""
        return self._values.get(name)

    def nearest(self, array: Array) -> tuple[str, Array | None]:
        """Return the name and the value that is closest among those of the same shape."""
        candidates = [
            (name, candidate) for name, candidate in self._by_size[array.size] if candidate.shape == array.shape
        ]
        return min(candidates, key=lambda pair: _errors(array, pair[1]).max(initial=0.0), default=("", None))


def _close(first: _Flat, second: _Flat, tolerance: tuple[float, float]) -> bool:
    return bool(np.allclose(second, first, *tolerance, equal_nan=True))


def _flat(array: Array) -> _Flat:
    return array.astype(np.float64).ravel()


def _errors(first: Array, second: Array) -> _Flat:
    return np.nan_to_num(np.abs(_flat(first) - _flat(second)), nan=np.inf)


def _matches(recorded: Trace, values: _GraphValues, outputs: Mapping[int, Array]) -> list[bool]:
    """Return for each operation whether its output, or a value that depends on it, is in the graph."""
    matches = [False] * len(recorded.operations)
    used_inputs: set[int] = set()  # keys of the inputs of operations that match
    for index in range(len(recorded.operations) - 1, -1, -1):
        operation = recorded.operations[index]
        keys = [key for key in operation.outputs if key in recorded.values]
        returned = [key for key in keys if key in outputs]
        if returned:
            matches[index] = all(values.equal(recorded.values[key], outputs[key]) for key in returned)
        else:  # an operation matches if its outputs are empty, or were too large to be recorded
            matches[index] = (
                not any(recorded.values[key].size for key in keys)
                or any(key in used_inputs for key in operation.outputs)
                or _is_among(operation, recorded, values)
            )
        if matches[index]:
            used_inputs.update(operation.inputs)
    return matches


def _larger_limit(recorded: Trace, outputs: Mapping[int, Array]) -> Limit:
    """Return a limit above the difference of the outputs, relative to their magnitude, but small enough to be noise."""
    shares = [
        _errors(expected, outputs[key]).max(initial=0.0) / (np.sqrt(np.mean(np.square(_flat(expected)))) or 1.0)
        for key, expected in recorded.values.items()
        if key in outputs and expected.size and outputs[key].shape == expected.shape
    ]
    share = min(_SIMILAR * max(shares, default=0.0), _LARGEST_NOISE)
    return Limit(rtol=share, share=share, ceiling=np.inf)


def _is_among(operation: Operation, recorded: Trace, values: _GraphValues) -> bool:
    """Return whether a recorded output of the operation is in the graph, and is not empty."""
    arrays = [recorded.values[key] for key in operation.outputs if key in recorded.values]
    return any(array.size and values.contain(array) for array in arrays)


def _is_comparable(operation: Operation, recorded: Trace, values: _GraphValues, outputs: Mapping[int, str]) -> bool:
    """Return whether the graph has a value that an output of the operation can be compared with."""
    keys = [key for key in operation.outputs if key in recorded.values]
    return any(key in outputs or values.nearest(recorded.values[key])[1] is not None for key in keys)


def _divergence(operation: Operation, recorded: Trace, values: _GraphValues, outputs: Mapping[int, str]) -> Divergence:
    key = next(key for key in operation.outputs if key in recorded.values)
    expected = recorded.values[key]
    name, actual = (outputs[key], values.get(outputs[key])) if key in outputs else values.nearest(expected)
    if actual is not None and actual.shape != expected.shape:
        actual = None
    worst_index = 0 if actual is None else int(_errors(expected, actual).argmax())
    place = tuple(int(index) for index in np.unravel_index(worst_index, expected.shape))
    return Divergence(
        operator=operation.name,
        module=operation.module,
        where=operation.where,
        shape=expected.shape,
        place=place,
        expected=float(_flat(expected)[worst_index]),
        actual=None if actual is None else float(_flat(actual)[worst_index]),
        node=name.strip(),
    )

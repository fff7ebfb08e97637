"""Where ONNX Runtime leaves PyTorch: the first operator whose inputs the graph still has, and whose output it has not.

Values are matched, not names: an exporter fuses, folds and renames, but what it computes must turn up somewhere among
the graph's values. An operator is right when its output is one of them, up to order, or when something made of it is.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
import torch

from repogen.artifacts.built_model import Divergence
from repogen.validate.trace import trace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.artifacts.tensors import Array, Arrays
    from repogen.validate.trace import Operation, Trace

    _Flat = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

_PROBE = "every-value.onnx"


def first_divergence(
    module: torch.nn.Module, path: Path, inputs: Arrays, rtol: float, atol: float
) -> Divergence | None:
    """Run both sides on ``inputs`` and compare everything between.

    Args:
        module: With flat tensors in, in the order of ``inputs``.
        path: The graph.
        inputs: A case in which the outputs disagree.
        rtol: Relative tolerance of a value.
        atol: Absolute tolerance of a value.

    Returns:
        None when everything that PyTorch computes is found in the graph.
    """
    ran = trace(module, tuple(torch.from_numpy(np.array(array)) for array in inputs.values()))
    values, outputs = _graph_values(path, inputs)
    found = _Values(values, rtol, atol)
    # What a module returns must be what the graph returns in its place, and not merely somewhere in it.
    returned = dict(zip(ran.outputs, outputs, strict=True))
    right = _right(ran, found, {key: values[name] for key, name in returned.items()})
    makers = {key: index for index, operation in enumerate(ran.operations) for key in operation.makes}
    for index, operation in enumerate(ran.operations):
        if not right[index] and all(right[makers[key]] for key in operation.takes if key in makers):
            return _told(operation, ran, found, returned)
    return None


def _graph_values(path: Path, inputs: Arrays) -> tuple[dict[str, Array], list[str]]:
    """Return every value of the graph's top level by ``operator name``, and which are its outputs, in order."""
    model = onnx.load_model(path, load_external_data=False)
    outputs = {name: node.op_type for node in model.graph.node for name in node.output if name}
    kept = [output.name for output in model.graph.output]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs if name not in kept)
    probe = path.with_name(_PROBE)  # beside it: external data is found from there
    onnx.save_model(model, probe)
    try:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(probe, options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        made = session.run(names, dict(inputs))
    finally:
        probe.unlink()
    pairs = zip(names, made, strict=True)
    shown = {name: f"{outputs.get(name, '')} {name}" for name in names}
    values = {shown[name]: array for name, array in pairs if isinstance(array, np.ndarray)}
    return values, [shown[name] for name in kept]


class _Values:
    """The graph's values, by number of elements."""

    def __init__(self, values: Arrays, rtol: float, atol: float) -> None:
        self._rtol, self._atol = rtol, atol
        self._values = values
        self._by_size: dict[int, list[tuple[str, Array]]] = defaultdict(list)
        for name, array in values.items():
            if array.dtype.kind in "fiub":
                self._by_size[array.size].append((name, array))

    def has(self, array: Array) -> bool:
        """Whether one of them is this array, as it is or with its axes in another order."""
        flat = _flat(array)
        return any(self._same(flat, _flat(other)) for _, other in self._by_size[array.size])

    def same(self, one: Array, other: Array) -> bool:
        """Whether two arrays hold the same values in the same order."""
        return one.size == other.size and self._close(_flat(one), _flat(other))

    def _same(self, one: _Flat, other: _Flat) -> bool:
        if not one.size:
            return True
        if not self._close(np.array([one.min(), one.max()]), np.array([other.min(), other.max()])):
            return False  # the same bounds whatever the order: what most others fail, and cheap
        return self._close(one, other) or self._close(np.sort(one), np.sort(other))

    def _close(self, one: _Flat, other: _Flat) -> bool:
        return bool(np.allclose(one, other, self._rtol, self._atol, equal_nan=True))

    def named(self, name: str) -> tuple[str, Array | None]:
        """Return a value by its name."""
        return name, self._values.get(name)

    def nearest(self, array: Array) -> tuple[str, Array | None]:
        """Return the value of the same shape that is closest, with its name."""
        alike = [(name, other) for name, other in self._by_size[array.size] if other.shape == array.shape]
        return min(alike, key=lambda pair: _apart(array, pair[1]), default=("", None))


def _flat(array: Array) -> _Flat:
    return array.astype(np.float64).ravel()


def _apart(one: Array, other: Array) -> float:
    return float(np.nan_to_num(np.abs(_flat(one) - _flat(other)), nan=np.inf).max(initial=0.0))


def _right(ran: Trace, found: _Values, returned: Mapping[int, Array]) -> list[bool]:
    """Return of each operation whether its output, or something made of it, is among the graph's values."""
    right = [False] * len(ran.operations)
    good: set[int] = set()
    for index in range(len(ran.operations) - 1, -1, -1):
        operation = ran.operations[index]
        kept = [ran.values[key] for key in operation.makes if key in ran.values]
        last = [key for key in operation.makes if key in returned and key in ran.values]
        if last:
            right[index] = all(found.same(ran.values[key], returned[key]) for key in last)
        else:  # what was too large to be kept can't be blamed
            right[index] = any(key in good for key in operation.makes) or not kept or any(map(found.has, kept))
        if right[index]:
            good.update(operation.takes)
    return right


def _told(operation: Operation, ran: Trace, found: _Values, returned: Mapping[int, str]) -> Divergence:
    made = next(key for key in operation.makes if key in ran.values)
    expected = ran.values[made]
    name, actual = found.named(returned[made]) if made in returned else found.nearest(expected)
    if actual is not None and actual.shape != expected.shape:
        actual = None
    worst = 0 if actual is None else int(np.nan_to_num(np.abs(_flat(expected) - _flat(actual)), nan=np.inf).argmax())
    place = tuple(int(axis) for axis in np.unravel_index(worst, expected.shape))
    return Divergence(
        operator=operation.name,
        module=operation.module,
        where=operation.where,
        shape=expected.shape,
        place=place,
        expected=float(_flat(expected)[worst]),
        actual=None if actual is None else float(_flat(actual)[worst]),
        node=name.strip(),
    )

"""Records the requests of one sequence as golden cases: the states of each are those that the one before returned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from repogen.artifacts.tensors import DTYPES
from repogen.errors import RepogenError
from repogen.repository.golden import SEQUENCE_ID, SEQUENCE_REQUEST
from repogen.validate.sweep import SweepCase

if TYPE_CHECKING:
    from repogen.artifacts.source import SourceModel
    from repogen.artifacts.tensors import Array
    from repogen.triton_config.sections.model import TritonSpec
    from repogen.triton_config.sections.sequence import ControlSpec, SequenceBatchingSpec, StateSpec
    from repogen.validate.golden import GoldenRecorder

_REQUESTS = 3


def record_transitions(source: SourceModel, triton: TritonSpec, seed: int, golden: GoldenRecorder) -> None:
    """Run the original on the requests of one sequence, as Triton feeds them, and record each.

    Nothing is recorded without states, if a state starts with a file or has an unknown size, if the original fails, or
    if the tensors are too large.

    Args:
        source: The original.
        triton: The spec's section.
        seed: Seed of the inputs.
        golden: Records the requests.
    """
    sequence = triton.sequence_batching
    if sequence is None or not sequence.state or sequence.iterative_sequence:
        return
    batch_dim = source.signature.batch_dim if triton.max_batch_size != 0 else None
    states = {state.input_name: _first_state(source, state, batched=batch_dim is not None) for state in sequence.state}
    if any(array is None for array in states.values()):
        return
    sizes = {**source.example_sizes, **({batch_dim: 1} if batch_dim is not None else {})}
    requests = []
    try:
        for index in range(_REQUESTS):
            inputs = source.examples(sizes, seed + index)
            inputs |= {name: array for name, array in states.items() if array is not None}
            inputs |= _controls(sequence, inputs, index)
            outputs = source.reference(inputs)
            states = {state.input_name: outputs[state.output_name] for state in sequence.state}
            case = SweepCase({SEQUENCE_REQUEST: index + 1, **sizes}, seed + index, required=True)
            requests.append((case, inputs, outputs))
    except (RepogenError, KeyError):
        return  # the smoke test reports that transitions were not compared
    golden.record_sequence(requests)


def _first_state(source: SourceModel, state: StateSpec, *, batched: bool) -> Array | None:
    """Return the zeros that a state starts with; None if it starts with something else."""
    initial = state.initial_state[0] if state.initial_state else None
    spec = next((spec for spec in source.signature.inputs if spec.name == state.input_name), None)
    if spec is None or (initial is not None and initial.data_file is not None):
        return None
    graph_dims = spec.shape[1:] if batched else spec.shape
    dims = (initial.dims if initial is not None else None) or state.dims or graph_dims
    if any(not isinstance(dim, int) or dim < 1 for dim in dims):
        return None
    return np.zeros((*([1] if batched else []), *(int(dim) for dim in dims)), np.dtype(DTYPES[spec.dtype].numpy))


def _controls(sequence: SequenceBatchingSpec, inputs: dict[str, Array], index: int) -> dict[str, Array]:
    """Return what Triton feeds the control inputs of a request."""
    flags = {
        "CONTROL_SEQUENCE_START": index == 0,
        "CONTROL_SEQUENCE_END": index == _REQUESTS - 1,
        "CONTROL_SEQUENCE_READY": True,
    }
    values: dict[str, Array] = {}
    for tensor in sequence.control_input:
        like = inputs[tensor.name]
        for control in tensor.control:
            if control.kind in flags:
                value: float | str = _pair(control)[flags[control.kind]]
            else:
                value = SEQUENCE_ID
            values[tensor.name] = np.full_like(like, str(value).encode() if like.dtype.kind == "O" else value)
    return values


def _pair(control: ControlSpec) -> tuple[float, float]:
    """Return the values for false and true."""
    return control.int32_false_true or control.fp32_false_true or control.bool_false_true or (0, 1)

"""Loads an ONNX file, which is published unchanged when it passes all checks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from repogen.artifacts.source import DimRange, OnnxFile, SourceModel
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.errors import SourceError
from repogen.source.common.graph_inputs import find_graph_inputs
from repogen.source.onnx.read import (
    check_operators,
    check_outputs,
    check_standard,
    external_files,
    graph_inputs,
    random_nodes,
    read_onnx,
)
from repogen.source.onnx.reference import file_reference, with_reference
from repogen.source.torch.eager import check_tensor_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import onnx

    from repogen.artifacts.source import Examples, Reference
    from repogen.source.common.graph_inputs import GraphInputs
    from repogen.source.interface import SourceRequest
    from repogen.spec.models import ModelSpec
    from repogen.spec.sources import OnnxSource

_MAX_LISTED = 5
# A Dropout of few values may drop the same ones in two runs.
_REPETITIONS = 8
# Any size; convolutions that need some pixels; networks that halve an image four to six times; one fixed size.
_CANDIDATE_RANGES = (
    DimRange(1, 64, 16),
    DimRange(2, 64, 16),
    DimRange(8, 64, 16),
    DimRange(16, 64, 32),
    DimRange(32, 128, 64),
    DimRange(64, 256, 128),
    DimRange(224, 224, 224),
    DimRange(1, 1, 1),
)
# Versions of ONNX Runtime return different sizes for, or crash on, images that are smaller than a pooling window.
_IMAGE_RANGES = _CANDIDATE_RANGES[2:]
_IMAGE_RANK = 4


def load_onnx(request: SourceRequest[OnnxSource]) -> SourceModel:
    """Validate a file, derive its signature, and choose the reference that parity is measured against.

    Args:
        request: The file and its reference; inputs, dims and outputs of the spec entry narrow those of the file.

    Raises:
        SourceError: The file is damaged, refers to files outside its directory, or its inputs or outputs are not
            usable.
    """
    source, model, root = request.options, request.model, request.root
    path = root / source.path
    proto = read_onnx(path)
    files = external_files(proto, path)
    check_operators(proto, path)
    check_standard(proto, path)
    check_outputs(proto, model.output_names)
    graph = graph_inputs(proto)
    inputs = find_graph_inputs(graph, model, root, None)
    input_names = dict(zip((spec.name for spec in inputs.specs), (entry.name for entry in graph), strict=True))
    output_names = _output_names(proto, model)
    check_tensor_names(tuple(input_names), tuple(output_names))
    reference = file_reference(proto, path, input_names, output_names)
    if model.examples is None:
        undeclared = inputs.undeclared - {Signature(inputs.specs, ()).batch_dim}
        ranges = _IMAGE_RANGES if _is_image(inputs, undeclared) else _CANDIDATE_RANGES
        inputs = inputs.with_dims(find_sizes(inputs.dims, undeclared, inputs.examples, reference, ranges))
    if nodes := random_nodes(proto):
        # The optimizer removes a Dropout also in training mode, where it is random.
        _reject_random_outputs(nodes, inputs, file_reference(proto, path, input_names, output_names, optimized=False))
    file_model = SourceModel(
        origin=OnnxFile(path),
        signature=_signature(inputs, reference),
        dims=inputs.dims,
        examples=inputs.examples,
        reference=reference,
        files=files,
        declare=inputs.declare,
    )
    source_model = with_reference(file_model, source, model, root)
    return replace(source_model, notes=(*inputs.notes, *source_model.notes))


def _output_names(proto: onnx.ModelProto, model: ModelSpec) -> dict[str, str]:
    """Return the file's name of each output by its published name.

    The spec either selects some of the file's outputs, or renames all of them.

    Raises:
        SourceError: The names in the spec do neither.
    """
    names = [value.name for value in proto.graph.output]
    published_names = model.output_names or tuple(names)
    if set(published_names) <= set(names):
        return {name: name for name in published_names}
    if len(published_names) == len(names):
        return dict(zip(published_names, names, strict=True))
    raise SourceError(
        f"outputs: lists {', '.join(published_names)}, but the file's outputs are {', '.join(names)}",
        "list some of those names, or one new name for each output in order",
        code="source.outputs",
        where="outputs",
    )


def _signature(inputs: GraphInputs, reference: Reference) -> Signature:
    """Return the signature; the graph is run once for the shapes of its outputs."""
    arrays = reference(inputs.examples({name: dim.example for name, dim in inputs.dims.items()}, 0))
    outputs = tuple(TensorSpec(name, str(array.dtype), array.shape) for name, array in arrays.items())
    return Signature(inputs.specs, outputs)


def _reject_random_outputs(nodes: Sequence[str], inputs: GraphInputs, reference: Reference) -> None:
    """Reject a graph whose outputs differ between runs on the same inputs.

    Raises:
        SourceError: They do; the message lists ``nodes``, which generate random numbers.
    """
    arrays = inputs.examples({name: dim.example for name, dim in inputs.dims.items()}, 0)
    first = reference(arrays)
    repetitions = [reference(arrays) for _ in range(_REPETITIONS)]
    differing = [
        name
        for name, array in first.items()
        if not all(np.array_equal(array, outputs[name], equal_nan=True) for outputs in repetitions)
    ]
    if differing:
        raise SourceError(
            f"output {', '.join(differing)} is random; these nodes generate random numbers: "
            f"{', '.join(nodes[:_MAX_LISTED])}",
            "export the model after model.eval(), make the noise an input, or select other outputs with outputs:",
            code="source.random",
        )


def _is_image(inputs: GraphInputs, undeclared: Collection[str]) -> bool:
    """Return whether an undeclared dim is an axis of an image or a volume."""
    return any(len(spec.shape) >= _IMAGE_RANK and set(spec.shape) & set(undeclared) for spec in inputs.specs)


def find_sizes(
    dims: Mapping[str, DimRange],
    undeclared: Collection[str],
    examples: Examples,
    reference: Reference,
    ranges: Sequence[DimRange] = _CANDIDATE_RANGES,
) -> dict[str, DimRange]:
    """Return bounds at which a graph runs for the undeclared dims; empty when no candidate range works.

    A size at which an output is empty or NaN counts as one that does not work, if another candidate does: an image of
    1 x 1 leaves nothing after pooling, and some versions of ONNX Runtime crash on it.
    """
    names = [name for name in dims if name in undeclared]
    if not names:
        return {}
    example = {name: dim.example for name, dim in dims.items()}
    for works in (partial(_returns_values, examples, reference), partial(_runs, examples, reference)):
        for candidate in ranges:
            sizes = {candidate.example, candidate.min, candidate.max, (candidate.example + candidate.max) // 2}
            if all(works({**example, **dict.fromkeys(names, size)}) for size in sorted(sizes)):
                fixed_sizes = {**example, **dict.fromkeys(names, candidate.example)}
                return {name: _single_range(name, candidate, fixed_sizes, works) for name in names}
    return {}


def _single_range(
    name: str, candidate: DimRange, fixed_sizes: Mapping[str, int], works: Callable[[Mapping[str, int]], bool]
) -> DimRange:
    """Return the candidate range if the dim can vary on its own, else the example size."""
    varies = all(works({**fixed_sizes, name: size}) for size in {candidate.min, candidate.max})
    return candidate if varies else DimRange(candidate.example, candidate.example, candidate.example)


def _runs(examples: Examples, reference: Reference, sizes: Mapping[str, int]) -> bool:
    try:
        reference(examples(sizes, 0))
    except SourceError:
        return False
    return True


def _returns_values(examples: Examples, reference: Reference, sizes: Mapping[str, int]) -> bool:
    """Return whether a graph runs, and no output is empty or has NaN."""
    try:
        outputs = reference(examples(sizes, 0))
    except SourceError:
        return False
    return all(array.size and not (array.dtype.kind == "f" and np.isnan(array).any()) for array in outputs.values())

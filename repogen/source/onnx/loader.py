"""``kind: onnx``: a file that exists already, published as it is when it holds."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from repogen.artifacts.source import DimRange, OnnxFile, SourceModel
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.errors import SourceError
from repogen.source.common.call import named_call
from repogen.source.common.examples import StoredExamples, load_data
from repogen.source.common.graph_inputs import find_graph_inputs
from repogen.source.common.inputs import Inputs
from repogen.source.onnx.read import (
    check_operators,
    check_outputs,
    check_standard,
    external_files,
    graph_inputs,
    random_nodes,
    read_onnx,
)
from repogen.source.onnx.reference import AnsweredExamples, AnsweredReference, file_reference
from repogen.source.onnx.sizes import find_sizes
from repogen.source.torch.eager import TorchReference, check_tensor_names, examine
from repogen.source.torch.module import make_module, prepare

if TYPE_CHECKING:
    from pathlib import Path

    import onnx

    from repogen.artifacts.source import Reference
    from repogen.artifacts.tensors import Array, Arrays
    from repogen.source.common.graph_inputs import GraphInputs
    from repogen.source.interface import SourceRequest
    from repogen.source.onnx.reference import FileReference
    from repogen.spec.models import ModelSpec
    from repogen.spec.sources import OnnxSource

_SHOWN = 5


def load_onnx(request: SourceRequest[OnnxSource]) -> SourceModel:
    """Read and check a file, find its signature, and decide what it must agree with.

    Raises:
        SourceError: It is damaged, reaches out of its directory, or its inputs or outputs are not usable.
    """
    source, model, root = request.options, request.model, request.root
    path = root / source.path
    proto = read_onnx(path)
    files = external_files(proto, path)
    check_operators(proto, path)
    check_standard(proto, path)
    check_outputs(proto, model.output_names)
    graph = graph_inputs(proto)
    found = find_graph_inputs(graph, model, root, None)
    names = dict(zip((spec.name for spec in found.specs), (entry.name for entry in graph), strict=True))
    outputs = _outputs(proto, model)
    check_tensor_names(tuple(names), tuple(outputs))
    itself = file_reference(proto, path, names, outputs)
    if model.examples is None:
        free = found.undeclared - {Signature(found.specs, ()).batch_dim}
        found = found.with_dims(find_sizes(found.dims, free, found.examples, itself))
    _refuse_random(proto, found, itself)
    made = _measured(_made(path, found, itself, files), source, model, root)
    return replace(made, notes=(*found.notes, *made.notes))


def _refuse_random(proto: onnx.ModelProto, found: GraphInputs, itself: FileReference) -> None:
    """Refuse a graph whose random numbers reach an output: two runs on the same inputs differ.

    Raises:
        SourceError: It is one; the nodes are named.
    """
    drawing = random_nodes(proto)
    if not drawing:
        return
    inputs = found.examples({name: dim.example for name, dim in found.dims.items()}, 0)
    first, second = itself(inputs), itself(inputs)
    apart = [name for name in first if not np.array_equal(first[name], second[name], equal_nan=True)]
    if apart:
        raise SourceError(
            f"the graph draws random numbers that reach its output {', '.join(apart)}: {', '.join(drawing[:_SHOWN])}",
            "export the model after model.eval(), take the noise as an input, or leave that output out with outputs:",
            code="source.random",
        )


def _outputs(proto: onnx.ModelProto, model: ModelSpec) -> dict[str, str]:
    """Return the file's name of each output by the name it is to have: a choice of the file's, or all of them renamed.

    Raises:
        SourceError: The spec's names are neither.
    """
    names = [value.name for value in proto.graph.output]
    wanted = model.output_names or tuple(names)
    if set(wanted) <= set(names):
        return {name: name for name in wanted}
    if len(wanted) == len(names):
        return dict(zip(wanted, names, strict=True))
    raise SourceError(
        f"outputs: names {', '.join(wanted)}, but the file's outputs are {', '.join(names)}",
        "list names out of those, or one name for each of them in order",
        code="source.outputs",
    )


def _made(path: Path, found: GraphInputs, itself: FileReference, files: tuple[Path, ...]) -> SourceModel:
    """Return the model with itself as the reference; it is run once for the shapes of its outputs."""
    sizes = {name: dim.example for name, dim in found.dims.items()}
    answers = itself(found.examples(sizes, 0))
    outputs = tuple(TensorSpec(name, str(array.dtype), array.shape) for name, array in answers.items())
    return SourceModel(
        origin=OnnxFile(path),
        signature=Signature(found.specs, outputs),
        dims=found.dims,
        examples=found.examples,
        reference=itself,
        files=files,
    )


def _measured(made: SourceModel, source: OnnxSource, model: ModelSpec, root: Path) -> SourceModel:
    """Return the model with the reference that the spec names."""
    itself = made.reference
    if source.reference is None:
        said = getattr(itself, "said", "")
        note = f"parity compares what is published with the file itself, in {said}: give reference: for more"
        return replace(made, notes=(note,))
    if source.reference.endswith(".npz"):
        return _with_answers(made, source.reference, root)
    return _with_module(made, source.reference, model, root)


def _with_answers(made: SourceModel, reference: str, root: Path) -> SourceModel:
    """Let parity begin with the inputs and answers of a file; at other sizes the graph answers for itself."""
    stored = load_data(root / reference)
    wanted = [spec.name for spec in (*made.signature.inputs, *made.signature.outputs)]
    if missing := [name for name in wanted if name not in stored]:
        raise SourceError(
            f"{reference} lacks {', '.join(missing)}; it has {', '.join(stored)}",
            "store every input and output under its name: numpy.savez(file, **inputs, **outputs)",
            code="source.reference",
            where=reference,
        )
    inputs = {spec.name: stored[spec.name] for spec in made.signature.inputs}
    answers = {spec.name: stored[spec.name] for spec in made.signature.outputs}
    sizes = _sizes(made, inputs, reference)
    dims = {
        name: DimRange(min(dim.min, sizes[name]), max(dim.max, sizes[name]), sizes[name])
        for name, dim in made.dims.items()
    }
    # Copies of one row could not show whether a batch mixes its rows.
    told = any(len(array) > 1 and not np.array_equal(array[0], array[1]) for array in inputs.values() if array.ndim)
    others = StoredExamples((inputs,), reference, made.signature.inputs) if told else made.examples
    return replace(
        made,
        dims=dims,
        examples=AnsweredExamples(inputs, sizes, others),
        reference=AnsweredReference(inputs, answers, made.reference),
        files=(*made.files, root / reference),
        notes=(f"parity begins with the answers in {reference}; at other sizes the file answers for itself",),
    )


def _sizes(made: SourceModel, inputs: Arrays, reference: str) -> dict[str, int]:
    """Return the size of each dim in an answers file.

    Raises:
        SourceError: Its inputs are not of the signature.
    """
    sizes: dict[str, int] = {}
    for spec in made.signature.inputs:
        array = inputs[spec.name]
        fits = array.dtype == spec.dtype and array.ndim == len(spec.shape)
        for axis, dim in enumerate(spec.shape if fits else ()):
            size = array.shape[axis]
            fits &= size == (sizes.setdefault(dim, size) if isinstance(dim, str) else dim)
        if not fits:
            raise SourceError(
                f"{spec.name!r} in {reference} is {array.dtype} {list(array.shape)}, and the file's is {spec.dtype} "
                f"{list(spec.shape)}",
                "store inputs of the file's own types and shapes",
                code="source.reference",
                where=reference,
            )
    return sizes


def _with_module(made: SourceModel, reference: str, model: ModelSpec, root: Path) -> SourceModel:
    """Let parity compare with a PyTorch model that takes the same inputs."""
    module, notes = prepare(make_module(reference, {}, root), None)
    names = tuple(spec.name for spec in made.signature.inputs)
    call = named_call(inspect.signature(module.forward).parameters, names)
    inputs = Inputs(made.signature.inputs, made.dims, made.examples, call)
    examined = examine(module, inputs, model, root)
    wanted = [spec.name for spec in made.signature.outputs]
    theirs = [spec.name for spec in examined.signature.outputs]
    if len(theirs) != len(wanted):
        raise SourceError(
            f"{reference!r} returns {', '.join(theirs)}, and the file {', '.join(wanted)}",
            "choose the same outputs: outputs: [...], or return the same from the reference",
            code="source.reference",
            where=reference,
        )
    order = theirs if set(theirs) == set(wanted) else wanted
    specs = tuple(replace(spec, name=name) for spec, name in zip(examined.signature.outputs, order, strict=True))
    torch_reference = TorchReference(examined.flat, Signature(made.signature.inputs, specs), root)
    in_order = torch_reference if order == wanted else _Ordered(torch_reference, wanted)
    return replace(made, reference=in_order, notes=(*notes, *examined.notes), against=reference)


class _Ordered:
    """A reference whose outputs come in another order."""

    def __init__(self, reference: Reference, names: list[str]) -> None:
        self._reference, self._names = reference, names

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        answers = self._reference(inputs)
        return {name: answers[name] for name in self._names}

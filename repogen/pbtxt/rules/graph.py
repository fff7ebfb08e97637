"""Rules between a config.pbtxt and the ONNX graph, and between the graph and the target release.

Source: each was seen on tritonserver 2.51.0 with the stock onnxruntime backend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.pbtxt.dims import config_dims
from repogen.pbtxt.findings import Finding
from repogen.values.tensors import DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from repogen.pbtxt.view import ConfigView, TensorView
    from repogen.values.target import Target
    from repogen.values.tensors import Dim, Signature, TensorSpec


def graph_findings(view: ConfigView, signature: Signature) -> list[Finding]:
    """Return every rule of the RG2 family that ``view`` breaks over a graph with ``signature`` (full shapes)."""
    found = [*_inputs_named(view, signature), *_outputs_named(view, signature)]
    for kind, tensors, specs in (
        ("input", view.inputs, signature.inputs),
        ("output", view.outputs, signature.outputs),
    ):
        by_name = {tensor.name: tensor for tensor in tensors}
        for spec in specs:
            what = f"{kind} {spec.name!r}"
            found.extend(_servable(what, spec))
            batchable = list(_batch(what, spec, view.max_batch_size))
            found.extend(batchable)
            if spec.name in by_name:
                found.extend(_dtype(what, by_name[spec.name], spec))
                # with the batch axis itself wrong, complaints about the other dims would only repeat it
                if not batchable:
                    found.extend(_shape(kind, by_name[spec.name], spec, batched=view.max_batch_size > 0))
    return found


def target_findings(opset: int, ir_version: int, target: Target) -> list[Finding]:
    """Return every rule of the RG3 family that a graph breaks: is it too new for the ``target`` release?"""
    found = []
    release = f"Triton {target.release} (ONNX Runtime {target.onnxruntime})"
    if opset > target.max_opset:
        message = f"the graph has opset {opset}, and {release} loads up to {target.max_opset}"
        found.append(Finding("RG301", "error", message, f"export with opset {target.max_opset}, or raise the target"))
    if ir_version > target.max_ir:
        message = f"the graph has IR version {ir_version}, and {release} loads up to {target.max_ir}"
        found.append(Finding("RG302", "error", message, "export with an older onnx, or raise the target"))
    return found


def _inputs_named(view: ConfigView, signature: Signature) -> Iterator[Finding]:
    graph, given = [t.name for t in signature.inputs], [t.name for t in view.inputs]
    for name in given:
        if name not in graph:
            yield Finding("RG201", "error", f"input {name!r} is not in the graph", f"the graph has {_names(graph)}")
    for name in graph:
        # a config without any input is a guess of Triton's, which RG113 tells of
        if given and name not in given:
            yield Finding("RG202", "error", f"the graph's input {name!r} is not declared", "declare it")


def _outputs_named(view: ConfigView, signature: Signature) -> Iterator[Finding]:
    graph, given = [t.name for t in signature.outputs], [t.name for t in view.outputs]
    for name in given:
        if name not in graph:
            yield Finding("RG203", "error", f"output {name!r} is not in the graph", f"the graph has {_names(graph)}")
    for name in graph:
        if given and name not in given:
            yield Finding("RG204", "warning", f"the graph's output {name!r} is not declared", "declare it to serve it")


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def _servable(what: str, spec: TensorSpec) -> Iterator[Finding]:
    if spec.dtype not in DTYPES:
        message = f"the graph's {what} is {spec.dtype}, which Triton's ONNX Runtime backend does not serve"
        yield Finding("RG209", "error", message, "cast it to float32 or float16 inside the model")


def _batch(what: str, spec: TensorSpec, max_batch_size: int) -> Iterator[Finding]:
    if max_batch_size < 1 or (spec.shape and isinstance(spec.shape[0], str)):
        return
    shape = f"has shape {_dims(spec.shape)}, so its first dim is no dynamic batch" if spec.shape else "has no dims"
    message = f"max_batch_size is {max_batch_size}, but the graph's {what} {shape}"
    yield Finding("RG208", "error", message, "make the first dim dynamic in the spec, or set max_batch_size: 0")


def _dtype(what: str, tensor: TensorView, spec: TensorSpec) -> Iterator[Finding]:
    dtype = DTYPES.get(spec.dtype)
    if dtype is not None and tensor.dtype != dtype.triton:
        message = f"{what} is TYPE_{tensor.dtype} in the config and {spec.dtype} in the graph"
        yield Finding("RG205", "error", message, f"write data_type: TYPE_{dtype.triton}")


def _shape(kind: str, tensor: TensorView, spec: TensorSpec, *, batched: bool) -> Iterator[Finding]:
    what = f"{kind} {spec.name!r}"
    right, reshape = config_dims(spec.shape, batched=batched)
    graph = right if reshape is None else reshape
    hint = f"write dims: {_dims(right)}" + (" and reshape { shape: [ ] }" if reshape is not None else "")
    if len(tensor.model_dims) != len(graph):
        message = f"{what} has {len(tensor.model_dims)} dims {_dims(tensor.model_dims)} and the graph {_dims(graph)}"
        yield Finding("RG206", "error", message + (" (the batch left out)" if batched else ""), hint)
        return
    for axis, (said, real) in enumerate(zip(tensor.model_dims, graph, strict=True)):
        # Triton lets an input be fixed where the graph is dynamic; an output must match exactly
        if said != real and not (kind == "input" and real == -1):
            message = f"{what} has dim {said} at axis {axis} and the graph {'a dynamic one' if real == -1 else real}"
            yield Finding("RG207", "error", message, hint)


def _dims(dims: Sequence[Dim]) -> str:
    return f"[ {', '.join(map(str, dims))} ]"

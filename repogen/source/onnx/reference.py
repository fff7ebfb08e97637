"""References that parity is measured against: the ONNX file itself, stored outputs, or a PyTorch model."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx_ir as ir
import onnxruntime

from repogen.artifacts.source import DimRange
from repogen.artifacts.tensors import Signature
from repogen.errors import SourceError, first_line
from repogen.onnx_graph.external_data import nodes
from repogen.onnx_graph.kernel_gaps import REDUCTIONS, replace_int64_reductions
from repogen.onnx_graph.load import load_graph
from repogen.onnx_graph.session import open_session, run
from repogen.source.common.call import named_call
from repogen.source.common.examples import StoredExamples, load_data
from repogen.source.common.inputs import Inputs
from repogen.source.onnx.read import read_onnx
from repogen.source.torch.eager import TorchReference, examine
from repogen.source.torch.module import make_module, prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    import onnx

    from repogen.artifacts.source import Examples, Reference, SourceModel
    from repogen.artifacts.tensors import Array, Arrays
    from repogen.spec.models import ModelSpec
    from repogen.spec.sources import OnnxSource

# Parts of ONNX Runtime's messages about a file that is newer than itself.
_TOO_NEW = ("Unsupported model IR version", "is till opset", "under development")
_MAX_REASON_LENGTH = 300
_EVALUATOR = "onnx's reference evaluator"
_QUANTIZATION = frozenset({"QuantizeLinear", "DequantizeLinear"})
"""Operators with fixed scales, between which ONNX Runtime's optimizer computes with integers.

Versions of it differ in what they quantize: later ones also quantize the bias of a convolution that is float in the
file, which changes the results by a step.
"""


@dataclass(frozen=True)
class FileReference:
    """Runs an ONNX file.

    Attributes:
        run: Maps inputs by the file's names to the served outputs, in order.
        inputs: The file's name of each input, by published name.
        outputs: Published names of the outputs, in order.
        runtime: What runs the file, such as ``ONNX Runtime 1.20``.
        unoptimized: Returns a reference whose graph is not optimized; None unless the optimizer may change what a
            statically quantized graph computes.
    """

    run: Callable[[dict[str, Array]], list[Array]]
    inputs: Mapping[str, str]
    outputs: tuple[str, ...]
    runtime: str
    unoptimized: Callable[[], FileReference] | None = None

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs by name.

        Raises:
            SourceError: The graph failed on these inputs.
        """
        try:
            outputs = self.run({self.inputs[name]: array for name, array in inputs.items()})
        except Exception as error:
            shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in inputs.items())
            raise SourceError(
                f"the ONNX file failed in {self.runtime} on {shapes}: {first_line(error)[:_MAX_REASON_LENGTH]}",
                "correct inputs: or dims: in the spec, or the model",
                code="source.onnx-run",
                details=str(error),
            ) from error
        return {name: cast("Array", np.asarray(a)) for name, a in zip(self.outputs, outputs, strict=True)}


def file_reference(
    proto: onnx.ModelProto,
    path: Path,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    *,
    optimized: bool = True,
) -> FileReference:
    """Return a reference that runs a file in ONNX Runtime, or in onnx's evaluator if the file is too new for it.

    Args:
        proto: The model without its external data.
        path: The file.
        inputs: The file's name of each input, by published name.
        outputs: The file's name of each output, by published name.
        optimized: Whether ONNX Runtime optimizes the graph, as it does by default.

    Raises:
        SourceError: ONNX Runtime cannot load the file for another reason.
    """
    names = list(outputs.values())
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # see validate.runtime
    options.log_severity_level = 4
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session: Any = open_session(_correct_file(proto, path, names, options), options)
    except Exception as error:
        runtime = f"ONNX Runtime {onnxruntime.__version__}"
        if not any(reason in str(error) for reason in _TOO_NEW) or len(proto.graph.initializer) == 0:
            raise _not_loaded_error(runtime, path, error) from error
        return FileReference(_evaluator(path, names), inputs, tuple(outputs), _EVALUATOR)
    is_quantized = any(node.op_type in _QUANTIZATION for node in nodes(proto))
    return FileReference(
        lambda arrays: run(session, names, arrays),
        inputs,
        tuple(outputs),
        f"ONNX Runtime {onnxruntime.__version__}",
        partial(_unoptimized, path, inputs, outputs) if optimized and is_quantized else None,
    )


def _unoptimized(path: Path, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> FileReference:
    """Return a reference without optimization; the file is read again, so that its weights are not kept until then."""
    return file_reference(read_onnx(path), path, inputs, outputs, optimized=False)


def _correct_file(
    proto: onnx.ModelProto, path: Path, selected: Collection[str], options: onnxruntime.SessionOptions
) -> Path | bytes:
    """Return the file; or its content with the operators replaced that ONNX Runtime computes incorrectly."""
    if not any(node.op_type in REDUCTIONS for node in nodes(proto)):
        return path
    try:
        model = load_graph(path, selected)
    except ir.serde.SerdeError:  # the exporter reports it
        return path
    if not replace_int64_reductions(model):
        return path
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path.parent))
    content: bytes = ir.to_proto(model).SerializeToString()
    return content


def _evaluator(path: Path, names: list[str]) -> Callable[[dict[str, Array]], list[Array]]:
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415 - slow, and only for files that are too new

    try:
        evaluator: Any = ReferenceEvaluator(str(path))
    except Exception as error:
        raise _not_loaded_error(_EVALUATOR, path, error) from error
    return lambda arrays: cast("list[Array]", evaluator.run(names, arrays))


def _not_loaded_error(runtime: str, path: Path, error: Exception) -> SourceError:
    return SourceError(
        f"{runtime} cannot load {path.name}: {first_line(error, path.parent)}",
        "export the model again, for an opset that ONNX Runtime supports",
        code="source.onnx",
        where=path.name,
        details=str(error),
    )


def with_reference(file_model: SourceModel, source: OnnxSource, model: ModelSpec, root: Path) -> SourceModel:
    """Return the model of an ONNX file with the reference that the spec names, if it names one.

    A reference is an ``.npz`` file, or a callable that returns a PyTorch model.

    Raises:
        SourceError: The reference does not have the same inputs and outputs.
    """
    if source.reference is None:
        runtime = getattr(file_model.reference, "runtime", "")
        note = (
            f"parity compares the published graph with the file itself in {runtime}; "
            "to compare with the original model, set reference:"
        )
        return replace(file_model, notes=(note,))
    if source.reference.endswith(".npz"):
        return _with_stored_outputs(file_model, source.reference, root)
    return _with_module(file_model, source.reference, model, root)


@dataclass(frozen=True)
class _StoredInputs:
    """Examples that return stored inputs at their own sizes, and others at other sizes."""

    inputs: dict[str, Array]
    sizes: Mapping[str, int]
    others: Examples

    def __call__(self, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Return arrays of the requested sizes."""
        return dict(self.inputs) if dict(sizes) == dict(self.sizes) else self.others(sizes, seed)


@dataclass(frozen=True)
class _StoredOutputs:
    """A reference that returns stored outputs for the stored inputs, and runs the file on all others."""

    inputs: dict[str, Array]
    outputs: dict[str, Array]
    others: Reference

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs by name."""
        same_inputs = all(
            array.shape == self.inputs[name].shape and np.array_equal(array, self.inputs[name])
            for name, array in inputs.items()
        )
        return dict(self.outputs) if same_inputs else self.others(inputs)


def _with_stored_outputs(file_model: SourceModel, reference: str, root: Path) -> SourceModel:
    """Return the model with the inputs and outputs of an ``.npz`` file as the first parity case."""
    stored = load_data(root / reference)
    signature = file_model.signature
    if missing_names := [spec.name for spec in (*signature.inputs, *signature.outputs) if spec.name not in stored]:
        raise SourceError(
            f"{reference} does not contain {', '.join(missing_names)}; it contains {', '.join(stored)}",
            "store every input and output under its name: numpy.savez(file, **inputs, **outputs)",
            code="source.reference",
            where=reference,
        )
    inputs = {spec.name: stored[spec.name] for spec in signature.inputs}
    outputs = {spec.name: stored[spec.name] for spec in signature.outputs}
    sizes = _stored_sizes(file_model, inputs, reference)
    dims = {
        name: DimRange(min(dim.min, sizes[name]), max(dim.max, sizes[name]), sizes[name])
        for name, dim in file_model.dims.items()
    }
    # Copies of a single row cannot show whether a batch mixes its rows.
    has_rows = any(len(array) > 1 and not np.array_equal(array[0], array[1]) for array in inputs.values() if array.ndim)
    others = StoredExamples((inputs,), reference, signature.inputs) if has_rows else file_model.examples
    return replace(
        file_model,
        dims=dims,
        examples=_StoredInputs(inputs, sizes, others),
        reference=_StoredOutputs(inputs, outputs, file_model.reference),
        files=(*file_model.files, root / reference),
        notes=(f"parity compares with the outputs in {reference}; at other sizes, with the file itself",),
        stored=reference,
    )


def _stored_sizes(file_model: SourceModel, inputs: Arrays, reference: str) -> dict[str, int]:
    """Return the size of each dim in stored inputs.

    Raises:
        SourceError: A stored input does not have the dtype and shape of the signature.
    """
    sizes: dict[str, int] = {}
    for spec in file_model.signature.inputs:
        array = inputs[spec.name]
        fits = array.dtype == spec.dtype and array.ndim == len(spec.shape)
        for axis, dim in enumerate(spec.shape if fits else ()):
            size = array.shape[axis]
            fits &= size == (sizes.setdefault(dim, size) if isinstance(dim, str) else dim)
        if not fits:
            raise SourceError(
                f"{spec.name!r} is {array.dtype} {list(array.shape)} in {reference}, but {spec.dtype} "
                f"{list(spec.shape)} in the ONNX file",
                "store inputs with the dtypes and shapes of the ONNX file",
                code="source.reference",
                where=reference,
            )
    return sizes


def _with_module(file_model: SourceModel, reference: str, model: ModelSpec, root: Path) -> SourceModel:
    """Return the model with a PyTorch model as the reference; it must accept the same inputs."""
    module, notes = prepare(make_module(reference, {}, root), None)
    signature = file_model.signature
    call = named_call(inspect.signature(module.forward).parameters, tuple(spec.name for spec in signature.inputs))
    inputs = Inputs(signature.inputs, file_model.dims, file_model.examples, call)
    examined = examine(module, inputs, model, root)
    names = [spec.name for spec in signature.outputs]
    module_names = [spec.name for spec in examined.signature.outputs]
    if len(module_names) != len(names):
        raise SourceError(
            f"{reference!r} returns {', '.join(module_names)}, but the ONNX file returns {', '.join(names)}",
            "select the same outputs with outputs: [...], or change the reference",
            code="source.reference",
            where=reference,
        )
    order = module_names if set(module_names) == set(names) else names
    specs = tuple(replace(spec, name=name) for spec, name in zip(examined.signature.outputs, order, strict=True))
    torch_reference: Reference = TorchReference(examined.flat, Signature(signature.inputs, specs), root)
    if order != names:
        torch_reference = _Ordered(torch_reference, names)
    return replace(file_model, reference=torch_reference, notes=(*notes, *examined.notes), against=reference)


@dataclass(frozen=True)
class _Ordered:
    """A reference whose outputs are put into another order."""

    reference: Reference
    names: list[str]

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs by name."""
        outputs = self.reference(inputs)
        return {name: outputs[name] for name in self.names}

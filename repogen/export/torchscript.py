"""The exporters that are based on TorchScript."""

from __future__ import annotations

import io
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir
import torch
from torch.onnx.utils import register_custom_op_symbolic

from repogen.artifacts.source import Script
from repogen.errors import ExportError
from repogen.export.interface import ExportedGraph
from repogen.export.number_tensors import traced_numbers
from repogen.export.packing import MESSAGE, used_packed_outputs
from repogen.export.symbolics import register_symbolics
from repogen.export.trace_guards import ValueRead, record_reads
from repogen.onnx_graph.normalize import select_outputs

if TYPE_CHECKING:
    from repogen.export.interface import ExportRequest

_MAX_IN_MEMORY = 2**31 - 2**24
_UNSUPPORTED = re.compile(
    r"(?:Exporting the operator|ONNX export failed on an operator with unrecognized namespace"
    r"|Unsupported: ONNX export of operator) \W?([\w:]+)"
)
_HINTS = {
    MESSAGE: (
        "if the model uses only the final state of an RNN over packed rows, unpack its output with pad_packed_sequence "
        "and select the last valid step of each row: out[torch.arange(len(out)), lengths - 1]"
    ),
    "Cannot insert a Tensor that requires grad as a constant": (
        "forward uses a weight that is not registered: use nn.ModuleList or nn.ModuleDict instead of a Python list or "
        "dict of modules, and nn.Parameter for tensors"
    ),
    "For (quant_min, quant_max), ONNX allows only": (
        "use one of these ranges, or write the fake quantization with torch.round and torch.clamp"
    ),
}
"""Hints for errors of the exporter, by a part of their text."""


def export_traced(request: ExportRequest) -> ExportedGraph:
    """Trace a module and convert the trace.

    Raises:
        ExportError: Tracing failed, or would freeze a branch that depends on tensor values.
    """
    try:
        return _export_traced(request)
    except ExportError as error:
        if MESSAGE not in error.message:
            raise
        with used_packed_outputs():
            return _export_traced(request)


def _export_traced(request: ExportRequest) -> ExportedGraph:
    source = request.source
    with record_reads(len(request.args)) as reads, traced_numbers():
        module = request.module
        if isinstance(source.origin, Script):  # the exporter's own trace does not enter a script module
            module = _trace(module, request.args)
        model = _export(module, request, [spec.name for spec in source.signature.outputs])
    _reject_frozen_branches(reads.values, request.spec.allow_tracer_warnings)
    violations = (
        {**source.example_sizes, name: number + step}
        for number in sorted(reads.numbers)
        for name, dim in source.dims.items()
        for step in (-1, 0, 1)
        if dim.min <= number + step <= dim.max
    )
    return ExportedGraph(model, tuple(violations))


def export_script(request: ExportRequest) -> ExportedGraph:
    """Convert a TorchScript module without tracing it: its branches and loops become ONNX operators.

    Raises:
        ExportError: The exporter failed, or the source is not a TorchScript module.
    """
    origin = request.source.origin
    if not isinstance(origin, Script):
        raise ExportError("the source is not a TorchScript module", code="export.exporter")
    return ExportedGraph(select_outputs(_export(origin.module, request, None), origin.select))


def _reject_frozen_branches(reads: list[ValueRead], allowed: tuple[str, ...]) -> None:
    frozen = [value_read for value_read in reads if not any(_matches(value_read, location) for location in allowed)]
    if not frozen:
        return
    locations = [f"{Path(value_read.path).name}:{value_read.line}" for value_read in frozen]
    raise ExportError(
        f"tracing would freeze a branch that depends on tensor values at {', '.join(locations)}",
        "rewrite it with torch.where; or, if it never changes, allow it with export.allow_tracer_warnings: "
        f'["{locations[0]}"]',
        code="export.data-dependent",
        where=f"{frozen[0].path}:{frozen[0].line}",
    )


def _matches(value_read: ValueRead, location: str) -> bool:
    name, _, line = location.rpartition(":")
    return line == str(value_read.line) and Path(value_read.path).parts[-len(Path(name).parts) :] == Path(name).parts


def _trace(module: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> torch.nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as in _export
        try:
            traced_module: torch.nn.Module = torch.jit.trace(module, args, check_trace=False, strict=False)  # type: ignore[no-untyped-call] # as torch declares it
        except Exception as error:
            raise _explain(error) from error
    return traced_module


def _export(module: torch.nn.Module, request: ExportRequest, outputs: list[str] | None) -> ir.Model:
    source = request.source
    # A file only above protobuf's limit: TorchScript then writes each weight to a file of its own.
    # A quantized module's state also has dtypes.
    size = sum(tensor.nbytes for tensor in module.state_dict().values() if isinstance(tensor, torch.Tensor))
    destination: Path | io.BytesIO = request.directory / "traced.onnx" if size > _MAX_IN_MEMORY else io.BytesIO()
    axes = {
        spec.name: {axis: dim for axis, dim in enumerate(spec.shape) if isinstance(dim, str)}
        for spec in source.signature.inputs
    }
    register_symbolics(request.opset)
    for name, symbolic in source.operators.symbolics.items():
        register_custom_op_symbolic(name, symbolic, request.opset)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # record_reads and the parity sweep cover TracerWarnings
        try:
            torch.onnx.export(
                module,
                request.args,
                destination,  # type: ignore[arg-type] # buffers work, though not declared
                dynamo=False,
                dynamic_axes={name: dims for name, dims in axes.items() if dims},
                input_names=[spec.name for spec in source.signature.inputs],
                output_names=outputs,
                opset_version=request.opset,
            )
        except ExportError:
            raise  # of one of repogen's translations
        except Exception as error:
            raise _explain(error) from error
    if isinstance(destination, io.BytesIO):
        return ir.from_proto(onnx.load_model_from_string(destination.getvalue()))
    return ir.load(destination)


def _explain(error: Exception) -> ExportError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = lines[0] if lines else ""
    if match := _UNSUPPORTED.search(str(error)):
        return ExportError(
            f"operator {match[1]} has no ONNX translation",
            "replace it in the model, or set export.custom_symbolics",
            code="export.no-translation",
            details=str(error),
        )
    return ExportError(
        f"tracing failed: {type(error).__name__}: {first.partition('  [Caused by')[0]}",
        next((hint for part, hint in _HINTS.items() if part in first), ""),
        code="export.torchscript",
        details=str(error),
    )

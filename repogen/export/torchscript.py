"""The exporter on torch.jit.trace."""

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
from repogen.export.export_source import keep_outputs, traceable
from repogen.export.guards import DOUBTS
from repogen.export.trace_guards import ValueRead, watch_reads

if TYPE_CHECKING:
    from repogen.artifacts.source import SourceModel

_IN_MEMORY = 2**31 - 2**24
_UNSUPPORTED = re.compile(
    r"(?:Exporting the operator|ONNX export failed on an operator with unrecognized namespace) \W?([\w:]+)"
)


class TorchScript:
    """``torch.onnx.export(dynamo=False)``, which traces a module.

    Args:
        allowed: ``file.py:line`` of value-dependent reads that the spec allows.
        name: ``torchscript``, or what tells it from a rung before it.
    """

    def __init__(self, allowed: tuple[str, ...], name: str = "torchscript") -> None:
        """Keep the allowed places."""
        self._allowed = allowed
        self.name = name

    def export(self, source: SourceModel, args: tuple[torch.Tensor, ...], opset: int, directory: Path) -> ir.Model:
        """Export ``source`` with ``args`` as example inputs; ``directory`` takes the exporter's own files.

        Raises:
            ExportError: Tracing failed, or froze a branch that hangs on tensor values.
        """
        outputs = [spec.name for spec in source.signature.outputs]
        with watch_reads(len(args)) as reads:
            module = traceable(source.origin)
            if isinstance(source.origin, Script):  # which the exporter's own trace does not enter
                module = _traced(module, args)
            model = _export(module, args, source, opset, directory, outputs)
        self._refuse_frozen(reads.values)
        model.meta[DOUBTS] = [
            {**source.example_sizes, name: number + step}
            for number in sorted(reads.numbers)
            for name, dim in source.dims.items()
            for step in (-1, 0, 1)
            if dim.min <= number + step <= dim.max
        ]
        return model

    def _refuse_frozen(self, reads: list[ValueRead]) -> None:
        frozen = [read for read in reads if not any(self._matches(read, place) for place in self._allowed)]
        if not frozen:
            return
        places = ", ".join(f"{Path(read.path).name}:{read.line}" for read in frozen)
        raise ExportError(
            f"tracing freezes what hangs on tensor values at {places}: other inputs would take the same branch",
            "rewrite it with torch.where; or, if it never changes, allow it: export.allow_tracer_warnings: "
            f'["{Path(frozen[0].path).name}:{frozen[0].line}"]',
            code="export.data-dependent",
            where=f"{frozen[0].path}:{frozen[0].line}",
        )

    @staticmethod
    def _matches(read: ValueRead, place: str) -> bool:
        name, _, line = place.rpartition(":")
        return line == str(read.line) and Path(read.path).parts[-len(Path(name).parts) :] == Path(name).parts


def _traced(module: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> torch.nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as in _export
        try:
            traced: torch.nn.Module = torch.jit.trace(module, args, check_trace=False, strict=False)  # type: ignore[no-untyped-call] # as torch declares it
        except Exception as error:
            raise _explain(error) from error
    return traced


class RawScript:
    """``torch.onnx.export(dynamo=False)`` of a TorchScript module as it is: its ifs and loops become ONNX's."""

    name = "torchscript"

    def export(self, source: SourceModel, args: tuple[torch.Tensor, ...], opset: int, directory: Path) -> ir.Model:
        """Export the compiled module, its inputs in the order of its own forward.

        Raises:
            ExportError: The exporter failed.
        """
        if not isinstance(source.origin, Script):
            raise ExportError("only a TorchScript module can be exported as it is", code="export.exporter")
        model = _export(source.origin.module, args, source, opset, directory, None)
        return keep_outputs(model, source.origin.select)


def _export(
    module: torch.nn.Module,
    args: tuple[torch.Tensor, ...],
    source: SourceModel,
    opset: int,
    directory: Path,
    outputs: list[str] | None,
) -> ir.Model:
    # A file only where protobuf's limit forces one: TorchScript then writes each weight beside it.
    size = sum(tensor.nbytes for tensor in module.state_dict().values())
    destination: Path | io.BytesIO = directory / "traced.onnx" if size > _IN_MEMORY else io.BytesIO()
    axes = {
        spec.name: {axis: dim for axis, dim in enumerate(spec.shape) if isinstance(dim, str)}
        for spec in source.signature.inputs
    }
    for name, symbolic in source.operators.symbolics.items():
        register_custom_op_symbolic(name, symbolic, opset)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TracerWarnings are judged by watch_reads and the sweep
        try:
            torch.onnx.export(
                module,
                args,
                destination,  # type: ignore[arg-type] # a buffer is taken, though not declared
                dynamo=False,
                dynamic_axes={name: named for name, named in axes.items() if named},
                input_names=[spec.name for spec in source.signature.inputs],
                output_names=outputs,
                opset_version=opset,
            )
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
            "replace it in the model, or give its symbolic function: export.custom_symbolics",
            code="export.no-translation",
            details=str(error),
        )
    return ExportError(
        f"tracing failed: {type(error).__name__}: {first}", code="export.torchscript", details=str(error)
    )

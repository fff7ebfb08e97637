"""The exporter on torch.jit.trace."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir
import torch

from repogen.errors import ExportError
from repogen.export.predicates import ValueRead, watch_reads

if TYPE_CHECKING:
    from repogen.values.source import SourceModel

_IN_MEMORY = 2**31 - 2**24


class TorchScript:
    """``torch.onnx.export(dynamo=False)``.

    Args:
        allowed: ``file.py:line`` of value-dependent reads that the spec allows.
    """

    name = "torchscript"

    def __init__(self, allowed: tuple[str, ...]) -> None:
        """Keep the allowed places."""
        self._allowed = allowed

    def export(self, source: SourceModel, args: tuple[torch.Tensor, ...], opset: int, directory: Path) -> ir.Model:
        """Export ``source`` with ``args`` as example inputs; ``directory`` takes the exporter's own files.

        Raises:
            ExportError: Tracing failed, or froze a branch that hangs on tensor values.
        """
        # A file only where protobuf's limit forces one: TorchScript then writes each weight beside it.
        size = sum(tensor.nbytes for tensor in source.module.state_dict().values())
        destination: Path | io.BytesIO = directory / "traced.onnx" if size > _IN_MEMORY else io.BytesIO()
        axes = {
            spec.name: {axis: dim for axis, dim in enumerate(spec.shape) if isinstance(dim, str)}
            for spec in source.signature.inputs
        }
        with watch_reads(len(args)) as reads, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TracerWarnings are judged by watch_reads and the sweep
            try:
                torch.onnx.export(
                    source.module,
                    args,
                    destination,  # type: ignore[arg-type] # a buffer is taken, though not declared
                    dynamo=False,
                    dynamic_axes={name: named for name, named in axes.items() if named},
                    input_names=[spec.name for spec in source.signature.inputs],
                    output_names=[spec.name for spec in source.signature.outputs],
                    opset_version=opset,
                )
            except Exception as error:
                raise _explain(error) from error
        self._refuse_frozen(reads)
        if isinstance(destination, io.BytesIO):
            return ir.from_proto(onnx.load_model_from_string(destination.getvalue()))
        return ir.load(destination)

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


def _explain(error: Exception) -> ExportError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = lines[0] if lines else ""
    return ExportError(
        f"tracing failed: {type(error).__name__}: {first}", code="export.torchscript", details=str(error)
    )

"""The exporter on torch.export."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch

from repogen.artifacts.source import Program
from repogen.errors import ExportError
from repogen.export.export_source import keep_outputs, traceable
from repogen.export.guards import DOUBTS, doubts_of, noted_programs

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir

    from repogen.artifacts.source import SourceModel
    from repogen.artifacts.tensors import Signature

_STATIC = re.compile(r"inferred a static shape of (\d+) for dimension inputs\[.*?\](?:\[(\d+)\])?\.shape\[(\d+)\]")
_CALL_SITE = re.compile(r'The following call raised this error:\s+File "([^"]+)", line (\d+), in [^\n]*\n\s*([^\n]*)')
_NO_TRANSLATION = re.compile(
    r"No (?:ONNX function|decompositions?) (?:found|registered) for"
    r"[^\n]*?(?:OpOverload\(op='([\w.]+)'|([\w.:]+::?[\w.]+|aten\.[\w.]+))"
)


class Dynamo:
    """``torch.onnx.export(dynamo=True)``."""

    name = "dynamo"

    def export(self, source: SourceModel, args: tuple[torch.Tensor, ...], opset: int, directory: Path) -> ir.Model:
        """Export ``source`` with ``args`` as example inputs.

        Raises:
            ExportError: torch.export refused; the reason is in one line.
        """
        del directory  # the graph stays in memory, its weights shared with the module
        names = [spec.name for spec in source.signature.inputs]
        table: Any = dict(source.operators.translations) or None
        try:
            with noted_programs() as programs:
                made = self._export(source, args, opset, names, table)
        except Exception as error:
            raise explain(error, source.signature) from error
        if made is None:
            raise ExportError("torch.onnx.export returned nothing", code="export.dynamo")
        if isinstance(source.origin, Program):
            return keep_outputs(made.model, source.origin.select)
        if programs:
            made.model.meta[DOUBTS] = doubts_of(programs[-1], source.signature, source.dims)
        return made.model

    @staticmethod
    def _export(
        source: SourceModel,
        args: tuple[torch.Tensor, ...],
        opset: int,
        names: list[str],
        table: Any,  # noqa: ANN401 - torch's own
    ) -> torch.onnx.ONNXProgram | None:
        if isinstance(source.origin, Program):
            return torch.onnx.export(
                source.origin.program,
                dynamo=True,
                input_names=names,
                opset_version=opset,
                custom_translation_table=table,
                verbose=False,
            )
        return torch.onnx.export(
            traceable(source.origin),
            args,
            dynamo=True,
            # Names, not torch.export.Dim: with a Dim, torch falls back to a static export without a word.
            dynamic_shapes=(_shapes(source.signature),),
            input_names=names,
            output_names=[spec.name for spec in source.signature.outputs],
            opset_version=opset,
            custom_translation_table=table,
            verbose=False,
        )


def _shapes(signature: Signature) -> tuple[dict[int, str], ...]:
    return tuple(
        {axis: dim for axis, dim in enumerate(spec.shape) if isinstance(dim, str)} for spec in signature.inputs
    )


def explain(error: BaseException, signature: Signature) -> ExportError:
    """Say in one line, with file and line where known, why torch.export refused."""
    chain = [str(link) for link in _chain(error)]
    text = "\n".join(chain)
    if match := _STATIC.search(text):
        size, argument, axis = match[1], int(match[2] or 0), int(match[3])
        spec = signature.inputs[min(argument, len(signature.inputs) - 1)]
        dim = spec.shape[axis] if axis < len(spec.shape) else "?"
        return specialized(str(dim), spec.name, axis, size, text)
    if "data-dependent" in text:
        site = _CALL_SITE.search(text)
        code = f": `{site[3].strip()}`" if site else ""
        return ExportError(
            f"the model branches on the values of a tensor{code}, and an export would freeze one branch",
            "rewrite it with torch.where, or move the branch out of forward",
            code="export.data-dependent",
            where=f"{site[1]}:{site[2]}" if site else "",
            details=text,
        )
    if match := _NO_TRANSLATION.search(text):
        return ExportError(
            f"operator {(match[1] or match[2]).rstrip('.')} has no ONNX translation",
            "replace it in the model, or give its translation: export.custom_translations",
            code="export.no-translation",
            details=text,
        )
    innermost = _chain(error)[-1]
    lines = [line.strip() for line in str(innermost).splitlines() if line.strip()]
    return ExportError(
        f"torch.export failed: {type(innermost).__name__}: {lines[0] if lines else ''}",
        code="export.dynamo",
        details=text,
    )


def specialized(dim: str, tensor: str, axis: int, size: str, details: str = "") -> ExportError:
    """Return the error for a dim that was declared dynamic and came out fixed."""
    return ExportError(
        f"dim {dim!r} (axis {axis} of input {tensor!r}) is declared dynamic, but the model fixes it to {size}",
        f"look for a literal {size} in forward, such as reshape({size}, -1) or view({size}, …), and write "
        f"x.shape[{axis}] or -1 there; or declare the size {size} in the spec's shape",
        code="export.specialized-dim",
        details=details,
    )


def _chain(error: BaseException) -> list[BaseException]:
    chain = [error]
    while chain[-1].__cause__ is not None and chain[-1].__cause__ not in chain:
        chain.append(chain[-1].__cause__)
    return chain

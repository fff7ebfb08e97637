"""The exporter that is based on torch.export."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.sym_node import SymNode

from repogen.artifacts.source import Program
from repogen.errors import ExportError
from repogen.export.complex_numbers import with_real_pairs
from repogen.export.guards import guard_violations, recorded_programs
from repogen.export.interface import ExportedGraph, specialized
from repogen.export.recurrent import any_number_of_steps
from repogen.export.translations import TRANSLATIONS
from repogen.onnx_graph.normalize import name_dims, select_outputs
from repogen.onnx_graph.rewrite_rules import require_exact_constants
from repogen.source.torch.torch_frames import user_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from repogen.artifacts.tensors import Signature
    from repogen.export.interface import ExportRequest

_STATIC = re.compile(r"inferred a static shape of (\d+) for dimension inputs\[.*?\](?:\[(\d+)\])?\.shape\[(\d+)\]")
_CALL_SITE = re.compile(r'The following call raised this error:\s+File "([^"]+)", line (\d+), in [^\n]*\n\s*([^\n]*)')
_NO_TRANSLATION = re.compile(
    r"No (?:ONNX function|decompositions?) (?:found|registered) for"
    r"[^\n]*?(?:OpOverload\(op='([\w.]+)'|([\w.:]+::?[\w.]+|aten\.[\w.]+))"
)
_OPERATOR = re.compile(
    r"(?:Error when translating node|While executing) %\S+ : [^\n]*?\[target=(?:torch\.ops\.)?([\w.]+)\]"
)

_REPLACE = "replace it in the model, or set export.custom_translations"
_MAX_LINES = 3
_VIEW_OF_CHANGED = "another view of its base has been modified inplace with grad mode enabled"


def export_program(request: ExportRequest) -> ExportedGraph:
    """Convert a module or a program of torch.export with ``torch.onnx.export(dynamo=True)``.

    Raises:
        ExportError: torch.export failed; the message is the reason in one line.
    """
    source = request.source
    require_exact_constants()
    with _recorded_sizes() as lines:
        try:
            with recorded_programs(with_real_pairs) as programs, any_number_of_steps():
                onnx_program = _export_with_views(request)
        except Exception as error:
            raise _with_line(explain(error, source.signature), lines) from error
    if onnx_program is None:
        raise ExportError("torch.onnx.export returned nothing", code="export.dynamo")
    if isinstance(source.origin, Program):
        model = select_outputs(onnx_program.model, source.origin.select)
        name_dims(model, source.signature)
        return ExportedGraph(model)
    violations = guard_violations(programs[-1], source.signature, source.dims) if programs else ()
    return ExportedGraph(onnx_program.model, violations)


@contextmanager
def _recorded_sizes() -> Iterator[list[str]]:
    """Record the lines of the user's files in which a dynamic size becomes a constant."""
    lines: list[str] = []
    names = ("guard_int", "guard_float")
    originals = {name: getattr(SymNode, name) for name in names}

    def recorded(original: Callable[..., Any]) -> Callable[..., Any]:
        def guard(self: Any, file: str, line: int) -> Any:  # noqa: ANN401 - as torch declares it
            if getattr(self.expr, "free_symbols", None) and (at := user_line()) and at[0] != "<" and "/" not in at:
                lines.append(at)
            return original(self, file, line)

        return guard

    for name, original in originals.items():
        setattr(SymNode, name, recorded(original))
    try:
        yield lines
    finally:
        for name, original in originals.items():
            setattr(SymNode, name, original)


def _with_line(error: ExportError, lines: list[str]) -> ExportError:
    """Return the error for a fixed dim with the lines that fix it."""
    if error.code != "export.specialized-dim" or not lines:
        return error
    return ExportError(
        f"{error.message}, at {', '.join(list(dict.fromkeys(lines))[:_MAX_LINES])}",
        f"{error.hint}; torch.tensor([…]) keeps sizes dynamic, and torch.Tensor([…]) and NumPy do not",
        code=error.code,
        where=error.where,
        details=error.details,
    )


def _export_with_views(request: ExportRequest) -> torch.onnx.ONNXProgram | None:
    """Export a module; without gradients if it changes an input or a buffer in place, of which it has taken views.

    With gradients, torch.export rejects such modules if the values that are written depend on a weight. Without
    gradients, some operators, such as matmul, are decomposed differently, so all other modules are exported with them.
    """
    try:
        return _export(request)
    except Exception as error:
        if not any(_VIEW_OF_CHANGED in str(link) for link in _chain(error)):
            raise
    with torch.no_grad():
        return _export(request)


def _export(request: ExportRequest) -> torch.onnx.ONNXProgram | None:
    source = request.source
    names = [spec.name for spec in source.signature.inputs]
    translations: Any = {**TRANSLATIONS, **source.operators.translations}
    if isinstance(source.origin, Program):
        return torch.onnx.export(
            with_real_pairs(source.origin.program),
            dynamo=True,
            input_names=names,
            opset_version=request.opset,
            custom_translation_table=translations,
            verbose=False,
        )
    return torch.onnx.export(
        request.module,
        request.args,
        dynamo=True,
        # Names, not torch.export.Dim: with a Dim, torch silently falls back to a static export.
        dynamic_shapes=(_shapes(source.signature),),
        input_names=names,
        output_names=[spec.name for spec in source.signature.outputs],
        opset_version=request.opset,
        custom_translation_table=translations,
        verbose=False,
    )


def _shapes(signature: Signature) -> tuple[dict[int, str], ...]:
    return tuple(
        {axis: dim for axis, dim in enumerate(spec.shape) if isinstance(dim, str)} for spec in signature.inputs
    )


def explain(error: BaseException, signature: Signature) -> ExportError:
    """Return the reason why torch.export failed, in one line, with file and line if it reports them."""
    chain = _chain(error)
    if own := next((link for link in chain if isinstance(link, ExportError)), None):
        return own  # of one of repogen's translations
    text = "\n".join(str(link) for link in chain)
    if match := _STATIC.search(text):
        size, argument, axis = match[1], int(match[2] or 0), int(match[3])
        spec = signature.inputs[min(argument, len(signature.inputs) - 1)]
        return specialized(signature, spec.name, axis, size, text)
    if "data-dependent" in text:
        site = _CALL_SITE.search(text)
        code = f": `{site[3].strip()}`" if site else ""
        return ExportError(
            f"the model branches on tensor values{code}; the exported graph would contain only one branch",
            "rewrite it with torch.where, or move the branch out of forward",
            code="export.data-dependent",
            where=f"{site[1]}:{site[2]}" if site else "",
            details=text,
        )
    if match := _NO_TRANSLATION.search(text):
        return ExportError(
            f"operator {(match[1] or match[2]).rstrip('.')} has no ONNX translation",
            _REPLACE,
            code="export.no-translation",
            details=text,
        )
    innermost = chain[-1]
    lines = [line.strip() for line in str(innermost).splitlines() if line.strip()]
    reason = f"{type(innermost).__name__}: {lines[0].partition(' Signature: ')[0] if lines else ''}"
    match = _OPERATOR.search(text)
    return ExportError(
        f"the export of operator {match[1]} failed: {reason}" if match else f"torch.export failed: {reason}",
        _REPLACE if match else "",
        code="export.dynamo",
        details=text,
    )


def _chain(error: BaseException) -> list[BaseException]:
    chain = [error]
    while chain[-1].__cause__ is not None and chain[-1].__cause__ not in chain:
        chain.append(chain[-1].__cause__)
    return chain

"""The interface of an exporter, which entry points of ``repogen.exporters`` implement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from repogen.artifacts.source import Eager, Program, Script
from repogen.errors import ExportError

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir
    import torch
    from pydantic import BaseModel

    from repogen.artifacts.source import Origin, SourceModel
    from repogen.artifacts.tensors import Signature, Sizes
    from repogen.spec.models import ExportSpec


@dataclass(frozen=True)
class ExportRequest:
    """What one exporter is to export.

    Attributes:
        source: The model.
        args: Example inputs in the order of the signature.
        opset: Version of the ``ai.onnx`` domain.
        directory: Existing directory for the exporter's own files.
        spec: The ``export:`` section.
        options: ``export.options``, an instance of the exporter's ``options_model``.
    """

    source: SourceModel
    args: tuple[torch.Tensor, ...]
    opset: int
    directory: Path
    spec: ExportSpec
    options: BaseModel

    @property
    def module(self) -> torch.nn.Module:
        """The model as a module that takes the inputs as positional tensors and returns a tuple of tensors.

        Raises:
            ExportError: The source is not a PyTorch model.
        """
        match self.source.origin:
            case Eager() | Program() as origin:
                return origin.module
            case Script() as origin:
                return origin.traced
        raise ExportError("the source is not a PyTorch model", code="export.exporter")


@dataclass(frozen=True)
class ExportedGraph:
    """What an exporter returns.

    Attributes:
        model: The graph; its inputs and outputs are in the order of the signature, under any name.
        guard_violations: Sizes at which the graph may be wrong because the exporter assumed that others are used.
            Parity is measured at these sizes.
    """

    model: ir.Model
    guard_violations: tuple[Sizes, ...] = ()


@runtime_checkable
class Exporter(Protocol):
    """A way to convert a model to ONNX; the entry point is a class without constructor arguments.

    The module of the class is imported when a spec sets ``export.options``: import torch in ``export``, not at the top.

    Attributes:
        name: Name of the entry point. ``export.exporter: NAME`` also selects the variants ``NAME-*``.
        priority: Position in the fallback chain; lower numbers are tried first.
        options_model: Pydantic model of ``export.options``; ``NoOptions`` for none.
    """

    name: str
    priority: int
    options_model: type[BaseModel]

    def accepts(self, origin: Origin) -> bool:
        """Return whether the exporter supports this kind of source."""

    def export(self, request: ExportRequest) -> ExportedGraph:
        """Convert the model.

        Raises:
            ExportError: It cannot be converted; the message is the reason in one line.
        """


def specialized(signature: Signature, tensor: str, axis: int, size: str, details: str = "") -> ExportError:
    """Return the error for a dim that is declared dynamic and is fixed in the graph.

    Args:
        signature: The declared inputs.
        tensor: The input.
        axis: Its axis.
        size: The size in the graph.
        details: The exporter's own message.
    """
    shape = next(spec.shape for spec in signature.inputs if spec.name == tensor)
    dim = shape[axis] if axis < len(shape) else "?"
    fixed = ", ".join(
        f"{spec.name}: {{dtype: {spec.dtype}, shape: [{', '.join(size if d == dim else str(d) for d in spec.shape)}]"
        f"{', range: [0, …]' if 'int' in spec.dtype else ''}}}"
        for spec in signature.inputs
    )
    return ExportError(
        f"dim {str(dim)!r} (axis {axis} of input {tensor!r}) is declared dynamic, but the model fixes it to {size}",
        f"replace the literal {size} in forward, such as in reshape({size}, -1) or view({size}, …), with "
        f"x.shape[{axis}] or -1; if the code is in a library, declare the one size that clients send: "
        f"inputs: {{{fixed}}}",
        code="export.specialized-dim",
        details=details,
    )

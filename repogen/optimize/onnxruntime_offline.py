"""The pass ``onnxruntime-offline``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from repogen.optimize.interface import Pass, PassOptions, PassRequest
from repogen.triton_config.sections.base import must_be

if TYPE_CHECKING:
    import onnx_ir as ir

# Operators that only some instruction sets have; ONNX Runtime creates them at the level "layout".
_MACHINE_DEPENDENT = frozenset({"com.microsoft.nchwc", "com.ms.internal.nhwc"})


class OfflineOptions(PassOptions):
    """The options of the pass."""

    level: Annotated[Literal["basic", "extended"], must_be("basic or extended")] = Field(
        default="extended",
        description="basic: folding and elimination; extended: also fusions to operators of ONNX Runtime",
    )


class OnnxruntimeOffline(Pass):
    """ONNX Runtime's own graph optimizations, saved instead of repeated whenever the server loads the model.

    The installed ONNX Runtime optimizes the graph. If the older one of the target cannot load the result, the worker
    drops it.
    """

    name = "onnxruntime-offline"
    options_model = OfflineOptions
    gated = True

    def __call__(self, request: PassRequest) -> ir.Model:
        """Return the optimized graph."""
        import onnx_ir as ir  # noqa: PLC0415 - the module is imported without the extra `build`

        from repogen.optimize.runtime import write_optimized  # noqa: PLC0415 - the same

        level = request.options.level if isinstance(request.options, OfflineOptions) else "extended"
        return ir.load(write_optimized(request.artifact, level, request.directory))

    def ensures(self, request: PassRequest, result: ir.Model) -> str:
        """Reject operators that only some processors have."""
        del request
        domains = sorted({node.domain for node in result.graph.all_nodes()} & _MACHINE_DEPENDENT)
        return f"its result has operators of {domains[0]}, which depend on the processor" if domains else ""

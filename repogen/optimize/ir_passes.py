"""The passes ``ir-cleanup`` and ``ort-fusions``, which transform the graph with onnx_ir and onnxscript."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.onnx_graph.rewrite_rules import require_exact_constants
from repogen.optimize.interface import Pass, PassRequest

if TYPE_CHECKING:
    import onnx_ir as ir

_CONTRIB = "com.microsoft"


class IrCleanup(Pass):
    """Constant folding, and removal of duplicate and dead nodes, of models of any size."""

    name = "ir-cleanup"

    def __call__(self, request: PassRequest) -> ir.Model:
        """Return the graph without what it does not need."""
        import onnx_ir as ir  # noqa: PLC0415 - the module is imported without the extra `build`
        from onnx_ir.passes import common  # noqa: PLC0415 - the same
        from onnxscript.optimizer import fold_constants  # noqa: PLC0415 - the same

        model = ir.load(request.artifact.path)
        fold_constants(model)
        ir.passes.Sequential(
            common.IdentityEliminationPass(),
            common.LiftConstantsToInitializersPass(),
            common.DeduplicateHashedInitializersPass(),
            common.CommonSubexpressionEliminationPass(),
            common.RemoveUnusedNodesPass(),
            common.RemoveUnusedFunctionsPass(),  # type: ignore[no-untyped-call] # its constructor has no annotations
            common.RemoveUnusedOpsetsPass(),
        )(model)
        return model

    def ensures(self, request: PassRequest, result: ir.Model) -> str:
        """Reject a graph with more nodes than before."""
        after = sum(1 for _ in result.graph.all_nodes())
        before = request.artifact.nodes
        return f"its result has more nodes ({before} -> {after})" if after > before else ""


class OrtFusions(Pass):
    """onnxscript's fusions for ONNX Runtime: attention, layer normalization and Gelu as contributed operators."""

    name = "ort-fusions"
    gated = True

    def __call__(self, request: PassRequest) -> ir.Model:
        """Return the graph with fused operators."""
        import onnx_ir as ir  # noqa: PLC0415 - the module is imported without the extra `build`
        from onnxscript.rewriter.ort_fusions import optimize_for_ort  # noqa: PLC0415 - the same

        require_exact_constants()
        model, _ = optimize_for_ort(ir.load(request.artifact.path))
        fused: ir.Model = model
        return fused

    def ensures(self, request: PassRequest, result: ir.Model) -> str:
        """Require at least one fused operator; folding alone is what ``ir-cleanup`` is for."""
        del request
        is_fused = any(node.domain == _CONTRIB for node in result.graph.all_nodes())
        return "" if is_fused else "none of its patterns is in the graph"

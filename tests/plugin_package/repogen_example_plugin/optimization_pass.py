"""An optimization pass: replaces MatMul and Add by Gemm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import PositiveInt

from repogen.optimize.interface import Pass, PassOptions, PassRequest

if TYPE_CHECKING:
    import onnx_ir as ir


class FuseGemmOptions(PassOptions):
    """The options of the pass ``fuse-gemm``.

    Attributes:
        max_elements: Largest weight that is fused.
    """

    max_elements: PositiveInt = 1_000_000


class FuseGemm(Pass):
    """Fuses the product of an input of rank 2 and a weight with the addition of a bias."""

    name = "fuse-gemm"
    options_model = FuseGemmOptions

    def requires(self, request: PassRequest) -> str:
        """Reject models with external data."""
        return "the model has external data" if request.artifact.external_data else ""

    def __call__(self, request: PassRequest) -> ir.Model:
        """Return the graph with fused nodes."""
        import onnx_ir as ir  # noqa: PLC0415 - specs are validated with this module, so it stays small

        options = request.options
        largest = options.max_elements if isinstance(options, FuseGemmOptions) else 0
        model = ir.load(request.artifact.path)
        for addition in list(model.graph):
            product = addition.inputs[0].producer() if addition.op_type == "Add" and addition.inputs[0] else None
            if product is None or product.op_type != "MatMul" or not _is_small(product.inputs[1], largest):
                continue
            fused = ir.node("Gemm", [*product.inputs, addition.inputs[1]])
            fused.outputs[0].name = f"{addition.outputs[0].name}_fused"
            fused.outputs[0].type, fused.outputs[0].shape = addition.outputs[0].type, addition.outputs[0].shape
            model.graph.insert_after(addition, fused)
            ir.convenience.replace_all_uses_with(addition.outputs, fused.outputs, replace_graph_outputs=True)
            model.graph.remove([addition, product], safe=True)
        return model

    def ensures(self, request: PassRequest, result: ir.Model) -> str:
        """Require a fused node."""
        return "" if len(result.graph) < request.artifact.nodes else "no product was fused"


def _is_small(weight: ir.Value | None, largest: int) -> bool:
    return weight is not None and weight.const_value is not None and weight.const_value.size <= largest

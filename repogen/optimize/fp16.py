"""The pass ``fp16``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.optimize.interface import Pass, PassRequest
from repogen.optimize.reduced_precision import (
    ReducedPrecisionOptions,
    check_excluded,
    excluded_nodes,
    load,
    too_large,
)

if TYPE_CHECKING:
    import onnx_ir as ir


class Fp16(Pass):
    """float16 weights and computation; inputs and outputs stay float32."""

    name = "fp16"
    options_model = ReducedPrecisionOptions
    precision = "float16"
    gated = True

    def requires(self, request: PassRequest) -> str:
        """Require a graph of less than 2 GB with a float32 weight.

        Raises:
            SourceError: A name in ``exclude`` is not that of a node.
        """
        import onnx  # noqa: PLC0415 - the module is imported without the extra `build`
        from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST  # noqa: PLC0415 - the same

        if reason := too_large(request.artifact, "onnxruntime.transformers.float16"):
            return reason
        model = load(request.artifact, weights=False)
        if not any(tensor.data_type == onnx.TensorProto.FLOAT for tensor in model.graph.initializer):
            return "the graph has no float32 weights"
        convertible = [node for node in model.graph.node if node.op_type not in DEFAULT_OP_BLOCK_LIST]
        check_excluded(model, _options(request).exclude, convertible)
        return ""

    def __call__(self, request: PassRequest) -> ir.Model:
        """Return the graph in float16."""
        import onnx_ir as ir  # noqa: PLC0415 - the module is imported without the extra `build`
        from onnxruntime.transformers.float16 import convert_float_to_float16  # noqa: PLC0415 - the same

        model = load(request.artifact)
        excluded = excluded_nodes(model, _options(request))
        converted = convert_float_to_float16(model, keep_io_types=True, node_block_list=excluded)
        result: ir.Model = ir.from_proto(converted)
        result.graph.sort()  # the tool appends the casts of the inputs
        return result

    def ensures(self, request: PassRequest, result: ir.Model) -> str:
        """Require a float16 weight."""
        import onnx_ir as ir  # noqa: PLC0415 - the module is imported without the extra `build`

        del request
        is_half = any(value.dtype == ir.DataType.FLOAT16 for value in result.graph.initializers.values())
        return "" if is_half else "it converted no weight: every node is excluded, or stays in float32"


def _options(request: PassRequest) -> ReducedPrecisionOptions:
    return request.options if isinstance(request.options, ReducedPrecisionOptions) else ReducedPrecisionOptions()

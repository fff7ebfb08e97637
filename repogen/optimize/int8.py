"""The passes ``int8-dynamic`` and ``int8-static``: ONNX Runtime's quantization of weights and activations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, StrictBool

from repogen.optimize.interface import Pass, PassRequest
from repogen.optimize.reduced_precision import (
    ReducedPrecisionOptions,
    check_excluded,
    excluded_nodes,
    load,
    too_large,
)
from repogen.triton_config.sections.base import must_be

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx
    import onnx_ir as ir

    from repogen.optimize.calibration import Batches

_TOOL = "onnxruntime.quantization"
_PRODUCTS = ("MatMul", "Gemm")
_DYNAMIC_OPSET = 11
"""The first opset with DynamicQuantizeLinear."""
_PER_CHANNEL_OPSET = 13
"""The first opset whose DequantizeLinear has an axis."""
_QUANTIZED = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger"})

Operator = Annotated[Literal["Conv", "Gemm", "MatMul"], must_be("Conv, Gemm or MatMul")]


class Int8Options(ReducedPrecisionOptions):
    """The options of ``int8-dynamic``."""

    per_channel: StrictBool = Field(default=True, description="One scale for each output channel of a weight")
    reduce_range: StrictBool = Field(
        default=False, description="Weights of 7 bits, for processors without VNNI, on which 8 bits can overflow"
    )


class Int8StaticOptions(Int8Options):
    """The options of ``int8-static``."""

    calibration: Annotated[str, Field(min_length=1), must_be("a .npz file or file.py:callable")] = Field(
        description='Inputs from which the ranges of activations are measured: a .npz file, or "file.py:callable"'
    )
    operators: Annotated[tuple[Operator, ...], Field(min_length=1)] = Field(
        default=("Conv", "Gemm", "MatMul"), description="Operators that are quantized"
    )
    symmetric: StrictBool = Field(
        default=False, description="Signed activations with a zero point of 0, which TensorRT requires"
    )

    files: ClassVar[tuple[str, ...]] = ("calibration",)


class Int8Dynamic(Pass):
    """int8 weights of MatMul and Gemm; the ranges of activations are measured at each request.

    Conv is not quantized: its dynamic form is slower than float32 in ONNX Runtime. Only products with a constant weight
    are quantized.
    """

    name = "int8-dynamic"
    options_model = Int8Options
    precision = "qint8"
    gated = True

    def requires(self, request: PassRequest) -> str:
        """Require a graph of less than 2 GB with a product to quantize.

        Raises:
            SourceError: A name in ``exclude`` is not that of a node.
        """
        return _obstacle(request, _PRODUCTS, _DYNAMIC_OPSET)

    def __call__(self, request: PassRequest) -> ir.Model:
        """Return the quantized graph."""
        from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415 - imported without `build`

        model, options = load(request.artifact), _options(request)
        output = request.directory / "int8.onnx"
        quantize_dynamic(
            model,
            output,
            op_types_to_quantize=list(_PRODUCTS),
            per_channel=options.per_channel,
            reduce_range=options.reduce_range,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=excluded_nodes(model, options),
            extra_options={"MatMulConstBOnly": True},
        )
        return _read(output)

    def ensures(self, request: PassRequest, result: ir.Model) -> str:
        """Require a quantized operator."""
        del request
        return _not_quantized(result)


class Int8Static(Pass):
    """int8 weights and activations as QuantizeLinear and DequantizeLinear; ranges come from calibration data."""

    name = "int8-static"
    options_model = Int8StaticOptions
    precision = "qint8"
    gated = True

    def requires(self, request: PassRequest) -> str:
        """Require a graph of less than 2 GB with an operator to quantize.

        Raises:
            SourceError: A name in ``exclude`` is not that of a node.
        """
        options = request.options
        operators = options.operators if isinstance(options, Int8StaticOptions) else ()
        oldest = _PER_CHANNEL_OPSET if _options(request).per_channel else 0
        return _obstacle(request, operators, oldest)

    def __call__(self, request: PassRequest) -> ir.Model:
        """Return the quantized graph.

        Raises:
            SourceError: The calibration data cannot be read, or do not match the inputs.
        """
        from onnxruntime.quantization import (  # noqa: PLC0415 - the module is imported without the extra `build`
            QuantFormat,
            QuantType,
            quantize_static,
        )

        from repogen.optimize.calibration import calibration_batches  # noqa: PLC0415 - the same

        options = request.options
        if not isinstance(options, Int8StaticOptions):
            raise TypeError("options are not Int8StaticOptions")
        batches = calibration_batches(options.calibration, request.root, request.artifact.signature)
        model, output = load(request.artifact), request.directory / "int8.onnx"
        quantize_static(
            model,
            output,
            _reader(batches),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=list(options.operators),
            per_channel=options.per_channel,
            reduce_range=options.reduce_range,
            activation_type=QuantType.QInt8 if options.symmetric else QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=excluded_nodes(model, options),
            extra_options={"ActivationSymmetric": options.symmetric, "MatMulConstBOnly": True},
        )
        return _read(output)

    def ensures(self, request: PassRequest, result: ir.Model) -> str:
        """Require a quantized operator."""
        del request
        return _not_quantized(result)


def _options(request: PassRequest) -> Int8Options:
    return request.options if isinstance(request.options, Int8Options) else Int8Options()


def _obstacle(request: PassRequest, operators: Sequence[str], oldest_opset: int) -> str:
    """Return why a graph cannot be quantized; empty if it can.

    Raises:
        SourceError: A name in ``exclude`` is not that of a node.
    """
    artifact = request.artifact
    if reason := too_large(artifact, _TOOL):
        return reason
    if artifact.opset < oldest_opset:
        return f"the graph has opset {artifact.opset}, and the pass needs {oldest_opset}: set export.opset"
    model = load(artifact, weights=False)
    if any(node.op_type in _QUANTIZED for node in model.graph.node):
        return "the graph is quantized already"
    weighted = _weighted(model, operators)
    if not weighted:
        return f"the graph has no {' or '.join(operators)} with a constant weight"
    check_excluded(model, _options(request).exclude, weighted)
    return ""


def _weighted(model: onnx.ModelProto, operators: Sequence[str]) -> list[onnx.NodeProto]:
    """Return the nodes of some operators whose second input is a constant."""
    constants = {tensor.name for tensor in model.graph.initializer}
    constants |= {name for node in model.graph.node if node.op_type == "Constant" for name in node.output}
    return [
        node
        for node in model.graph.node
        if node.op_type in operators and len(node.input) > 1 and node.input[1] in constants
    ]


def _not_quantized(result: ir.Model) -> str:
    is_quantized = any(node.op_type in _QUANTIZED for node in result.graph.all_nodes())
    return "" if is_quantized else "it quantized nothing: every operator is excluded or has no constant weight"


def _read(path: Any) -> ir.Model:  # noqa: ANN401 - a path
    import onnx_ir as ir  # noqa: PLC0415 - the module is imported without the extra `build`

    return ir.load(path)


def _reader(batches: Batches) -> Any:  # noqa: ANN401 - onnxruntime is not typed
    """Return batches in the form that ONNX Runtime reads."""
    from onnxruntime.quantization import CalibrationDataReader  # noqa: PLC0415 - imported without `build`

    class Reader(CalibrationDataReader):  # type: ignore[misc] # onnxruntime is not typed
        """Returns one batch after the other, then None."""

        def get_next(self) -> Any:  # noqa: ANN401 - the same
            return next(batches, None)

    return Reader()

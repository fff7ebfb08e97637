"""An exporter: writes a model that is one ``torch.nn.Linear`` as one or two ONNX nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, StrictBool

from repogen.artifacts.source import Eager
from repogen.errors import ExportError
from repogen.export.interface import ExportedGraph

if TYPE_CHECKING:
    from repogen.artifacts.source import Origin
    from repogen.export.interface import ExportRequest


class LinearOptions(BaseModel):
    """The options of the exporter ``linear``.

    Attributes:
        fused: Whether to write one Gemm node instead of MatMul and Add.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    fused: StrictBool = True


class LinearExporter:
    """Reads the weights of the layer, and does not trace the model."""

    name = "linear"
    priority = 100  # after the built-in exporters
    options_model: type[BaseModel] = LinearOptions

    def accepts(self, origin: Origin) -> bool:
        """Accept PyTorch modules."""
        return isinstance(origin, Eager)

    def export(self, request: ExportRequest) -> ExportedGraph:
        """Build the graph.

        Raises:
            ExportError: The model is not a single linear layer.
        """
        import onnx  # noqa: PLC0415 - specs are validated with this module, so it stays small
        import onnx_ir as ir  # noqa: PLC0415 - the same
        import torch  # noqa: PLC0415 - the same

        layers = [layer for layer in request.module.modules() if not list(layer.children())]
        if len(layers) != 1 or not isinstance(layers[0], torch.nn.Linear):
            raise ExportError("the model is not a single torch.nn.Linear", code="export.linear")
        parameters = dict(layers[0].named_parameters())
        weight, bias = (parameters[name].detach().numpy() for name in ("weight", "bias"))
        options = request.options
        if isinstance(options, LinearOptions) and options.fused:
            nodes = [onnx.helper.make_node("Gemm", ["x", "weight", "bias"], ["y"])]
        else:
            product = onnx.helper.make_node("MatMul", ["x", "weight"], ["product"])
            nodes = [product, onnx.helper.make_node("Add", ["product", "bias"], ["y"])]
        batch = request.source.signature.inputs[0].shape[0]
        graph = onnx.helper.make_graph(
            nodes,
            "linear",
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [batch, weight.shape[1]])],
            [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [batch, weight.shape[0]])],
            [
                onnx.numpy_helper.from_array(weight.T.copy(), "weight"),
                onnx.numpy_helper.from_array(bias, "bias"),
            ],
        )
        opset = onnx.helper.make_opsetid("", request.opset)
        return ExportedGraph(ir.from_proto(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=9)))

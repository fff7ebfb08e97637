"""The pass ``onnxsim``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.optimize.interface import Pass, PassRequest

if TYPE_CHECKING:
    import onnx_ir as ir

# onnxsim needs about five times the size of what it simplifies.
_LARGE = 2**20
# onnxsim reads and writes one protobuf message.
_LIMIT = 2**31 - 2**20
# Operators that no rule of onnxsim computes together with a weight. Convolutions are fused with what follows them.
_OPERATORS = frozenset({"MatMul", "Gemm", "Gather"})
# Operators whose outputs onnxsim may know without the values of their inputs.
_OF_SHAPES = frozenset({"Shape", "Size"})


class Onnxsim(Pass):
    """Constant folding and simplification by onnxsim, without the large weights that it would not change."""

    name = "onnxsim"

    def __call__(self, request: PassRequest) -> ir.Model:
        """Return the simplified graph.

        Raises:
            RuntimeError: onnxsim's own check of its result failed, or what it needs has more than 2 GB.
        """
        import onnx_ir as ir  # noqa: PLC0415 - the module is imported without the extra `build`
        import onnxsim  # noqa: PLC0415 - the same
        from onnx_ir.passes.common import DeduplicateHashedInitializersPass  # noqa: PLC0415 - the same

        model = ir.load(request.artifact.path)
        DeduplicateHashedInitializersPass()(model)  # onnxsim removes duplicates of the weights that it reads
        weights = _detach_weights(model.graph)
        if sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value) > _LIMIT:
            raise RuntimeError("onnxsim needs constants of more than 2 GB, and reads less than 2 GB")
        ir.external_data.load_to_model(model)
        simplified, is_valid = onnxsim.simplify(ir.to_proto(model))
        if not is_valid:
            raise RuntimeError("onnxsim's own check of its result failed")
        result: ir.Model = ir.from_proto(simplified)
        _attach_weights(result.graph, weights)
        return result


def _detach_weights(graph: ir.Graph) -> dict[str, ir.TensorProtocol]:
    """Make inputs of the large weights that onnxsim would not change; return their values by name."""
    constants = _constants(graph)
    weights: dict[str, ir.TensorProtocol] = {}
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        if tensor is None or tensor.nbytes < _LARGE or value in graph.outputs or not value.uses():
            continue
        if all(_is_computed(use.node, graph, constants) for use in value.uses()):
            weights[name] = tensor
            del graph.initializers[name]
            value.const_value = None
            graph.inputs.append(value)
    return weights


def _attach_weights(graph: ir.Graph, weights: dict[str, ir.TensorProtocol]) -> None:
    """Make initializers of the inputs that are weights, except for those that no node uses."""
    values = [value for value in graph.inputs if value.name in weights]
    graph.inputs[:] = [value for value in graph.inputs if value.name not in weights]
    for value in values:
        if value.uses():
            value.const_value = weights[value.name or ""]
            graph.register_initializer(value)


def _is_computed(node: ir.Node, graph: ir.Graph, constants: set[ir.Value]) -> bool:
    """Return whether a node of the graph itself depends on the model's inputs, and no rule computes with its weight."""
    inputs = [value for value in node.inputs if value is not None]
    return node.graph is graph and node.op_type in _OPERATORS and any(value not in constants for value in inputs)


def _constants(graph: ir.Graph) -> set[ir.Value]:
    """Return the values that do not depend on the values of the model's inputs."""
    constants = set(graph.initializers.values())
    for node in graph:
        if node.op_type in _OF_SHAPES or all(value is None or value in constants for value in node.inputs):
            constants.update(node.outputs)
    return constants

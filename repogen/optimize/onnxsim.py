"""The pass ``onnxsim``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.optimize.interface import Pass, PassRequest

if TYPE_CHECKING:
    import onnx_ir as ir


class Onnxsim(Pass):
    """Constant folding and simplification by onnxsim."""

    name = "onnxsim"

    def requires(self, request: PassRequest) -> str:
        """Reject models with external data: onnxsim reads a model from one file of less than 2 GB."""
        return "the model has external data" if request.artifact.external_data else ""

    def __call__(self, request: PassRequest) -> ir.Model:
        """Return the simplified graph.

        Raises:
            RuntimeError: onnxsim's own check of its result failed.
        """
        import onnx  # noqa: PLC0415 - the module is imported without the extra `build`
        import onnx_ir as ir  # noqa: PLC0415 - the same
        import onnxsim  # noqa: PLC0415 - the same

        simplified, is_valid = onnxsim.simplify(onnx.load(request.artifact.path))
        if not is_valid:
            raise RuntimeError("onnxsim's own check of its result failed")
        result: ir.Model = ir.from_proto(simplified)
        return result

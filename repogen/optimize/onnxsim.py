"""The pass ``onnxsim``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.plugins import NoOptions

if TYPE_CHECKING:
    import onnx_ir as ir
    from pydantic import BaseModel

    from repogen.artifacts.built_model import OnnxArtifact


class Onnxsim:
    """Constant folding and simplification by onnxsim."""

    name = "onnxsim"
    options_model: type[BaseModel] = NoOptions

    def requires(self, artifact: OnnxArtifact) -> str:
        """Reject models with external data: onnxsim reads a model from one file of less than 2 GB."""
        return "the model has external data" if artifact.external_data else ""

    def __call__(self, artifact: OnnxArtifact, options: BaseModel) -> ir.Model:
        """Return the simplified graph.

        Raises:
            RuntimeError: onnxsim's own check of its result failed.
        """
        import onnx  # noqa: PLC0415 - the module is imported without the extra `build`
        import onnx_ir as ir  # noqa: PLC0415 - the same
        import onnxsim  # noqa: PLC0415 - the same

        del options
        simplified, is_valid = onnxsim.simplify(onnx.load(artifact.path))
        if not is_valid:
            raise RuntimeError("onnxsim's own check of its result failed")
        result: ir.Model = ir.from_proto(simplified)
        return result

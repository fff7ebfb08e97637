"""onnxsim as a pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

if TYPE_CHECKING:
    from repogen.artifacts.built_model import OnnxArtifact


class Onnxsim:
    """Constant folding and simplification by onnxsim."""

    name = "onnxsim"

    def requires(self, artifact: OnnxArtifact) -> str:
        """Return why onnxsim cannot run: it takes models in one piece of less than 2 GB."""
        return "the model has external data" if artifact.external_data else ""

    def __call__(self, artifact: OnnxArtifact) -> onnx.ModelProto:
        """Return the simplified model.

        Raises:
            RuntimeError: onnxsim's own check of its result failed.
        """
        import onnxsim  # noqa: PLC0415 - imports torch; only when the spec asks for it

        simplified, passed = onnxsim.simplify(onnx.load(artifact.path))
        if not passed:
            raise RuntimeError("onnxsim's own check of its result failed")
        if not isinstance(simplified, onnx.ModelProto):
            raise TypeError(f"onnxsim returned {type(simplified).__name__}")
        return simplified

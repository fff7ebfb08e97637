"""The interface of an optimization pass, which entry points of ``repogen.passes`` implement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import onnx_ir as ir
    from pydantic import BaseModel

    from repogen.artifacts.built_model import OnnxArtifact


@runtime_checkable
class Pass(Protocol):
    """A transformation of a graph; the entry point is a class without constructor arguments.

    ``repogen.optimize.passes`` runs every pass in three steps: ``requires``, the call, and the checks of its result.
    The worker then validates the result, and drops all passes if it is wrong.

    The module of the class is imported when a spec sets options of the pass: import other packages in ``__call__``.

    Attributes:
        name: Name of the entry point.
        options_model: Pydantic model of the pass's options; ``NoOptions`` for none.
    """

    name: str
    options_model: type[BaseModel]

    def requires(self, artifact: OnnxArtifact) -> str:
        """Return why the pass cannot run on the model; empty if it can."""

    def __call__(self, artifact: OnnxArtifact, options: BaseModel) -> ir.Model:
        """Return the transformed graph.

        Args:
            artifact: The model, whose files must not be changed.
            options: An instance of ``options_model``.

        Raises:
            Exception: The pass failed; the build continues without it and reports the reason.
        """

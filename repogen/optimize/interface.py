"""The interface of an optimization pass, which entry points of ``repogen.passes`` implement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from repogen.plugins import NoOptions
from repogen.triton_config.sections.base import Section

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir
    from pydantic import BaseModel

    from repogen.artifacts.built_model import OnnxArtifact, Precision
    from repogen.targets import Target


@dataclass(frozen=True)
class PassRequest:
    """What a pass is to transform.

    Attributes:
        artifact: The graph on disk; its files must not be changed.
        options: An instance of the pass's ``options_model``.
        target: The release that will serve the graph.
        root: Directory of the spec; paths in the options are relative to it.
        directory: Existing directory for the pass's own files.
    """

    artifact: OnnxArtifact
    options: BaseModel
    target: Target
    root: Path
    directory: Path


class PassOptions(Section):
    """Base class for the options of a pass; a plug-in may use any pydantic model instead.

    Attributes:
        files: Names of the options that are paths of input files, relative to the spec, or callables
            (``file.py:callable``). Files must exist when the spec is loaded, and a change to their contents starts a
            new build.
    """

    files: ClassVar[tuple[str, ...]] = ()


class Pass(ABC):
    """A transformation of a graph; the entry point is a subclass without constructor arguments.

    ``repogen.optimize.passes`` runs every pass in one place: ``requires``, the call, ``ensures``, and the checks that
    apply to every pass. The worker then verifies the result; if it is wrong, the graph before the pass is used.

    The module of the class is imported when a spec selects the pass: import other packages in its methods.

    Attributes:
        name: Name of the entry point.
        options_model: Pydantic model of the pass's options.
        precision: What the result computes in, below float32: the pass is then lossy, and judged by the spec's
            ``quality:``. None for a pass whose result must have parity.
        gated: Whether the result is used only if it is faster, unless the spec sets ``gain:``.
    """

    name: ClassVar[str]
    options_model: ClassVar[type[BaseModel]] = NoOptions
    precision: ClassVar[Precision | None] = None
    gated: ClassVar[bool] = False

    def requires(self, request: PassRequest) -> str:
        """Return why the pass does not apply to the graph or the target; empty if it does.

        Raises:
            SourceError: An option does not match the graph, which ends the build.
        """
        del request
        return ""

    @abstractmethod
    def __call__(self, request: PassRequest) -> ir.Model:
        """Return the transformed graph.

        Raises:
            Exception: The pass failed; the build continues without it and reports the reason.
        """

    def ensures(self, request: PassRequest, result: ir.Model) -> str:
        """Return what is wrong with the result, beyond what is checked for every pass; empty if it is right."""
        del request, result
        return ""

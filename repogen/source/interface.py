"""The extension point for kinds of source: what a loader receives, and the Protocol that it implements.

A kind is an entry point of the group ``repogen.sources``. Its name is the value of ``source.kind`` in a spec, and it
refers to a class that validates the other keys of ``source:`` and names the loader::

    class MatrixSource(SourceOptions):
        kind: Literal["matrix"]
        path: str
        files: ClassVar = ("path",)
        loader: ClassVar = "my_package.load:load_matrix"

The spec is loaded by commands that must start quickly, so the module of this class must not import torch; the module
of the loader may. The built-in kinds are in ``repogen.spec.sources``; ``tests/plugin_package`` is a complete example.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003 - pydantic decodes by these annotations
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from repogen.artifacts.built_model import Lossy  # noqa: TC001 - the same
from repogen.artifacts.steps import EnsembleStep  # noqa: TC001 - the same
from repogen.artifacts.tensors import Signature  # noqa: TC001 - the same
from repogen.spec.models import ModelSpec  # noqa: TC001 - the same
from repogen.spec.sources import SourceOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from repogen.artifacts.source import SourceModel

PUBLISHED_MODULE_PREFIX = "repogen_published_"
"""Prefix of the module names of code imported from a published version, which is not an input of the build."""

OptionsT_co = TypeVar("OptionsT_co", bound=SourceOptions, covariant=True)
OtherT = TypeVar("OtherT", bound=SourceOptions)


@dataclass(frozen=True)
class BuiltStep:
    """A verified version of a model that is a step of an ensemble.

    Attributes:
        model: The model's spec entry.
        version_dir: The version directory.
        signature: Inputs and outputs with full shapes.
        max_batch_size: As in its config.pbtxt; 0 if the model does not batch.
        steps: Its own steps if it is an ensemble; otherwise empty.
        lossy: The lossy passes that were applied; None if there were none.
        max_abs_diff: Largest absolute difference from its original, as its build measured it.
    """

    model: ModelSpec
    version_dir: Path
    signature: Signature
    max_batch_size: int
    steps: tuple[EnsembleStep, ...] = ()
    lossy: Lossy | None = None
    max_abs_diff: float = 0.0


@dataclass(frozen=True)
class SourceRequest(Generic[OptionsT_co]):
    """Everything that a loader can use to load one model.

    Attributes:
        options: The validated ``source:`` of the spec entry.
        model: The spec entry.
        root: Directory of the spec; relative paths start there.
        load: Loads the source of another model of the spec.
        fetched: Directory of the files downloaded for the model; None if nothing was downloaded.
        steps: Built steps of an ensemble, and their own steps, by model name.
        work_dir: Directory for temporary files; None for the system's.
    """

    options: OptionsT_co
    model: ModelSpec
    root: Path
    load: Callable[[ModelSpec], SourceModel]
    fetched: Path | None = None
    steps: Mapping[str, BuiltStep] = field(default_factory=dict)
    work_dir: Path | None = None

    def with_options(self, options: OtherT) -> SourceRequest[OtherT]:
        """Return the same request for the loader of another kind."""
        return SourceRequest(options, self.model, self.root, self.load, self.fetched, self.steps, self.work_dir)


class SourceLoader(Protocol):
    """Loads a model of one kind."""

    def __call__(self, request: SourceRequest[SourceOptions]) -> SourceModel:
        """Load a model and determine its signature by running it.

        A loader that builds a torch module can pass it to ``repogen.source.torch.eager.source_from_module``.

        Args:
            request: The model to load; ``request.options`` is an instance of the kind's own options model.

        Raises:
            SourceError: The source, its inputs or its outputs cannot be used.
        """

"""What smoke tests ask of a Triton, free of gRPC: a simulator in the tests answers the same questions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tritonclient.grpc.model_config_pb2 import ModelConfig

    from repogen.artifacts.tensors import Array, Arrays


class RefusedError(Exception):
    """The server answered no.

    Attributes:
        status: gRPC status, for example ``INVALID_ARGUMENT``.
        message: The server's words.
    """

    def __init__(self, status: str, message: str) -> None:
        """Keep both parts."""
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


class NoAnswerError(Exception):
    """The server did not answer: the connection broke, or the time was up."""


@dataclass(frozen=True)
class WireTensor:
    """An input as it is sent; ``dtype`` is the inference protocol's name, ``array`` has the shape on the wire."""

    name: str
    dtype: str
    array: Array


@dataclass(frozen=True)
class Turn:
    """A request's place in a sequence, which goes beside its tensors.

    Attributes:
        number: The sequence's, not 0.
        start: Whether it is the first of its sequence.
        end: Whether it is the last.
    """

    number: int
    start: bool
    end: bool


@dataclass(frozen=True)
class TensorMetadata:
    """A tensor as the server describes it: full shape, -1 for what is dynamic."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ModelMetadata:
    """A model as the server describes it; tensors by name."""

    versions: tuple[str, ...]
    inputs: dict[str, TensorMetadata]
    outputs: dict[str, TensorMetadata]


@dataclass(frozen=True)
class Counts:
    """The server's statistics of a version since it was loaded: rows inferred, and executions of the model."""

    inferences: int
    executions: int


class InferenceClient(Protocol):
    """A client of one server; every method but ``live`` raises RefusedError or NoAnswerError."""

    def live(self) -> bool:
        """Whether the server answers at all."""

    def ready(self, model: str, version: int) -> bool:
        """Whether it serves this version."""

    def metadata(self, model: str, version: int) -> ModelMetadata:
        """Names, dtypes and shapes."""

    def config(self, model: str, version: int) -> ModelConfig:
        """The config that the server works by, its defaults filled in."""

    def counts(self, model: str, version: int) -> Counts:
        """Statistics of the version."""

    def infer(self, model: str, version: int, inputs: Sequence[WireTensor], turn: Turn | None = None) -> Arrays:
        """Outputs by name, in the shapes of the wire."""

    def burst(
        self, model: str, version: int, requests: Sequence[Sequence[WireTensor]], turns: Sequence[Turn] = ()
    ) -> list[Arrays]:
        """All requests at once, each at its turn where there are some; their outputs in the requests' order."""

    def load(self, model: str, config: str | None, files: Mapping[str, bytes]) -> None:
        """Load a model, from the server's repository or from ``files`` (version path -> bytes), with a JSON config."""

    def unload(self, model: str) -> None:
        """Unload a model, and wait until it is gone."""

"""predictor: the model's own shapes, and any number of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from repogen.artifacts.tensors import Dim, Signature, TensorSpec
from repogen.smoke.inference import WireTensor
from repogen.smoke.predict import Address, predictor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tritonclient.grpc.model_config_pb2 import ModelConfig

    from repogen.artifacts.tensors import Arrays
    from repogen.smoke.inference import Counts, ModelMetadata, SequencePosition
    from repogen.validate.predict import Predict


class Doubling:
    """A server of ``y = 2 * x`` that records the shapes of its inputs."""

    def __init__(self) -> None:
        """Start without requests."""
        self.shapes: list[tuple[int, ...]] = []
        self.limits: list[int] = []

    def infer(
        self,
        model: str,
        version: int,
        inputs: Sequence[WireTensor],
        position: SequencePosition | None = None,
        max_bytes: int | None = None,
    ) -> Arrays:
        """Double ``x``; outside of a sequence."""
        assert position is None
        assert max_bytes is not None
        self.limits.append(max_bytes)
        assert (model, version) == ("served", 1)
        array = inputs[0].array
        self.shapes.append(array.shape)
        return {"y": array + array}  # type: ignore[operator]

    def live(self) -> bool:
        """Return True."""
        return True

    def ready(self, model: str, version: int) -> bool:
        """Return whether this is the model."""
        return (model, version) == ("served", 1)

    def metadata(self, model: str, version: int) -> ModelMetadata:
        """Not used."""
        raise NotImplementedError

    def config(self, model: str, version: int) -> ModelConfig:
        """Not used."""
        raise NotImplementedError

    def counts(self, model: str, version: int) -> Counts:
        """Not used."""
        raise NotImplementedError

    def burst(
        self,
        model: str,
        version: int,
        requests: Sequence[Sequence[WireTensor]],
        positions: Sequence[SequencePosition] = (),
        max_bytes: int | None = None,
    ) -> list[Arrays]:
        """Infer one after another."""
        assert not positions
        assert max_bytes is None
        return [self.infer(model, version, inputs) for inputs in requests]

    def load(self, model: str, config: str | None, files: object) -> None:
        """Not used."""

    def unload(self, model: str) -> None:
        """Not used."""


def doubling(client: Doubling, *shape: Dim, batch: int = 0) -> Predict:
    """Return a predictor of a model with one input and one output of that shape."""
    signature = Signature((TensorSpec("x", "float32", shape),), (TensorSpec("y", "float32", shape),))
    return predictor(client, Address("127.0.0.1:1", "served", 1, batch, signature))


@pytest.mark.parametrize(
    ("dims", "shape", "batch", "sent"),
    [
        (("batch", 2), (3, 2), 8, [(3, 2)]),
        (("batch",), (3,), 8, [(3, 1)]),
        (("batch", 1), (3, 1), 8, [(3, 1)]),
        ((), (), 0, [(1,)]),
        ((2, 2), (2, 2), 0, [(2, 2)]),
        (("batch", 2), (7, 2), 3, [(3, 2), (3, 2), (1, 2)]),
        (("batch",), (5,), 4, [(4, 1), (1, 1)]),
    ],
)
def test_arrays_have_the_models_own_shapes(
    dims: tuple[Dim, ...], shape: tuple[int, ...], batch: int, sent: list[tuple[int, ...]]
) -> None:
    """Outputs have the model's shapes and the order of the rows, whatever the shapes on the wire are."""
    client = Doubling()
    x = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    (y,) = doubling(client, *dims, batch=batch)({"x": x}).values()
    np.testing.assert_array_equal(2 * x, y, strict=True)
    assert sent == client.shapes


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "input x is missing"),
        ({"x": np.zeros((1, 2), np.float32), "z": np.zeros(1)}, "unknown input z; the model accepts x"),
        ({"x": np.zeros((1, 2))}, "input x is float64, the model accepts float32"),
        ({"x": np.zeros(2, np.float32)}, r"input x has shape \(2,\), the model accepts \['batch', 2\]"),
        ({"x": np.zeros((0, 2), np.float32)}, r"at least one; the inputs have \[0\]"),
    ],
)
def test_wrong_inputs_are_named(inputs: Arrays, message: str) -> None:
    """Nothing is sent."""
    client = Doubling()
    with pytest.raises(ValueError, match=message):
        doubling(client, "batch", 2, batch=8)(inputs)
    assert client.shapes == []


@pytest.mark.parametrize(
    ("golden", "rows", "expected"),
    [
        ((4, 100), 3, 2**28),
        ((8, 2**28), 3, 2 * 3 * 2**28),
        ((4, 2**24), 3, 2 * 3 * 2**24 * 2**2),
        ((1, 2**28), 3, 2**31 - 1),
        ((0, 0), 0, 2**28),
    ],
)
def test_limit_of_a_response(golden: tuple[int, int], rows: int, expected: int) -> None:
    """256 MiB, or twice the golden outputs, which grow with the square of a row's inputs."""
    address = Address("127.0.0.1:1", "served", 1, 8, Signature((), ()), golden_bytes=golden)
    assert address.response_limit([WireTensor("x", "FP32", np.zeros((rows, 2), np.float32))]) == expected

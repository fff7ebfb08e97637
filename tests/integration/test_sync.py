"""A real Triton that polls a synced repository follows the alias, without a failed request."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import TensorProto, helper
from tritonclient.grpc import InferenceServerClient, InferInput

from repogen.artifacts.progress import Silent
from repogen.artifacts.sync import SyncOptions
from repogen.registry.sync.sync import sync
from repogen.repository.layout import archive_dir, versions
from repogen.serving import commands
from tests.support.simulated_registry import SimulatedRegistry, version_of_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHAMPION = SyncOptions("champion")
WAIT_SECONDS = 60


def adds(number: float) -> bytes:
    """Return a model that adds a number to rows of 4."""
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy"]
    constant = helper.make_tensor("c", TensorProto.FLOAT, [1], [number])
    graph = helper.make_graph([helper.make_node("Add", ["x", "c"], ["y"])], "g", tensors[:1], tensors[1:], [constant])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def output(client: InferenceServerClient, name: str) -> float:
    """Return the served model's output for a row of zeros."""
    x = InferInput("x", [1, 4], "FP32")
    x.set_data_from_numpy(np.zeros((1, 4), np.float32))
    y = client.infer(name, [x]).as_numpy("y")
    assert y is not None
    return float(y[0, 0])


def wait_for(response: Callable[[], float | bool], expected: float | bool) -> bool:  # noqa: FBT001 - a response
    """Send requests until the expected response arrives; every request must succeed."""
    deadline = time.monotonic() + WAIT_SECONDS
    while response() != expected:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.full
def test_triton_follows_the_alias(tmp_path: Path) -> None:
    """Served as version 1, 2, 1 again, not at all, and 2 again, by a server that polls; then by a fresh one."""
    registry, repository = SimulatedRegistry(tmp_path / "registry"), tmp_path / "repository"
    for number, batch in ((1, 8), (2, 0)):  # under one config.pbtxt, each would make the other unservable
        for name in ("moves", "stays"):
            registry.register(version_of_bytes(tmp_path / f"{name}{number}", name, adds(number), batch=batch))
    registry.point("moves", "champion", 1)
    registry.point("stays", "champion", 2)
    sync(registry, repository, CHAMPION, Silent())

    with (
        commands.serve(repository, "embedded", poll=True, progress=Silent()) as triton,
        closing(InferenceServerClient(triton.endpoint.grpc)) as client,
    ):
        assert [output(client, "moves"), output(client, "stays")] == [1, 2]
        for number in (2, 1):
            registry.point("moves", "champion", number)
            sync(registry, repository, CHAMPION, Silent())
            assert wait_for(lambda: output(client, "moves"), number)
        registry.point("moves", "champion", None)
        sync(registry, repository, CHAMPION, Silent())
        assert wait_for(lambda: client.is_model_ready("moves"), expected=False)
        registry.point("moves", "champion", 2)
        sync(registry, repository, SyncOptions("champion", prune=True), Silent())
        assert wait_for(lambda: client.is_model_ready("moves"), expected=True)
        assert [output(client, "moves"), output(client, "stays")] == [2, 2]

    registry.point("moves", "champion", 1)
    sync(registry, repository, CHAMPION, Silent())
    assert [versions(repository / "moves"), list(archive_dir(repository).iterdir())] == [[1, 2], []]
    with (
        commands.serve(repository, "embedded", poll=False, progress=Silent()) as triton,
        closing(InferenceServerClient(triton.endpoint.grpc)) as client,
    ):
        assert [output(client, "moves"), output(client, "stays")] == [1, 2]

"""What the spec may say of config.pbtxt is loaded by a real Triton, or refused before it is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx
import pytest
from tritonclient.grpc import InferenceServerClient

from repogen.checking import check
from repogen.configure import configure
from repogen.serving import server
from repogen.spec.models import ModelSpec
from repogen.spec.sources import TorchSource
from repogen.spec.triton import TritonSpec
from repogen.values.artifacts import BatchReport, OnnxArtifact
from repogen.values.progress import Silent
from repogen.values.serving import ControlMode
from repogen.values.target import DEFAULT_RELEASE, targets
from repogen.values.tensors import Signature, TensorSpec
from tests import graphs

if TYPE_CHECKING:
    from pathlib import Path

WISHES: dict[str, dict[str, Any]] = {
    "queue_policies": {
        "dynamic_batching": {
            "priority_levels": 2,
            "default_priority_level": 1,
            "default_queue_policy": {"timeout_action": "DELAY", "default_timeout_microseconds": 1000},
            "priority_queue_policy": {2: {"max_queue_size": 8, "allow_timeout_override": True}},
        }
    },
    "rate_limiter": {"instance_group": [{"count": 2, "rate_limiter": {"resources": [{"name": "R1"}], "priority": 2}}]},
    "kind_model": {"instance_group": [{"kind": "KIND_MODEL"}]},
    "optimization": {
        "optimization": {
            "graph": {"level": 1},
            "priority": "PRIORITY_MAX",
            "cuda": {"graphs": True},
            "input_pinned_memory": {"enable": False},
            "output_pinned_memory": {},
            "gather_kernel_buffer_threshold": 64,
            "eager_batching": True,
        }
    },
    "parameters": {"parameters": {"intra_op_thread_count": 1, "enable_mem_arena": False, "execution_mode": 1}},
    "metric_tags": {"metric_tags": {"team": "vision"}},
    "warmups": {"model_warmup": [{"name": "zeros", "data": "zero"}, {"name": "many", "batch_size": 8, "count": 3}]},
    "response_cache": {"response_cache": {}},
    "versions": {"version_policy": {"all": True}},
    "extra": {"extra": "model_transaction_policy { decoupled: false }"},
}


def written(repository: Path, name: str, wishes: dict[str, Any]) -> None:
    """Write a model whose config says what a spec wishes."""
    directory = repository / name / "1"
    directory.mkdir(parents=True)
    onnx.save_model(graphs.matmul(), directory / "model.onnx")
    signature = Signature((TensorSpec("x", "float32", ("N", 4)),), (TensorSpec("y", "float32", ("N", 3)),))
    artifact = OnnxArtifact(directory / "model.onnx", False, signature, 17, 8, 1, "dynamo")  # noqa: FBT003 - external data
    spec = ModelSpec(source=TorchSource(factory="m.py:f"), triton=TritonSpec.model_validate(wishes))
    batch = BatchReport(batchable=True, max_batch_size=8)
    made = configure(name, spec, artifact, batch, target=targets()[DEFAULT_RELEASE])
    (directory.parent / "config.pbtxt").write_text(made.text, encoding="utf-8")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository with a model for each kind of wish."""
    directory: Path = tmp_path_factory.mktemp("wishes") / "repository"
    for name, wishes in WISHES.items():
        written(directory, name, wishes)
    return directory


def test_every_wish_is_loaded_by_a_real_triton(repository: Path) -> None:
    """Strictly: one that is not would end the server."""
    embedded = server("embedded", targets()[DEFAULT_RELEASE], Silent())
    with embedded.running(repository, ControlMode.NONE) as running:
        client = InferenceServerClient(running.endpoint.grpc)
        index = client.get_model_repository_index()
        client.close()
    assert {model.name for model in index.models if model.state == "READY"} == set(WISHES)


def test_check_finds_no_error_in_any(repository: Path) -> None:
    """As the server."""
    assert [finding for finding in check(repository) if finding.severity == "error"] == []

"""A real Triton loads every section of config.pbtxt that a spec can set."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from repogen.api.check import check
from repogen.artifacts.built_model import BatchReport, OnnxArtifact
from repogen.artifacts.named_file import path_in_model
from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlMode
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.repository.golden import first_golden_inputs
from repogen.serving.servers import find_server
from repogen.spec.models import ModelSpec
from repogen.spec.sources import TorchSource
from repogen.targets import DEFAULT_RELEASE, targets
from repogen.triton_config.render.model import configure
from repogen.triton_config.render.model_facts import RenderOptions, VerifiedModel
from repogen.triton_config.sections.model import TritonSpec
from tests.support import config_sections, graphs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECTIONS: dict[str, dict[str, Any]] = {
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


PLAIN = Signature((TensorSpec("x", "float32", ("N", 4)),), (TensorSpec("y", "float32", ("N", 3)),))


def write_model(repository: Path, name: str, case: config_sections.Case, graph: onnx.ModelProto) -> None:
    """Write a model with the config for a section, and the files that the config names."""
    directory = repository / name / "1"
    directory.mkdir(parents=True)
    onnx.save_model(graph, directory / "model.onnx")
    artifact = OnnxArtifact(directory / "model.onnx", False, case.signature, 17, 8, 1, "dynamo")  # noqa: FBT003 - external data
    spec = ModelSpec(source=TorchSource(factory="m.py:f"), triton=TritonSpec.model_validate(case.triton))
    batch = BatchReport(batchable=case.largest > 0, max_batch_size=case.largest)
    root = repository.parent
    config_sections.write_golden(root, case.signature)
    verified = VerifiedModel(artifact, batch, golden_inputs=partial(first_golden_inputs, root))
    config = configure(name, spec, verified, RenderOptions(targets()[DEFAULT_RELEASE], root=root))
    for file in config.named_files:
        (directory.parent / path_in_model(file.name)).parent.mkdir(exist_ok=True)
        (directory.parent / path_in_model(file.name)).write_bytes(file.content)
    (directory.parent / "config.pbtxt").write_text(config.text, encoding="utf-8")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository with a model for each section."""
    directory: Path = tmp_path_factory.mktemp("sections") / "repository"
    directory.mkdir()
    config_sections.write_files(directory.parent)
    for name, triton in SECTIONS.items():
        write_model(directory, name, config_sections.Case(PLAIN, triton), graphs.matmul())
    for name, case in config_sections.CASES.items():
        write_model(directory, name, case, case.graph())
    return directory


@pytest.fixture(scope="module")
def client(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InferenceServerClient]:
    """Return a client of a real Triton that serves all models."""
    repository_dir: Path = tmp_path_factory.mktemp("served")
    for model in repository.iterdir():
        (repository_dir / model.name).symlink_to(model)
    embedded = find_server("embedded", targets()[DEFAULT_RELEASE], Silent())
    with embedded.running(repository_dir, ControlMode.NONE) as running:
        client = InferenceServerClient(running.endpoint.grpc)
        yield client
        client.close()


def test_real_triton_loads_every_section(client: InferenceServerClient) -> None:
    """Every model is ready."""
    names = {*SECTIONS, *config_sections.CASES}
    assert {name for name in names if client.is_model_ready(name)} == names


def test_check_has_no_findings(repository: Path) -> None:
    """Rendered configs cause neither errors nor warnings."""
    assert [str(finding) for finding in check(repository)] == []


def send_to_counter(client: InferenceServerClient, name: str, rows: int = 1, **sequence: Any) -> float:
    """Add 2 to a sequence's total, and return it."""
    shape = [rows, 4] if name != "sequence_alone" else [4]
    x = InferInput("x", shape, "FP32")
    x.set_data_from_numpy(np.full(shape, 2, np.float32))
    return float(client.infer(name, [x], **sequence).as_numpy("total").ravel()[0])


@pytest.mark.parametrize(("name", "first"), [("sequence_direct", 0.0), ("sequence_oldest", 10.0)])
def test_states_persist_between_requests(client: InferenceServerClient, name: str, first: float) -> None:
    """Each sequence has its own state, which starts with the configured values or zeros."""
    starts = [send_to_counter(client, name, sequence_id=number, sequence_start=True) for number in (1, 2)]
    assert starts == [first + 2, first + 2]
    assert send_to_counter(client, name, sequence_id=1) == first + 4
    assert send_to_counter(client, name, sequence_id=2, sequence_end=True) == first + 4
    assert send_to_counter(client, name, sequence_id=1, sequence_end=True) == first + 6
    assert send_to_counter(client, name, sequence_id=2, sequence_start=True, sequence_end=True) == first + 2


def test_sequence_accepts_one_row_per_request(client: InferenceServerClient) -> None:
    """The server rejects a batch, and a request without a sequence."""
    with pytest.raises(InferenceServerException, match="must specify batch-size 1 due to requirements of sequence"):
        send_to_counter(client, "sequence_direct", rows=2, sequence_id=3, sequence_start=True, sequence_end=True)
    with pytest.raises(InferenceServerException, match="must specify a non-zero or non-empty correlation ID"):
        send_to_counter(client, "sequence_direct")


def test_clients_use_the_dims_of_the_spec(client: InferenceServerClient) -> None:
    """The model uses the graph's dims; classification returns the spec's class names."""
    image, grid = InferInput("image", [1, 3, 4, 4], "FP32"), InferInput("grid", [1, 4], "FP32")
    ids = InferInput("ids", [1, 2], "INT64")
    image.set_data_from_numpy(np.zeros([1, 3, 4, 4], np.float32))
    grid.set_data_from_numpy(np.array([[1, 5, 3, 4]], np.float32))
    ids.set_data_from_numpy(np.zeros([1, 2], np.int64))
    scores = InferRequestedOutput("scores", class_count=1)
    response = client.infer("tensors", [image, grid, ids], outputs=[scores, InferRequestedOutput("grid_out")])
    assert response.as_numpy("grid_out").tolist() == [[[[1], [5], [3], [4]]]]
    assert response.as_numpy("scores").ravel()[0].decode() == "5.000000:1:dog"

"""smoke_staged on the real Triton: correct models pass, wrong ones fail, and special tensors are served."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from repogen.artifacts.serving import ControlMode, RunningTriton, SmokeReport
from repogen.artifacts.tensors import DTYPES, Signature, TensorSpec
from repogen.errors import SmokeError
from repogen.serving.control import VARIABLE
from repogen.serving.embedded import RunningEmbedded
from repogen.smoke import preparation
from repogen.smoke.grpc_client import GrpcClient
from repogen.smoke.inference import Limits
from repogen.smoke.run_checks import raise_for_failures
from repogen.smoke.staged import smoke_staged
from repogen.triton_config.sections.model import DynamicBatchingSpec, InstanceGroupSpec, TritonSpec, VersionPolicySpec

Start = Callable[[Path, ControlMode], AbstractContextManager[RunningTriton]]


def failures(report: SmokeReport) -> list[tuple[str, str]]:
    """Return name and detail of each failed check."""
    return [(check.name, check.detail) for check in report.checks if not check.passed]


def test_correct_model_passes(triton: Any, stage: Any, linear: Any) -> None:
    """Every check of a batching model passes, and nothing is overridden."""
    report = smoke_staged(triton.running, stage.add("linear", linear))
    assert failures(report) == []
    expected = ["files", "loads", "ready", "metadata", "config", "golden seed=0", "golden over HTTP"]
    expected += [*(f"batch {size}" for size in (1, 2, 3, 4, 8)), "rejects batch 9", "rejects INT32 for x (FP32)"]
    expected += ["still serves after rejected requests"]
    assert expected == [check.name for check in report.checks if not check.warning]
    assert report.overrides == ()
    assert report.latency is not None


def test_dynamic_batching_is_observed(triton: Any, stage: Any, linear: Any) -> None:
    """The server joins requests of a burst: there are fewer executions than requests."""
    section = TritonSpec(dynamic_batching=DynamicBatchingSpec(max_queue_delay_microseconds=20_000))
    report = smoke_staged(triton.running, stage.add("bursts", replace(linear, triton=section)))
    assert failures(report) == []
    (check,) = [check for check in report.checks if check.name == "dynamic batching"]
    assert (check.warning, "requests in" in check.detail) == (False, True)


def test_rank_one_tensors_are_reshaped(triton: Any, stage: Any, linear: Any) -> None:
    """A ``[batch]`` tensor is sent as ``[batch, 1]``, and the model receives ``[batch]``."""
    x = np.arange(3, dtype=np.float32)
    model = replace(
        linear,
        signature=Signature((TensorSpec("x", "float32", ("n",)),), (TensorSpec("y", "float32", ("n",)),)),
        nodes=[helper.make_node("Neg", ["x"], ["y"])],
        inputs={"x": x},
        outputs={"y": -x},
        weights={},
    )
    assert failures(smoke_staged(triton.running, stage.add("rank_one", model))) == []


def test_scalars_are_sent_as_one_element(triton: Any, stage: Any, linear: Any) -> None:
    """A model with 0-d inputs and outputs does not batch and has no batch checks."""
    v, scale = np.arange(3, dtype=np.float32), np.array(2, np.float32)
    model = replace(
        linear,
        signature=Signature(
            (TensorSpec("v", "float32", ("n",)), TensorSpec("scale", "float32", ())),
            (TensorSpec("scaled", "float32", ("n",)), TensorSpec("total", "float32", ())),
        ),
        nodes=[
            helper.make_node("Mul", ["v", "scale"], ["scaled"]),
            helper.make_node("ReduceSum", ["scaled"], ["total"], keepdims=0),
        ],
        inputs={"v": v, "scale": scale},
        outputs={"scaled": v * 2, "total": np.array(6, np.float32)},
        max_batch_size=0,
        weights={},
    )
    report = smoke_staged(triton.running, stage.add("scalars", model))
    assert failures(report) == []
    assert [check.name for check in report.checks if "batch" in check.name] == []


def test_every_dtype_and_hostile_names_are_served(triton: Any, stage: Any, linear: Any) -> None:
    """Tensors of each dtype are returned unchanged, under names that need escaping."""
    names = [name for name in DTYPES if name not in {"string", "bfloat16"}]  # the embedded server has no BF16
    x = {f'{name} "x"\\\n é\t\u2028': np.array([[0, 1], [1, 1]], name) for name in names}
    model = replace(
        linear,
        signature=Signature(
            tuple(TensorSpec(key, name, ("n", 2)) for key, name in zip(x, names, strict=True)),
            tuple(TensorSpec(f"{key}y", name, ("n", 2)) for key, name in zip(x, names, strict=True)),
        ),
        nodes=[helper.make_node("Identity", [key], [f"{key}y"]) for key in x],
        inputs=x,
        outputs={f"{key}y": array for key, array in x.items()},
        weights={},
    )
    assert failures(smoke_staged(triton.running, stage.add("dtypes", model, tolerance=(0.0, 0.0)))) == []


def test_strings_are_served(triton: Any, stage: Any, linear: Any) -> None:
    """String tensors are sent as bytes."""
    words = np.array([["a", "é"], ["", "long"]])
    model = replace(
        linear,
        signature=Signature((TensorSpec("x", "string", ("n", 2)),), (TensorSpec("y", "string", ("n", 2)),)),
        nodes=[helper.make_node("Identity", ["x"], ["y"])],
        inputs={"x": words},
        outputs={"y": words},
        weights={},
    )
    assert failures(smoke_staged(triton.running, stage.add("strings", model))) == []


def test_overrides_of_a_gpu_config_are_reported(triton: Any, stage: Any, linear: Any) -> None:
    """A GPU config is tested on the CPU, and a version policy that names other versions is changed."""
    section = TritonSpec(
        instance_group=(InstanceGroupSpec(kind="KIND_GPU", gpus=(0,)),),
        version_policy=VersionPolicySpec(specific=(5,)),
    )
    report = smoke_staged(triton.running, stage.add("on_gpu", replace(linear, triton=section)))
    assert failures(report) == []
    expected = (
        "version_policy: specific [5] -> specific [1]",
        "instance_group[0].kind: KIND_GPU -> KIND_CPU (no GPU here)",
        "instance_group[0].gpus: [0] -> []",
    )
    assert expected == report.overrides


def test_wrong_golden_output_fails(triton: Any, stage: Any, linear: Any) -> None:
    """A model whose outputs differ from PyTorch's fails with details."""
    wrong = replace(linear, outputs={"y": linear.outputs["y"] + np.float32(0.01)})
    report = smoke_staged(triton.running, stage.add("wrong", wrong))
    assert failures(report)[0][0] == "golden seed=0"
    assert "6 of 6 values of 'y' differ, by up to 0.01" in failures(report)[0][1]
    with pytest.raises(SmokeError, match="wrong version 1 failed the smoke test"):
        raise_for_failures(report)


def test_config_that_does_not_match_the_graph_fails(triton: Any, stage: Any, linear: Any) -> None:
    """A config with another dtype does not load; the detail is the server's message."""
    config = (
        'name: "disagrees" backend: "onnxruntime" max_batch_size: 8 input { name: "x" data_type: TYPE_INT32 dims: 4 } '
        'output { name: "y" data_type: TYPE_FP32 dims: 2 } instance_group { count: 1 kind: KIND_CPU }'
    )
    ((name, detail),) = failures(smoke_staged(triton.running, stage.add("disagrees", linear, config=config)))
    assert (name, "INT32" in detail) == ("loads", True)


def test_model_that_does_not_load_has_the_servers_message(triton: Any, stage: Any, linear: Any) -> None:
    """A damaged model.onnx is a failed check with the runtime's message."""
    ((name, detail),) = failures(smoke_staged(triton.running, stage.add("damaged", linear, content=b"not onnx")))
    assert (name, "failed" in detail.lower()) == ("loads", True)


def test_changed_files_fail_before_loading(triton: Any, stage: Any, linear: Any) -> None:
    """The tested files must match the manifest."""
    staged = stage.add("tampered", linear)
    (staged.version_dir / "golden.npz").unlink()
    np.savez(staged.version_dir / "golden.npz", in0=linear.inputs["x"], out0=linear.inputs["x"])
    ((name, detail),) = failures(smoke_staged(triton.running, staged))
    assert (name, detail.startswith("golden.npz has")) == ("files", True)


@pytest.mark.parametrize("external", [False, True])
def test_remote_server_receives_the_files_under_a_private_name(
    remote: RunningTriton, stage: Any, linear: Any, *, external: bool
) -> None:
    """External data is sent as well, and a live model with the same name is unaffected."""
    staged = stage.add(f"remote_{external}", linear, external=external)
    with GrpcClient(remote.endpoint.grpc, Limits(), remote.endpoint.control) as client:
        client.load(staged.name, None, {})
        before = client.counts(staged.name, 1)
        report = smoke_staged(remote, staged)
        assert (True, before) == (client.ready(staged.name, 1), client.counts(staged.name, 1))
        client.unload(staged.name)
    assert failures(report) == []
    (line,) = report.overrides
    assert line.startswith(f"name: {staged.name} -> repogen-smoke-")


def test_model_over_the_message_limit_is_rejected(
    remote: RunningTriton, stage: Any, linear: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is raised before the files are read."""
    staged = stage.add("large", linear)
    monkeypatch.setattr(preparation, "MAX_SENT", 16)
    with pytest.raises(SmokeError, match="gRPC's limit is 2 GiB"):
        smoke_staged(remote, staged)


def test_server_that_does_not_load_on_request_is_an_error(
    start: Start, stage: Any, linear: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server must be in explicit mode and running; the hint has the option."""
    staged = stage.add("not_explicit", linear)
    monkeypatch.setenv(VARIABLE, "ops=secret")
    with start(tmp_path, ControlMode.NONE) as running:
        assert isinstance(running, RunningEmbedded)
        closed = replace(running, endpoint=replace(running.endpoint, control=None))
        with pytest.raises(SmokeError, match="requires a header") as caught:
            smoke_staged(closed, staged)
        assert (caught.value.code, VARIABLE in caught.value.hint) == ("smoke.control-header", True)
        with pytest.raises(SmokeError, match="does not load models on request") as caught:
            smoke_staged(running, staged)
        assert "--model-control-mode=explicit" in caught.value.hint
    with pytest.raises(SmokeError, match="the Triton server exited") as caught:
        smoke_staged(running, staged)
    assert caught.value.code == "smoke.server-died"

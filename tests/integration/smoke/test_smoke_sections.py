"""smoke_staged on the real Triton with optional config sections: sequences, dims, golden warmups."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import helper

from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.smoke.served import serving
from repogen.smoke.staged import smoke_staged
from repogen.triton_config.sections.model import TritonSpec

if TYPE_CHECKING:
    from repogen.artifacts.serving import RunningTriton, SmokeReport

ROW, FLAG = ("batch", 4), ("batch", 1)
CONTROLS = [
    {"name": "start", "control": [{"kind": "CONTROL_SEQUENCE_START"}]},
    {"name": "number", "control": [{"kind": "CONTROL_SEQUENCE_CORRID"}]},
]
STATE = [{"input_name": "before", "output_name": "after"}]


def spec(**triton: object) -> TritonSpec:
    """Return the section ``triton`` of a spec."""
    return TritonSpec.model_validate(triton)


def details(report: SmokeReport) -> dict[str, str]:
    """Return the details of the checks; a warning's starts with one exclamation mark, a failure's with two."""
    marks = {(True, False): "", (True, True): "!", (False, False): "!!"}
    return {check.name: marks[check.passed, check.warning] + check.detail for check in report.checks}


@pytest.fixture
def counter(linear: Any) -> Any:
    """Return ``total = before + x * start + number``, whose golden rows are first requests of sequences."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    number, start = np.array([[7], [8], [9]], np.int64), np.ones((3, 1), np.float32)
    total = x + number.astype(np.float32)
    inputs = {"x": "float32", "start": "float32", "number": "int64", "before": "float32"}
    shapes = {"x": ROW, "start": FLAG, "number": FLAG, "before": ROW}
    return replace(
        linear,
        signature=Signature(
            tuple(TensorSpec(name, dtype, shapes[name]) for name, dtype in inputs.items()),
            (TensorSpec("total", "float32", ROW), TensorSpec("after", "float32", ROW)),
        ),
        nodes=[
            helper.make_node("Mul", ["x", "start"], ["new"]),
            helper.make_node("Cast", ["number"], ["numbered"], to=1),
            helper.make_node("Add", ["new", "numbered"], ["sum"]),
            helper.make_node("Add", ["sum", "before"], ["after"]),
            helper.make_node("Identity", ["after"], ["total"]),
        ],
        inputs={"x": x, "start": start, "number": number, "before": np.zeros_like(x)},
        outputs={"total": total, "after": total},
        weights={},
        triton=spec(sequence_batching={"direct": {}, "control_input": CONTROLS, "state": STATE}),
    )


def test_golden_rows_are_sequences(triton: Any, stage: Any, counter: Any) -> None:
    """Triton feeds their control values and initial states; each output is compared with PyTorch's."""
    report = smoke_staged(triton.running, stage.add("counter", counter))
    texts = details(report)
    assert texts.pop("golden seed=0") == "3 of 3 rows, each a sequence: max_abs_diff 0"
    assert texts.pop("golden over HTTP") == "3 of 3 rows, each a sequence: max_abs_diff 0"
    assert texts.pop("sequence of 3 requests").startswith("!the outputs were not compared: golden tensors")
    assert "must specify a non-zero or non-empty corr" in texts.pop("rejects a request outside of a sequence")
    assert "must specify batch-size 1" in texts.pop("rejects batch 2 in a sequence")
    assert set(texts.values()) == {""}
    assert report.latency is not None


def test_wrong_sequence_fails(triton: Any, stage: Any, counter: Any) -> None:
    """An output that differs fails when it depends on fed values."""
    wrong = replace(counter, outputs={name: array + np.float32(1) for name, array in counter.outputs.items()})
    assert details(smoke_staged(triton.running, stage.add("wrong_counter", wrong)))["golden seed=0"].startswith("!!")


def test_rows_that_triton_never_feeds_are_not_compared(triton: Any, stage: Any, counter: Any) -> None:
    """The detail names the value."""
    odd = replace(counter, inputs={**counter.inputs, "start": np.full((3, 1), 0.5, np.float32)})
    text = details(smoke_staged(triton.running, stage.add("odd_counter", odd)))["golden seed=0"]
    assert text == "!not compared: its start is 0.5, but Triton sends 0.0 or 1.0"


def test_one_buffer_for_states_is_not_tested(triton: Any, stage: Any, counter: Any) -> None:
    """The embedded server's backend does not support it, and the check is a warning."""
    state = [{**STATE[0], "use_same_buffer_for_input_output": True}]
    section = spec(sequence_batching={"control_input": CONTROLS, "state": state})
    report = smoke_staged(triton.running, stage.add("one_buffer", replace(counter, triton=section)))
    assert details(report)["served"].startswith("!not tested: the embedded server's backend, unlike NVIDIA's, does not")
    assert report.passed


def test_dims_of_the_spec_are_served(triton: Any, stage: Any, linear: Any) -> None:
    """Golden tensors are sent and compared in the spec's dims."""
    section = spec(input={"x": {"dims": [2, 2]}}, output={"y": {"dims": [1, 2]}})
    report = smoke_staged(triton.running, stage.add("reshaped", replace(linear, triton=section)))
    assert report.passed
    assert "golden seed=0" in details(report)


@pytest.mark.parametrize("where", ["local", "remote"])
def test_golden_warmups_run_before_the_model_is_ready(
    triton: Any, remote: RunningTriton, stage: Any, linear: Any, where: str
) -> None:
    """The same holds for a server that receives the files; the warmup file is one row."""
    section = spec(model_warmup=[{"data": "golden", "batch_size": 8, "count": 2}])
    staged = stage.add(f"golden_{where}", replace(linear, triton=section))
    (file,) = (staged.model_dir / "warmup").iterdir()
    assert file.read_bytes() == linear.inputs["x"][0].tobytes()
    assert file.name in {record.path for record in staged.manifest.files}
    report = smoke_staged(triton.running if where == "local" else remote, staged)
    assert report.passed, details(report)


def test_requests_of_gates_are_sequences(triton: Any, stage: Any, counter: Any) -> None:
    """Each request is a sequence by itself."""
    with serving(triton.running, stage.add("gated", counter)) as served:
        served.send(served.row())
        served.send_many(served.row(), 4)
        assert [spec.name for spec in served.address.signature.inputs] == ["x"]
        assert served.address.sequences

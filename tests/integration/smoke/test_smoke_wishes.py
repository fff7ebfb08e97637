"""smoke_staged on the real Triton where a spec wishes more: sequences, dims of its own, golden warmups."""

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
    """Return a spec's section."""
    return TritonSpec.model_validate(triton)


def told(report: SmokeReport) -> dict[str, str]:
    """Return the details of the checks; a warning's begins with an exclamation mark, a failure's with two."""
    marks = {(True, False): "", (True, True): "!", (False, False): "!!"}
    return {check.name: marks[check.passed, check.warning] + check.detail for check in report.checks}


@pytest.fixture
def counter(linear: Any) -> Any:
    """Return ``total = before + x * start + number``, whose golden rows are sequences' first requests."""
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
    """Triton feeds their controls and first states; each is compared with what PyTorch answered."""
    report = smoke_staged(triton.running, stage.add("counter", counter))
    said = told(report)
    assert said.pop("golden seed=0") == "3 of 3 rows, each a sequence: max_abs_diff 0"
    assert said.pop("sequence of 3 requests").startswith("!answered; golden tensors have no second request")
    assert "must specify a non-zero or non-empty corr" in said.pop("refuses a request outside of any sequence")
    assert "must specify batch-size 1" in said.pop("refuses batch 2 in a sequence")
    assert set(said.values()) == {""}
    assert report.latency is not None


def test_a_wrong_sequence_is_found(triton: Any, stage: Any, counter: Any) -> None:
    """An answer that differs fails, also where it hangs on what Triton feeds."""
    wrong = replace(counter, outputs={name: array + np.float32(1) for name, array in counter.outputs.items()})
    assert told(smoke_staged(triton.running, stage.add("wrong_counter", wrong)))["golden seed=0"].startswith("!!")


def test_rows_that_triton_never_feeds_are_not_compared(triton: Any, stage: Any, counter: Any) -> None:
    """The report says which value it is."""
    odd = replace(counter, inputs={**counter.inputs, "start": np.full((3, 1), 0.5, np.float32)})
    said = told(smoke_staged(triton.running, stage.add("odd_counter", odd)))["golden seed=0"]
    assert said == "!not compared: its start is 0.5, and Triton feeds 0.0 or 1.0"


def test_one_buffer_for_states_is_not_tried_here(triton: Any, stage: Any, counter: Any) -> None:
    """And the report says so, since the embedded server's backend cannot."""
    state = [{**STATE[0], "use_same_buffer_for_input_output": True}]
    wish = spec(sequence_batching={"control_input": CONTROLS, "state": state})
    report = smoke_staged(triton.running, stage.add("one_buffer", replace(counter, triton=wish)))
    assert told(report)["served"].startswith("!not tried: the embedded server's backend, unlike NVIDIA's, has no use_")
    assert report.passed


def test_dims_that_clients_see(triton: Any, stage: Any, linear: Any) -> None:
    """Golden tensors are sent and compared in the spec's dims."""
    wish = spec(input={"x": {"dims": [2, 2]}}, output={"y": {"dims": [1, 2]}})
    report = smoke_staged(triton.running, stage.add("reshaped", replace(linear, triton=wish)))
    assert report.passed
    assert "golden seed=0" in told(report)


@pytest.mark.parametrize("where", ["local", "remote"])
def test_golden_warmups_run_before_the_model_is_ready(
    triton: Any, remote: RunningTriton, stage: Any, linear: Any, where: str
) -> None:
    """Also on a server that is sent the files: one row, as often as the batch size says."""
    wish = spec(model_warmup=[{"data": "golden", "batch_size": 8, "count": 2}])
    staged = stage.add(f"golden_{where}", replace(linear, triton=wish))
    (file,) = (staged.model_dir / "warmup").iterdir()
    assert file.read_bytes() == linear.inputs["x"][0].tobytes()
    assert file.name in {record.path for record in staged.manifest.files}
    report = smoke_staged(triton.running if where == "local" else remote, staged)
    assert report.passed, told(report)


def test_sequences_are_asked_for_as_gates_do(triton: Any, stage: Any, counter: Any) -> None:
    """Each request of a gate is a sequence of its own."""
    with serving(triton.running, stage.add("gated", counter)) as served:
        served.ask(served.row())
        served.ask_many(served.row(), 4)
        assert [spec.name for spec in served.address.signature.inputs] == ["x"]
        assert served.address.sequences

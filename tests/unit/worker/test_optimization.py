"""Each pass on a real graph: it is kept if it is right and pays, and dropped, with figures, in three ways."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from repogen.artifacts.built_model import Gain, Lossy
from repogen.errors import SourceError
from repogen.files.npz import read_npz
from repogen.onnx_graph.normalize import NormalizeOptions, normalize
from repogen.optimize.gain import gain_of
from repogen.optimize.interface import Pass, PassRequest
from repogen.optimize.passes import Workspace, load_pass, select_passes
from repogen.plugins import is_built_in, plugins
from repogen.repository.golden import read_golden
from repogen.source.load import load_source
from repogen.spec.models import ModelSpec
from repogen.targets import target_of
from repogen.validate.runtime import OnnxModel
from repogen.worker.job import Job
from repogen.worker.optimization import Subject, apply_measured
from repogen.worker.verification import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from repogen.artifacts.built_model import PassOutcome
    from repogen.artifacts.tensors import Arrays
    from repogen.worker.verification import VerifiedGraph

RELEASE = "26.08"  # not installed in the test environment: the installed ONNX Runtime loads the graphs
BUILT_IN = sorted(name for name in plugins("repogen.passes") if is_built_in("repogen.passes", name))
LOSSY = {"fp16": "float16", "int8-dynamic": "qint8", "int8-static": "qint8"}
OPTIONS: dict[str, dict[str, object]] = {"int8-static": {"calibration": "calibration.npz"}}
QUALITY = '''
import numpy as np

def agreement(predict, data):
    """1 for the outputs of the original, less for others."""
    with np.load(data) as arrays:
        error = np.abs(predict({"x": arrays["x"]})["y"] - arrays["y"]).mean()
        return {"agreement": float(1 - error / np.abs(arrays["y"]).mean()), "rows": 20}

def fails(predict, data):
    raise KeyError("no labels")

def fails_for_graphs(predict, data):
    if type(predict.model).__name__ == "OnnxModel":
        raise ValueError("too slow")
    return 1.0

def text(predict, data):
    return "good"
'''


def graph() -> onnx.ModelProto:
    """Return two products with something for every pass: an Identity, equal nodes, and a division to fuse."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((8, 16)), "v": rng.standard_normal((16, 3)), "two": np.array(2.0)}
    nodes = [
        helper.make_node("Identity", ["x"], ["i"]),
        helper.make_node("MatMul", ["i", "w"], ["p"], name="first"),
        helper.make_node("Div", ["p", "two"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Relu", ["h"], ["s"]),
        helper.make_node("Add", ["r", "s"], ["a"]),
        helper.make_node("MatMul", ["a", "v"], ["y"], name="second"),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size]) for name, size in (("x", 8), ("y", 3))
    ]
    constants = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    proto = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    return helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def faster(_before: Path, _after: Path, cases: Sequence[Arrays], _threads: int) -> Gain:
    """Measure a factor of 2."""
    assert all("x" in inputs for inputs in cases)
    return gain_of([0.002] * 15, [0.001] * 15)


def equally_fast(_before: Path, _after: Path, _cases: Sequence[Arrays], _threads: int) -> Gain:
    """Measure no gain."""
    return gain_of([0.001] * 15, [0.001] * 15)


class Changed(Pass):
    """A registered pass whose result is changed.

    Args:
        name: Its name.
        change: Changes the result in place.
    """

    def __init__(self, name: str, change: Callable[[ir.Model], None]) -> None:
        """Take over the declarations of the pass."""
        self._pass = load_pass(name)
        self._change = change
        for attribute in ("name", "options_model", "precision", "gated"):
            setattr(self, attribute, getattr(self._pass, attribute))

    def requires(self, request: PassRequest) -> str:
        """Return the reason of the pass."""
        return self._pass.requires(request)

    def __call__(self, request: PassRequest) -> ir.Model:
        """Change the result."""
        model = self._pass(request)
        self._change(model)
        return model

    def ensures(self, request: PassRequest, result: ir.Model) -> str:
        """Return the problem that the pass finds."""
        return self._pass.ensures(request, result)


def invalid(model: ir.Model) -> None:
    """Use an operator that does not exist."""
    next(node for node in model.graph if node.op_type == "Relu").op_type = "Nonsense"


def wrong(model: ir.Model) -> None:
    """Compute something else, validly."""
    for node in model.graph:
        if node.op_type == "Relu":
            node.op_type = "Abs"


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """Return the verified graph of an ONNX file, with data for quality and calibration; every gain is 2."""
    tmp_path = tmp_path_factory.mktemp("model")
    onnx.save(graph(), tmp_path / "model.onnx")
    (tmp_path / "quality.py").write_text(QUALITY)
    model = ModelSpec.model_validate(
        {
            "source": {"kind": "onnx", "path": "model.onnx"},
            "dims": {"batch": {"max": 8}},
            "parity": {"seeds": 1, "budget_seconds": 0.01},
            "quality": {
                "callable": "quality.py:agreement",
                "data": "quality.npz",
                "metric": "agreement",
                "max_drop": 0.05,
            },
        }
    )
    work = tmp_path / "work"
    work.mkdir()
    job = Job("m", model, tmp_path, RELEASE, work, 1)
    source = load_source(model, tmp_path, None, {}, work)
    x = np.random.default_rng(1).standard_normal((20, 8)).astype(np.float32)
    np.savez(tmp_path / "quality.npz", x=x, y=source.reference({"x": x})["y"])
    np.savez(tmp_path / "calibration.npz", x=x)
    options = NormalizeOptions(source.signature, target_of(RELEASE), external_data=False, exporter="onnx")
    artifact = normalize(ir.from_proto(graph()), work / "model.onnx", options)
    base = verify(artifact, source, job, work / "golden")
    deadline = time.monotonic() + 3600
    return Subject(source, job, Workspace(options, tmp_path, work), [], base, deadline, faster)


@pytest.fixture
def subject(verified: Subject, tmp_path: Path) -> Subject:
    """Return the verified graph with a directory for passes."""
    return replace(verified, workspace=replace(verified.workspace, directory=tmp_path))


def run(
    subject: Subject, *names: str, load: Callable[[str], Pass] = load_pass, **settings: Any
) -> tuple[VerifiedGraph, tuple[PassOutcome, ...]]:
    """Run passes, each with its options and a measured gain."""
    entries = [{"name": name, "options": OPTIONS.get(name, {}), "gain": True, **settings} for name in names]
    passes = ModelSpec.model_validate({"source": {"factory": "m.py:m"}, "optimize": entries}).passes
    return apply_measured(select_passes(passes, load), subject)


def with_quality(subject: Subject, **settings: object) -> Subject:
    """Return the subject with another ``quality:``; without one if there are no settings."""
    quality = subject.job.model.quality
    assert quality is not None
    changed = quality.model_copy(update=settings) if settings else None
    return replace(subject, job=replace(subject.job, model=subject.job.model.model_copy(update={"quality": changed})))


def golden_outputs(graph: VerifiedGraph) -> list[tuple[dict[str, Any], Any]]:
    """Return inputs and output of every golden case."""
    arrays = read_npz(graph.golden_dir / "golden.npz")
    cases = read_golden(graph.golden_dir).cases
    return [({"x": arrays[case.inputs[0].key]}, arrays[case.outputs[0].key]) for case in cases]


@pytest.mark.parametrize("name", BUILT_IN)
def test_pass_that_pays_is_kept(subject: Subject, name: str) -> None:
    """A lossy one with its quality, and golden tensors from its own outputs; any other with parity and PyTorch's."""
    result, (outcome,) = run(subject, name)
    assert (outcome.applied, outcome.reason, outcome.lossy) == (True, "", name in LOSSY)
    assert outcome.gain is not None
    assert outcome.gain.ratio == 2
    assert (outcome.nodes_before, outcome.nodes_after) == (7, result.artifact.nodes)
    assert result.validation.batch == subject.base.validation.batch
    assert result.validation.batch.max_batch_size == 8
    cases = golden_outputs(result)
    assert cases
    if name not in LOSSY:
        assert (result.lossy, outcome.quality) == (None, None)
        assert all(np.array_equal(y, subject.source.reference(x)["y"]) for x, y in cases)
        return
    assert outcome.quality is not None
    assert outcome.quality.reference == 1
    assert 0.95 < outcome.quality.optimized < 1
    assert result.lossy == Lossy((name,), LOSSY[name], outcome.quality)  # type: ignore[arg-type] # a Literal
    assert str(result.lossy).startswith(f"lossy: {name}, quality 1 -> 0.9")
    published = OnnxModel(result.artifact)
    assert all(np.array_equal(y, published(x)["y"]) for x, y in cases)
    assert any(not np.array_equal(y, subject.source.reference(x)["y"]) for x, y in cases)
    assert result.validation.parity.max_abs_diff > 0
    assert not any("comparison detects nothing" in note for note in result.validation.parity.notes)


@pytest.mark.parametrize("name", BUILT_IN)
def test_pass_that_breaks_the_graph_is_dropped(subject: Subject, name: str) -> None:
    """The graph before it stays, and nothing of the result."""
    result, (outcome,) = run(subject, name, load=lambda name: Changed(name, invalid))
    assert result is subject.base
    assert (outcome.applied, outcome.nodes_after) == (False, 7)
    assert "its result fails onnx.checker: " in outcome.reason
    assert not list(subject.workspace.directory.glob("optimized-*/model.onnx"))


@pytest.mark.parametrize("name", BUILT_IN)
def test_pass_that_exceeds_its_budget_is_dropped(subject: Subject, name: str) -> None:
    """The budget of a lossy pass is that of quality; a lossless one must have parity."""
    if name in LOSSY:
        subject = with_quality(subject, max_drop=1e-6)
        result, (outcome,) = run(subject, name)
        assert outcome.quality is not None
        assert outcome.reason == f"it exceeds its budget: {outcome.quality}"
        assert "(budget 1e-06)" in outcome.reason
    else:
        result, (outcome,) = run(subject, name, load=lambda name: Changed(name, wrong))
        assert outcome.reason.startswith("ONNX Runtime disagrees with the ONNX file in ")
    assert result is subject.base
    assert not outcome.applied
    assert outcome.gain is None  # not measured, because the result cannot be used


@pytest.mark.parametrize("name", BUILT_IN)
def test_pass_without_a_measured_gain_is_dropped(subject: Subject, name: str) -> None:
    """With the figures of the measurement."""
    result, (outcome,) = run(replace(subject, timer=equally_fast), name)
    assert result is subject.base
    assert not outcome.applied
    assert outcome.reason == "no measured gain: 1.00x as fast (1 -> 1 ms; interval 1.00 to 1.00)"
    assert outcome.gain is not None
    assert (outcome.quality is not None) == (name in LOSSY)
    assert not list(subject.workspace.directory.glob("optimized-*/model.onnx"))


def test_pass_whose_gain_is_not_certain_is_dropped(subject: Subject) -> None:
    """The reason has a ratio above the limit, so it states what does not reach the limit."""
    _, (outcome,) = run(replace(subject, timer=lambda *_: Gain(0.123, 0.102, 1.2, 1.01, 1.55, 1.02)), "ort-fusions")
    assert not outcome.applied
    assert outcome.reason == (
        "the gain is not certain: 1.20x as fast (0.123 -> 0.102 ms; interval 1.01 to 1.55, of which the lower end must "
        "be at least 1.02)"
    )


def test_lossy_pass_that_computes_something_else_is_dropped(subject: Subject) -> None:
    """Quality detects it."""
    result, (outcome,) = run(subject, "int8-dynamic", load=lambda name: Changed(name, wrong))
    assert result is subject.base
    assert outcome.reason.startswith("it exceeds its budget: quality 1 -> ")


@pytest.mark.parametrize("name", sorted(LOSSY))
def test_without_quality_a_lossy_pass_must_have_parity(subject: Subject, name: str) -> None:
    """Its tolerances are those of the spec; what is published then has parity, and golden tensors of the original."""
    subject = with_quality(subject)
    result, (outcome,) = run(subject, name)
    assert result is subject.base
    assert outcome.reason.startswith("ONNX Runtime disagrees with the ONNX file in ")
    assert outcome.reason.endswith("; a lossy pass without quality: must be within the tolerances of parity")
    parity = subject.job.model.parity.model_copy(update={"rtol": 0.5, "atol": 20.0})
    job = replace(subject.job, model=subject.job.model.model_copy(update={"parity": parity}))
    result, (outcome,) = run(replace(subject, job=job), name)
    assert outcome.applied
    assert result.lossy is not None
    assert result.lossy.has_parity
    assert str(result.lossy) == f"lossy: {name}, within the tolerances of parity"
    assert all(np.array_equal(y, subject.source.reference(x)["y"]) for x, y in golden_outputs(result))


def test_gain_is_not_measured_if_the_spec_says_so(subject: Subject) -> None:
    """So that the published bytes do not depend on a measurement of time."""

    def must_not_run(*_: object) -> Gain:
        raise AssertionError

    _, (outcome,) = run(replace(subject, timer=must_not_run), "int8-dynamic", gain=False)
    assert (outcome.applied, outcome.gain) == (True, None)


def test_pass_after_a_lossy_one_is_judged_by_quality(subject: Subject) -> None:
    """Against the original, not against the graph before it; a pass that is dropped does not end the sequence."""
    result, (first, second, third) = run(subject, "int8-dynamic", "int8-static", "onnxruntime-offline")
    assert (first.applied, second.applied, third.applied) == (True, False, True)
    assert second.reason == "the graph is quantized already"
    assert third.quality is not None
    assert third.quality.reference == 1
    assert result.lossy == Lossy(("int8-dynamic",), "qint8", third.quality)


@pytest.mark.parametrize(
    ("function", "message"),
    [("fails", "quality.py:fails failed: KeyError: 'no labels'"), ("text", "did not return a number: it is 'good'")],
)
def test_quality_that_cannot_be_measured_on_the_original_ends_the_build(
    subject: Subject, function: str, message: str
) -> None:
    """It is an error in the user's code, which every lossy pass needs."""
    with pytest.raises(SourceError, match=message) as caught:
        run(with_quality(subject, callable=f"quality.py:{function}"), "int8-dynamic")
    assert (caught.value.code, caught.value.exit_code) == ("source.quality", 3)


def test_several_figures_need_a_name(subject: Subject) -> None:
    """The message lists them."""
    with pytest.raises(SourceError, match=r"returned agreement, rows: select one with quality\.metric"):
        run(with_quality(subject, metric=None), "int8-dynamic")


def test_quality_that_fails_on_a_graph_drops_the_pass(subject: Subject) -> None:
    """The code works on the original, so the graph is the cause."""
    quality = {"callable": "quality.py:fails_for_graphs", "metric": None}
    _, (outcome,) = run(with_quality(subject, **quality), "int8-dynamic")
    assert outcome.reason == "quality.py:fails_for_graphs failed: ValueError: too slow"


def test_unusable_calibration_data_end_the_build(subject: Subject) -> None:
    """The spec names them for nothing else."""
    np.savez(subject.job.root / "images.npz", image=np.zeros((4, 8), np.float32))
    with pytest.raises(SourceError, match=r"images.npz has no array 'x'; it has image") as caught:
        run(subject, "int8-static", options={"calibration": "images.npz"})
    assert (caught.value.code, caught.value.where) == ("source.calibration", "images.npz")


@pytest.mark.parametrize("name", sorted(LOSSY))
def test_unknown_name_in_exclude_ends_the_build(subject: Subject, name: str) -> None:
    """The user asked for a lossy graph without one node, not for the graph without the pass."""
    with pytest.raises(SourceError, match=r"no node is named 'first_'") as caught:
        run(subject, name, options={**OPTIONS.get(name, {}), "exclude": ["second", "first_"]})
    assert (caught.value.code, caught.value.hint) == ("source.exclude", "did you mean 'first'?")


def test_noise_of_quantization_does_not_prevent_batching(subject: Subject) -> None:
    """Golden tensors allow what batches change: at least twice the largest difference from the original."""
    result, _ = run(subject, "int8-dynamic")
    rtol, atol = read_golden(result.golden_dir).tolerances["y"]
    assert rtol == 0.1
    assert atol >= 2 * result.validation.parity.max_abs_diff


class Endless(Pass):
    """Takes longer than the build may."""

    name = "onnxsim"

    def __call__(self, request: PassRequest) -> ir.Model:
        """Sleep."""
        time.sleep(600)
        return ir.load(request.artifact.path)


def test_slow_pass_does_not_end_the_build(subject: Subject) -> None:
    """It gets half of the remaining time, and the next one is run."""
    late = replace(subject, deadline=time.monotonic())
    _, outcomes = run(late, "onnxsim", load=lambda _: Endless())
    assert outcomes[0].reason == "it took more than 1 s, half of the remaining limits.timeout_seconds"

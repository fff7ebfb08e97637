"""A real graph against its PyTorch model: what agrees, what must not pass, and what is kept of it."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from torch import nn

from repogen.artifacts.built_model import OnnxArtifact, ParityCase, ParityReport
from repogen.artifacts.tensors import TensorSpec
from repogen.errors import ConfigError, ExportError, ParityError
from repogen.export.fallback_chain import export_with, exporters
from repogen.onnx_graph.normalize import Finishing, finish
from repogen.repository.golden import golden_from_json
from repogen.spec.models import ExportSpec, ModelSpec
from repogen.targets import targets
from repogen.validate.golden import GoldenKeeper
from repogen.validate.parity import _missed
from repogen.validate.runtime import OnnxModel
from repogen.validate.structure import check_structure
from repogen.validate.sweep import SweepCase
from repogen.validate.validation import validate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from repogen.artifacts.source import SourceModel
    from repogen.validate.validation import Validation

TARGET = targets()["24.10"]


class Net(nn.Module):
    """Tells its inputs apart."""

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return floats and integers."""
        return {"difference": 2 * left - right, "best": left.argmax(-1)}


class Faulty(nn.Module):
    """Does to x what a function does."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Keep the function."""
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply it."""
        return self.function(x)


def exported(source: SourceModel, directory: Path) -> OnnxArtifact:
    """Export by tracing: it takes no second."""
    spec = ExportSpec(exporter="torchscript")
    finishing = Finishing(source.signature, TARGET, external_data=False, exporter="torchscript")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tracer's own deprecation, as in the worker
        return export_with(exporters(source.origin, spec)[0], source, spec, finishing, directory)


def proved(artifact: OnnxArtifact, source: SourceModel, directory: Path, **parity: Any) -> Validation:
    """Validate with these parity keys."""
    spec = ModelSpec.model_validate({"source": {"factory": "m.py:f"}, "parity": parity})
    return validate(artifact, source, spec, TARGET, directory / "golden")


def edited(artifact: OnnxArtifact, edit: Callable[[ir.Model], None]) -> OnnxArtifact:
    """Return the artifact after an edit of its graph."""
    model = ir.load(artifact.path)
    edit(model)
    finishing = Finishing(artifact.signature, TARGET, external_data=False, exporter="edited")
    return finish(model, artifact.path.with_name("edited.onnx"), finishing)


@pytest.fixture(scope="module")
def source(as_source: Callable[..., SourceModel]) -> SourceModel:
    """Return a model of two inputs."""
    return as_source(Net(), {"left": ["batch", 4], "right": ["batch", 4]})


@pytest.fixture(scope="module")
def artifact(source: SourceModel, tmp_path_factory: pytest.TempPathFactory) -> OnnxArtifact:
    """Return its graph."""
    return exported(source, tmp_path_factory.mktemp("exported"))


def test_a_faithful_graph_passes_every_case(source: SourceModel, artifact: OnnxArtifact, tmp_path: Path) -> None:
    """Example on each seed, minimum, middle, maximum, and primes between; it batches; nothing is skipped."""
    result = proved(artifact, source, tmp_path)
    assert [case.name for case in result.parity.cases] == [
        "batch=2 seed=0", "batch=1 seed=2", "batch=2 seed=1", "batch=3 seed=5", "batch=5 seed=3", "batch=7 seed=6",
        "batch=8 seed=4",
    ]  # fmt: skip
    assert (result.parity.passed, result.parity.skipped) == (True, ())
    assert (result.batch.batchable, result.batch.max_batch_size) == (True, 8)


def test_golden_cases_hold_what_pytorch_answered(source: SourceModel, artifact: OnnxArtifact, tmp_path: Path) -> None:
    """Read back from disk, run again, equal; the batch and the tolerances are recorded."""
    proved(artifact, source, tmp_path)
    golden = golden_from_json((tmp_path / "golden" / "golden.json").read_text())
    assert [case.batch for case in golden.cases] == [2, 1, 2, 5]
    assert golden.tolerances == {"difference": (1e-3, 1e-5), "best": (0.0, 0.0)}
    with np.load(tmp_path / "golden" / "golden.npz", allow_pickle=False) as arrays:
        for case in golden.cases:
            answer = source.reference({tensor.name: arrays[tensor.key] for tensor in case.inputs})
            for tensor in case.outputs:
                assert np.array_equal(arrays[tensor.key], answer[tensor.name])


def test_the_same_proof_writes_the_same_bytes(source: SourceModel, artifact: OnnxArtifact, tmp_path: Path) -> None:
    """Golden files are part of what is published."""
    contents = []
    for name in ("one", "two"):
        proved(artifact, source, tmp_path / name)
        contents.append([path.read_bytes() for path in sorted((tmp_path / name / "golden").iterdir())])
    assert contents[0] == contents[1]


def test_swapped_inputs_do_not_pass(source: SourceModel, artifact: OnnxArtifact, tmp_path: Path) -> None:
    """A graph whose inputs bear each other's names is fed by name, and answers otherwise."""

    def swap(model: ir.Model) -> None:
        left, right = model.graph.inputs
        model.graph.inputs[:] = [right, left]

    with pytest.raises(ParityError, match="disagrees with the PyTorch model in 7 of 7 cases") as caught:
        proved(edited(artifact, swap), source, tmp_path)
    assert (caught.value.code, caught.value.exit_code) == ("parity.drift", 4)


def test_a_frozen_size_is_told_from_drift(as_source: Callable[..., SourceModel], tmp_path: Path) -> None:
    """When the example agrees and other sizes do not, the hint says what the exporter did."""

    def frozen(x: torch.Tensor) -> torch.Tensor:
        return x + len(x)

    source = as_source(Faulty(frozen))
    with pytest.raises(ParityError, match="batch=1 seed=2: ") as caught:
        proved(exported(source, tmp_path), source, tmp_path)
    assert "froze a size" in caught.value.hint


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_model_without_dims_has_one_case_a_seed(
    as_source: Callable[..., SourceModel], tmp_path: Path, seeds: int
) -> None:
    """Fixed shapes and scalars pass, do not batch, and keep golden cases with no batch."""
    source = as_source(Net(), {"left": [3, 4], "right": []})
    result = proved(exported(source, tmp_path), source, tmp_path, seeds=seeds)
    assert [case.name for case in result.parity.cases] == [f"seed={i}" for i in range(seeds)]
    assert (result.batch.batchable, result.batch.reason) == (
        False,
        "axis 0 of its inputs is not one shared dynamic dim",
    )
    golden = golden_from_json((tmp_path / "golden" / "golden.json").read_text())
    assert [(case.name, case.batch) for case in golden.cases] == [(f"seed={i}", 0) for i in range(seeds)]


def test_a_spent_budget_skips_by_name_and_never_what_is_required(
    source: SourceModel, artifact: OnnxArtifact, tmp_path: Path
) -> None:
    """The example, the minimum and one prime always run."""
    report = proved(artifact, source, tmp_path, budget_seconds=1e-9).parity
    assert [case.name for case in report.cases] == ["batch=2 seed=0", "batch=1 seed=2", "batch=3 seed=5"]
    assert report.skipped == ("batch=2 seed=1", "batch=5 seed=3", "batch=7 seed=6", "batch=8 seed=4")


DECLARED = (
    r"itself fails at batch=1 \(axis 0 of input 'x'; declared 1 to 8 in dims.batch; 2 worked\): .*shape '\[2, 4\]'"
)


@pytest.mark.parametrize(
    ("function", "error", "code", "words"),
    [
        (lambda x: torch.log(-x.abs()), ParityError, "parity.not-finite", "itself gives NaN or Inf at batch=2 seed=0"),
        (lambda x: x + torch.randn_like(x), ParityError, "parity.non-deterministic", "differs from itself"),
        (lambda x: x.reshape(2, 4) * 2, ExportError, "source.declared-size", DECLARED),
    ],
)  # fmt: skip
def test_faults_of_the_model_itself_are_not_drift(
    as_source: Callable[..., SourceModel],
    tmp_path: Path,
    function: Callable[[torch.Tensor], torch.Tensor],
    error: type[Exception],
    code: str,
    words: str,
) -> None:
    """NaN, randomness, and sizes that the model refuses."""
    source = as_source(Faulty(function))
    identity = exported(as_source(Faulty(lambda x: x * 2)), tmp_path)
    with pytest.raises(error, match=words) as caught:
        proved(identity, source, tmp_path)
    assert getattr(caught.value, "code", "") == code


@pytest.mark.parametrize("content", [b"", b"no model"])
def test_a_file_that_is_no_model_is_refused(artifact: OnnxArtifact, tmp_path: Path, content: bytes) -> None:
    """A zero-byte file, which onnx.load takes for an empty model, too."""
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ExportError) as caught:
        check_structure(replace(artifact, path=path), TARGET)
    assert caught.value.code == "validate.checker"
    assert str(tmp_path) not in caught.value.message
    with pytest.raises(ParityError, match="cannot load the model") as unloadable:
        OnnxModel(replace(artifact, path=path))
    assert str(tmp_path) not in unloadable.value.message


@pytest.mark.parametrize(
    ("changed", "code", "words"),
    [
        ({"opset": 22}, "RG301", "opset 22 is too new: Triton 24.10 (ONNX Runtime 1.19.2) supports up to 21"),
        ({"ir_version": 11}, "RG302", "IR version 11 is too new: Triton 24.10 (ONNX Runtime 1.19.2) supports up to 10"),
    ],
)
def test_what_the_target_cannot_load_is_refused(
    artifact: OnnxArtifact, changed: dict[str, int], code: str, words: str
) -> None:
    """With the release's limit."""
    with pytest.raises(ConfigError) as caught:
        check_structure(OnnxArtifact(**{**vars(artifact), **changed}), TARGET)
    assert caught.value.code == code
    assert words in caught.value.message


def test_a_run_that_fails_is_an_error_without_paths(artifact: OnnxArtifact) -> None:
    """ONNX Runtime's refusal of a wrong shape, in one line."""
    model = OnnxModel(artifact)
    with pytest.raises(ParityError, match="ONNX Runtime failed: ") as caught:
        model({"left": np.zeros((1, 9), np.float32), "right": np.zeros((1, 4), np.float32)})
    assert "\n" not in caught.value.message


def test_an_output_that_is_nan_only_in_the_graph_fails(as_source: Callable[..., SourceModel], tmp_path: Path) -> None:
    """NaN in ONNX Runtime's answer is a miss, not a tolerance."""
    wrong = exported(as_source(Faulty(lambda x: torch.log(-x.abs()))), tmp_path)
    with pytest.raises(ParityError, match="NaN or Inf"):
        proved(wrong, as_source(Faulty(lambda x: x * 2)), tmp_path)


def test_the_golden_keeper_stays_small(tmp_path: Path) -> None:
    """The first case whatever its size, later ones while there is room, four at most."""
    big, small = {"x": np.zeros(3 * 2**20, np.uint8)}, {"x": np.zeros(1, np.uint8)}
    case = SweepCase({"batch": 1}, 0, required=True)
    for offered, kept in (([big, small, small], 1), ([small, big, small], 2), ([small] * 6, 4)):
        keeper = GoldenKeeper()
        for arrays in offered:
            keeper.offer(case, arrays, small)
        keeper.write(tmp_path, "batch", {"x": (0.0, 0.0)})
        assert len(json.loads((tmp_path / "golden.json").read_text())["cases"]) == kept


def test_the_checker_sees_the_graph_that_is_published(artifact: OnnxArtifact) -> None:
    """What passes here is what onnx itself accepts."""
    assert check_structure(artifact, TARGET) is None  # type: ignore[func-returns-value]
    onnx.checker.check_model(artifact.path, full_check=True)


def test_the_dim_at_fault_is_named_with_what_it_takes(as_source: Callable[..., SourceModel], tmp_path: Path) -> None:
    """Of several dims at their minimum, the one that fails alone; its sizes that work are found by halving."""
    source = as_source(nn.Conv1d(3, 2, 7), {"x": ["batch", 3, "time"]}, time={"min": 1, "max": 20})
    with pytest.raises(ExportError) as caught:
        proved(exported(source, tmp_path), source, tmp_path)
    assert caught.value.code == "source.declared-size"
    assert "itself fails at time=1 (axis 2 of input 'x'" in caught.value.message
    assert "batch=" not in caught.value.message
    assert caught.value.hint.endswith("narrow dims.time in the spec to what the model can take: time 7 to 16 worked")


def test_sizes_between_that_the_model_does_not_take_are_no_fault(
    as_source: Callable[..., SourceModel], tmp_path: Path
) -> None:
    """Of the bounds that are declared it takes all; primes between them it refuses, and that is said."""

    def windows(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0], -1, 4).sum(2)

    source = as_source(Faulty(windows), {"x": ["batch", "time"]}, time={"min": 4, "max": 28})
    report = proved(exported(source, tmp_path), source, tmp_path).parity
    assert report.passed
    refused = {name.split()[0] for name in report.unanswered}
    assert refused == {f"batch={b},time={t}" for b, t in ((2, 5), (2, 17), (2, 22), (2, 23), (5, 22))}


@pytest.mark.parametrize(
    ("apart", "against", "names", "said"),
    [
        (1e-5, "", ("x",), "allow it, as with parity: {atol: 2e-05}"),
        (3.0, "", ("x",), "try another exporter"),
        (3.0, "models.py:ref", ("x",), "it has other weights"),
        (0.0, "", ("x", "attention_mask"), "a mask that hides a whole row makes NaN"),
    ],
)
def test_the_remedy_fits_what_is_wrong(
    as_source: Callable[..., SourceModel], apart: float, against: str, names: tuple[str, ...], said: str
) -> None:
    """Noise, another model, masks, and the rest."""
    source = as_source(Net(), {"left": ["batch", 4], "right": ["batch", 4]})
    specs = tuple(TensorSpec(name, "float32", ("batch", 4)) for name in names)
    source = replace(source, signature=replace(source.signature, inputs=specs), against=against)
    reason = "off" if apart else "'y' has NaN or Inf among the actual values"
    report = ParityReport((ParityCase("batch=2", apart, 0.0, 1.0, passed=False, reason=reason),))
    assert said in _missed(report, source, "").hint


def test_an_operator_without_a_kernel_for_its_dtype_is_told_so(
    as_source: Callable[..., SourceModel], tmp_path: Path
) -> None:
    """ONNX Runtime has no float64 convolution on the CPU."""
    source = as_source(nn.Conv1d(3, 2, 3), {"x": ["batch", 3, 8]})
    double = [TensorSpec(spec.name, "float64", spec.shape) for spec in source.signature.inputs]
    artifact = replace(exported(source, tmp_path), signature=replace(source.signature, inputs=tuple(double)))
    model = onnx.load(artifact.path)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    for weight in model.graph.initializer:
        weight.CopyFrom(
            onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight).astype(np.float64), weight.name)
        )
    onnx.save(model, artifact.path)
    with pytest.raises(ParityError) as caught:
        OnnxModel(artifact)
    assert "source: {dtype: float32}" in caught.value.hint

"""Parity of real graphs with PyTorch models, structure checks, and golden tensors."""

from __future__ import annotations

import json
import operator
import warnings
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from torch import nn

from repogen.artifacts.built_model import OnnxArtifact, OutputDifference, ParityCase, ParityReport
from repogen.artifacts.tensors import TensorSpec
from repogen.errors import ConfigError, ExportError, ParityError, SourceError
from repogen.export.fallback_chain import export_with, fallback_chain
from repogen.onnx_graph.normalize import NormalizeOptions, normalize
from repogen.repository.golden import golden_from_json
from repogen.source.common.examples import DrawnExamples
from repogen.spec.models import ExportSpec, InputSpec, ModelSpec, ParitySpec
from repogen.targets import targets
from repogen.validate.compare import Comparison
from repogen.validate.golden import GoldenRecorder
from repogen.validate.parity import _expected_outputs, check_parity, drift_error
from repogen.validate.runtime import OnnxModel
from repogen.validate.structure import check_structure
from repogen.validate.sweep import SweepCase
from repogen.validate.tolerance import Limit
from repogen.validate.validation import prove, validate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from repogen.artifacts.source import SourceModel
    from repogen.artifacts.tensors import Array, Arrays
    from repogen.validate.validation import Validation

TARGET = targets()["24.10"]


class Net(nn.Module):
    """Depends on the order of its inputs."""

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return floats and integers."""
        return {"difference": 2 * left - right, "best": left.argmax(-1)}


class Faulty(nn.Module):
    """Applies a function."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Keep the function."""
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply it."""
        return self.function(x)


def exported(source: SourceModel, directory: Path) -> OnnxArtifact:
    """Export by tracing, which is fast."""
    spec = ExportSpec(exporter="torchscript")
    options = NormalizeOptions(source.signature, TARGET, external_data=False, exporter="torchscript")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a deprecation of the tracer, as in the worker
        return export_with(fallback_chain(source.origin, spec)[0], source, spec, options, directory)


def validated(artifact: OnnxArtifact, source: SourceModel, directory: Path, **parity: Any) -> Validation:
    """Validate with these parity keys."""
    spec = ModelSpec.model_validate({"source": {"factory": "m.py:f"}, "parity": parity})
    return validate(artifact, source, spec, directory / "golden")


def edited(artifact: OnnxArtifact, edit: Callable[[ir.Model], None]) -> OnnxArtifact:
    """Return an artifact with an edited graph."""
    model = ir.load(artifact.path)
    edit(model)
    options = NormalizeOptions(artifact.signature, TARGET, external_data=False, exporter="edited")
    return normalize(model, artifact.path.with_name("edited.onnx"), options)


@pytest.fixture(scope="module")
def source(as_source: Callable[..., SourceModel]) -> SourceModel:
    """Return a model of two inputs."""
    return as_source(Net(), {"left": ["batch", 4], "right": ["batch", 4]})


@pytest.fixture(scope="module")
def artifact(source: SourceModel, tmp_path_factory: pytest.TempPathFactory) -> OnnxArtifact:
    """Return the graph of the source."""
    return exported(source, tmp_path_factory.mktemp("exported"))


def test_equal_graph_passes_every_case(source: SourceModel, artifact: OnnxArtifact, tmp_path: Path) -> None:
    """The example with each seed, minimum, middle, maximum, and primes; no case is skipped."""
    result = validated(artifact, source, tmp_path)
    assert [case.name for case in result.parity.cases] == [
        "batch=2 seed=0", "batch=1 seed=2", "batch=2 seed=1", "batch=3 seed=5", "batch=5 seed=4", "batch=8 seed=3",
    ]  # fmt: skip
    assert (result.parity.passed, result.parity.skipped) == (True, ())
    assert (result.batch.batchable, result.batch.max_batch_size) == (True, 8)


def test_report_has_the_errors_of_each_size_and_output(
    source: SourceModel, artifact: OnnxArtifact, tmp_path: Path
) -> None:
    """An output that is off by 1e-5 has errors of that magnitude at every size; integers are equal."""

    def shift(model: ir.Model) -> None:
        output = model.graph.outputs[[value.name for value in model.graph.outputs].index("difference")]
        constant = ir.tensor(np.array(1e-5, np.float32), name="shift")
        value = ir.Value(name="shift", const_value=constant, shape=ir.Shape([]), type=ir.TensorType(ir.DataType.FLOAT))
        model.graph.register_initializer(value)
        node = ir.node("Add", [output, value], num_outputs=1)
        node.outputs[0].shape, node.outputs[0].type = output.shape, output.type
        model.graph.append(node)
        output.name = "unshifted"
        node.outputs[0].name = "difference"
        model.graph.outputs[list(model.graph.outputs).index(output)] = node.outputs[0]

    parity = validated(edited(artifact, shift), source, tmp_path, atol=1e-4).parity
    assert [case.sizes for case in parity.cases] == [{"batch": size} for size in (2, 1, 2, 3, 5, 8)]
    for case in parity.cases:
        errors = {output.name: output.max_abs_diff for output in case.outputs}
        assert errors["difference"] == pytest.approx(1e-5, rel=0.2)
        assert errors["best"] == 0
    distributions = {output.name: output for output in parity.outputs}
    assert (distributions["difference"].atol, distributions["difference"].rtol) == (1e-4, 1e-3)
    assert sum(distributions["difference"].histogram.values()) + distributions["difference"].exact == 4 * 21
    assert set(distributions["difference"].histogram) <= {-11, -10}
    assert (distributions["best"].exact, distributions["best"].histogram) == (21, {})


def test_graph_has_the_number_of_nodes_by_operator(artifact: OnnxArtifact) -> None:
    """The sum is the number of nodes."""
    assert {"ArgMax", "Sub"} <= set(artifact.operators)
    assert sum(artifact.operators.values()) == artifact.nodes


def test_golden_cases_contain_pytorchs_outputs(source: SourceModel, artifact: OnnxArtifact, tmp_path: Path) -> None:
    """With the batch size and the tolerances."""
    validated(artifact, source, tmp_path)
    golden = golden_from_json((tmp_path / "golden" / "golden.json").read_text())
    assert [case.batch for case in golden.cases] == [2, 1, 2, 5]
    assert golden.tolerances["best"] == (0.0, 0.0)
    assert golden.tolerances["difference"][0] == 1e-3
    assert 1e-5 < golden.tolerances["difference"][1] < 1e-4
    with np.load(tmp_path / "golden" / "golden.npz", allow_pickle=False) as arrays:
        for case in golden.cases:
            outputs = source.reference({tensor.name: arrays[tensor.key] for tensor in case.inputs})
            for tensor in case.outputs:
                assert np.array_equal(arrays[tensor.key], outputs[tensor.name])


def test_golden_files_are_reproducible(source: SourceModel, artifact: OnnxArtifact, tmp_path: Path) -> None:
    """They are published."""
    contents = []
    for name in ("one", "two"):
        validated(artifact, source, tmp_path / name)
        contents.append([path.read_bytes() for path in sorted((tmp_path / name / "golden").iterdir())])
    assert contents[0] == contents[1]


def test_swapped_inputs_fail(source: SourceModel, artifact: OnnxArtifact, tmp_path: Path) -> None:
    """Inputs are passed by name, so a graph with swapped names gives other outputs."""

    def swap(model: ir.Model) -> None:
        left, right = model.graph.inputs
        model.graph.inputs[:] = [right, left]

    with pytest.raises(ParityError, match="disagrees with the PyTorch model in 6 of 6 cases") as caught:
        validated(edited(artifact, swap), source, tmp_path)
    assert (caught.value.code, caught.value.exit_code) == ("parity.drift", 4)


def test_tensor_of_frozen_sizes_is_explained(as_source: Callable[..., SourceModel], tmp_path: Path) -> None:
    """``torch.Tensor`` reads sizes into a constant."""
    source = as_source(Faulty(lambda x: x * torch.Tensor([x.shape[0], 1]).sum()))
    with pytest.raises(ParityError) as caught:
        validated(exported(source, tmp_path), source, tmp_path)
    assert "write torch.tensor([…])" in caught.value.hint


def test_frozen_size_is_explained(as_source: Callable[..., SourceModel], tmp_path: Path) -> None:
    """The hint depends on whether the example size agrees."""

    def frozen(x: torch.Tensor) -> torch.Tensor:
        return x + operator.index(x.shape[0])

    source = as_source(Faulty(frozen))
    with pytest.raises(ParityError, match="batch=1 seed=2: ") as caught:
        validated(exported(source, tmp_path), source, tmp_path)
    assert "froze a size" in caught.value.hint


@pytest.mark.parametrize("seeds", [1, 3])
def test_model_without_dims_has_one_case_per_seed(
    as_source: Callable[..., SourceModel], tmp_path: Path, seeds: int
) -> None:
    """Fixed shapes and scalars pass, cannot be batched, and have golden cases without a batch."""
    source = as_source(Net(), {"left": [3, 4], "right": []})
    result = validated(exported(source, tmp_path), source, tmp_path, seeds=seeds)
    assert [case.name for case in result.parity.cases] == [f"seed={i}" for i in range(seeds)]
    assert not result.batch.batchable
    assert result.batch.reason.startswith("axis 0 of its inputs is not one shared dynamic dim (left 3, right has none)")
    golden = golden_from_json((tmp_path / "golden" / "golden.json").read_text())
    assert [(case.name, case.batch) for case in golden.cases] == [(f"seed={i}", 0) for i in range(seeds)]


def test_spent_budget_skips_optional_cases(source: SourceModel, artifact: OnnxArtifact, tmp_path: Path) -> None:
    """The example, the minimum and one prime are required; the report names the skipped cases."""
    report = validated(artifact, source, tmp_path, budget_seconds=1e-9).parity
    assert [case.name for case in report.cases] == ["batch=2 seed=0", "batch=1 seed=2", "batch=3 seed=5"]
    assert report.skipped == ("batch=2 seed=1", "batch=5 seed=4", "batch=8 seed=3")


def test_dim_at_its_maximum_runs_if_the_largest_case_does_not(
    as_source: Callable[..., SourceModel], tmp_path: Path
) -> None:
    """The budget pays for one of them."""
    source = as_source(Faulty(lambda x: x * 2), {"x": ["batch", "time"]}, time={"min": 4, "max": 28})
    artifact = exported(source, tmp_path)
    within, spent = (validated(artifact, source, tmp_path, budget_seconds=seconds).parity for seconds in (60.0, 1e-9))
    assert ({"batch": 8, "time": 28} in sizes(within), {"batch": 2, "time": 28} in sizes(within)) == (True, False)
    assert within.skipped == ()
    skipped = {name.split()[0] for name in spent.skipped}
    assert {"batch=8,time=28", "batch=2,time=28"} <= skipped


def test_other_sizes_run_instead_of_those_that_the_original_rejects(
    as_source: Callable[..., SourceModel], tmp_path: Path
) -> None:
    """A large batch at the example size, and the middle of example and maximum, if primes are rejected."""

    def pairs(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0], -1, 2).sum(2)

    source = as_source(Faulty(pairs), {"x": ["batch", "time"]}, time={"min": 2, "max": 28})
    report = validated(exported(source, tmp_path), source, tmp_path).parity
    assert {"batch=8,time=3", "batch=2,time=23"} <= {name.split()[0] for name in report.unanswered}
    ran = sizes(report)
    assert {"batch": 8, "time": 16} in ran
    assert {"batch": 2, "time": 22} in ran


def sizes(report: ParityReport) -> list[dict[str, int]]:
    """Return the sizes of the cases that ran."""
    return [dict(case.sizes) for case in report.cases]


NOT_FINITE = "itself returns NaN at batch=2 seed=0"
NOT_DETERMINISTIC = "returns different outputs for the same inputs"
DECLARED = (
    r"itself fails at batch=1 \(axis 0 of input 'x'; declared 1 to 8 in dims.batch; 2 worked\): .*shape '\[2, 4\]'"
)


@pytest.mark.parametrize(
    ("function", "error", "code", "words"),
    [
        (lambda x: torch.log(-x.abs()), ParityError, "parity.not-finite", NOT_FINITE),
        (lambda x: x + torch.randn_like(x), ParityError, "parity.non-deterministic", NOT_DETERMINISTIC),
        (lambda x: x.reshape(2, 4) * 2, ExportError, "source.declared-size", DECLARED),
        (lambda x: x[:, 0].squeeze(), ExportError, "source.declared-size", r"has the shape \[\] at this size"),
    ],
)  # fmt: skip
def test_errors_of_the_original_are_not_drift(
    as_source: Callable[..., SourceModel],
    tmp_path: Path,
    function: Callable[[torch.Tensor], torch.Tensor],
    error: type[Exception],
    code: str,
    words: str,
) -> None:
    """NaN, randomness, and sizes that the model does not support."""
    source = as_source(Faulty(function))
    identity = exported(as_source(Faulty(lambda x: x * 2)), tmp_path)
    with pytest.raises(error, match=words) as caught:
        validated(identity, source, tmp_path)
    assert getattr(caught.value, "code", "") == code


@pytest.mark.parametrize("content", [b"", b"not a model"])
def test_invalid_file_is_rejected(artifact: OnnxArtifact, tmp_path: Path, content: bytes) -> None:
    """Including an empty file, which onnx.load reads as an empty model."""
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
def test_graph_that_is_too_new_is_rejected(
    artifact: OnnxArtifact, changed: dict[str, int], code: str, words: str
) -> None:
    """The message has the limit of the release."""
    with pytest.raises(ConfigError) as caught:
        check_structure(OnnxArtifact(**{**vars(artifact), **changed}), TARGET)
    assert caught.value.code == code
    assert words in caught.value.message


def test_failed_run_is_one_line(artifact: OnnxArtifact) -> None:
    """Such as an input of the wrong shape."""
    model = OnnxModel(artifact)
    with pytest.raises(ParityError, match="ONNX Runtime failed: ") as caught:
        model({"left": np.zeros((1, 9), np.float32), "right": np.zeros((1, 4), np.float32)})
    assert "\n" not in caught.value.message


def test_output_that_is_nan_only_in_the_graph_fails(as_source: Callable[..., SourceModel], tmp_path: Path) -> None:
    """No tolerance accepts NaN."""
    artifact = exported(as_source(Faulty(lambda x: torch.log(-x.abs()))), tmp_path)
    with pytest.raises(ParityError, match="has NaN"):
        validated(artifact, as_source(Faulty(lambda x: x * 2)), tmp_path)


@pytest.mark.parametrize(("atol", "is_noted"), [(10.0, False), (1e3, True)])
def test_atol_above_all_values_is_noted(
    as_source: Callable[..., SourceModel], tmp_path: Path, atol: float, *, is_noted: bool
) -> None:
    """Any output within the tolerance would pass."""
    source = as_source(Faulty(lambda x: torch.tanh(x) * 20))
    notes = validated(exported(source, tmp_path), source, tmp_path, atol=atol).parity.notes
    assert any("is larger than every value of output" in note for note in notes) == is_noted


def test_golden_tensors_are_limited(tmp_path: Path) -> None:
    """To the first case of any size, and further cases within the limits of bytes and cases."""
    big, small = {"x": np.zeros(3 * 2**20, np.uint8)}, {"x": np.zeros(1, np.uint8)}
    case = SweepCase({"batch": 1}, 0, required=True)
    for cases, expected in (([big, small, small], 1), ([small, big, small], 2), ([small] * 6, 4)):
        recorder = GoldenRecorder()
        for arrays in cases:
            recorder.offer(case, arrays, small, small)
        recorder.write(tmp_path, "batch", {"x": (0.0, 0.0)})
        assert len(json.loads((tmp_path / "golden.json").read_text())["cases"]) == expected


def test_valid_graph_passes_the_structure_check(artifact: OnnxArtifact) -> None:
    """As it passes onnx.checker."""
    assert check_structure(artifact, TARGET) is None  # type: ignore[func-returns-value]
    onnx.checker.check_model(artifact.path, full_check=True)


@pytest.mark.parametrize(
    ("lookup", "code", "words"),
    [
        (lambda ids: np.arange(7)[ids], "source.forward", r"some values at batch=8 seed=1 \(ids: 0 to 7\): index 7 is"),
        (lambda ids: np.ones(4)[: len(ids)] + ids, "source.declared-size", r"fails at batch=8 \("),
    ],
)
def test_integers_outside_a_table_are_not_a_problem_of_the_size(
    source: SourceModel, lookup: Callable[[Array], Array], code: str, words: str
) -> None:
    """The hint is about the range, unless other integers fail as well."""

    def reference(inputs: Arrays) -> dict[str, Array]:
        try:
            return {"y": lookup(inputs["ids"])}
        except (IndexError, ValueError) as error:
            raise SourceError(str(error), code="source.forward") from error

    examples = DrawnExamples({"ids": InputSpec.model_validate({"dtype": "int64", "shape": ["batch"], "range": [0, 7]})})
    categories = replace(source, reference=reference, examples=examples)
    case = SweepCase({"batch": 8}, 1, required=True)
    with pytest.raises(ExportError, match=words) as caught:
        _expected_outputs(categories, examples(case.sizes, case.seed), case)
    assert (caught.value.code, "correct range:" in caught.value.hint) == (code, code == "source.forward")


def test_mask_of_zeros_is_named_if_an_output_is_nan(source: SourceModel) -> None:
    """A softmax over masked positions only is the usual reason."""
    mask = np.array([[1, 0], [0, 0]])
    masked = replace(source, reference=lambda inputs: {"y": inputs["mask"] * np.float32(np.nan)})
    with pytest.raises(ParityError) as caught:
        _expected_outputs(masked, {"mask": mask}, SweepCase({"batch": 2}, 0, required=True))
    assert caught.value.hint.startswith("a row of mask has only zeros")


def test_failing_dim_is_reported_with_its_working_sizes(as_source: Callable[..., SourceModel], tmp_path: Path) -> None:
    """Of several dims at their minimum, the message has the one that fails alone."""
    source = as_source(nn.Conv1d(3, 2, 7), {"x": ["batch", 3, "time"]}, time={"min": 1, "max": 20})
    with pytest.raises(ExportError) as caught:
        validated(exported(source, tmp_path), source, tmp_path)
    assert caught.value.code == "source.declared-size"
    assert "itself fails at time=1 (axis 2 of input 'x'" in caught.value.message
    assert "batch=" not in caught.value.message
    assert caught.value.hint == "raise dims.time.min to 7 in the spec"


@pytest.mark.parametrize(
    ("low", "high", "hint"),
    [
        (1, 12, "lower dims.time.max to 12 in the spec"),
        (7, 12, "; or narrow dims.time in the spec to sizes that the model supports: time 7 to 12 worked"),
    ],
)
def test_hint_for_declared_sizes_names_the_bounds_that_fail(
    as_source: Callable[..., SourceModel], tmp_path: Path, low: int, high: int, hint: str
) -> None:
    """A literal size is the probable cause only if both bounds fail."""

    def limited(x: torch.Tensor) -> torch.Tensor:
        if not low <= x.shape[1] <= high:
            message = "unsupported"
            raise ValueError(message)
        return x * 2

    shapes, time = {"x": ["batch", "time"]}, {"min": 1, "max": 20, "example": 9}
    artifact = exported(as_source(Faulty(lambda x: x * 2), shapes, time=time), tmp_path)
    with pytest.raises(ExportError) as caught:
        validated(artifact, as_source(Faulty(limited), shapes, time=time), tmp_path)
    assert caught.value.code == "source.declared-size"
    assert caught.value.hint.endswith(hint)
    assert ("literal size" in caught.value.hint) == (low > 1)


def test_unsupported_sizes_between_the_bounds_are_not_an_error(
    as_source: Callable[..., SourceModel], tmp_path: Path
) -> None:
    """The model supports the declared bounds; the report lists the sizes between them that it does not support."""

    def windows(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0], -1, 4).sum(2)

    source = as_source(Faulty(windows), {"x": ["batch", "time"]}, time={"min": 4, "max": 28})
    report = validated(exported(source, tmp_path), source, tmp_path).parity
    assert report.passed
    unsupported = {name.split()[0] for name in report.unanswered}
    assert unsupported == {f"batch={b},time={t}" for b, t in ((2, 5), (2, 17), (2, 22), (2, 23))}


@pytest.mark.parametrize(
    ("error", "against", "names", "hint"),
    [
        (1e-5, "", ("x",), "accept it with parity: {atol: 2e-05}"),
        (3.0, "", ("x",), "try another exporter"),
        (3.0, "models.py:ref", ("x",), "may have different weights"),
        (0.0, "", ("x", "attention_mask"), "a mask that hides a whole row gives NaN"),
    ],
)
def test_hint_depends_on_the_difference(
    as_source: Callable[..., SourceModel], error: float, against: str, names: tuple[str, ...], hint: str
) -> None:
    """Noise, another model, masks, and others."""
    source = as_source(Net(), {"left": ["batch", 4], "right": ["batch", 4]})
    specs = tuple(TensorSpec(name, "float32", ("batch", 4)) for name in names)
    source = replace(source, signature=replace(source.signature, inputs=specs), against=against)
    reason = "differs" if error else "'y' has NaN among the actual values"
    report = ParityReport((ParityCase("batch=2", error, error, 1.0, passed=False, reason=reason),))
    assert hint in drift_error(report, source, "").hint


@pytest.mark.parametrize(
    ("size", "error", "message", "hint"),
    [
        (2, 3.0, "the model's outputs differ from the outputs in answers.npz in 1 of 1 cases:", "check answers.npz"),
        (2, 1e-5, "the model's outputs differ from the outputs in answers.npz", "accept it with parity: {atol: 2e-05}"),
        (3, 3.0, "ONNX Runtime disagrees with the PyTorch model in 1 of 1 cases:", "try another exporter"),
    ],
)
def test_stored_outputs_that_differ(
    as_source: Callable[..., SourceModel], size: int, error: float, message: str, hint: str
) -> None:
    """The file with the outputs may be wrong; at other sizes, it is not used."""
    source = replace(as_source(Net(), {"left": ["batch", 4], "right": ["batch", 4]}), stored="answers.npz")
    source = replace(source, dims={"batch": replace(source.dims["batch"], example=2)})
    case = ParityCase("batch", error, error, 1.0, passed=False, reason="differs", sizes={"batch": size})
    failure = drift_error(ParityReport((case,)), source, "")
    assert failure.message.startswith(message)
    assert hint in failure.hint


@pytest.mark.parametrize(
    ("atol", "begin"), [(1e-12, "parity.atol is 1e-12"), (0.0, "parity.atol is 0"), (1e-3, ""), (None, "")]
)
def test_tolerance_below_the_rounding_is_named(
    as_source: Callable[..., SourceModel],
    atol: float | None,
    begin: str,
) -> None:
    """No graph can be as close as 1e-12 to values of 100 in float32."""
    source = as_source(Net(), {"left": ["batch", 4], "right": ["batch", 4]})
    name = source.signature.outputs[0].name
    differences = (OutputDifference(name, 2e-5, 2e-7),)
    case = ParityCase("batch=2", 2e-5, 2e-7, 1.0, passed=False, reason="differs", outputs=differences)
    error = drift_error(ParityReport((case,)), source, "", atol)
    assert error.hint.startswith(f"{begin}, which is below the rounding of float32 at values of 1e+02") == bool(begin)
    assert error.where == ("parity" if begin else "")


def test_operator_without_a_kernel_for_its_dtype_is_reported(
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
    both = "input 'x' and weight 'module.weight' are float64; declare the input as float32, and set source: {dtype: "
    assert both in caught.value.hint


class Branch(nn.Module):
    """Outputs of one magnitude; a branch on a size, which a trace freezes, changes them by 100 %."""

    def __init__(self, magnitude: float) -> None:
        """Keep the magnitude."""
        super().__init__()
        self.magnitude = magnitude

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale, with another sign for large batches."""
        return x * self.magnitude * (1 if len(x) < 6 else -1)


@pytest.mark.parametrize("magnitude", [1e-7, 1.0, 1e4])
def test_frozen_branch_is_found_at_every_magnitude(
    as_source: Callable[..., SourceModel], tmp_path: Path, magnitude: float
) -> None:
    """An absolute tolerance of 1e-5 would accept any output of 1e-7."""
    source = as_source(Branch(magnitude))
    with pytest.raises(ParityError, match=r"batch=8 seed=\d+: ") as caught:
        validated(exported(source, tmp_path), source, tmp_path)
    assert caught.value.code == "parity.drift"
    assert "noise" not in caught.value.hint


def add_noise(columns: torch.Tensor, noise: float, x: torch.Tensor) -> torch.Tensor:
    """Scale the columns, and add noise."""
    return x * columns + noise


def test_rounding_at_the_magnitude_of_the_output_is_accepted(
    as_source: Callable[..., SourceModel], tmp_path: Path
) -> None:
    """As of ResNet-50: 4e-5 on outputs of 50; the same difference on outputs of 1e-3 is not rounding."""
    for factor, accepted in ((50.0, True), (1e-3, False)):
        directory = tmp_path / str(factor)
        directory.mkdir()
        columns = torch.tensor([0.0, factor, factor, factor])  # rounding also changes values near zero
        source = as_source(Faulty(partial(add_noise, columns, 0.0)))
        artifact = exported(as_source(Faulty(partial(add_noise, columns, 4e-5))), directory)
        if accepted:
            assert validated(artifact, source, directory).parity.passed
        else:
            with pytest.raises(ParityError):
                validated(artifact, source, directory)


def test_equal_infinities_pass_with_a_note(as_source: Callable[..., SourceModel], tmp_path: Path) -> None:
    """Masked logits are -inf by design."""
    source = as_source(Faulty(lambda x: x.masked_fill(x > 0, -torch.inf)))
    parity = validated(exported(source, tmp_path), source, tmp_path).parity
    assert parity.passed
    assert any("'output' has infinite values" in note for note in parity.notes)


def test_infinity_in_only_one_of_the_two_fails(as_source: Callable[..., SourceModel], tmp_path: Path) -> None:
    """Also where the sign differs."""
    source = as_source(Faulty(lambda x: x.masked_fill(x > 0, -torch.inf)))
    other = exported(as_source(Faulty(lambda x: x.masked_fill(x > 0, torch.inf))), tmp_path)
    with pytest.raises(ParityError, match="infinite"):
        validated(other, source, tmp_path)


def test_constant_output_is_tried_with_other_inputs(as_source: Callable[..., SourceModel], tmp_path: Path) -> None:
    """Zeros for all examples: only larger inputs show that the graph is another one."""
    source = as_source(Faulty(lambda x: torch.relu(x.abs() - 6)))
    wrong = exported(as_source(Faulty(lambda x: torch.relu(x.abs() - 6) * 2)), tmp_path)
    with pytest.raises(ParityError, match="x 10"):
        validated(wrong, source, tmp_path)


@pytest.mark.parametrize(("scores", "passes"), [(torch.sigmoid, True), (torch.asinh, False)])
def test_order_of_equal_values_is_not_compared_on_large_inputs(
    as_source: Callable[..., SourceModel],
    tmp_path: Path,
    scores: Callable[[torch.Tensor], torch.Tensor],
    *,
    passes: bool,
) -> None:
    """Large inputs saturate a sigmoid; PyTorch does not define which of equal scores is first. Other orders count."""
    source = as_source(
        Faulty(lambda x: scores(x.clamp(-1, 1) + x * (x.abs() > 5) * 10 + torch.arange(4) * 4).argmax(1))
    )

    def published(inputs: Arrays) -> dict[str, Array]:
        is_large = np.abs(inputs["x"]).max(1) > 5
        return {"output": np.where(is_large, -1, source.reference(inputs)["output"])}

    spec = ModelSpec.model_validate({"source": {"factory": "m.py:f"}})
    if passes:
        assert prove(source, published, spec, tmp_path / "golden").parity.passed
        return
    with pytest.raises(ParityError, match="x 10"):
        prove(source, published, spec, tmp_path / "golden")


def test_output_that_stays_constant_has_a_note(as_source: Callable[..., SourceModel], tmp_path: Path) -> None:
    """It proves nothing."""
    source = as_source(Faulty(lambda x: torch.relu(x.abs() - 1e6)))
    parity = validated(exported(source, tmp_path), source, tmp_path).parity
    assert parity.passed
    assert any("'output' is the same for all" in note for note in parity.notes)


def test_values_that_are_not_finite_for_zeros_have_a_note(
    as_source: Callable[..., SourceModel], tmp_path: Path
) -> None:
    """A constant that the graph lacks does not show on other inputs."""
    source = as_source(Faulty(lambda x: x / (x.abs() + 1e-30)))
    other = exported(as_source(Faulty(lambda x: x / x.abs())), tmp_path)
    parity = validated(other, source, tmp_path).parity
    assert parity.passed
    assert any("for inputs of zeros, such as silence, output 'output'" in note for note in parity.notes)
    (tmp_path / "same").mkdir()
    same = validated(exported(source, tmp_path / "same"), source, tmp_path / "same").parity
    assert not any("zeros" in note for note in same.notes)


def test_values_that_are_not_finite_for_large_inputs_have_a_note(
    as_source: Callable[..., SourceModel], tmp_path: Path
) -> None:
    """Examples are about 1, and an exponential of 100 is infinite."""
    source = as_source(Faulty(lambda x: torch.logaddexp(x, -x)))
    other = exported(as_source(Faulty(lambda x: (x.exp() + (-x).exp()).log())), tmp_path)
    parity = validated(other, source, tmp_path).parity
    assert parity.passed
    assert any("100 times as large, output 'output'" in note for note in parity.notes)


def test_values_that_differ_for_nan_have_a_note(as_source: Callable[..., SourceModel], tmp_path: Path) -> None:
    """Examples without NaN do not show a difference."""
    source = as_source(Faulty(torch.nan_to_num))
    parity = validated(exported(as_source(Faulty(lambda x: x * 1)), tmp_path), source, tmp_path).parity
    assert parity.passed
    assert any("for inputs with NaN" in note and "of 'output'" in note for note in parity.notes)
    (tmp_path / "same").mkdir()
    same = validated(exported(source, tmp_path / "same"), source, tmp_path / "same").parity
    assert not any("NaN" in note for note in same.notes)


def test_outputs_of_text_are_not_compared_on_zeros(as_source: Callable[..., SourceModel]) -> None:
    """Python code may return text, which is neither finite nor infinite."""

    def labels(inputs: Arrays) -> dict[str, Array]:
        return {"output": np.array([str(row.tolist()) for row in inputs["x"]], object)}

    source = replace(as_source(Faulty(lambda x: x)), reference=labels)
    exact = {"output": Limit(rtol=0.0, share=0.0)}
    parity, _ = check_parity(Comparison(source, labels, exact), ParitySpec(), ())
    assert parity.passed


def test_small_probabilities_are_outside_the_precision_of_the_runtime(
    as_source: Callable[..., SourceModel], tmp_path: Path
) -> None:
    """Of 1e-7, ONNX Runtime's Sigmoid returns about half; the hint says that another exporter does not help."""
    source = as_source(Faulty(lambda x: torch.sigmoid(x - 16)), {"x": ["batch", 4]})
    with pytest.raises(ParityError, match=r"aten\.sigmoid .* is the first to differ") as caught:
        validated(exported(source, tmp_path), source, tmp_path)
    assert "return the logits" in caught.value.hint

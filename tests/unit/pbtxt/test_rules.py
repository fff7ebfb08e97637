"""Every rule: a config that breaks it is found by its code, and one that keeps all of them is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from repogen.pbtxt import (
    RULES,
    ConfigView,
    Finding,
    GroupView,
    TensorView,
    WarmupView,
    config_findings,
    errors_of,
    graph_findings,
    target_findings,
)
from repogen.values.target import targets
from repogen.values.tensors import Signature, TensorSpec

X = TensorView("x", "FP32", (3, -1))
Y = TensorView("y", "INT64", (10,))
GOOD = ConfigView(
    name="m",
    backend="onnxruntime",
    max_batch_size=8,
    inputs=(X,),
    outputs=(Y,),
    groups=(GroupView("a", 1, "KIND_CPU"), GroupView("b", 1, "KIND_GPU", (0,))),
    dynamic_batching=True,
    preferred_batch_sizes=(4, 8),
    warmups=(WarmupView("w", 8, ("x",)),),
)
GRAPH = Signature((TensorSpec("x", "float32", ("n", 3, "w")),), (TensorSpec("y", "int64", ("n", 10)),))

ALONE = [
    ("RG101", "error", replace(GOOD, name="other")),
    ("RG102", "error", replace(GOOD, backend="")),
    ("RG102", "error", replace(GOOD, platform="onnx")),
    ("RG102", "warning", replace(GOOD, platform="onnxruntime_onnx")),
    ("RG103", "error", replace(GOOD, max_batch_size=-1, dynamic_batching=False, preferred_batch_sizes=(), warmups=())),
    ("RG104", "error", replace(GOOD, inputs=(X, X))),
    ("RG105", "error", replace(GOOD, outputs=(replace(Y, dims=()),))),
    ("RG106", "error", replace(GOOD, outputs=(replace(Y, dims=(0,)),))),
    ("RG106", "error", replace(GOOD, outputs=(replace(Y, dims=(-2,)),))),
    ("RG107", "error", replace(GOOD, outputs=(replace(Y, dtype="BF16"),))),
    ("RG107", "error", replace(GOOD, outputs=(replace(Y, dtype="INVALID"),))),
    ("RG108", "error", replace(GOOD, preferred_batch_sizes=(9,))),
    ("RG108", "error", replace(GOOD, preferred_batch_sizes=(0,))),
    ("RG109", "error", replace(GOOD, max_batch_size=0, warmups=())),
    ("RG110", "error", replace(GOOD, groups=(GroupView("", 1, "KIND_CPU", (0,)),))),
    ("RG111", "warning", replace(GOOD, groups=(GroupView("", 0, "KIND_CPU"),))),
    ("RG112", "warning", replace(GOOD, groups=(GroupView("a", 1, "KIND_CPU"), GroupView("a", 1, "KIND_CPU")))),
    ("RG113", "warning", replace(GOOD, outputs=())),
    ("RG114", "error", replace(GOOD, outputs=(replace(Y, reshape=(2, 4)),))),
    ("RG114", "error", replace(GOOD, outputs=(replace(Y, reshape=(-1,)),))),
    ("RG115", "error", replace(GOOD, specific_versions=())),
    ("RG116", "error", replace(GOOD, warmups=(WarmupView("w", 9, ("x",)),))),
    ("RG116", "error", replace(GOOD, warmups=(WarmupView("w", 1, ("z",)),))),
    ("RG117", "error", replace(GOOD, max_batch_size=2**31 - 1, sequence_batching=True)),
]
OVER_GRAPH = [
    ("RG201", "error", replace(GOOD, inputs=(X, replace(X, name="z"))), GRAPH),
    ("RG202", "error", GOOD, replace(GRAPH, inputs=(*GRAPH.inputs, TensorSpec("z", "int8", ("n",))))),
    ("RG203", "error", replace(GOOD, outputs=(Y, replace(Y, name="z"))), GRAPH),
    ("RG204", "warning", GOOD, replace(GRAPH, outputs=(*GRAPH.outputs, TensorSpec("z", "int8", ("n",))))),
    ("RG205", "error", replace(GOOD, inputs=(replace(X, dtype="FP16"),)), GRAPH),
    ("RG206", "error", replace(GOOD, inputs=(replace(X, dims=(3,)),)), GRAPH),
    ("RG206", "error", replace(GOOD, outputs=(replace(Y, dims=(1,), reshape=()),)), GRAPH),
    ("RG207", "error", replace(GOOD, inputs=(replace(X, dims=(-1, -1)),)), GRAPH),
    ("RG207", "error", replace(GOOD, inputs=(replace(X, dims=(4, -1)),)), GRAPH),
    ("RG207", "error", replace(GOOD, outputs=(replace(Y, dims=(-1,)),)), GRAPH),
    ("RG208", "error", GOOD, replace(GRAPH, outputs=(TensorSpec("y", "int64", (1, 10)),))),
    ("RG208", "error", GOOD, replace(GRAPH, outputs=(TensorSpec("y", "int64", ()),))),
    ("RG209", "error", GOOD, replace(GRAPH, outputs=(TensorSpec("y", "bfloat16", ("n", 10)),))),
]


def told(findings: list[Finding]) -> list[tuple[str, str]]:
    """Return code and severity of each finding."""
    return [(finding.code, finding.severity) for finding in findings]


def test_a_good_config_has_no_findings() -> None:
    """Nothing is found where nothing is wrong."""
    assert [*config_findings(GOOD, "m"), *graph_findings(GOOD, GRAPH)] == []


@pytest.mark.parametrize(("code", "severity", "view"), ALONE)
def test_config_rule(code: str, severity: str, view: ConfigView) -> None:
    """One thing wrong gives that one finding, with a hint."""
    found = config_findings(view, "m")
    assert [(code, severity)] == told(found)
    assert found[0].hint


@pytest.mark.parametrize(("code", "severity", "view", "graph"), OVER_GRAPH)
def test_graph_rule(code: str, severity: str, view: ConfigView, graph: Signature) -> None:
    """One disagreement with the graph gives that one finding, with a hint."""
    found = graph_findings(view, graph)
    assert [(code, severity)] == told(found)
    assert found[0].hint


def test_an_input_may_be_fixed_where_the_graph_is_dynamic() -> None:
    """Triton accepts a narrower input, and only an input."""
    assert graph_findings(replace(GOOD, inputs=(replace(X, dims=(3, 224)),)), GRAPH) == []
    wide = replace(GRAPH, outputs=(TensorSpec("y", "int64", ("n", "classes")),))
    assert told(graph_findings(GOOD, wide)) == [("RG207", "error")]


@pytest.mark.parametrize(
    ("opset", "ir_version", "codes"),
    [(21, 10, []), (22, 10, ["RG301"]), (21, 11, ["RG302"]), (28, 14, ["RG301", "RG302"])],
)
def test_target_rules(opset: int, ir_version: int, codes: list[str]) -> None:
    """Triton 24.10 loads opset 21 and IR 10, and nothing newer."""
    assert codes == [finding.code for finding in target_findings(opset, ir_version, targets()["24.10"])]


def test_every_rule_is_tested_and_known() -> None:
    """No code without its line in RULES, and no line without a test here."""
    tested = {code for code, *_ in ALONE} | {code for code, *_ in OVER_GRAPH} | {"RG301", "RG302"}
    assert set(RULES) == tested


def test_errors_of_leaves_warnings_out() -> None:
    """A warning keeps no model from being served."""
    findings = [Finding("RG111", "warning", "a", "b"), Finding("RG110", "error", "a", "b")]
    assert (findings[1],) == errors_of(findings)

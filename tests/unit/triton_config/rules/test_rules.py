"""Every rule: a violation is reported with its code and field; a valid config has no findings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.targets import targets
from repogen.triton_config.rules.config_rules import config_findings
from repogen.triton_config.rules.findings import RULES, Finding, errors_of
from repogen.triton_config.rules.graph import graph_findings
from repogen.triton_config.rules.target import target_findings
from repogen.triton_config.text.dims import same_elements
from repogen.triton_config.text.parse import parse
from repogen.triton_config.text.source_map import locate_fields

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig

PARTS = {
    "name": 'name: "m"',
    "backend": 'backend: "onnxruntime"',
    "max_batch_size": "max_batch_size: 8",
    "input": 'input { name: "x" data_type: TYPE_FP32 dims: [ 3, -1 ] }',
    "output": 'output { name: "y" data_type: TYPE_INT64 dims: [ 10 ] }',
    "instance_group": 'instance_group [ { name: "a" count: 1 kind: KIND_CPU },'
    '{ name: "b" kind: KIND_GPU gpus: [ 0 ] } ]',
    "scheduling": "dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100 }",
    "model_warmup": 'model_warmup { name: "w" batch_size: 8 inputs { key: "x" value { data_type: TYPE_FP32 '
    "dims: [ 3, 5 ] random_data: true } } }",
}
ENSEMBLE = {
    "name": 'name: "m"',
    "backend": 'platform: "ensemble"',
    "max_batch_size": "max_batch_size: 8",
    "input": 'input { name: "x" data_type: TYPE_FP32 dims: [ 3 ] }',
    "output": 'output { name: "y" data_type: TYPE_INT64 dims: [ 10 ] }',
    "scheduling": "ensemble_scheduling { step ["
    '{ model_name: "a" model_version: -1 input_map { key: "i" value: "x" } output_map { key: "o" value: "t" } },'
    '{ model_name: "b" model_version: -1 input_map { key: "i" value: "t" } output_map { key: "o" value: "y" } } ] }',
}
SEQUENCE = {
    **{key: part for key, part in PARTS.items() if key not in {"model_warmup", "input"}},
    "input": 'input { name: "x" data_type: TYPE_FP32 dims: [ 3 ] }',
    "scheduling": "sequence_batching { oldest { max_candidate_sequences: 4 preferred_batch_size: [ 2 ] }"
    " control_input ["
    '{ name: "start" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } },'
    '{ name: "id" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } } ]'
    'state { input_name: "s" output_name: "t" data_type: TYPE_FP32 dims: [ 4 ] initial_state { name: "zero" '
    "data_type: TYPE_FP32 dims: [ 4 ] zero_data: true } } }",
}
FED = " ".join(
    f"inputs {{ key: '{name}' value {{ data_type: TYPE_{dtype} dims: {dims} zero_data: true }} }}"
    for name, dtype, dims in (("x", "FP32", 3), ("start", "INT32", 1), ("id", "UINT64", 1))
)
GRAPH = Signature((TensorSpec("x", "float32", ("n", 3, "w")),), (TensorSpec("y", "int64", ("n", 10)),))


def config(parts: dict[str, str]) -> ModelConfig:
    """Return a config of these parts."""
    return parse("\n".join(parts.values()), "test")


def changed(base: dict[str, str], *changes: tuple[str, str, str]) -> ModelConfig:
    """Return a config with a piece of some parts replaced by another."""
    parts = dict(base)
    for part, old, new in changes:
        assert old in parts[part]
        parts[part] = parts[part].replace(old, new)
    return config(parts)


def without(base: dict[str, str], *parts: str, **more: str) -> ModelConfig:
    """Return a config without some parts, and with others."""
    return config({**{key: part for key, part in base.items() if key not in parts}, **more})


PLAIN = {key: part for key, part in PARTS.items() if key not in {"scheduling", "model_warmup"}}
GROUP, WARM, STEP, STATE = "instance_group", "model_warmup", "scheduling", "scheduling"

ALONE = [
    ("RG101", "error", "name", changed(PARTS, ("name", '"m"', '"other"'))),
    ("RG102", "error", "platform", without(PARTS, "backend", platform='platform: "onnx"')),
    ("RG102", "warning", "platform", without(PARTS, "backend", platform='platform: "onnxruntime_onnx"')),
    ("RG102", "warning", "platform", without(PARTS, platform='platform: "onnxruntime_onnx"')),
    ("RG102", "error", "backend", changed(PARTS, ("backend", "onnxruntime", "onnxruntim"))),
    ("RG102", "error", "runtime", without(PARTS, more='runtime: "model.py"')),
    ("RG102", "error", "runtime", without(PARTS, more='runtime: "libtriton_tensorrt.so"')),
    ("RG103", "error", "max_batch_size", without(PLAIN, "max_batch_size", max_batch_size="max_batch_size: -1")),
    ("RG104", "error", "input[1]", without(PARTS, again=PARTS["input"])),
    ("RG105", "error", "output[0]", changed(PARTS, ("output", "[ 10 ]", "[ ]"))),
    ("RG106", "error", "output[0].dims[0]", changed(PARTS, ("output", "[ 10 ]", "[ 0 ]"))),
    ("RG106", "error", "output[0].dims[1]", changed(PARTS, ("output", "[ 10 ]", "[ 10, -2 ]"))),
    ("RG107", "error", "output[0].data_type", changed(PARTS, ("output", "data_type: TYPE_INT64", ""))),
    ("RG108", "error", "dynamic_batching.preferred_batch_size[1]", changed(PARTS, (STEP, "4, 8", "4, 9"))),
    ("RG108", "error", "dynamic_batching.preferred_batch_size[0]", changed(PARTS, (STEP, "4, 8", "0, 8"))),
    ("RG109", "warning", "dynamic_batching", without(PLAIN, "max_batch_size", more="dynamic_batching { }")),
    ("RG110", "error", "instance_group[0].gpus", changed(PARTS, (GROUP, "KIND_CPU", "KIND_CPU gpus: [ 0 ]"))),
    ("RG111", "warning", "instance_group[0].count", changed(PARTS, (GROUP, "count: 1", "count: -1"))),
    ("RG111", "warning", "instance_group[0].count", changed(PARTS, (GROUP, "count: 1", "count: 100"))),
    ("RG112", "warning", "instance_group[1].name", changed(PARTS, (GROUP, '"b"', '"a"'))),
    ("RG113", "warning", "", without(PARTS, "output")),
    ("RG114", "error", "output[0].reshape", changed(PARTS, ("output", "[ 10 ]", "[ 10 ] reshape { shape: [ 2, 4 ] }"))),
    ("RG115", "error", "version_policy.specific", without(PARTS, more="version_policy { specific { } }")),
    ("RG116", "error", "model_warmup[0].batch_size", changed(PARTS, (WARM, "batch_size: 8", "batch_size: 9"))),
    ("RG116", "error", 'model_warmup[0].inputs["z"]', changed(PARTS, (WARM, '"x"', '"z"'))),
    ("RG116", "error", 'model_warmup[0].inputs["x"]', changed(PARTS, (WARM, "FP32", "FP16"))),
    ("RG117", "warning", "max_batch_size", changed(SEQUENCE, ("max_batch_size", "8", "2147483647"))),
    ("RG117", "error", "max_batch_size",
     without(PLAIN, "max_batch_size", most="max_batch_size: 2147483647", more="sequence_batching { direct { } }")),
    ("RG118", "error", "dynamic_batching.default_priority_level", changed(PARTS, (STEP, "{", "{ priority_levels: 2"))),
    ("RG119", "error", "dynamic_batching.preserve_ordering",
     changed(PARTS, (STEP, "{", "{ preserve_ordering: true priority_levels: 2 default_priority_level: 1"))),
    ("RG120", "error", "sequence_batching.control_input[0].control[0].int32_false_true",
     changed(SEQUENCE, (STEP, "[ 0, 1 ]", "[ 0 ]"))),
    ("RG120", "error", "sequence_batching.control_input[1].control[0].data_type",
     changed(SEQUENCE, (STEP, "UINT64", "FP32"))),
    ("RG122", "error", "sequence_batching.state[0]", changed(SEQUENCE, (STEP, 'output_name: "t"', ""))),
    ("RG122", "warning", "sequence_batching.state[0]", changed(
        SEQUENCE, (STEP, 'initial_state { name: "zero" data_type: TYPE_FP32 dims: [ 4 ] zero_data: true }', ""),
        (STEP, "kind: CONTROL_SEQUENCE_START", "kind: CONTROL_SEQUENCE_READY"))),
    ("RG116", "error", "model_warmup", without(SEQUENCE, more=f"model_warmup {{ name: 'w' batch_size: 1 {FED} }}")),
    ("RG128", "warning", 'parameters["session.use_device_allocator_for_initialiser"]', without(
        PARTS, more='parameters { key: "session.use_device_allocator_for_initialiser" value { string_value: "1" } }')),
    ("RG123", "error", "platform", without(ENSEMBLE, "scheduling")),
    ("RG123", "error", "ensemble_scheduling", without(ENSEMBLE, "scheduling", more="ensemble_scheduling { }")),
    ("RG124", "warning", "input[0].allow_ragged_batch",
     changed(
         PLAIN,
         ("input", "TYPE_FP32", "TYPE_FP32 allow_ragged_batch: true"),
         ("max_batch_size", "8", "0"),
     )),
    ("RG124", "error", "input[0].format", changed(PARTS, ("input", "TYPE_FP32", "TYPE_FP32 format: FORMAT_NCHW"))),
    ("RG125", "error", "batch_input[0]", without(PARTS, more='batch_input { target_name: "n" data_type: TYPE_FP32 }')),
    ("RG126", "warning", "optimization.graph.level", without(PARTS, more="optimization { graph { level: 99 } }")),
    ("RG127", "error", "optimization.execution_accelerators.gpu_execution_accelerator[0]",
     without(PARTS, more='optimization { execution_accelerators { gpu_execution_accelerator { name: "trt" } } }')),
    ("RG128", "error", 'parameters["intra_op_thread_count"]',
     without(PARTS, more='parameters { key: "intra_op_thread_count" value { string_value: "two" } }')),
    ("RG128", "warning", 'parameters["intra_op_num_threads"]',
     without(PARTS, more='parameters { key: "intra_op_num_threads" value { string_value: "2" } }')),
    ("RG129", "warning", "dynamic_batching.max_queue_delay_microseconds", changed(PARTS, (STEP, "100", "100000000"))),
    ("RG504", "error", "ensemble_scheduling.step[1].input_map",
     changed(ENSEMBLE, (STEP, 'value: "t" } output', 'value: "u" } output'))),
    ("RG504", "error", "output[0]", changed(ENSEMBLE, ("output", '"y"', '"z"'))),
    ("RG505", "error", "ensemble_scheduling.step[0]",
     changed(ENSEMBLE, (STEP, '{ key: "i" value: "x" }', '[ { key: "i" value: "x" }, { key: "j" value: "y" } ]'))),
]  # fmt: skip
OVER_GRAPH = [
    ("RG201", "error", without(PARTS, more='input { name: "z" data_type: TYPE_FP32 dims: [ 1 ] }'), GRAPH),
    ("RG202", "error", config(PARTS), replace(GRAPH, inputs=(*GRAPH.inputs, TensorSpec("z", "int8", ("n",))))),
    ("RG203", "error", without(PARTS, more='output { name: "z" data_type: TYPE_FP32 dims: [ 1 ] }'), GRAPH),
    ("RG204", "warning", config(PARTS), replace(GRAPH, outputs=(*GRAPH.outputs, TensorSpec("z", "int8", ("n",))))),
    ("RG205", "error", changed(PARTS, ("input", "FP32", "FP16")), GRAPH),
    ("RG206", "error", changed(PARTS, ("input", "[ 3, -1 ]", "[ 3 ]")), GRAPH),
    ("RG206", "error", changed(PARTS, ("output", "[ 10 ]", "[ 1 ] reshape { shape: [ ] }")), GRAPH),
    ("RG207", "error", changed(PARTS, ("input", "[ 3, -1 ]", "[ -1, -1 ]")), GRAPH),
    ("RG207", "error", changed(PARTS, ("input", "[ 3, -1 ]", "[ 4, -1 ]")), GRAPH),
    ("RG207", "error", changed(PARTS, ("output", "[ 10 ]", "[ -1 ]")), GRAPH),
    ("RG208", "error", config(PARTS), replace(GRAPH, outputs=(TensorSpec("y", "int64", (1, 10)),))),
    ("RG208", "error", config(PARTS), replace(GRAPH, outputs=(TensorSpec("y", "int64", ()),))),
    ("RG209", "error", config(PARTS), replace(GRAPH, outputs=(TensorSpec("y", "float8e4m3fn", ("n", 10)),))),
]
SCATTERED = {
    **PLAIN,
    "input": 'input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true }',
    "output": 'output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] }',
    "batch_output": 'batch_output { target_name: "y" source_input: "x" }',
}
GROWABLE = ("scheduling", "dims: [ 4 ] initial_state", "dims: [ 4 ] use_growable_memory: true initial_state")
FLAT = Signature((TensorSpec("x", "float32", ("n",)),), (TensorSpec("y", "float32", ("n",)),))
TOO_NEW = [("RG301", (22, 10)), ("RG302", (21, 11))]


@pytest.mark.parametrize("parts", [PARTS, PLAIN, ENSEMBLE, SEQUENCE])
def test_valid_config_has_no_findings(parts: dict[str, str]) -> None:
    """Each of these configs is valid."""
    assert config_findings(config(parts), "m") == []


@pytest.mark.parametrize(("code", "severity", "field", "broken"), ALONE)
def test_config_rule(code: str, severity: str, field: str, broken: ModelConfig) -> None:
    """There is exactly one finding, with this code, severity and field, a message and a hint."""
    (finding,) = config_findings(broken, "m")
    assert (code, severity, field) == (finding.code, finding.severity, finding.field)
    assert finding.message
    assert finding.hint


@pytest.mark.parametrize(("code", "severity", "over", "graph"), OVER_GRAPH)
def test_graph_rule(code: str, severity: str, over: ModelConfig, graph: Signature) -> None:
    """There is exactly one finding, with this code and severity."""
    (finding,) = graph_findings(over, graph)
    assert (code, severity) == (finding.code, finding.severity)


def test_negative_batch_size_is_the_only_finding() -> None:
    """Rules that depend on max_batch_size do not examine an invalid value."""
    for parts in (PARTS, SEQUENCE):
        broken = config({**parts, "max_batch_size": "max_batch_size: -1"})
        assert [finding.code for finding in config_findings(broken)] == ["RG103"]
    assert graph_findings(config({**PARTS, "max_batch_size": "max_batch_size: -1"}), GRAPH) == []
    rows = Signature(
        (
            *(TensorSpec(name, "float32", ("n", 3)) for name in "xs"),
            TensorSpec("start", "int32", ("n", 1)),
            TensorSpec("id", "uint64", ("n", 1)),
        ),
        (TensorSpec("y", "int64", ("n", 10)), TensorSpec("t", "float32", ("n", 4))),
    )
    assert graph_findings(config({**SEQUENCE, "max_batch_size": "max_batch_size: -1"}), rows) == []


def test_fixes_of_a_conflict_with_an_unknown_backend() -> None:
    """Only one finding has a fix: the other one would keep the wrong name."""
    parts = {**PARTS, "backend": 'backend: "onnxruntim"', "platform": 'platform: "onnxruntime_onnx"'}
    findings = config_findings(config(parts), "m")
    assert [(finding.code, finding.field, finding.fix) for finding in findings] == [
        ("RG102", "platform", ""),
        ("RG102", "backend", 'backend: "onnxruntime"'),
    ]


def test_library_of_the_platform_is_a_runtime() -> None:
    """The server loads it; the only finding is the older name."""
    findings = config_findings(
        without(PARTS, "backend", platform='platform: "onnxruntime_onnx" runtime: "libtriton_onnxruntime.so"'), "m"
    )
    assert [(finding.code, finding.field) for finding in findings] == [("RG102", "platform")]


@pytest.mark.parametrize(
    ("groups", "severity"),
    [("{ kind: KIND_CPU }", "error"), ("{ kind: KIND_GPU }, { kind: KIND_CPU }", "error"), ("", "warning")],
)
def test_growable_memory_on_a_cpu(groups: str, severity: str) -> None:
    """The model loads, and every inference fails."""
    base = {**SEQUENCE, "instance_group": f"instance_group [ {groups} ]"}
    (finding,) = config_findings(changed(base, GROWABLE), "m")
    assert (finding.code, finding.severity) == ("RG122", severity)
    assert finding.field == "sequence_batching.state[0].use_growable_memory"
    gpu = {**SEQUENCE, "instance_group": "instance_group { kind: KIND_GPU }"}
    assert config_findings(changed(gpu, GROWABLE), "m") == []


def test_empty_reshape_with_dynamic_batching_is_a_warning() -> None:
    """A request with no rows ends the server."""
    reshaped = {**PLAIN, "input": 'input { name: "x" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } }'}
    assert config_findings(config(reshaped), "m") == []
    (finding,) = config_findings(config({**reshaped, "more": "dynamic_batching { }"}), "m")
    assert (finding.code, finding.severity, finding.field) == ("RG134", "warning", "input[0].reshape")


def test_dims_of_a_scattered_output_are_those_of_its_row() -> None:
    """Triton does not compare them with the graph: other dims give each row other rows' values."""
    assert graph_findings(config(SCATTERED), FLAT) == []
    (finding,) = graph_findings(changed(SCATTERED, ("output", "[ -1 ]", "[ 1 ] reshape { shape: [ ] }")), FLAT)
    assert (finding.code, finding.severity, finding.fix) == ("RG207", "error", "dims: [ -1 ]")
    wide = replace(FLAT, outputs=(TensorSpec("y", "float32", ("n", 4)),))
    assert graph_findings(changed(SCATTERED, ("output", "[ -1 ]", "[ -1, 2, 2 ]")), wide) == []


def test_tensors_of_a_sequence_need_not_be_declared() -> None:
    """Clients do not send control and state tensors."""
    sequence_inputs = [
        TensorSpec("start", "int32", ("n", 1)),
        TensorSpec("id", "uint64", ("n", 1)),
        TensorSpec("s", "float32", ("n", 4)),
    ]
    graph = Signature(
        (TensorSpec("x", "float32", ("n", 3)), *sequence_inputs),
        (TensorSpec("y", "int64", ("n", 10)), TensorSpec("t", "float32", ("n", 4))),
    )
    assert graph_findings(config(SEQUENCE), graph) == []
    missing = graph_findings(config(SEQUENCE), replace(graph, inputs=(graph.inputs[0], *sequence_inputs[1:])))
    assert [(finding.code, finding.message) for finding in missing] == [
        ("RG201", "Triton fills input 'start', which is not in the graph")
    ]


@pytest.mark.parametrize(
    ("wrong", "suggestion"), [("events", "; did you mean 'event'?"), ("users", ""), ("something", "")]
)
def test_hint_of_a_name_that_is_not_in_the_graph(wrong: str, suggestion: str) -> None:
    """It has the similar name that the config does not use."""
    tensors = tuple(TensorSpec(name, "float32", ("n", 4)) for name in ("event", "user"))
    text = 'max_batch_size: 8 backend: "onnxruntime"'
    for kind in ("input", "output"):
        for name in (wrong, "user"):
            text += f' {kind} {{ name: "{name}" data_type: TYPE_FP32 dims: [ 4 ] }}'
    findings = graph_findings(parse(text, "test"), Signature(tensors, tensors))
    hints = [finding.hint for finding in findings if "is not in the graph" in finding.message]
    assert hints == [f"the graph has 'event', 'user'{suggestion}"] * 2


@pytest.mark.parametrize(
    ("names", "hint"),
    [
        (("logits",), "did you mean 'logits'?"),
        (("logits", "score"), "the graph has 'logits', 'score'; did you mean 'logits'?"),
    ],
)
def test_misspelled_name_is_one_problem(names: tuple[str, ...], hint: str) -> None:
    """The name that is suggested is not also reported as undeclared; other names are."""
    tensors = tuple(TensorSpec(name, "float32", ("n", 4)) for name in names)
    text = 'max_batch_size: 8 backend: "onnxruntime"'
    for kind in ("input", "output"):
        text += f' {kind} {{ name: "logit" data_type: TYPE_FP32 dims: [ 4 ] }}'
    findings = graph_findings(parse(text, "test"), Signature(tensors, tensors))
    assert [(each.code, each.hint) for each in findings if "is not in" in each.message] == [
        ("RG201", hint), ("RG203", hint)
    ]  # fmt: skip
    undeclared = [(each.code, each.message) for each in findings if "is not declared" in each.message]
    assert undeclared == [
        (code, f"the graph's {kind} {name!r} is not declared")
        for code, kind in (("RG202", "input"), ("RG204", "output"))
        for name in names[1:]
    ]


def test_overridable_initializer_is_an_optional_input() -> None:
    """The config may declare it, and must then mark it as optional."""
    spare = (TensorSpec("z", "float32", ("n", 1)),)
    assert graph_findings(config(PARTS), GRAPH, spare) == []
    entry = 'input { name: "z" data_type: TYPE_FP32 dims: [ 1 ] optional: true }'
    assert graph_findings(without(PARTS, more=entry), GRAPH, spare) == []
    (wrong,) = graph_findings(without(PARTS, more=entry.replace("FP32", "INT8")), GRAPH, spare)
    assert wrong.code == "RG205"
    (wrong,) = graph_findings(without(PARTS, more=entry.replace("optional: true", "")), GRAPH, spare)
    # in a model that batches, `optional` is an error
    assert (wrong.code, wrong.hint) == ("RG202", "remove the input")


@pytest.mark.parametrize(("code", "graph"), TOO_NEW)
def test_target_rule(code: str, graph: tuple[int, int]) -> None:
    """There is exactly one finding for 24.10; its message contains the release and its ONNX Runtime."""
    (finding,) = target_findings(*graph, targets()["24.10"])
    assert code == finding.code
    assert "Triton 24.10 (ONNX Runtime 1.19.2)" in finding.message


def test_fix_contains_the_graphs_dims() -> None:
    """The fix is the text to write into the file."""
    (finding,) = graph_findings(changed(PARTS, ("output", "[ 10 ]", "[ -1 ]")), GRAPH)
    assert (finding.field, finding.fix) == ("output[0].dims[0]", "dims: [ 10 ]")
    rows = Signature(GRAPH.inputs, (TensorSpec("y", "int64", ("n",)),))
    (finding,) = graph_findings(config(PARTS), rows)
    assert (finding.code, finding.message) == (
        "RG206",
        "output 'y' has 1 dim [ 10 ], but the graph has [ ] (without the batch)",
    )
    assert finding.fix == "dims: [ 1 ]\nreshape { shape: [ ] }"


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [((6,), (2, 3), (5,)), ((-1, 6), (-1, 2, 3), (6, -1)), ((1,), (), (0,)), ((2, -1), (2, -1), (-1, -1))],
)
def test_reshapes_keep_the_elements_between_variable_dims(
    one: tuple[int, ...], same: tuple[int, ...], other: tuple[int, ...]
) -> None:
    """Elements are compared in the same way as in Triton."""
    assert same_elements(one, same)
    assert not same_elements(one, other)


def test_findings_in_a_map_are_located_by_key() -> None:
    """Protobuf does not keep the order of a map's entries, so an index would point to another line."""
    names = [f"p{index}" for index in range(9)] + ["enable_mem_arenas"]
    lines = [f'parameters {{ key: "{name}" value {{ string_value: "1" }} }}' for name in names]
    lines += [f'metric_tags {{ key: "{name}" value: "a" }}' for name in ("z", "a", "m-n")]
    text = "\n".join([*PARTS.values(), *lines])
    positions = locate_fields(text, "test")
    for finding in config_findings(parse(text, "test"), "m"):
        name = finding.message.split("'")[1]
        assert name in text.splitlines()[positions.position(finding.field).line - 1]


def test_errors_of_omits_warnings() -> None:
    """Only findings with severity error are returned."""
    warning = Finding("RG112", "warning", "m", "h")
    error = Finding("RG101", "error", "m", "h")
    assert errors_of([warning, error]) == (error,)


def test_every_code_is_in_rules() -> None:
    """Every code of these tests has a summary."""
    assert {case[0] for case in (*ALONE, *OVER_GRAPH, *TOO_NEW)} <= RULES.keys()


def accelerated(name: str, parameters: dict[str, str], device: str = "gpu", kind: str = "KIND_GPU") -> ModelConfig:
    """Return a config with an accelerator."""
    entries = " ".join(f'parameters {{ key: "{key}" value: "{value}" }}' for key, value in parameters.items())
    accelerator = f'{device}_execution_accelerator {{ name: "{name}" {entries} }}'
    group = f"instance_group {{ kind: {kind} }}"
    return without(
        PLAIN, "instance_group", more=f"{group} optimization {{ execution_accelerators {{ {accelerator} }} }}"
    )


@pytest.mark.parametrize(
    ("release", "name", "parameters", "message"),
    [
        ("24.10", "tensorrt", {"precision_mode": "FP99"}, "is 'FP99', but it must be FP16, INT8 or FP32"),
        ("24.10", "tensorrt", {"precison_mode": "FP16"}, "accelerator 'tensorrt' has no parameter 'precison_mode'"),
        ("26.01", "tensorrt", {"precision_mode": "BF16"}, "is 'BF16', but it must be FP16, INT8 or FP32"),
        ("24.03", "tensorrt", {"trt_dla_core": "0"}, "accelerator 'tensorrt' has no parameter 'trt_dla_core'"),
        ("24.04", "tensorrt", {"trt_dla_core": "first"}, "it must be a 32-bit integer"),
        ("24.10", "tensorrt", {"max_workspace_size_bytes": "big"}, "it must be an integer"),
        ("24.01", "tensorrt", {"int8_use_native_calibration_table": "true"}, "it must be a 32-bit integer"),
        ("24.10", "cuda", {"do_copy_in_default_stream": "maybe"}, "it must be true, on, 1, false, off or 0"),
        ("24.10", "cuda", {"enable_cuda_graf": "1"}, "accelerator 'cuda' has no parameter 'enable_cuda_graf'"),
    ],
)
def test_parameters_of_accelerators(release: str, name: str, parameters: dict[str, str], message: str) -> None:
    """They are those of the target release; without a GPU the backend does not read them."""
    (finding,) = config_findings(accelerated(name, parameters), "m", targets()[release])
    assert (finding.code, finding.severity) == ("RG135", "error")
    assert message in finding.message
    assert finding.field.startswith("optimization.execution_accelerators.gpu_execution_accelerator[0].parameters[")
    (finding,) = config_findings(accelerated(name, parameters, kind="KIND_CPU"), "m", targets()[release])
    assert (finding.code, finding.severity) == ("RG135", "warning")


@pytest.mark.parametrize(
    ("release", "name", "parameters"),
    [
        ("24.10", "tensorrt", {"precision_mode": "FP16", "trt_engine_cache_enable": "on", "trt_dla_core": "1"}),
        ("26.02", "tensorrt", {"precision_mode": "BF16"}),
        ("24.02", "tensorrt", {"int8_use_native_calibration_table": "true"}),
        ("24.06", "cuda", {"gpu_mem_limit": "1000", "cudnn_conv_algo_search": "HEURISTIC"}),
    ],
)
def test_valid_parameters_of_accelerators(release: str, name: str, parameters: dict[str, str]) -> None:
    """None has a finding."""
    assert config_findings(accelerated(name, parameters), "m", targets()[release]) == []


def test_accelerators_depend_on_the_release() -> None:
    """CUDA has parameters since 24.06; TensorRT 11 ignores precisions; the backend reads no parameters of OpenVINO."""
    (finding,) = config_findings(accelerated("cuda", {}), "m", targets()["24.05"])
    assert (finding.code, finding.severity, finding.hint) == ("RG127", "error", "it supports tensorrt")
    fp16 = accelerated("tensorrt", {"precision_mode": "FP16"})
    assert config_findings(fp16, "m", targets()["26.06"]) == []
    (finding,) = config_findings(fp16, "m", targets()["26.07"])
    assert (finding.code, finding.severity) == ("RG127", "warning")
    values = {"precision": "FP16", "device_id": "0"}
    (finding,) = config_findings(accelerated("openvino", values, "cpu", "KIND_CPU"), "m")
    assert (finding.code, finding.severity, finding.hint) == ("RG135", "warning", "remove device_id, precision")


@pytest.mark.parametrize(
    ("value", "is_valid"),
    [("4294967200", True), (str(2**64 - 1), True), (str(2**64), False), ("-1", False), ("1G", False)],
)
def test_memory_limit_is_a_64_bit_number(value: str, *, is_valid: bool) -> None:
    """The backend's README has 4294967200 as its example, which is in NVIDIA's tutorial, too."""
    limit = f'parameters {{ key: "gpu_mem_limit" value {{ string_value: "{value}" }} }}'
    copy = 'parameters { key: "do_copy_in_default_stream" value { string_value: "1" } }'
    codes = [finding.code for finding in config_findings(without(PARTS, more=f"{limit} {copy}"), "m")]
    assert codes == ([] if is_valid else ["RG128"])


def test_misspelled_parameter_has_a_fix() -> None:
    """The fix keeps the value."""
    (finding,) = config_findings(accelerated("tensorrt", {"precison_mode": "FP16"}), "m", targets()["24.10"])
    assert finding.hint == "did you mean 'precision_mode'?"
    assert finding.fix == 'parameters { key: "precision_mode" value: "FP16" }'


def test_bfloat16_is_served_from_26_03_on() -> None:
    """Config and graph alike; the config's type is compared with the graph's."""
    graph = replace(GRAPH, outputs=(TensorSpec("y", "bfloat16", ("n", 10)),))
    served = changed(PARTS, ("output", "INT64", "BF16"))
    for release, codes in (("26.02", ["RG107", "RG209"]), ("26.03", [])):
        target = targets()[release]
        findings = [*config_findings(served, "m", target), *graph_findings(served, graph, target=target)]
        assert [finding.code for finding in findings] == codes
        assert all("26.03 or newer" in finding.hint for finding in findings)
    (finding,) = graph_findings(config(PARTS), graph, target=targets()["26.03"])
    assert (finding.code, finding.fix) == ("RG205", "data_type: TYPE_BF16")

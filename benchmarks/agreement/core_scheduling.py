"""Changes that the core of the server accepts or rejects: batching, sequences, warmups, ragged batches, ensembles."""

from __future__ import annotations

from agreement.replacements import Replacements

PREFERRED = "preferred_batch_size: [ 2, 4 ]"
START = "control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] }"
READY = "control { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] }"
END = "control { kind: CONTROL_SEQUENCE_END bool_false_true: [ false, true ] }"
CORRID = "control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 }"
OLDEST_START = "control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }"
INITIAL = 'initial_state { name: "zero" data_type: TYPE_FP32 dims: [ 4 ] zero_data: true }'
SAMPLE = "{ data_type: TYPE_FP32 dims: [ 4 ] random_data: true }"
FIRST = """\
    model_name: "first"
    model_version: -1
    input_map { key: "x" value: "in" }
    output_map { key: "y" value: "middle" }
"""
SECOND = """\
    model_name: "second"
    model_version: 1
    input_map { key: "x" value: "middle" }
    output_map { key: "y" value: "out" }
"""


SCATTER = 'batch_output { target_name: "y" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "x" }\n'


def _second(old: str, new: str) -> str:
    return SECOND.replace(old, new)


def _control(kind: str, more: str) -> str:
    return f"control {{ kind: CONTROL_SEQUENCE_{kind} {more} }}"


SCHEDULING: list[Replacements] = [
    Replacements(
        "dynamic",
        PREFERRED,
        {
            "preferred_above_max": "preferred_batch_size: [ 2, 9 ]",
            "preferred_max": "preferred_batch_size: [ 8 ]",
            "preferred_zero": "preferred_batch_size: [ 0 ]",
            "preferred_negative": "preferred_batch_size: [ -1 ]",
            "preferred_empty": "preferred_batch_size: [ ]",
            "preferred_absent": "",
            "preferred_twice": "preferred_batch_size: [ 2, 2 ]",
            "preferred_unordered": "preferred_batch_size: [ 4, 2 ]",
            "preferred_single": "preferred_batch_size: 4",
            "preferred_repeated": "preferred_batch_size: 2 preferred_batch_size: 4",
        },
    ),
    Replacements(
        "dynamic",
        "max_queue_delay_microseconds: 100",
        {
            "delay_zero": "max_queue_delay_microseconds: 0",
            "delay_negative": "max_queue_delay_microseconds: -1",
            "delay_over": "max_queue_delay_microseconds: 18446744073709551616",
            "delay_max": "max_queue_delay_microseconds: 18446744073709551615",
            "delay_float": "max_queue_delay_microseconds: 0.5",
        },
    ),
    Replacements(
        "dynamic",
        "timeout_action: REJECT",
        {
            "delay_with_ordering": "timeout_action: DELAY",
            "action_unknown": "timeout_action: DROP",
            "action_absent": "",
        },
    ),
    Replacements(
        "dynamic",
        "max_queue_size: 16",
        {
            "queue_zero": "max_queue_size: 0",
            "queue_negative": "max_queue_size: -1",
            "queue_max": "max_queue_size: 4294967295",
            "queue_over": "max_queue_size: 4294967296",
        },
    ),
    Replacements(
        "dynamic",
        "default_timeout_microseconds: 1000",
        {
            "timeout_zero": "default_timeout_microseconds: 0",
            "timeout_negative": "default_timeout_microseconds: -1",
        },
    ),
    Replacements(
        "dynamic",
        "preserve_ordering: true",
        {
            "ordering_false": "preserve_ordering: false",
            "levels_one_no_default": "priority_levels: 1",
            "levels_with_ordering": "preserve_ordering: true priority_levels: 2 default_priority_level: 1",
            "default_level_without_levels": "default_priority_level: 1",
            "policy_without_levels": "priority_queue_policy { key: 1 value { max_queue_size: 4 } }",
        },
    ),
    Replacements(
        "dynamic",
        "",
        {
            "twice": "dynamic_batching { }",
            "and_sequence": "sequence_batching { direct { } }",
        },
    ),
    Replacements(
        "dynamic",
        "max_batch_size: 8",
        {
            "max_batch/four": "max_batch_size: 4",
            "max_batch/three": "max_batch_size: 3",
            "max_batch/one": "max_batch_size: 1",
            "max_batch/zero": "max_batch_size: 0",
            "max_batch/absent": "",
        },
    ),
    Replacements(
        "priority",
        "priority_levels: 3",
        {
            "levels_absent": "",
            "levels_zero": "priority_levels: 0",
            "levels_one": "priority_levels: 1",
            "levels_two": "priority_levels: 2",
            "levels_negative": "priority_levels: -1",
            "levels_many": "priority_levels: 100000",
        },
    ),
    Replacements(
        "priority",
        "default_priority_level: 2",
        {
            "default_absent": "",
            "default_zero": "default_priority_level: 0",
            "default_over": "default_priority_level: 4",
            "default_three": "default_priority_level: 3",
            "default_negative": "default_priority_level: -1",
            "with_ordering": "default_priority_level: 2 preserve_ordering: true",
        },
    ),
    Replacements(
        "priority",
        "key: 1 value",
        {
            "policy_zero": "key: 0 value",
            "policy_three": "key: 3 value",
            "policy_over": "key: 4 value",
            "policy_keyless": "value",
            "policy_negative": "key: -1 value",
        },
    ),
    Replacements(
        "priority",
        "key: 1 value { timeout_action: REJECT max_queue_size: 4 }",
        {
            "policy_valueless": "key: 1",
            "policy_empty": "",
            "policy_delay": "key: 1 value { timeout_action: DELAY }",
        },
    ),
    Replacements(
        "direct",
        "direct { max_queue_delay_microseconds: 10 minimum_slot_utilization: 0.5 }\n",
        {
            "strategy_absent": "",
            "strategy_empty": "direct { }\n",
            "strategy_both": "direct { } oldest { max_candidate_sequences: 4 }\n",
            "slot_zero": "direct { minimum_slot_utilization: 0 }\n",
            "slot_one": "direct { max_queue_delay_microseconds: 10 minimum_slot_utilization: 1.0 }\n",
            "slot_above": "direct { max_queue_delay_microseconds: 10 minimum_slot_utilization: 1.5 }\n",
            "slot_negative": "direct { max_queue_delay_microseconds: 10 minimum_slot_utilization: -0.5 }\n",
            "slot_nan": "direct { max_queue_delay_microseconds: 10 minimum_slot_utilization: nan }\n",
            "slot_inf": "direct { max_queue_delay_microseconds: 10 minimum_slot_utilization: inf }\n",
            "slot_above_no_delay": "direct { minimum_slot_utilization: 1.5 }\n",
            "delay_negative": "direct { max_queue_delay_microseconds: -1 }\n",
            "oldest_field": "direct { max_candidate_sequences: 4 }\n",
            "oldest": "oldest { max_candidate_sequences: 4 }\n",
            "iterative": "direct { } iterative_sequence: true\n",
        },
    ),
    Replacements(
        "direct",
        "max_sequence_idle_microseconds: 5000000",
        {
            "control_empty": "control_input { }",
            "second_start": 'control_input { name: "start2" ' + START + " }",
            "second_corrid": 'control_input { name: "corrid2" ' + CORRID + " }",
            "generative": "generative_sequence: true",
            "idle_zero": "max_sequence_idle_microseconds: 0",
            "idle_negative": "max_sequence_idle_microseconds: -1",
            "idle_max": "max_sequence_idle_microseconds: 18446744073709551615",
            "idle_absent": "",
        },
    ),
    Replacements(
        "direct",
        START,
        {
            "start/int32": _control("START", "int32_false_true: [ 0, 1 ]"),
            "start/one_value": _control("START", "fp32_false_true: [ 0 ]"),
            "start/three_values": _control("START", "fp32_false_true: [ 0, 1, 2 ]"),
            "start/no_value": _control("START", ""),
            "start/empty_list": _control("START", "fp32_false_true: [ ]"),
            "start/two_types": _control("START", "fp32_false_true: [ 0, 1 ] int32_false_true: [ 0, 1 ]"),
            "start/with_type": _control("START", "fp32_false_true: [ 0, 1 ] data_type: TYPE_FP32"),
            "start/type_only": _control("START", "data_type: TYPE_FP32"),
            "start/same_values": _control("START", "fp32_false_true: [ 1, 1 ]"),
            "start/kind_absent": "control { fp32_false_true: [ 0, 1 ] }",
            "start/kind_unknown": _control("BEGIN", "fp32_false_true: [ 0, 1 ]"),
            "start/kind_end": _control("END", "fp32_false_true: [ 0, 1 ]"),
            "start/control_absent": "",
            "start/control_twice": f"{START} {START}",
            "start/two_kinds": START + _control("END", "fp32_false_true: [ 0, 1 ]"),
            "start/nan": _control("START", "fp32_false_true: [ nan, 1 ]"),
        },
    ),
    Replacements(
        "direct",
        READY,
        {
            "ready/one_value": _control("READY", "int32_false_true: [ 0 ]"),
            "ready/fp32": _control("READY", "fp32_false_true: [ 0, 1 ]"),
            "ready/three_values": _control("READY", "int32_false_true: [ 0, 1, 2 ]"),
            "ready/kind_start": _control("START", "int32_false_true: [ 0, 1 ]"),
            "ready/float_values": _control("READY", "int32_false_true: [ 0.5, 1.5 ]"),
        },
    ),
    Replacements(
        "direct",
        END,
        {
            "end/one_value": _control("END", "bool_false_true: [ true ]"),
            "end/words": _control("END", "bool_false_true: [ no, yes ]"),
            "end/numbers": _control("END", "bool_false_true: [ 0, 1 ]"),
            "end/int32": _control("END", "int32_false_true: [ 0, 1 ]"),
        },
    ),
    Replacements(
        "direct",
        CORRID,
        {
            "corrid/type_absent": _control("CORRID", ""),
            "corrid/int64": _control("CORRID", "data_type: TYPE_INT64"),
            "corrid/uint32": _control("CORRID", "data_type: TYPE_UINT32"),
            "corrid/int32": _control("CORRID", "data_type: TYPE_INT32"),
            "corrid/string": _control("CORRID", "data_type: TYPE_STRING"),
            "corrid/fp32": _control("CORRID", "data_type: TYPE_FP32"),
            "corrid/bool": _control("CORRID", "data_type: TYPE_BOOL"),
            "corrid/false_true": _control("CORRID", "int32_false_true: [ 0, 1 ]"),
            "corrid/both": _control("CORRID", "data_type: TYPE_UINT64 int32_false_true: [ 0, 1 ]"),
            "corrid/invalid": _control("CORRID", "data_type: TYPE_INVALID"),
        },
    ),
    Replacements(
        "direct",
        'name: "start"',
        {
            "start/name_absent": "",
            "start/name_empty": 'name: ""',
            "start/name_of_input": 'name: "x"',
            "start/name_of_control": 'name: "ready"',
            "start/name_of_output": 'name: "y"',
            "start/name_unknown": 'name: "nosuch"',
        },
    ),
    Replacements(
        "direct",
        'name: "corrid"',
        {
            "corrid/name_absent": "",
        },
    ),
    Replacements(
        "direct",
        "max_batch_size: 8",
        {
            "max_batch/one": "max_batch_size: 1",
            "max_batch/zero": "max_batch_size: 0",
            "max_batch/huge": "max_batch_size: 2147483647",
            "max_batch/large": "max_batch_size: 1000000",
        },
    ),
    Replacements(
        "direct",
        "",
        {
            "and_dynamic": "dynamic_batching { }",
            "decoupled": "model_transaction_policy { decoupled: true }",
            "cache": "response_cache { enable: true }",
            "instances_two": "instance_group { count: 2 kind: KIND_CPU }",
            "warmup": 'model_warmup { name: "w" batch_size: 1 inputs { key: "x" value ' + SAMPLE + " } }",
        },
    ),
    Replacements(
        "oldest",
        "max_candidate_sequences: 4",
        {
            "candidates_absent": "",
            "candidates_zero": "max_candidate_sequences: 0",
            "candidates_negative": "max_candidate_sequences: -1",
            "candidates_one": "max_candidate_sequences: 1",
            "candidates_many": "max_candidate_sequences: 100000",
            "candidates_huge": "max_candidate_sequences: 2147483647",
        },
    ),
    Replacements(
        "oldest",
        PREFERRED,
        {
            "preferred_above_max": "preferred_batch_size: [ 2, 9 ]",
            "preferred_above_candidates": "preferred_batch_size: [ 8 ]",
            "preferred_zero": "preferred_batch_size: [ 0 ]",
            "preferred_negative": "preferred_batch_size: [ -1 ]",
            "preferred_absent": "",
            "preferred_empty": "preferred_batch_size: [ ]",
            "ordering": "preserve_ordering: true",
            "slot": "minimum_slot_utilization: 0.5",
        },
    ),
    Replacements(
        "oldest",
        "max_queue_delay_microseconds: 100",
        {
            "delay_absent": "",
            "delay_negative": "max_queue_delay_microseconds: -1",
        },
    ),
    Replacements(
        "oldest",
        OLDEST_START,
        {
            "start/one_value": _control("START", "int32_false_true: [ 1 ]"),
            "start/fp32": _control("START", "fp32_false_true: [ 0, 1 ]"),
            "start/bool": _control("START", "bool_false_true: [ false, true ]"),
            "start/uint8_type": _control("START", "int32_false_true: [ 0, 1 ] data_type: TYPE_UINT8"),
            "start/overflow": _control("START", "int32_false_true: [ 0, 2147483648 ]"),
        },
    ),
    Replacements(
        "oldest",
        "max_batch_size: 8",
        {
            "max_batch/zero": "max_batch_size: 0",
            "max_batch/two": "max_batch_size: 2",
            "max_batch/huge": "max_batch_size: 2147483647",
        },
    ),
    Replacements(
        "state",
        'input_name: "before"',
        {
            "input_absent": "",
            "input_empty": 'input_name: ""',
            "input_unknown": 'input_name: "nosuch"',
            "input_of_model": 'input_name: "x"',
        },
    ),
    Replacements(
        "state",
        'output_name: "after"',
        {
            "output_absent": "",
            "output_empty": 'output_name: ""',
            "output_unknown": 'output_name: "nosuch"',
            "output_of_model": 'output_name: "y"',
            "same_buffer": 'output_name: "after" use_same_buffer_for_input_output: true',
            "growable": 'output_name: "after" use_growable_memory: true',
            "growable_same_buffer": 'output_name: "after" use_same_buffer_for_input_output: true '
            "use_growable_memory: true",
        },
    ),
    Replacements(
        "state",
        "data_type: TYPE_FP32\n    dims: [ 4 ]\n",
        {
            "type_absent": "dims: [ 4 ]\n",
            "type_invalid": "data_type: TYPE_INVALID\n    dims: [ 4 ]\n",
            "type_other": "data_type: TYPE_INT32\n    dims: [ 4 ]\n",
            "type_string": "data_type: TYPE_STRING\n    dims: [ 4 ]\n",
            "dims_absent": "data_type: TYPE_FP32\n",
            "dims_zero": "data_type: TYPE_FP32\n    dims: [ 0 ]\n",
            "dims_other": "data_type: TYPE_FP32\n    dims: [ 5 ]\n",
            "dims_variable": "data_type: TYPE_FP32\n    dims: [ -1 ]\n",
            "dims_minus_two": "data_type: TYPE_FP32\n    dims: [ -2 ]\n",
            "dims_longer": "data_type: TYPE_FP32\n    dims: [ 4, 1 ]\n",
        },
    ),
    Replacements(
        "state",
        INITIAL,
        {
            "initial/absent": "",
            "initial/empty": "initial_state { }",
            "initial/nameless": "initial_state { data_type: TYPE_FP32 dims: [ 4 ] zero_data: true }",
            "initial/type_absent": 'initial_state { name: "z" dims: [ 4 ] zero_data: true }',
            "initial/type_other": 'initial_state { name: "z" data_type: TYPE_INT32 dims: [ 4 ] zero_data: true }',
            "initial/dims_absent": 'initial_state { name: "z" data_type: TYPE_FP32 zero_data: true }',
            "initial/dims_other": 'initial_state { name: "z" data_type: TYPE_FP32 dims: [ 5 ] zero_data: true }',
            "initial/dims_variable": 'initial_state { name: "z" data_type: TYPE_FP32 dims: [ -1 ] zero_data: true }',
            "initial/dims_zero": 'initial_state { name: "z" data_type: TYPE_FP32 dims: [ 0 ] zero_data: true }',
            "initial/dims_longer": 'initial_state { name: "z" data_type: TYPE_FP32 dims: [ 4, 1 ] zero_data: true }',
            "initial/data_absent": 'initial_state { name: "z" data_type: TYPE_FP32 dims: [ 4 ] }',
            "initial/zero_false": 'initial_state { name: "z" data_type: TYPE_FP32 dims: [ 4 ] zero_data: false }',
            "initial/file_absent": 'initial_state { name: "z" data_type: TYPE_FP32 dims: [ 4 ] data_file: "nosuch" }',
            "initial/file_empty": 'initial_state { name: "z" data_type: TYPE_FP32 dims: [ 4 ] data_file: "" }',
            "initial/both": 'initial_state { name: "z" data_type: TYPE_FP32 dims: [ 4 ] zero_data: true '
            'data_file: "a" }',
            "initial/twice": f"{INITIAL} {INITIAL}",
            "twice": f'{INITIAL} }} state {{ input_name: "before" output_name: "after" '
            "data_type: TYPE_FP32 dims: [ 4 ]",
            "second_empty": f"{INITIAL} }} state {{",
        },
    ),
    Replacements(
        "state",
        "max_batch_size: 8",
        {
            "max_batch/zero": "max_batch_size: 0",
        },
    ),
    Replacements(
        "state",
        "",
        {
            "also_input": 'input { name: "before" data_type: TYPE_FP32 dims: [ 4 ] }',
            "also_output": 'output { name: "after" data_type: TYPE_FP32 dims: [ 4 ] }',
        },
    ),
    Replacements(
        "oldest",
        "",
        {
            "warmup": 'model_warmup { name: "w" batch_size: 1 inputs { key: "x" value ' + SAMPLE + " } }",
            "warmup_control": 'model_warmup { name: "w" batch_size: 1 inputs { key: "x" value '
            + SAMPLE
            + ' } inputs { key: "start" value { data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } } }',
        },
    ),
    Replacements(
        "statefile",
        "dims: [ 4 ]\n    initial_state",
        {
            "state_variable": "dims: [ -1 ]\n    initial_state",
        },
    ),
    Replacements(
        "statefile",
        'dims: [ 4 ] data_file: "first"',
        {
            "absent": 'dims: [ 4 ] data_file: "nosuch"',
            "outside": 'dims: [ 4 ] data_file: "../1/model.onnx"',
            "directory": 'dims: [ 4 ] data_file: "."',
            "too_short": 'dims: [ 400 ] data_file: "first"',
        },
    ),
    Replacements(
        "warmup",
        "batch_size: 2",
        {
            "batch/zero": "batch_size: 0",
            "batch/one": "batch_size: 1",
            "batch/max": "batch_size: 8",
            "batch/above_max": "batch_size: 9",
            "batch/large": "batch_size: 100000",
            "batch/absent": "",
            "batch/negative": "batch_size: -1",
        },
    ),
    Replacements(
        "warmup",
        "count: 1",
        {
            "count/zero": "count: 0",
            "count/two": "count: 2",
            "count/absent": "",
            "count/negative": "count: -1",
        },
    ),
    Replacements(
        "warmup",
        'name: "first"',
        {
            "name/absent": "",
            "name/empty": 'name: ""',
        },
    ),
    Replacements(
        "warmup",
        'key: "x"',
        {
            "input/unknown": 'key: "nosuch"',
            "input/keyless": "",
            "input/empty": 'key: ""',
            "input/output": 'key: "y"',
        },
    ),
    Replacements(
        "warmup",
        'inputs { key: "x" value ' + SAMPLE + " }",
        {
            "inputs_absent": "",
            "inputs_twice": 'inputs { key: "x" value ' + SAMPLE + ' } inputs { key: "x" value ' + SAMPLE + " }",
            "inputs_extra": 'inputs { key: "x" value ' + SAMPLE + ' } inputs { key: "z" value ' + SAMPLE + " }",
            "inputs_valueless": 'inputs { key: "x" }',
        },
    ),
    Replacements(
        "warmup",
        SAMPLE,
        {
            "data/absent": "{ data_type: TYPE_FP32 dims: [ 4 ] }",
            "data/zero": "{ data_type: TYPE_FP32 dims: [ 4 ] zero_data: true }",
            "data/zero_false": "{ data_type: TYPE_FP32 dims: [ 4 ] zero_data: false }",
            "data/two": "{ data_type: TYPE_FP32 dims: [ 4 ] zero_data: true random_data: true }",
            "data/file_absent": '{ data_type: TYPE_FP32 dims: [ 4 ] input_data_file: "nosuch" }',
            "data/file_empty": '{ data_type: TYPE_FP32 dims: [ 4 ] input_data_file: "" }',
            "data/unknown": "{ data_type: TYPE_FP32 dims: [ 4 ] ones_data: true }",
            "type/absent": "{ dims: [ 4 ] random_data: true }",
            "type/invalid": "{ data_type: TYPE_INVALID dims: [ 4 ] random_data: true }",
            "type/other": "{ data_type: TYPE_INT64 dims: [ 4 ] random_data: true }",
            "type/string": "{ data_type: TYPE_STRING dims: [ 4 ] zero_data: true }",
            "dims/absent": "{ data_type: TYPE_FP32 random_data: true }",
            "dims/other": "{ data_type: TYPE_FP32 dims: [ 5 ] random_data: true }",
            "dims/variable": "{ data_type: TYPE_FP32 dims: [ -1 ] random_data: true }",
            "dims/zero": "{ data_type: TYPE_FP32 dims: [ 0 ] random_data: true }",
            "dims/with_batch": "{ data_type: TYPE_FP32 dims: [ 2, 4 ] random_data: true }",
            "dims/negative": "{ data_type: TYPE_FP32 dims: [ -2 ] random_data: true }",
            "dims/huge": "{ data_type: TYPE_FP32 dims: [ 4611686018427387904 ] zero_data: true }",
        },
    ),
    Replacements(
        "warmup",
        "max_batch_size: 8",
        {
            "max_batch/zero": "max_batch_size: 0",
            "max_batch/one": "max_batch_size: 1",
        },
    ),
    Replacements(
        "warmup",
        "",
        {
            "twice": 'model_warmup { name: "first" batch_size: 1 inputs { key: "x" value ' + SAMPLE + " } }",
            "second": 'model_warmup { name: "second" batch_size: 1 inputs { key: "x" value ' + SAMPLE + " } }",
            "empty": "model_warmup { }",
            "dynamic": "dynamic_batching { }",
        },
    ),
    Replacements(
        "warmupfile",
        '"sample"',
        {
            "absent": '"nosuch"',
            "absolute": '"/etc/hostname"',
            "outside": '"../1/model.onnx"',
            "directory": '"."',
        },
    ),
    Replacements(
        "warmupfile",
        "batch_size: 2",
        {
            "batch/four": "batch_size: 4",
            "batch/one": "batch_size: 1",
        },
    ),
    Replacements(
        "warmupfile",
        "{ data_type: TYPE_FP32",
        {
            "string": "{ data_type: TYPE_STRING",
        },
    ),
    Replacements(
        "ragged",
        "kind: BATCH_ACCUMULATED_ELEMENT_COUNT\n",
        {
            "kind/count": "kind: BATCH_ELEMENT_COUNT\n",
            "kind/with_zero": "kind: BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO\n",
            "kind/max": "kind: BATCH_MAX_ELEMENT_COUNT_AS_SHAPE\n",
            "kind/shape": "kind: BATCH_ITEM_SHAPE\n",
            "kind/flatten": "kind: BATCH_ITEM_SHAPE_FLATTEN\n",
            "kind/absent": "",
            "kind/unknown": "kind: BATCH_NOSUCH\n",
        },
    ),
    Replacements(
        "ragged",
        'target_name: "index"',
        {
            "target/absent": "",
            "target/empty": 'target_name: ""',
            "target/two": 'target_name: "index" target_name: "other"',
            "target/input": 'target_name: "x"',
            "target/output": 'target_name: "y"',
        },
    ),
    Replacements(
        "ragged",
        "data_type: TYPE_FP32\n  source",
        {
            "type/int32": "data_type: TYPE_INT32\n  source",
            "type/absent": "source",
            "type/int64": "data_type: TYPE_INT64\n  source",
            "type/string": "data_type: TYPE_STRING\n  source",
            "type/invalid": "data_type: TYPE_INVALID\n  source",
        },
    ),
    Replacements(
        "ragged",
        'source_input: "x"',
        {
            "source/absent": "",
            "source/unknown": 'source_input: "nosuch"',
            "source/empty": 'source_input: ""',
            "source/two": 'source_input: "x" source_input: "z"',
            "source/twice": 'source_input: "x" source_input: "x"',
            "source/output": 'source_input: "y"',
            "source/other": 'source_input: "z"',
        },
    ),
    Replacements(
        "ragged",
        "max_batch_size: 8",
        {
            "max_batch/zero": "max_batch_size: 0",
        },
    ),
    Replacements(
        "ragged",
        "",
        {
            "batch_input/empty": "batch_input { }",
            "batch_input/twice": 'batch_input { kind: BATCH_ELEMENT_COUNT target_name: "index" data_type: TYPE_FP32 '
            'source_input: "x" }',
            "scatter/right": 'batch_output { target_name: "y" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "x" }',
            "scatter/unknown_target": 'batch_output { target_name: "no" kind: BATCH_SCATTER_WITH_INPUT_SHAPE '
            'source_input: "x" }',
            "scatter/unknown_source": 'batch_output { target_name: "y" kind: BATCH_SCATTER_WITH_INPUT_SHAPE '
            'source_input: "no" }',
            "scatter/no_source": 'batch_output { target_name: "y" kind: BATCH_SCATTER_WITH_INPUT_SHAPE }',
            "scatter/two_sources": 'batch_output { target_name: "y" kind: BATCH_SCATTER_WITH_INPUT_SHAPE '
            'source_input: [ "x", "z" ] }',
            "scatter/two_targets": 'batch_output { target_name: [ "y", "no" ] kind: BATCH_SCATTER_WITH_INPUT_SHAPE '
            'source_input: "x" }',
            "scatter/twice": SCATTER + SCATTER,
            "scatter/kind_absent": 'batch_output { target_name: "y" source_input: "x" }',
            "scatter/unknown_kind": 'batch_output { target_name: "y" kind: BATCH_NOSUCH source_input: "x" }',
        },
    ),
    Replacements(
        "ensemble",
        "ensemble_scheduling {\n",
        {"inflight_newer_field": "ensemble_scheduling {\n  max_inflight_requests: 4\n"},
    ),
    Replacements(
        "ensemble",
        FIRST,
        {
            "first/cycle": FIRST.replace('"in"', '"out"'),
            "first/own_output": FIRST.replace('"in"', '"middle"'),
            "first/dangling_input": FIRST.replace('"in"', '"nosuch"'),
            "first/unused_output": FIRST.replace('"middle"', '"unused"'),
            "first/version_zero": FIRST.replace("-1", "0"),
            "first/version_absent": FIRST.replace("    model_version: -1\n", ""),
            "first/version_minus_two": FIRST.replace("-1", "-2"),
            "first/extra_output": FIRST + '    output_map { key: "nosuch" value: "more" }\n',
            "first/extra_input": FIRST + '    input_map { key: "nosuch" value: "in" }\n',
            "first/output_to_two": FIRST + '    output_map { key: "y" value: "more" }\n',
            "first/output_onto_input": FIRST.replace('"middle"', '"in"'),
            "first/output_is_out": FIRST.replace('"middle"', '"out"'),
            "first/namespace": FIRST + '    model_namespace: "nosuch"\n',
            "first/namespace_empty": FIRST + '    model_namespace: ""\n',
        },
    ),
    Replacements(
        "ensemble",
        SECOND,
        {
            "second/unknown_model": _second('"second"', '"nosuch"'),
            "second/nameless": _second('    model_name: "second"\n', ""),
            "second/empty_name": _second('"second"', '""'),
            "second/itself": _second('"second"', '"ensemble"'),
            "second/first_again": _second('"second"', '"first"'),
            "second/absent_version": _second("model_version: 1", "model_version: 7"),
            "second/unknown_input": _second('key: "x"', 'key: "nosuch"'),
            "second/unknown_output": _second('key: "y"', 'key: "nosuch"'),
            "second/no_input": _second('    input_map { key: "x" value: "middle" }\n', ""),
            "second/no_output": _second('    output_map { key: "y" value: "out" }\n', ""),
            "second/unmapped": _second('value: "middle"', 'value: ""'),
            "second/output_valueless": _second(' value: "out"', ""),
            "second/output_elsewhere": _second('value: "out"', 'value: "elsewhere"'),
            "second/output_duplicate": _second('value: "out"', 'value: "middle"'),
            "second/reads_in": _second('value: "middle"', 'value: "in"'),
            "second/empty": "",
        },
    ),
    Replacements(
        "ensemble",
        "  step {\n" + SECOND + "  }\n",
        {
            "step/one": "",
            "step/twice": ("  step {\n" + SECOND + "  }\n") * 2,
        },
    ),
    Replacements(
        "ensemble",
        "ensemble_scheduling {\n  step {\n" + FIRST + "  }\n  step {\n" + SECOND + "  }\n}\n",
        {
            "step/none": "ensemble_scheduling { }\n",
            "scheduling_absent": "",
            "step/reversed": "ensemble_scheduling {\n  step {\n" + SECOND + "  }\n  step {\n" + FIRST + "  }\n}\n",
            "scheduling_dynamic": "dynamic_batching { }\n",
            "step/list": "ensemble_scheduling {\n  step [ {\n" + FIRST + "  }, {\n" + SECOND + "  } ]\n}\n",
        },
    ),
    Replacements(
        "ensemble",
        'platform: "ensemble"',
        {
            "platform/absent": "",
            "platform/backend": 'backend: "ensemble"',
            "platform/onnx": 'platform: "onnxruntime_onnx"',
            "platform/with_backend": 'platform: "ensemble" backend: "onnxruntime"',
        },
    ),
    Replacements(
        "ensemble",
        "max_batch_size: 8",
        {
            "max_batch/zero": "max_batch_size: 0",
            "max_batch/above": "max_batch_size: 16",
            "max_batch/below": "max_batch_size: 2",
            "max_batch/negative": "max_batch_size: -1",
        },
    ),
    Replacements(
        "ensemble",
        'input { name: "in" data_type: TYPE_FP32 dims: [ 4 ] }',
        {
            "in/other_type": 'input { name: "in" data_type: TYPE_FP64 dims: [ 4 ] }',
            "in/other_dims": 'input { name: "in" data_type: TYPE_FP32 dims: [ 5 ] }',
            "in/other_rank": 'input { name: "in" data_type: TYPE_FP32 dims: [ 4, 1 ] }',
            "in/variable": 'input { name: "in" data_type: TYPE_FP32 dims: [ -1 ] }',
            "in/absent": "",
            "in/second_unused": 'input [ { name: "in" data_type: TYPE_FP32 dims: [ 4 ] }, '
            '{ name: "more" data_type: TYPE_FP32 dims: [ 4 ] } ]',
            "in/optional": 'input { name: "in" data_type: TYPE_FP32 dims: [ 4 ] optional: true }',
            "in/reshaped": 'input { name: "in" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { shape: [ 4 ] } }',
            "in/ragged": 'input { name: "in" data_type: TYPE_FP32 dims: [ 4 ] allow_ragged_batch: true }',
            "in/duplicate": 'input [ { name: "in" data_type: TYPE_FP32 dims: [ 4 ] }, '
            '{ name: "in" data_type: TYPE_FP32 dims: [ 4 ] } ]',
        },
    ),
    Replacements(
        "ensemble",
        'output { name: "out" data_type: TYPE_FP32 dims: [ 4 ] }',
        {
            "out/other_type": 'output { name: "out" data_type: TYPE_FP64 dims: [ 4 ] }',
            "out/other_dims": 'output { name: "out" data_type: TYPE_FP32 dims: [ 5 ] }',
            "out/other_rank": 'output { name: "out" data_type: TYPE_FP32 dims: [ 4, 1 ] }',
            "out/variable": 'output { name: "out" data_type: TYPE_FP32 dims: [ -1 ] }',
            "out/absent": "",
            "out/unproduced": 'output [ { name: "out" data_type: TYPE_FP32 dims: [ 4 ] }, '
            '{ name: "more" data_type: TYPE_FP32 dims: [ 4 ] } ]',
            "out/middle_too": 'output [ { name: "out" data_type: TYPE_FP32 dims: [ 4 ] }, '
            '{ name: "middle" data_type: TYPE_FP32 dims: [ 4 ] } ]',
            "out/same_as_in": 'output { name: "in" data_type: TYPE_FP32 dims: [ 4 ] }',
        },
    ),
    Replacements(
        "ensemble",
        "",
        {
            "instances": "instance_group { count: 1 kind: KIND_CPU }",
            "instances_count": "instance_group { count: 2 }",
            "optimization": "optimization { priority: PRIORITY_MAX }",
            "optimization_pinned": "optimization { input_pinned_memory { enable: false } }",
            "dynamic": "dynamic_batching { }",
            "sequence": "sequence_batching { direct { } }",
            "warmup": 'model_warmup { name: "w" batch_size: 1 inputs { key: "in" value ' + SAMPLE + " } }",
            "decoupled": "model_transaction_policy { decoupled: true }",
            "cache": "response_cache { enable: true }",
            "runtime": 'runtime: "model.py"',
            "filename": 'default_model_filename: "model.onnx"',
            "versions": "version_policy { specific { versions: [ 9 ] } }",
            "parameters": 'parameters { key: "a" value { string_value: "b" } }',
        },
    ),
]

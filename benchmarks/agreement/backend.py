"""Changes that the onnxruntime backend accepts or rejects; the embedded server has a reimplementation of it."""

from __future__ import annotations

from agreement.replacements import Replacements

_TYPES = ("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP64", "STRING")
_ACCELERATORS = ("tensorrt", "openvino", "cuda", "auto_io", "nosuch", "")


def _input(data_type: str, dims: str) -> str:
    return f'  name: "x"\n  data_type: TYPE_{data_type}\n  dims: [ {dims} ]\n'


def _output(data_type: str, dims: str) -> str:
    return _input(data_type, dims).replace('"x"', '"y"')


def _parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'


def _accelerator(device: str, name: str) -> str:
    return f'optimization {{ execution_accelerators {{ {device}_execution_accelerator {{ name: "{name}" }} }} }}'


BACKEND: list[Replacements] = [
    Replacements(
        "batch", '  name: "x"\n', {"input/name_unknown": '  name: "nosuch"\n', "input/name_case": '  name: "X"\n'}
    ),
    Replacements(
        "batch", '  name: "y"\n', {"output/name_unknown": '  name: "nosuch"\n', "output/name_space": '  name: "y "\n'}
    ),
    Replacements("batch", _input("FP32", "4"), {f"input/type_{each.lower()}": _input(each, "4") for each in _TYPES}),
    Replacements("batch", _output("FP32", "4"), {f"output/type_{each.lower()}": _output(each, "4") for each in _TYPES}),
    Replacements(
        "batch",
        _input("FP32", "4"),
        {
            "input/dims_other": _input("FP32", "5"),
            "input/dims_variable": _input("FP32", "-1"),
            "input/dims_with_batch": _input("FP32", "-1, 4"),
            "input/dims_longer": _input("FP32", "4, 1"),
        },
    ),
    Replacements(
        "batch",
        _output("FP32", "4"),
        {
            "output/dims_other": _output("FP32", "5"),
            "output/dims_variable": _output("FP32", "-1"),
            "output/dims_with_batch": _output("FP32", "-1, 4"),
        },
    ),
    Replacements(
        "plain",
        _input("FP32", "-1, 4"),
        {
            "input/dims_fixed": _input("FP32", "2, 4"),
            "input/dims_shorter": _input("FP32", "4"),
            "input/dims_all_variable": _input("FP32", "-1, -1"),
            "input/dims_longer": _input("FP32", "-1, 4, 1"),
        },
    ),
    Replacements(
        "plain",
        _output("FP32", "-1, 4"),
        {
            "output/dims_fixed": _output("FP32", "2, 4"),
            "output/dims_shorter": _output("FP32", "4"),
            "output/dims_all_variable": _output("FP32", "-1, -1"),
        },
    ),
    Replacements(
        "fixed",
        'backend: "onnxruntime"\n',
        {
            "max_batch/one": 'backend: "onnxruntime"\nmax_batch_size: 1\n',
            "max_batch/two": 'backend: "onnxruntime"\nmax_batch_size: 2\n',
        },
    ),
    Replacements(
        "scalar",
        _input("FP32", "1"),
        {
            "in/ones": _input("FP32", "1, 1"),
            "in/two": _input("FP32", "2"),
            "in/variable": _input("FP32", "-1"),
        },
    ),
    Replacements(
        "vector",
        _input("INT32", "-1"),
        {
            "in/fixed": _input("INT32", "3"),
            "in/two": _input("INT32", "-1, 1"),
        },
    ),
    Replacements(
        "vector", 'backend: "onnxruntime"\n', {"max_batch/four": 'backend: "onnxruntime"\nmax_batch_size: 4\n'}
    ),
    Replacements("two", 'name: "a"', {"input/twice_the_other": 'name: "b"', "input/unknown": 'name: "z"'}),
    Replacements("two", 'input {\n  name: "b"\n  data_type: TYPE_INT64\n  dims: [ -1, 2 ]\n}\n', {"input/missing": ""}),
    Replacements(
        "two", 'output {\n  name: "d"\n  data_type: TYPE_INT64\n  dims: [ -1, 2 ]\n}\n', {"output/missing": ""}
    ),
    Replacements("two", "", {"input/extra": 'input { name: "z" data_type: TYPE_FP32 dims: [ 1 ] }'}),
    Replacements("optional", 'name: "w"', {"unknown": 'name: "nosuch"', "required": 'name: "x"'}),
    Replacements("optional", "dims: [ 4 ]\n  optional", {"dims_other": "dims: [ 5 ]\n  optional"}),
    Replacements(
        "batch",
        "",
        {
            **{f"accelerator/cpu_{each or 'empty'}": _accelerator("cpu", each) for each in _ACCELERATORS},
            **{f"accelerator/gpu_{each or 'empty'}": _accelerator("gpu", each) for each in _ACCELERATORS},
        },
    ),
    Replacements(
        "batch",
        "",
        {
            "parameters/intra_zero": _parameter("intra_op_thread_count", "0"),
            "parameters/intra_negative": _parameter("intra_op_thread_count", "-1"),
            "parameters/intra_word": _parameter("intra_op_thread_count", "many"),
            "parameters/intra_empty": _parameter("intra_op_thread_count", ""),
            "parameters/inter_word": _parameter("inter_op_thread_count", "x"),
            "parameters/execution_one": _parameter("execution_mode", "1"),
            "parameters/execution_two": _parameter("execution_mode", "2"),
            "parameters/execution_word": _parameter("execution_mode", "parallel"),
            "parameters/arena_off": _parameter("enable_mem_arena", "0"),
            "parameters/arena_word": _parameter("enable_mem_arena", "on"),
            "parameters/arena_unknown": _parameter("enable_mem_arena", "yes"),
            "parameters/pattern_word": _parameter("enable_mem_pattern", "maybe"),
        },
    ),
    # Read by the library that all backends share; in the Python backend, this crashes the server.
    Replacements(
        "ragged",
        "",
        {
            "scatter/empty": "batch_output { }",
            "scatter/no_target": 'batch_output { kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "x" }',
        },
    ),
    Replacements(
        "scatter", "  dims: [ -1 ]\n}\nbatch", {"first_value": "  dims: [ 1 ]\n  reshape { shape: [ ] }\n}\nbatch"}
    ),
    Replacements("scatter", 'batch_output { target_name: "y" source_input: "x" }\n', {"not_scattered": ""}),
    Replacements("inferred", _output("FP32", "4"), {"variable": _output("FP32", "-1"), "other": _output("FP32", "3")}),
    Replacements("growable", "use_growable_memory: true", {"same_buffer": ""}),
    Replacements(
        "accelerated",
        '"precision_mode" value: "FP16"',
        {
            "precision_unknown": '"precision_mode" value: "FP99"',
            "parameter_misspelled": '"precison_mode" value: "FP16"',
            "dla_core_word": '"trt_dla_core" value: "first"',
            "cache_word": '"trt_engine_cache_enable" value: "maybe"',
            "cache_on": '"trt_engine_cache_enable" value: "on"',
            "int8": '"precision_mode" value: "INT8"',
            "precision_lower_case": '"precision_mode" value: "fp16"',
            "workspace": '"max_workspace_size_bytes" value: "1073741824"',
            "workspace_word": '"max_workspace_size_bytes" value: "big"',
            "cache_path": '"trt_engine_cache_path" value: "engines"',
        },
    ),
    Replacements(
        "accelerated",
        'name: "tensorrt"\n  parameters { key: "precision_mode" value: "FP16" }',
        {
            "cuda": 'name: "cuda"',
            "cuda_word": 'name: "cuda"\n  parameters { key: "do_copy_in_default_stream" value: "maybe" }',
            "cuda_limit": 'name: "cuda"\n  parameters { key: "gpu_mem_limit" value: "1073741824" }',
            "cuda_misspelled": 'name: "cuda"\n  parameters { key: "gpu_mem_limits" value: "1073741824" }',
            "gpu_io": 'name: "gpu_io"',
        },
    ),
    Replacements("accelerated", "KIND_GPU", {"on_a_cpu": "KIND_CPU"}),
    # Backends that are not installed here, or differ from those in NVIDIA's container.
    Replacements(
        "batch",
        'backend: "onnxruntime"',
        {
            "backend/python": 'backend: "python"',
            "backend/tensorrt": 'backend: "tensorrt"',
            "platform/tensorrt": 'platform: "tensorrt_plan"',
            "platform/pytorch": 'platform: "pytorch_libtorch"',
            "runtime/library": 'backend: "onnxruntime" runtime: "libtriton_onnxruntime.so"',
        },
    ),
    Replacements(
        "platform",
        'platform: "onnxruntime_onnx"',
        {
            "python_backend": 'platform: "onnxruntime_onnx" backend: "python"',
            "runtime_library": 'platform: "onnxruntime_onnx" runtime: "libtriton_onnxruntime.so"',
        },
    ),
]

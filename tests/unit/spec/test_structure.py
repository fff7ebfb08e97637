"""Keys and values of the wrong type, with position, key path and message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Problems = Callable[[str | bytes], list[tuple[str, str, str]]]

HEAD = """\
models:
  m:
    source: {factory: "models.py:build"}
"""
INPUTS = """\
    inputs: {x: {dtype: float32, shape: [batch, 4]}}
    dims: {batch: {max: 8}}
"""
GOOD = HEAD + INPUTS

EXPORTERS = "auto, dynamo, dynamo-eager, onnx, torchscript, torchscript-eager or torchscript-traced"
REFUSED: dict[str, tuple[str, tuple[str, str, str]]] = {
    "unknown top key": (
        "repositry: x\n" + GOOD,
        ("1:1", "repositry", 'unknown key (did you mean "repository"?)'),
    ),
    "unknown nested key": (
        GOOD + "    triton: {instance_group: [{knd: KIND_CPU}]}\n",
        ("6:32", "models.m.triton.instance_group[0].knd", 'unknown key (did you mean "kind"?)'),
    ),
    "unknown key, none near": (
        GOOD + "    limits: {zzz: 1}\n",
        ("6:14", "models.m.limits.zzz", "unknown key (use one of timeout_seconds, memory_mb)"),
    ),
    "unknown key of an output": (
        GOOD + "    outputs: {y: {dtype: int64, shape: [1], zzz: 1}}\n",
        ("6:45", "models.m.outputs.y.zzz", "unknown key (use one of dtype, shape)"),
    ),
    "key of triton at model level": (
        GOOD + "    max_batch_size: 8\n",
        ("6:5", "models.m.max_batch_size", "unknown key (write it under triton:)"),
    ),
    "key of source at model level": (
        GOOD + "    weights: w.safetensors\n",
        ("6:5", "models.m.weights", "unknown key (write it under source:)"),
    ),
    "key of two sections at model level": (
        GOOD + "    data: x\n",
        ("6:5", "models.m.data", "unknown key (write it under source: or quality:)"),
    ),
    "misspelled key that is also a key of triton": (
        GOOD.replace("inputs:", "input:"),
        ("4:5", "models.m.input", 'unknown key (did you mean "inputs"?)'),
    ),
    "key of another source, with a known file": (
        GOOD.replace('factory: "models.py:build"', "path: model.onnx"),
        ("3:14", "models.m.source.path", "unknown key (add kind: onnx)"),
    ),
    "callable under the key of another source": (
        GOOD.replace('factory: "models.py:build"', 'factory: "models.py:build", path: "nets.py:make"'),
        ("3:42", "models.m.source.path", 'unknown key (write factory: "nets.py:make")'),
    ),
    "key of another source": (
        GOOD.replace('"models.py:build"', '"models.py:build", uri: "models:/m/1"'),
        ("3:42", "models.m.source.uri", "unknown key (it is a key of kind: mlflow)"),
    ),
    "key of the model in its source": (
        GOOD.replace('"models.py:build"', '"models.py:build", examples: "models.py:examples"'),
        ("3:42", "models.m.source.examples", "unknown key (write it next to source:, not in it)"),
    ),
    "option of a pass next to its name": (
        GOOD + "    optimize: [{name: int8-dynamic, exclude: [conv]}]\n",
        (
            "6:37",
            "models.m.optimize[0].exclude",
            "unknown key (use one of name, options, gain; a pass has its options under options:)",
        ),
    ),
    "misspelled key of a pass": (
        GOOD + "    optimize: [{name: int8-dynamic, option: {}}]\n",
        ("6:37", "models.m.optimize[0].option", 'unknown key (did you mean "options"?)'),
    ),
    "key of several other sources": (
        GOOD.replace('"models.py:build"', '"models.py:build", path: weights'),
        (
            "3:42",
            "models.m.source.path",
            "unknown key (kind: torch does not have it; onnx and python and torch_export and torchscript do)",
        ),
    ),
    "unknown key in defaults": (
        "defaults:\n  paritty: {}\n" + GOOD,
        ("2:3", "defaults.paritty", 'unknown key (did you mean "parity"?)'),
    ),
    "bad value in defaults": (
        "defaults: {parity: {seed: yes}}\n" + GOOD,
        ("1:21", "defaults.parity.seed", "must be an integer >= 0, not true"),
    ),
    "no models": ("models: {}\n", ("1:1", "models", "needs at least one entry")),
    "models missing": (
        "repository: out\n",
        ("1:1", "", "models is missing (create one with `repogen init`)"),
    ),
    "model name": (
        GOOD.replace("  m:", "  a b:"),
        (
            "2:3",
            "models.a b",
            '"a b" is not a valid model name (letters, digits, _ and -, the first a letter or digit, at most 128)',
        ),
    ),
    "line break in an output": (
        GOOD + '    outputs: ["a\\nb"]\n',
        (
            "6:15",
            "models.m.outputs[0]",
            'must be a string of 1 to 256 printable characters, not "a\\nb"',
        ),
    ),
    "control character in an input": (
        GOOD.replace("x: {dtype", '"x\\e[2J": {dtype'),
        (
            "4:14",
            "models.m.inputs.x\\x1b[2J",
            "the key must be a string of 1 to 256 printable characters",
        ),
    ),
    "text that turns around": (
        GOOD + '    outputs: ["a\\u202eb"]\n',
        (
            "6:15",
            "models.m.outputs[0]",
            'must be a string of 1 to 256 printable characters, not "a\\u202eb"',
        ),
    ),
    "null model": ("models:\n  m:\n", ("2:3", "models.m", "must be a mapping, not null")),
    "source missing": (
        "models:\n  m:\n" + INPUTS,
        ("2:3", "models.m", 'source is missing (source: {factory: "models.py:build"})'),
    ),
    "boolean for auto or integer": (
        GOOD + "    triton: {max_batch_size: true}\n",
        ("6:14", "models.m.triton.max_batch_size", "must be auto or an integer >= 0, not true"),
    ),
    "float for integer": (
        GOOD + "    parity: {seed: 1.0}\n",
        ("6:14", "models.m.parity.seed", "must be an integer >= 0, not 1.0"),
    ),
    "boolean for integer": (
        GOOD + "    triton: {instance_group: [{count: on}]}\n",
        ("6:32", "models.m.triton.instance_group[0].count", "must be auto or an integer >= 1, not true"),
    ),
    "boolean for float": (
        GOOD + "    parity: {rtol: true}\n",
        ("6:14", "models.m.parity.rtol", "must be a number >= 0, not true"),
    ),
    "string for float": (
        GOOD + "    parity: {rtol: '1'}\n",
        ("6:14", "models.m.parity.rtol", 'must be a number >= 0, not "1"'),
    ),
    "integer for boolean": (
        GOOD + "    export: {external_data: 1}\n",
        ("6:14", "models.m.export.external_data", "must be true or false, not 1"),
    ),
    "boolean for string": (
        GOOD + "    outputs: [no]\n",
        ("6:15", "models.m.outputs[0]", "must be a string of 1 to 256 printable characters, not false"),
    ),
    "string for list": (GOOD + "    outputs: a\n", ("6:5", "models.m.outputs", 'must be a list, not "a"')),
    "list for mapping": (GOOD + "    limits: []\n", ("6:5", "models.m.limits", "must be a mapping, not a list")),
    "number for the target": (
        "target: 24.10\n" + GOOD,
        ("1:1", "target", 'must be a mapping, not 24.1 (write target: {triton: "24.10"})'),
    ),
    "boolean for dynamic batching": (
        GOOD + "    triton: {dynamic_batching: true}\n",
        ("6:14", "models.m.triton.dynamic_batching", "must be a mapping, not true (write dynamic_batching: {})"),
    ),
    "literal": (
        GOOD + "    export: {exporter: tensorrt}\n",
        (
            "6:14",
            "models.m.export.exporter",
            f'must be {EXPORTERS}, not "tensorrt"',
        ),
    ),
    "zero size": (
        GOOD.replace("4]", "0]"),
        ("4:49", "models.m.inputs.x.shape[1]", "must be an integer >= 1 or the name of a dim, not 0"),
    ),
    "range of three": (
        GOOD
        + "    defaults: {}\n    examples: models.py:e\n".replace("    defaults: {}\n", "")
        + "    parity: {seeds: 0}\n",
        ("7:14", "models.m.parity.seeds", "must be an integer from 1 to 100, not 0"),
    ),
    "release as a number": (
        "target: {triton: 24.10}\n" + GOOD,
        ("1:10", "target.triton", 'must be a release in quotes, such as "24.10", not 24.1'),
    ),
    "fp8": (
        GOOD.replace("float32", "float8_e4m3fn"),
        (
            "4:18",
            "models.m.inputs.x.dtype",
            (
                "float8_e4m3fn is not supported: repogen does not build models with FP8 or FP4 inputs and outputs"
                " (declare float32 or float16, and cast inside the model)"
            ),
        ),
    ),
    "dtype under another name": (
        GOOD.replace("float32", "FP32"),
        (
            "4:18",
            "models.m.inputs.x.dtype",
            (
                "must be one of bool, uint8, uint16, uint32, uint64, int8, int16, int32, int64, bfloat16, float16,"
                ' float32, float64, string, not "FP32" (did you mean "float32"?)'
            ),
        ),
    ),
}


@pytest.mark.parametrize(("text", "expected"), REFUSED.values(), ids=REFUSED)
def test_each_mistake_is_one_problem(text: str, expected: tuple[str, str, str], problems: Problems) -> None:
    """Each mistake gives exactly one problem with line, column, key path and message."""
    assert [expected] == problems(text)


def test_misspelled_section_is_one_problem(problems: Problems) -> None:
    """`dimz` is one problem, not one more per dim that then seems undeclared."""
    expected = [("5:5", "models.m.dimz", 'unknown key (did you mean "dims"?)')]
    assert expected == problems(GOOD.replace("dims", "dimz"))

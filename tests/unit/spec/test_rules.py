"""Well-formed but invalid specs, each with the position, key path and text of its problem."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from repogen.spec.load import load_spec
from repogen.spec.models import ModelSpec
from repogen.spec.problems import MAX_COMPARED, MAX_SHOWN
from repogen.spec.triton_rules import name_findings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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


def integer(extra: str = "", dtype: str = "int64") -> str:
    """Return a good spec whose input is an integer."""
    return GOOD.replace("dtype: float32,", f"dtype: {dtype}, {extra}")


def triton(text: str) -> str:
    """Return a good spec with a triton block."""
    return f"{GOOD}    triton: {{{text}}}\n"


REJECTED: dict[str, tuple[str, tuple[str, str, str]]] = {
    "misspelled callable": (
        GOOD.replace("models.py:build", "models.py:biuld"),
        ("3:14", "models.m.source.factory", 'models.py does not define "biuld" (did you mean "build"?)'),
    ),
    "misspelled dim": (
        GOOD.replace("[batch, 4]", "[bacth, 4]"),
        ("4:42", "models.m.inputs.x.shape[0]", '"bacth" is not declared in dims (did you mean "batch"?)'),
    ),
    "undeclared dim": (
        GOOD.replace("[batch, 4]", "[batch, length]"),
        ("4:49", "models.m.inputs.x.shape[1]", '"length" is not declared in dims (dims: {length: {min: 1, max: 32}})'),
    ),
    "unused dim": (
        GOOD.replace("max: 8}", "max: 8}, q: {max: 2}"),
        ("5:29", "models.m.dims.q", "no input's shape has this dim (remove it, or use it in a shape)"),
    ),
    "min above max": (
        GOOD.replace("max: 8", "min: 9, max: 8"),
        ("5:20", "models.m.dims.batch.min", "min 9 is above max 8"),
    ),
    "example outside": (
        GOOD.replace("max: 8", "max: 8, example: 9"),
        ("5:28", "models.m.dims.batch.example", "example 9 is not between min 1 and max 8"),
    ),
    "example of 1": (
        GOOD.replace("max: 8", "max: 8, example: 1"),
        ("5:28", "models.m.dims.batch.example", "must be an integer >= 2, not 1"),
    ),
    "dim of 1": (
        GOOD.replace("max: 8", "max: 1"),
        (
            "5:20",
            "models.m.dims.batch.max",
            "a dim that can only be 1 is not dynamic (write 1 in the shape instead)",
        ),
    ),
    "integer without values": (
        integer(),
        (
            "4:14",
            "models.m.inputs.x",
            (
                "int64 has neither range nor fill, and random integers may be invalid"
                " (write the values that the model accepts: range: [LOWEST, HIGHEST], both inclusive, or fill: ones)"
            ),
        ),
    ),
    "byte without values": (
        integer(dtype="uint8"),
        (
            "4:14",
            "models.m.inputs.x",
            (
                "uint8 has neither range nor fill, and random integers may be invalid"
                " (write the values that the model accepts: range: [0, 255], both inclusive, or fill: ones)"
            ),
        ),
    ),
    "range upside down": (
        integer("range: [5, 3],"),
        ("4:32", "models.m.inputs.x.range", "the lowest value 5 is above the highest 3"),
    ),
    "range of three": (
        integer("range: [1, 2, 3],"),
        ("4:32", "models.m.inputs.x.range", "must be two integers, [lowest, highest], not [1, 2, 3]"),
    ),
    "range beyond the dtype": (
        integer("range: [-1, 3],", "uint8"),
        ("4:32", "models.m.inputs.x.range", "exceeds the range of uint8, 0 to 255"),
    ),
    "range for a float": (
        integer("range: [0, 3],", "float32"),
        ("4:34", "models.m.inputs.x.range", "range is for integers, but this input is float32 (remove it)"),
    ),
    "range for a bool": (
        integer("range: [0, 1],", "bool"),
        ("4:31", "models.m.inputs.x.range", "range is for integers, but this input is bool (remove it)"),
    ),
    "range and fill": (
        integer("range: [0, 1], fill: ones,"),
        ("4:32", "models.m.inputs.x.range", "range and fill are mutually exclusive (keep one of the two)"),
    ),
    "neither inputs nor examples": (
        HEAD,
        ("2:3", "models.m", "has neither inputs nor examples (declare inputs: {name: {dtype: …, shape: […]}})"),
    ),
    "duplicate output": (GOOD + "    outputs: [a, a]\n", ("6:18", "models.m.outputs[1]", 'duplicate output "a"')),
    "output that is an input": (
        GOOD + "    outputs: [x]\n",
        ("6:15", "models.m.outputs[0]", '"x" is also an input (use another name for the output)'),
    ),
    "two version policies": (
        triton("version_policy: {all: true, latest: {}}"),
        (
            "6:14",
            "models.m.triton.version_policy",
            "needs exactly one of latest, all, specific, not latest and all (latest: {num_versions: 2})",
        ),
    ),
    "no version policy": (
        triton("version_policy: {}"),
        (
            "6:14",
            "models.m.triton.version_policy",
            "needs exactly one of latest, all, specific, not none (latest: {num_versions: 2})",
        ),
    ),
    "no specific version": (
        triton("version_policy: {specific: []}"),
        (
            "6:31",
            "models.m.triton.version_policy.specific",
            (
                "RG115: version_policy is specific without versions: no version is served, and the model does not load "
                "(list versions, or use latest)"
            ),
        ),
    ),
    "unknown release": (
        'target: {triton: "24.13"}\n' + GOOD,
        (
            "1:10",
            "target.triton",
            (
                '"24.13" is not a Triton release that this version of repogen supports'
                " (nearest: 24.12, newest: 26.08, oldest: 23.08)"
            ),
        ),
    ),
    "profiles of TensorRT before 24.04": (
        f'target: {{triton: "24.03"}}\n{triton("tensorrt: {}")}',
        (
            "7:14",
            "models.m.triton.tensorrt",
            (
                "models with dynamic dims require Triton 24.04 or later, and the target is 24.03 (change target.triton,"
                " or configure optimization.execution_accelerators instead)"
            ),
        ),
    ),
    "bfloat16 before 26.03": (
        GOOD.replace("float32", "bfloat16"),
        (
            "4:18",
            "models.m.inputs.x.dtype",
            (
                "Triton serves bfloat16 in release 26.03 and later, and the target is 24.10 (declare float32 or"
                " float16, and cast inside the model; or choose a newer target.triton)"
            ),
        ),
    ),
    "bfloat16 of Python code": (
        'target: {triton: "26.05"}\n'
        + GOOD.replace('factory: "models.py:build"', 'kind: python, path: "models.py"')
        + "    outputs: {y: {dtype: bfloat16, shape: [batch, 4]}}\n",
        (
            "7:19",
            "models.m.outputs.y.dtype",
            (
                "bfloat16 is supported for sources of kind torch and torchscript, not python"
                " (declare float32 or float16)"
            ),
        ),
    ),
    "opset above the target's": (
        GOOD + "    export: {opset: 22}\n",
        (
            "6:14",
            "models.m.export.opset",
            (
                "RG301: opset 22 is too new: Triton 24.10 (ONNX Runtime 1.19.2) supports up to 21"
                " (use auto, 21 or less, or a newer target.triton)"
            ),
        ),
    ),
    "opset below the exporters'": (
        GOOD + "    export: {opset: 6}\n",
        (
            "6:14",
            "models.m.export.opset",
            "opset 6 is older than PyTorch and ONNX Runtime support (use auto, or 7 or newer)",
        ),
    ),
    "preferred above max": (
        triton("max_batch_size: 4, dynamic_batching: {preferred_batch_size: [2, 8]}"),
        (
            "6:78",
            "models.m.triton.dynamic_batching.preferred_batch_size[1]",
            ("RG108: preferred_batch_size 8 is not between 1 and max_batch_size 4 (lower it, or raise max_batch_size)"),
        ),
    ),
    "dynamic batching without a batch": (
        triton("max_batch_size: 0, dynamic_batching: {}"),
        (
            "6:33",
            "models.m.triton.dynamic_batching",
            (
                "RG109: dynamic_batching has no effect because max_batch_size is 0"
                " (remove dynamic_batching, or raise max_batch_size if the model can batch)"
            ),
        ),
    ),
    "max_batch_size above the dim": (
        triton("max_batch_size: 9"),
        (
            "6:14",
            "models.m.triton.max_batch_size",
            "9 is above dims.batch.max, 8 (raise dims.batch.max, or lower it)",
        ),
    ),
    "batches from 2 up": (
        triton("max_batch_size: 8").replace("max: 8", "min: 2, max: 8"),
        (
            "6:14",
            "models.m.triton.max_batch_size",
            "dims.batch.min is 2, but Triton also sends batches of 1 (set dims.batch.min to 1, or max_batch_size to 0)",
        ),
    ),
    "fixed first axis": (
        triton("max_batch_size: 8").replace("[batch, 4]", "[4, batch]"),
        (
            "6:14",
            "models.m.triton.max_batch_size",
            (
                "8 requires axis 0 of every input to be the same dim, the batch"
                " (use 0, or write shape: [batch, …] and declare batch in dims)"
            ),
        ),
    ),
    "scalar input": (
        triton("max_batch_size: 8").replace("4]}", "4]}, s: {dtype: float32, shape: []}"),
        (
            "6:14",
            "models.m.triton.max_batch_size",
            (
                "8 requires axis 0 of every input to be the same dim, the batch"
                " (use 0, or write shape: [batch, …] and declare batch in dims)"
            ),
        ),
    ),
    "CPU with gpus": (
        triton("instance_group: [{kind: KIND_CPU, gpus: [0]}]"),
        (
            "6:48",
            "models.m.triton.instance_group[0].gpus",
            "RG110: an instance group of KIND_CPU has gpus [ 0 ] (use KIND_GPU, or remove gpus)",
        ),
    ),
    "duplicate instance group": (
        triton("instance_group: [{name: a}, {name: a}]"),
        (
            "6:43",
            "models.m.triton.instance_group[1].name",
            "RG112: several instance groups are named 'a' (use a unique name for each group)",
        ),
    ),
    "factory form": (
        GOOD.replace("models.py:build", "models.py"),
        (
            "3:14",
            "models.m.source.factory",
            (
                '"models.py" is neither file.py:callable nor package.module:callable'
                ' (for example "models.py:build", or "package.module:build")'
            ),
        ),
    ),
    "factory file": (
        GOOD.replace("models.py:build", "gone.py:build"),
        ("3:14", "models.m.source.factory", 'file "gone.py" does not exist (paths are relative to the spec)'),
    ),
    "weights file": (
        GOOD.replace('build"', 'build", weights: w.pt'),
        ("3:42", "models.m.source.weights", 'file "w.pt" does not exist (paths are relative to the spec)'),
    ),
    "examples form": (
        GOOD + "    examples: e.npy\n",
        (
            "6:5",
            "models.m.examples",
            (
                '"e.npy" is neither .npz nor .safetensors, nor file.py:callable '
                '(for example "examples.npz", or "models.py:examples")'
            ),
        ),
    ),
    "examples file": (
        GOOD + "    examples: e.npz\n",
        ("6:5", "models.m.examples", 'file "e.npz" does not exist (paths are relative to the spec)'),
    ),
    "tracer warning": (
        GOOD + "    export: {allow_tracer_warnings: [models.py]}\n",
        ("6:38", "models.m.export.allow_tracer_warnings[0]", "must be file.py:line"),
    ),
    "templates missing": (
        "templates: gone\n" + GOOD,
        ("1:1", "templates", 'directory "gone" does not exist (paths are relative to the spec)'),
    ),
    "repository that holds the spec": (
        "repository: .\n" + GOOD,
        (
            "1:1",
            "repository",
            (
                "contains the spec, and Triton would treat the directories next to the spec as models"
                " (use a separate directory: model_repository)"
            ),
        ),
    ),
    "repository inside the templates": (
        "repository: templates/out\ntemplates: templates\n" + GOOD,
        ("1:1", "repository", "and templates contain one another (use separate directories)"),
    ),
    "repository that is a file": (
        "repository: models.py\n" + GOOD,
        ("1:1", "repository", '"models.py" is a file, not a directory'),
    ),
}


@pytest.mark.parametrize(("text", "expected"), REJECTED.values(), ids=REJECTED)
def test_spec_is_rejected_at_its_position(text: str, expected: tuple[str, str, str], problems: Problems) -> None:
    """Each mistake gives exactly one problem with line and column, key path and text."""
    assert [expected] == problems(text)


def test_integers_beyond_int32_are_valid_where_the_key_allows_them(folder: Path) -> None:
    """Identifiers are often larger, and so is an hour in microseconds."""
    queue = "dynamic_batching: {default_queue_policy: {default_timeout_microseconds: 3600000000}}"
    text = f"{integer('range: [0, 1099511627776], ')}    triton: {{{queue}}}\n"
    (folder / "repogen.yaml").write_text(text)
    model = load_spec(folder / "repogen.yaml").models["m"]
    assert model.inputs["x"].range == (0, 1 << 40)
    batching = model.triton.dynamic_batching
    assert batching is not None
    assert batching.default_queue_policy is not None
    assert batching.default_queue_policy.default_timeout_microseconds == 3_600_000_000


@pytest.mark.parametrize("kind", ["onnx", "torch_export"])
def test_dims_of_inputs_that_the_spec_omits_are_valid_for_files(folder: Path, kind: str) -> None:
    """The file has the inputs; the spec names those that it narrows, and may narrow the dims of the others."""
    inputs = "inputs: {size: {dtype: int64, shape: [2], range: [6, 48]}}"
    (folder / "model.bin").write_bytes(b"")
    text = (
        f"models:\n  m:\n    source: {{kind: {kind}, path: model.bin}}\n    {inputs}\n    dims: {{batch: {{max: 4}}}}\n"
    )
    (folder / "repogen.yaml").write_text(text)
    assert load_spec(folder / "repogen.yaml").models["m"].dims["batch"].max == 4


def test_hints_of_a_large_spec_are_short(problems: Callable[[str | bytes], list[tuple[str, str, str]]]) -> None:
    """Each of thousands of wrong names listed thousands of valid ones: a spec of 1 MB needed 5 GB."""
    names = [f"{'n' * 100}{number}" for number in range(60)]
    inputs = ", ".join(f"{name}: {{dtype: float32, shape: []}}" for name in names)
    wrong = ", ".join(f"u{number}: {{}}" for number in range(220))
    model_text = f'{{source: {{factory: "models.py:build"}}, inputs: {{{inputs}}}, triton: {{input: {{{wrong}}}}}}}'
    text = f"models: {{m: {model_text}}}"
    model = ModelSpec.model_validate(yaml.safe_load(model_text))
    hints = [finding.hint for finding in name_findings(model)]
    assert max(map(len, hints)) < 20 * 110
    assert len(problems(text)) <= 2 * MAX_SHOWN


def test_names_are_compared_with_few_others(
    problems: Callable[[str | bytes], list[tuple[str, str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of wrong names were compared with thousands of valid ones, which took hours."""
    comparisons: list[int] = []
    compare = difflib.get_close_matches

    def counted(word: str, choices: list[str], **options: Any) -> list[str]:
        comparisons.append(len(choices))
        return compare(word, choices, **options)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    shape = ", ".join(f"x_{number}" for number in range(400))
    dims = ", ".join(f"dim_{number}: {{max: 4}}" for number in range(400))
    models = ", ".join(f'm{number}: {{source: {{factory: "models.py:build"}}}}' for number in range(100))
    steps = ", ".join(f"{{model: n{number}, inputs: {{a: b}}, outputs: {{a: c}}}}" for number in range(400))
    problems(
        f'models: {{m: {{source: {{factory: "models.py:build"}}, inputs: {{x: {{dtype: float32, shape: [{shape}]}}}}, '
        f"dims: {{{dims}}}}}, e: {{source: {{kind: ensemble, steps: [{steps}]}}}}, {models}}}"
    )
    assert sum(comparisons) < 1000 * MAX_COMPARED
    assert max(comparisons) <= MAX_COMPARED

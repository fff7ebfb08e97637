"""Tests for loading a torch module: evaluation mode, dims, inputs, outputs, and rejected models."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from repogen.artifacts.source import DimRange, Eager, Script, SourceModel
from repogen.errors import SourceError
from repogen.source.common.inputs import example_range
from repogen.source.load import load_source
from repogen.spec.models import DimSpec, ModelSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Load = Callable[..., SourceModel]

LINEAR = "def build(): return nn.Linear(4, 2).eval()\n"
TWO = """
    class Two(nn.Module):
        def forward(self, left, right):
            return 2 * left - right
    def build():
        return Two().eval()
"""
FLOATS = {"dtype": "float32", "shape": ["batch", 4]}


def returning(expression: str) -> str:
    """Return the code of a module whose forward returns an expression of ``x``."""
    return f"""
    class Net(nn.Module):
        def forward(self, x):
            return {expression}
    def build():
        return Net().eval()
"""


def rejected(load: Load, code: str, **spec: Any) -> SourceError:
    """Return the error for an invalid source."""
    with pytest.raises(SourceError) as caught:
        load(code, **spec)
    return caught.value


def run(source: SourceModel, **arrays: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Run the reference."""
    return dict(source.reference(arrays))


def test_module_signature(load: Load) -> None:
    """Inputs come from the spec, outputs from a run."""
    source = load(LINEAR)
    assert [(s.name, s.dtype, s.shape) for s in source.signature.inputs] == [("x", "float32", ("batch", 4))]
    assert [(s.name, s.dtype, s.shape) for s in source.signature.outputs] == [("output", "float32", (2, 2))]
    assert source.dims == {"batch": DimRange(1, 8, 2)}


def test_seed_determines_the_weights(load: Load) -> None:
    """parity.seed seeds a factory with random weights."""
    x = np.ones((1, 4), np.float32)
    first, second = (run(load(LINEAR), x=x)["output"] for _ in range(2))
    assert np.array_equal(first, second)


@pytest.mark.parametrize("order", [("left", "right"), ("right", "left")])
def test_inputs_named_like_parameters_are_passed_by_name(load: Load, order: tuple[str, str]) -> None:
    """The order in the spec does not matter."""
    source = load(TWO, inputs=dict.fromkeys(order, FLOATS))
    one = np.ones((1, 4), np.float32)
    assert run(source, left=one, right=0 * one)["output"].tolist() == [[2.0] * 4]


def test_other_inputs_are_passed_by_position(load: Load) -> None:
    """The order in the spec is the order of the parameters."""
    source = load(TWO, inputs={"a": FLOATS, "b": FLOATS})
    one = np.ones((1, 4), np.float32)
    assert run(source, a=one, b=0 * one)["output"].tolist() == [[2.0] * 4]


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (("left", "other"), "source.inputs-mixed"),
        (("left",), "source.inputs-missing"),
        (("a", "b", "c"), "source.inputs-count"),
        (("a",), "source.inputs-count"),
    ],
)
def test_inputs_that_do_not_match_forward_are_rejected(load: Load, names: tuple[str, ...], code: str) -> None:
    """Partly matching names, too few and too many inputs are errors with forward's parameters."""
    error = rejected(load, TWO, inputs=dict.fromkeys(names, FLOATS))
    assert error.code == code
    assert "forward(left, right)" in error.message


def test_inputs_of_a_forward_with_a_dict(load: Load) -> None:
    """The hint says how examples show its structure."""
    code = "class Net(nn.Module):\n    def forward(self, features): return features['a']\ndef build(): return Net()\n"
    error = rejected(load, code, inputs=dict.fromkeys(("a", "b"), FLOATS))
    assert error.code == "source.inputs-count"
    assert "if features is a dict or a list of tensors, examples: models.py:FUNCTION shows its structure" in error.hint
    assert "FUNCTION(batch) returns {'features': {'a': …}}" in error.hint


DICT = """\
class Net(nn.Module):
    def forward(self, batch): return 2 * batch["a"] + batch["b"]
def build(): return Net()
def examples(batch): return {"batch": {"a": torch.rand(batch, 4), "b": torch.rand(batch, 4)}}
"""


@pytest.mark.parametrize(
    ("names", "first"),
    [(("a", "b"), "a"), (("b", "a"), "a"), (("batch_b", "batch_a"), "batch_a"), (("left", "right"), "left")],
)
def test_inputs_of_a_dict_have_its_keys_or_other_names(load: Load, names: tuple[str, ...], first: str) -> None:
    """Keys in any order; other names in the order of the dict."""
    source = load(DICT, inputs=dict.fromkeys(names, FLOATS), examples="models.py:examples")
    one = np.ones((1, 4), np.float32)
    assert run(source, **{name: one if name == first else 0 * one for name in names})["output"].tolist() == [[2.0] * 4]


def test_inputs_that_match_a_dict_in_part_are_rejected(load: Load) -> None:
    """They may be misspelled."""
    error = rejected(load, DICT, inputs=dict.fromkeys(("b", "other"), FLOATS), examples="models.py:examples")
    assert (error.code, "batch_a, batch_b" in error.message) == ("source.inputs-mixed", True)


def test_random_initial_values_are_noted(load: Load) -> None:
    """The note names a parameter for which no trained values were loaded."""
    code = """
    def build():
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
        model.load_state_dict({"0.weight": torch.ones(4, 4), "0.bias": torch.ones(4)}, strict=False)
        return model.eval()
    """
    (note,) = load(code).notes
    assert note.startswith("2 of 4 parameters have random initial values, for example 1.weight: the factory did not")


def test_training_mode_is_fixed_with_a_note(load: Load) -> None:
    """The note names the affected layers."""
    source = load("def build(): return nn.Sequential(nn.Linear(4, 2), nn.Dropout())\n")
    assert isinstance(source.origin, Eager)
    assert not source.origin.module.training
    assert "the model was in training mode; repogen called model.eval(); this affects 1" in source.notes


def test_quantized_layers_are_not_in_training_mode(load: Load) -> None:
    """PyTorch does not switch the mode of those that it creates; they have one mode only."""
    code = """
    import torch.ao.nn.quantized as quantized
    def build():
        return nn.Sequential(nn.Linear(4, 2)).eval().append(quantized.Dropout())
    """
    assert not any("training mode" in note for note in load(code).notes)


def test_submodule_that_stays_in_training_mode_is_rejected(load: Load) -> None:
    """An overridden train() may ignore its argument."""
    code = """
    class Stuck(nn.Dropout):
        def train(self, mode=True):
            return self
    def build():
        return nn.Sequential(nn.Linear(4, 2), Stuck())
    """
    error = rejected(load, code)
    assert (error.code, error.message) == ("source.training-mode", "model.eval() leaves 1 in training mode")


@pytest.mark.parametrize(
    ("code", "expected", "words"),
    [
        ("def build(): return 42\n", "source.return-type", "returned int"),
        ("build = nn.Linear(4, 2)\n", "source.return-type", "is a module, not a function that returns one"),
        ("def build(): raise ValueError('no data')\n", "source.user-code", "ValueError: no data"),
        ("def build(): return nn.Linear(4, 2, device='meta')\n", "source.meta", "meta device"),
        ("def build(): return nn.LazyLinear(2)\n", "source.meta", "'weight' of a lazy module"),
        ("def build(size): return nn.Linear(4, size)\n", "source.kwargs", "missing a required argument: 'size'"),
    ],
)
def test_factory_that_returns_no_model_is_rejected(load: Load, code: str, expected: str, words: str) -> None:
    """The error describes the cause, and its location is not a line of repogen."""
    error = rejected(load, code)
    assert error.code == expected
    assert words in error.message
    assert error.where in {"", "models.py:3", "models.py:build"}


def test_factory_that_returns_weights_names_the_key_for_them(load: Load) -> None:
    """A state_dict is the content of a checkpoint, not a model."""
    error = rejected(load, "def build(): return nn.Linear(4, 2).state_dict()\n")
    assert "returned a state_dict" in error.message
    assert "source.weights" in error.hint


def test_misspelled_kwarg_shows_the_signature(load: Load) -> None:
    """The hint has the signature and the most similar parameter."""
    with pytest.raises(SourceError) as caught:
        load("def build(width=2): return nn.Linear(4, width)\n", source={"kwargs": {"widthh": 3}})
    assert caught.value.code == "source.kwargs"
    assert caught.value.hint == 'its signature is build(width=2); did you mean "width"?'


@pytest.mark.parametrize("module", ["nn.Embedding(10, 4)", "torch.jit.script(nn.Embedding(10, 4))"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit
def test_integer_outside_a_vocabulary_points_to_range(load: Load, module: str) -> None:
    """PyTorch only says that an index is out of range."""
    inputs = {"x": {"dtype": "int64", "shape": ["batch", 4], "range": [20, 20]}}
    error = rejected(load, f"def build(): return {module}\n", inputs=inputs)
    assert "lower the upper end of range: in the spec (largest values in this call: x: 20)" in error.hint


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("torch.zeros(32)[x]", "an integer input may exceed a table"),
        ("torch.zeros(32).take(x)", "an integer input may exceed a table"),
        ("torch.zeros(32).narrow(0, int(x[0, 0]), 2)", "an integer input may exceed a table"),
        ("x * x.shape[2]", "an input may have too few dims"),
        ("x.sum(dim=2)", "an input may have too few dims"),
        ("x[:, 0, 0]", "an input may have too few dims"),
        ("x * [1, 2][3]", "an input may have too few dims"),
    ],
)
def test_index_errors_have_the_hint_for_values_or_for_dims(load: Load, expression: str, hint: str) -> None:
    """Only some of them are about the values of integer inputs."""
    inputs = {"x": {"dtype": "int64", "shape": ["batch", 4], "range": [32, 32]}}
    assert rejected(load, returning(expression), inputs=inputs).hint.startswith(hint)


@pytest.mark.parametrize("expression", ["F.embedding(x, torch.zeros(10, 4))", "torch.zeros(10)[x]"])
def test_float_input_that_is_used_as_indices_is_named(load: Load, expression: str) -> None:
    """Another input, with the right dtype, and the weights are not the cause."""
    code = (
        "import torch.nn.functional as F\n\n\nclass Items(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.layer = nn.Linear(4, 4)\n\n"
        f"    def forward(self, ids, x):\n        return self.layer({expression}) + ids\n\n\n"
        "def build(): return Items().eval()\n"
    )
    inputs = {"ids": {"dtype": "int64", "shape": ["batch", 4], "range": [0, 3]}, "x": FLOATS}
    hint = rejected(load, code, inputs=inputs).hint
    assert hint.startswith("input x is float32: if it is used as indices, declare int64 and a range")


def test_wrong_number_of_arguments_points_to_the_parameters(load: Load) -> None:
    """A function that returns a list of examples, not the arguments of one call, is a common mistake."""
    several = "    def several():\n        return [(torch.ones(2, 4),), (torch.ones(3, 4),)]\n"
    code = returning("x") + several
    error = rejected(load, code, examples="models.py:several")
    assert error.code == "source.user-code"
    assert error.hint.startswith("the parameters of forward are (x): declare one input for each in inputs:, or return")


def test_forward_that_accepts_a_dict_points_to_examples(load: Load) -> None:
    """The declared inputs are tensors; examples can contain a dict of them."""
    assert "set examples: to a callable" in rejected(load, returning('x["image"]')).hint


def test_failing_forward_is_located(load: Load) -> None:
    """The error has the shapes of the inputs and the line of user code."""
    error = rejected(load, returning("x.reshape(3, 5)"))
    assert (error.code, error.where) == ("source.user-code", "models.py:6")
    assert "the inputs x [2, 4] float32" in error.message


def test_forward_that_exits_is_an_error(load: Load) -> None:
    """SystemExit in forward does not end the worker silently."""
    assert "called sys.exit" in rejected(load, returning("exit(3)")).message


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("x", ["output"]),
        ("(x, x + 1)", ["output_0", "output_1"]),
        ("{'logits': x, 'state': (x, None, x)}", ["logits", "state_output_0", "state_output_2"]),
    ],
)
def test_outputs_have_the_names_of_the_module(load: Load, expression: str, names: list[str]) -> None:
    """Dict keys are names, positions are numbered, None is omitted."""
    assert [s.name for s in load(returning(expression)).signature.outputs] == names


@pytest.mark.parametrize(
    ("module", "dtype", "weights"),
    [
        ("nn.Linear(4, 2)", "float16", "float32"),
        ("nn.Linear(4, 2).double()", "float32", "float64"),
        ("nn.Sequential(nn.Unflatten(1, (4, 1)), nn.Conv1d(4, 2, 1))", "float64", "float32"),
        ("nn.Linear(4, 2)", "int64", "float32"),
        ("torch.jit.script(nn.Linear(4, 2))", "float16", "float32"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit
def test_input_whose_dtype_is_not_that_of_the_weights_is_named(
    load: Load, module: str, dtype: str, weights: str
) -> None:
    """PyTorch's error names both dtypes, and not the input."""
    declared = {"dtype": dtype, "shape": ["batch", 4]} | ({"range": [0, 3]} if dtype == "int64" else {})
    error = rejected(load, f"def build():\n    return {module}.eval()\n", inputs={"x": declared})
    assert error.hint.startswith(f"input x is {dtype}, and the weights are {weights}: write their dtype in inputs:")


def test_error_that_is_not_about_dtypes_names_none(load: Load) -> None:
    """The dtypes of an input and of the weights may be different."""
    code = "def build():\n    return nn.Sequential(nn.Unflatten(1, (3, 1)), nn.Linear(4, 2)).eval()\n"
    error = rejected(load, code, inputs={"x": {**FLOATS, "dtype": "float64"}})
    assert "the weights" not in error.hint


@pytest.mark.parametrize("examples", ["x.npz", "models.py:examples"])
@pytest.mark.parametrize(("size", "is_named"), [("16", True), ("20", False)])
def test_batch_size_of_the_examples_in_forward_is_named(
    load: Load, root: Path, examples: str, size: str, *, is_named: bool
) -> None:
    """Forward is run with as many rows as the examples have if it fails with fewer."""
    np.savez(root / "x.npz", x=np.ones((16, 4), np.float32))
    code = returning(f"x.reshape({size}, 4)") + "    def examples():\n        return torch.ones(16, 4)\n"
    error = rejected(load, code, inputs={"x": FLOATS}, examples=examples, dims={"batch": {"max": 32}})
    assert error.code == "source.user-code"
    assert error.hint.startswith("forward works with 16 rows, as in the examples, and fails with 2: the") == is_named


def test_outputs_are_selected_by_name(load: Load) -> None:
    """The spec selects some of the module's names, in its own order."""
    source = load(returning("{'a': x, 'b': x + 1, 'c': x + 2}"), outputs=["c", "a"])
    result = run(source, x=np.zeros((1, 4), np.float32))
    assert {name: array[0, 0] for name, array in result.items()} == {"c": 2.0, "a": 0.0}


def test_outputs_are_renamed_in_order(load: Load) -> None:
    """One name per output renames them."""
    result = run(load(returning("(x, x + 1)"), outputs=["p", "q"]), x=np.zeros((1, 4), np.float32))
    assert {name: array[0, 0] for name, array in result.items()} == {"p": 0.0, "q": 1.0}


@pytest.mark.parametrize(
    ("expression", "spec", "expected", "words"),
    [
        ("(x, x)", {"outputs": ["p"]}, "source.outputs", "returns 2: output_0, shape [2, 4]; output_1, shape [2, 4]"),
        (
            "x",
            {"outputs": ["p", "q"]},
            "source.outputs",
            "names 2 outputs (p, q), but the model returns 1: output, shape",
        ),
        ("None", {}, "source.outputs", "returns no tensor"),
        ("{'a\\nb': x + 1}", {}, "source.name", "the tensor name 'a"),
        ("{'x': x + 1}", {}, "source.shared-name", "an output 'x'"),
        ("{'a_b': x, 'a': {'b': x}}", {}, "source.outputs", "the model returns outputs with the same name: a_b, shape"),
        ("'text'", {}, "source.outputs", "returns no tensor"),
        ("(x + 1, object())", {}, "source.output-type", "is of type object"),
        ("x.to(torch.complex64)", {}, "source.output-dtype", "is complex64"),
    ],
)
def test_outputs_that_triton_cannot_serve_are_rejected(
    load: Load, expression: str, spec: dict[str, Any], expected: str, words: str
) -> None:
    """Names, types and dtypes are checked before the export."""
    error = rejected(load, returning(expression), **spec)
    assert error.code == expected
    assert words in error.message
    assert error.hint
    assert error.where == ("outputs" if spec else "")


def test_in_place_forward_does_not_change_inputs_or_earlier_outputs(load: Load) -> None:
    """The reference works on copies, so that both sides of the parity check get the same inputs."""
    code = """
    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
        def forward(self, x):
            x.add_(1)
            return x
    def build():
        return InPlace().eval()
    """
    source = load(code)
    x = np.zeros((1, 4), np.float32)
    first = run(source, x=x)["output"]
    run(source, x=x + 1)
    assert np.array_equal(x, np.zeros((1, 4), np.float32))
    assert np.array_equal(first, np.ones((1, 4), np.float32))


def test_scalar_inputs_and_integer_outputs_are_supported(load: Load) -> None:
    """A 0-d input stays 0-d."""
    source = load(
        returning("x.to(torch.int64)"), inputs={"x": {"dtype": "int32", "shape": [], "range": [1, 5]}}, dims={}
    )
    result = run(source, x=np.array(3, np.int32))["output"]
    assert (result.shape, result.dtype, int(result)) == ((), np.dtype("int64"), 3)
    assert source.signature.outputs[0].shape == ()


@pytest.mark.parametrize(
    ("name", "spec", "excluded", "example"),
    [
        ("batch", {"max": 8}, (), 2),
        ("batch", {"max": 8}, (2,), 3),
        ("batch", {"min": 4, "max": 8}, (), 4),
        ("sequence", {"max": 128}, (), 16),
        ("sequence", {"max": 128}, (16, 17), 18),
        ("sequence", {"max": 3}, (3,), 2),
        ("sequence", {"max": 2}, (2,), 2),
        ("sequence", {"max": 128, "example": 64}, (64,), 64),
    ],
)
def test_example_sizes_are_within_bounds_distinct_and_never_one(
    name: str, spec: dict[str, int], excluded: tuple[int, ...], example: int
) -> None:
    """Sizes are equal only if the bounds leave no choice, or the spec sets them."""
    assert example_range(name, DimSpec.model_validate(spec), frozenset(excluded)).example == example


def test_dim_with_maximum_one_is_rejected() -> None:
    """Such a dim is not dynamic."""
    with pytest.raises(SourceError, match="has max 1"):
        example_range("batch", DimSpec(max=1), frozenset())


def test_inputs_are_derived_from_two_sizes_of_each_dim(load: Load) -> None:
    """Without inputs:, the axes that change with the batch or a declared dim are dynamic."""
    code = returning("x.sum()") + (
        "    def examples(batch, time):\n"
        "        import numpy as np\n"
        "        return {'x': np.ones((batch, 3, time), np.float32)}\n"
    )
    source = load(code, examples="models.py:examples", dims={"time": {"max": 16}})
    assert [(s.name, s.dtype, s.shape) for s in source.signature.inputs] == [("x", "float32", ("batch", 3, "time"))]
    assert source.dims == {"time": DimRange(1, 16, 16), "batch": DimRange(1, 32, 2)}


def test_examples_of_one_shape_have_no_dims(load: Load) -> None:
    """A callable that always returns the same shape results in fixed dims."""
    code = returning("x") + "    def examples():\n        return {'x': [[1.0, 2.0]]}\n"
    source = load(code, examples="models.py:examples")
    assert (source.signature.inputs[0].shape, source.dims) == ((1, 2), {})


@pytest.mark.parametrize(
    ("body", "dims", "code", "words"),
    [
        ("{'x': torch.ones(batch, 4)}", {"time": {"max": 9}}, "source.dim-unused", "changes with dim 'time'"),
        ("{'x': torch.ones(*[4] * batch)}", {}, "source.examples-fit", "a different rank"),
        ("[1, 2]", {}, "source.examples-type", "a value of type list that contains no tensor"),
        ("{'x': {'y': object()}}", {}, "source.examples-type", "a value of type object for x_y"),
        ("{'x': __import__('numpy').array(['text'] * batch)}", {}, "source.dtype", "example 'x' has dtype"),
        ("1 / 0", {}, "source.user-code", "ZeroDivisionError"),
    ],
)
def test_invalid_examples_are_rejected(load: Load, body: str, dims: dict[str, Any], code: str, words: str) -> None:
    """Each error has a specific message."""
    error = rejected(
        load,
        returning("x") + f"    def examples(batch):\n        return {body}\n",
        examples="models.py:examples",
        dims=dims,
    )
    assert error.code == code
    assert words in error.message


def test_npz_defines_inputs_and_values(load: Load, root: Path) -> None:
    """Without declarations, the shapes of the stored arrays are fixed."""
    np.savez(root / "examples.npz", x=np.arange(8, dtype=np.float32).reshape(2, 4))
    source = load(LINEAR, examples="examples.npz")
    assert source.signature.inputs[0].shape == (2, 4)
    assert np.array_equal(source.examples({}, 0)["x"], np.arange(8, dtype=np.float32).reshape(2, 4))


def test_wrong_size_is_reported_without_a_line_of_pytorch(load: Callable[..., SourceModel]) -> None:
    """The model is a PyTorch layer, so no line of user code is involved."""
    with pytest.raises(SourceError) as caught:
        load("def build(): return nn.Linear(8, 2)")
    assert "failed on the inputs x [2, 4] float32: RuntimeError" in caught.value.message
    assert caught.value.where == ""


def test_notes_about_weights_and_eval_are_both_reported(load: Callable[..., SourceModel], root: Path) -> None:
    """Half-precision weights, and a factory that does not call eval()."""
    torch.save(torch.nn.Linear(4, 2).half().state_dict(), root / "w.pt")
    notes = load("def build(): return nn.Linear(4, 2)", source={"weights": "w.pt"}).notes
    assert ["float16" in notes[0], "model.eval()" in notes[1]] == [True, True]


def test_example_sizes_adapt_to_the_model(load: Load) -> None:
    """If the spec leaves them open and the model accepts only multiples."""
    inputs = {"x": {"dtype": "float32", "shape": ["batch", "height", "width"]}}
    bounds = {"min": 32, "max": 256}
    code = returning("x.reshape(x.shape[0], -1, 32, x.shape[2] // 32, 32).sum((2, 4))")
    source = load(code, inputs=inputs, dims={"batch": {"max": 4}, "height": bounds, "width": bounds})
    assert sorted((source.dims["height"].example, source.dims["width"].example)) == [32, 64]
    error = rejected(
        load, code, inputs=inputs, dims={"batch": {"max": 4}, "height": {**bounds, "example": 40}, "width": bounds}
    )
    assert error.code == "source.user-code"


def test_derived_axis_is_rejected(load: Load) -> None:
    """An axis of twice the batch cannot be declared."""
    code = """
    class Net(nn.Module):
        def forward(self, x, y):
            return x + y.reshape(-1, 2, 4).sum(1)
    def build():
        return Net()
    def examples(batch):
        return torch.randn(batch, 4), torch.randn(2 * batch, 4)
    """
    error = rejected(load, code, examples="models.py:examples")
    assert error.code == "source.derived-dim"
    assert "axis 0 of 'y'" in error.message
    assert "is 4 where batch is 2, and 6 where it is 3" in error.message


def test_bfloat16_examples_become_float32(load: Load) -> None:
    """As weights do, unless inputs: declares bfloat16."""
    code = """
        def build():
            return nn.Linear(4, 2)

        def examples(batch):
            return torch.ones(batch, 4, dtype=torch.bfloat16)
    """
    source = load(code, examples="models.py:examples")
    assert [spec.dtype for spec in source.signature.inputs] == ["float32"]


def test_declared_bfloat16_input_is_rounded(load: Load) -> None:
    """Examples and the reference have the values that BF16 holds, in float32; the module computes in float32."""
    inputs = {"x": {"dtype": "bfloat16", "shape": ["batch", 4]}}
    source = load(returning("(x * 3, (x * 3).to(torch.bfloat16))"), inputs=inputs, outputs=["p", "q"])
    assert [spec.dtype for spec in (*source.signature.inputs, *source.signature.outputs)] == [
        "bfloat16",
        "float32",
        "bfloat16",
    ]
    assert source.notes == ("BF16 inputs are cast to float32, because the model computes in float32: x",)
    example = source.examples({"batch": 3}, 0)["x"]
    assert example.dtype == np.float32
    assert np.array_equal(example, torch.from_numpy(example).bfloat16().float().numpy())
    third = np.full((1, 4), 1 / 3, np.float32)
    result = run(source, x=third)
    assert (result["p"].dtype, result["p"][0, 0]) == (np.float32, np.float32(0.333984375 * 3))
    assert (result["q"].dtype, result["q"][0, 0]) == (np.float32, 1.0)


def test_error_after_a_retry_replaces_the_first(load: Load) -> None:
    """Forward accepts multiples of 8 only; at those, what remains is an output with an input's name."""
    code = """
        class Windows(nn.Module):
            def forward(self, x):
                return {"x": x.reshape(x.shape[0], -1, 8).sum(2), "y": x[:, 0]}

        def build():
            return Windows()
    """
    inputs = {"x": {"dtype": "float32", "shape": ["batch", "time"]}}
    with pytest.raises(SourceError) as caught:
        load(code, inputs=inputs, dims={"batch": {"max": 4}, "time": {"min": 17, "max": 64}})
    assert caught.value.code == "source.shared-name"
    assert caught.value.hint == "rename the outputs: outputs: [x_output, y]"


def test_weights_of_any_name_are_identified_by_their_content(load: Load, root: Path) -> None:
    """A checkpoint named ``.ckpt`` does not invalidate the whole spec."""
    torch.save({"state_dict": torch.nn.Linear(4, 2).state_dict()}, root / "epoch-3.ckpt")
    code = """
        def build():
            return nn.Linear(4, 2)
    """
    assert load(code, source={"weights": "epoch-3.ckpt"}).signature.outputs[0].shape == (2, 2)


class CastsToBfloat16(nn.Module):
    """Has weights in bfloat16, and casts its input to them."""

    def __init__(self) -> None:
        """Create the layer."""
        super().__init__()
        self.linear = nn.Linear(4, 2).to(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute in bfloat16."""
        y: torch.Tensor = self.linear(x.to(torch.bfloat16))
        return y.float()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit
@pytest.mark.parametrize("kind", ["torchscript", "mlflow"])
def test_weights_that_forward_uses_in_bfloat16_keep_it(root: Path, kind: str) -> None:
    """A cast to float32 would not fit to the input; the graph is computed in float32 later."""
    module = CastsToBfloat16().eval()
    spec = {"inputs": {"x": {"dtype": "float32", "shape": ["batch", 4]}}, "dims": {"batch": {"max": 8}}}
    if kind == "torchscript":
        script: Any = torch.jit.script(module)
        torch.jit.save(script, root / "model.pt")
        source = load_source(ModelSpec.model_validate({"source": {"kind": kind, "path": "model.pt"}, **spec}), root)
    else:
        (root / "MLmodel").write_text("flavors: {pytorch: {model_data: data}}")
        (root / "data").mkdir()
        torch.save(module, root / "data" / "model.pth")
        options = {"kind": kind, "uri": "models:/tiny/3", "trust_pickle": True}
        source = load_source(ModelSpec.model_validate({"source": options, **spec}), root, root)
    assert source.precision == "bfloat16"
    x = np.ones((1, 4), np.float32)
    assert run(source, x=x)["output"] == pytest.approx(module(torch.as_tensor(x)).detach().numpy())


class FixedRows(nn.Module):
    """Has the batch size of its trace in the graph."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Flatten each row."""
        return x.reshape(int(x.shape[0]), -1)


@pytest.mark.filterwarnings("ignore")  # of torch.jit
def test_error_of_an_archive_with_a_fixed_batch_size_is_torchs_own(root: Path) -> None:
    """It follows a long traceback of TorchScript, which is in the details."""
    script: Any = torch.jit.trace(FixedRows(), torch.rand(4, 3, 1))  # type: ignore[no-untyped-call] # as torch declares it
    torch.jit.save(script, root / "model.pt")
    inputs = {"x": {"dtype": "float32", "shape": ["batch", 3, 1]}}
    spec = {"source": {"kind": "torchscript", "path": "model.pt"}, "inputs": inputs, "dims": {"batch": {"max": 8}}}
    with pytest.raises(SourceError) as caught:
        load_source(ModelSpec.model_validate(spec), root)
    assert caught.value.message == (
        "the model's forward failed on the inputs x [2, 3, 1] float32: RuntimeError: shape '[4, -1]' is invalid for "
        "input of size 6"
    )
    assert "trace it again" in caught.value.hint
    assert "Traceback of TorchScript" in caught.value.details


class Smoothed(nn.Module):
    """Returns a dict."""

    def forward(self, result: torch.Tensor) -> dict[str, torch.Tensor]:
        """Append one value for each step."""
        levels = [result[:, 0]]
        for step in range(1, result.size(1)):
            levels.append((levels[-1] + result[:, step]) / 2)
        return {"level's": torch.stack(levels, 1), "last": levels[-1]}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit
def test_script_that_returns_a_dict(root: Path) -> None:
    """The exporter, which has no dicts, gets a module that returns the values."""
    script: Any = torch.jit.script(Smoothed())
    torch.jit.save(script, root / "model.pt")
    source = load_source(
        ModelSpec.model_validate(
            {
                "source": {"kind": "torchscript", "path": "model.pt"},
                "inputs": {"result": {"dtype": "float32", "shape": ["batch", 4]}},
                "dims": {"batch": {"max": 8}},
                "outputs": ["levels", "last"],
            }
        ),
        root,
    )
    x = torch.rand(3, 4)
    assert isinstance(source.origin, Script)
    values = source.origin.module(x)
    assert all(torch.equal(value, expected) for value, expected in zip(values, script(x).values(), strict=True))


class EarlyExit(torch.nn.Module):
    """Returns a dict in each branch."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Double or halve the input."""
        if bool(x.sum() > 0):
            return {"y": x * 2, "z": x + 1}
        return {"y": x / 2, "z": x}


@pytest.mark.filterwarnings("ignore")  # of torch.jit and torch.onnx
def test_script_that_returns_a_dict_in_each_branch(root: Path) -> None:
    """The values become outputs of the branches, so the exporter writes an If."""
    script: Any = torch.jit.script(EarlyExit())
    torch.jit.save(script, root / "model.pt")
    inputs = {"x": {"dtype": "float32", "shape": ["batch", 4]}}
    model = {"source": {"kind": "torchscript", "path": "model.pt"}, "inputs": inputs, "dims": {"batch": {"max": 8}}}
    source = load_source(ModelSpec.model_validate(model), root)
    assert isinstance(source.origin, Script)
    assert [output.name for output in source.signature.outputs] == ["y", "z"]
    content, x = io.BytesIO(), torch.ones(3, 4)
    torch.onnx.export(source.origin.module, (x,), content, dynamo=False, opset_version=20)  # type: ignore[arg-type] # buffers work
    assert {node.op_type for node in onnx.load_model_from_string(content.getvalue()).graph.node} >= {"If"}
    for tensor in (x, -x):
        expected = script(tensor).values()
        assert all(torch.equal(a, b) for a, b in zip(source.origin.module(tensor), expected, strict=True))


@pytest.mark.parametrize(
    ("expression", "rows", "outputs"),
    [
        ("[x[i] for i in range(x.shape[0])]", 5, []),
        ("[x[i] for i in range(x.shape[0])]", 1, []),
        ("{'a': x, 'b': x + 1} if x.shape[0] < 4 else {'b': x + 1, 'a': x}", 5, []),
        ("{'a': x, 'b': x + 1} if x.shape[0] < 4 else {'b': x + 1, 'a': x}", 5, ["b"]),
    ],
)
def test_other_outputs_at_another_size_are_rejected(load: Load, expression: str, rows: int, outputs: list[str]) -> None:
    """More outputs than at the example size, fewer, or others at the same place."""
    source = load(returning(expression), dims={"batch": {"max": 8, "example": 2}}, outputs=outputs)
    with pytest.raises(SourceError, match="at this size") as caught:
        run(source, x=np.zeros((rows, 4), np.float32))
    assert caught.value.code == "source.outputs"


def test_unselected_outputs_may_change_with_the_size(load: Load) -> None:
    """The selected output has the same name and place."""
    code = returning("{'a': x, **{f'row_{i}': x[i] for i in range(x.shape[0])}}")
    source = load(code, dims={"batch": {"max": 8, "example": 2}}, outputs=["a"])
    assert list(run(source, x=np.zeros((5, 4), np.float32))) == ["a"]

"""Tests for example inputs: random values by seed, and user data cut or repeated to size."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from repogen.artifacts.tensors import Array, TensorSpec
from repogen.errors import SourceError
from repogen.source.common.examples import CalledExamples, DrawnExamples, ExamplesFunction, StoredExamples, load_data
from repogen.source.common.inputs import find_inputs
from repogen.spec.models import InputSpec, ModelSpec

ROWS = (TensorSpec("x", "float32", ("batch", 2)),)


def random_examples(**inputs: dict[str, object]) -> DrawnExamples:
    """Return random examples for these inputs."""
    return DrawnExamples({name: InputSpec.model_validate(spec) for name, spec in inputs.items()})


def test_seed_determines_the_arrays() -> None:
    """The same seed gives the same arrays, another seed gives others."""
    examples = random_examples(x={"dtype": "float32", "shape": ["batch", 3]})
    first, again, other = (examples({"batch": 2}, seed)["x"] for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_inputs_with_the_same_declaration_differ() -> None:
    """Each input has its own random stream, so that swapped inputs are detected."""
    same: dict[str, object] = {"dtype": "float32", "shape": [4]}
    arrays = random_examples(a=same, b=same)({}, 0)
    assert not np.array_equal(arrays["a"], arrays["b"])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bool"])
@pytest.mark.parametrize("shape", [[], ["n"], [2, "n", 3]])
def test_floats_and_booleans_need_no_range(dtype: str, shape: list[int | str]) -> None:
    """Dtype and shape are as declared, also for scalars."""
    array = random_examples(x={"dtype": dtype, "shape": shape})({"n": 5}, 0)["x"]
    assert (array.dtype, array.shape) == (np.dtype(dtype), tuple(5 if d == "n" else d for d in shape))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_integers_are_within_their_inclusive_range(dtype: str) -> None:
    """Both ends are drawn."""
    array = random_examples(x={"dtype": dtype, "shape": [200], "range": [3, 5]})({}, 0)["x"]
    assert (array.dtype, sorted(set(array.tolist()))) == (np.dtype(dtype), [3, 4, 5])


@pytest.mark.parametrize("seed", range(3))
def test_both_ends_of_a_range_are_used(seed: int) -> None:
    """A table of the model with one row too few would otherwise be found by chance."""
    array = random_examples(x={"dtype": "int64", "shape": ["batch", 2], "range": [-1, 10**12]})({"batch": 4}, seed)["x"]
    assert {-1, 10**12} < set(array.flat)


def test_upper_end_of_a_range_is_used_in_small_inputs() -> None:
    """For even seeds, of which one is the default; the lower end is often padding."""
    examples = random_examples(x={"dtype": "int64", "shape": ["batch"], "range": [0, 10**12]})
    largest = [max(examples({"batch": batch}, seed)["x"]) for batch in (1, 2, 7) for seed in (0, 1)]
    assert [value == 10**12 for value in largest] == [True, False] * 3


@pytest.mark.parametrize(
    ("forward", "names", "similar"),
    [
        ("lambda image: 0", ["image"], {}),
        ("lambda image: 0", ["imgae"], {"imgae": "image"}),
        ("lambda input: 0", ["x"], {}),
        ("lambda a, mask=None: 0", ["x", "masks"], {"masks": "mask"}),
        ("lambda *parts: 0", ["x", "y"], {}),
    ],
)
def test_misspelled_input_is_reported(forward: str, names: list[str], similar: dict[str, str], tmp_path: Path) -> None:
    """It is passed by position and published under its name."""
    inputs = {name: {"dtype": "float32", "shape": [2]} for name in names}
    model = ModelSpec.model_validate({"source": {"factory": "m.py:build"}, "inputs": inputs})
    notes = find_inputs(model, tmp_path, inspect.signature(eval(forward)).parameters).notes  # noqa: S307 - test data
    assert notes == tuple(
        f"forward has no parameter '{name}', so the input is passed by position (did you mean '{parameter}'?)"
        for name, parameter in similar.items()
    )


@pytest.mark.parametrize(
    ("dims", "listed"),
    [({}, "batch 1 to 32, x_axis1 4 to 6"), ({"batch"}, "x_axis1 4 to 6"), ({"batch", "x_axis1"}, "")],
)
def test_note_on_derived_dims_has_those_that_the_spec_does_not_set(dims: set[str], listed: str, tmp_path: Path) -> None:
    """Bounds that the spec sets are not derived."""
    for name, size in (("a.npz", 4), ("b.npz", 6)):
        np.savez(tmp_path / name, x=np.ones((size - 2, size), np.float32))
    document = {"source": {"factory": "m.py:build"}, "examples": ["a.npz", "b.npz"]}
    model = ModelSpec.model_validate({**document, "dims": {name: {"min": 1, "max": 8} for name in dims}})
    notes = find_inputs(model, tmp_path, inspect.signature(lambda x: x).parameters).notes
    expected = f"dims derived by comparing examples of two sizes: {listed} (set other bounds with dims:)"
    assert notes == ((expected,) if listed else ())


def test_fill_is_constant() -> None:
    """``fill: ones`` and ``fill: zeros`` need no range."""
    arrays = random_examples(
        mask={"dtype": "int64", "shape": [2], "fill": "ones"}, bias={"dtype": "float32", "shape": [2], "fill": "zeros"}
    )({}, 0)
    assert (arrays["mask"].tolist(), arrays["bias"].tolist()) == ([1, 1], [0.0, 0.0])


def test_integer_without_range_or_fill_is_rejected() -> None:
    """There is no safe default for integers."""
    with pytest.raises(SourceError, match="neither range nor fill"):
        random_examples(x={"dtype": "int64", "shape": [2]})({}, 0)


def test_stored_rows_are_cut_repeated_and_rolled() -> None:
    """Three rows are enough for any batch; the seed rolls them."""
    rows: dict[str, Array] = {"x": np.array([[0, 0], [1, 1], [2, 2]], np.float32)}
    examples = StoredExamples((rows,), "e.npz", ROWS)
    assert examples({"batch": 5}, 0)["x"][:, 0].tolist() == [0, 1, 2, 0, 1]
    assert examples({"batch": 2}, 1)["x"][:, 0].tolist() == [2, 0]


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((2, 2)), "'x' is float64, declared float32"),
        (np.zeros((2, 3), np.float32), "'x' has shape [4, 3], declared ['batch', 2]"),
        (np.zeros(2, np.float32), "'x' has shape [2], declared ['batch', 2]"),
    ],
)
def test_stored_arrays_of_another_type_or_shape_are_rejected(array: Array, words: str) -> None:
    """The message has the actual and the declared value."""
    with pytest.raises(SourceError) as caught:
        StoredExamples(({"x": array},), "e.npz", ROWS)({"batch": 4}, 0)
    assert words in caught.value.message


def test_missing_array_is_reported_with_existing_names() -> None:
    """The existing names help to find a typo."""
    with pytest.raises(SourceError, match=r"'x' is missing \(the examples have y\)"):
        StoredExamples(({"y": np.zeros(1)},), "e.npz", ROWS)({"batch": 4}, 0)


@pytest.mark.parametrize("parameters", ["batch", "n", "*, batch, seed", "**sizes", "batch=1"])
def test_callable_receives_its_parameters(parameters: str) -> None:
    """Sizes are passed by name, by position if the name is unknown, or all of them to ``**sizes``."""
    names: dict[str, object] = {"np": np}
    size = {"n": "n", "**sizes": "sizes['batch']"}.get(parameters, "batch")
    exec(f"def create({parameters}): return {{'x': np.ones(({size}, 2), np.float32)}}", names)  # noqa: S102 - signatures are the subject
    function = names["create"]
    assert callable(function)
    examples = ExamplesFunction(function, "m.py:create", Path(), {})
    arrays = CalledExamples(examples, ROWS, "batch")({"batch": 3}, 7)
    assert arrays["x"].shape == (3, 2)


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04 cut off"])
def test_invalid_npz_is_rejected(tmp_path: Path, content: bytes) -> None:
    """Empty, truncated and other files give the same error, without the directory."""
    path = tmp_path / "e.npz"
    path.write_bytes(content)
    with pytest.raises(SourceError) as caught:
        load_data(path)
    assert caught.value.code == "source.npz"
    assert str(tmp_path) not in caught.value.message


def test_pickled_objects_in_an_npz_are_not_loaded(tmp_path: Path) -> None:
    """An object array would need pickle."""
    np.savez(tmp_path / "e.npz", x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(SourceError, match=r"e\.npz cannot be read"):
        load_data(tmp_path / "e.npz")


def test_bfloat16_in_a_file_becomes_float32(tmp_path: Path) -> None:
    """NumPy has no such dtype."""
    save_file({"x": torch.ones(2, 4, dtype=torch.bfloat16)}, tmp_path / "e.safetensors")
    assert load_data(tmp_path / "e.safetensors")["x"].dtype == np.float32


def test_safetensors_with_more_dims_than_numpy_supports(tmp_path: Path) -> None:
    """The format itself has no limit."""
    header = json.dumps({"x": {"dtype": "F32", "shape": [1] * 70, "data_offsets": [0, 4]}}).encode()
    (tmp_path / "e.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(SourceError, match=r"e\.safetensors cannot be read") as caught:
        load_data(tmp_path / "e.safetensors")
    assert caught.value.code == "source.safetensors"


def test_parameters_that_are_not_dims_are_named() -> None:
    """The hint declares them."""

    def create(batch: int, steps: int, width: int = 2) -> Array:
        return np.zeros((batch, steps, width), np.float32)

    examples = ExamplesFunction(create, "m.py:create", Path(), {})
    with pytest.raises(SourceError, match="parameters that are not dims of the spec: steps") as caught:
        examples.call({"batch": 2}, "batch", 0)
    assert caught.value.code == "source.examples-parameter"
    assert "dims: {steps: {min: 1, max: 64}}" in caught.value.hint


def test_message_about_many_missing_examples_is_short() -> None:
    """Each of thousands of missing inputs listed thousands of arrays: gigabytes for a file of 1 MB."""
    arrays = {f"array{number}": np.zeros(1, np.float32) for number in range(200)}
    inputs = tuple(TensorSpec(f"x{number}", "float32", (1,)) for number in range(200))
    with pytest.raises(SourceError, match=r"x0.* is missing \(the examples have array0, array1") as caught:
        StoredExamples((arrays,), "examples.npz", inputs)({}, 0)
    assert len(caught.value.message) < 10_000

"""Example inputs: seeded, distinct, of the declared sizes, or the user's own fitted to them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from repogen.artifacts.tensors import Array, TensorSpec
from repogen.errors import SourceError
from repogen.source.common.examples import CalledExamples, DrawnExamples, MadeExamples, StoredExamples, load_data
from repogen.spec.models import InputSpec

ROWS = (TensorSpec("x", "float32", ("batch", 2)),)


def drawn(**inputs: dict[str, object]) -> DrawnExamples:
    """Return examples drawn for these inputs."""
    return DrawnExamples({name: InputSpec.model_validate(spec) for name, spec in inputs.items()})


def test_a_seed_gives_the_same_arrays_and_another_seed_others() -> None:
    """Examples are reproducible, and not constant."""
    examples = drawn(x={"dtype": "float32", "shape": ["batch", 3]})
    first, again, other = (examples({"batch": 2}, seed)["x"] for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_two_inputs_of_one_declaration_differ() -> None:
    """Each input has a stream of its own: swapped inputs must be seen."""
    same: dict[str, object] = {"dtype": "float32", "shape": [4]}
    arrays = drawn(a=same, b=same)({}, 0)
    assert not np.array_equal(arrays["a"], arrays["b"])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bool"])
@pytest.mark.parametrize("shape", [[], ["n"], [2, "n", 3]])
def test_floats_and_booleans_need_no_range(dtype: str, shape: list[int | str]) -> None:
    """Dtype and shape are the declared ones, scalars included."""
    array = drawn(x={"dtype": dtype, "shape": shape})({"n": 5}, 0)["x"]
    assert (array.dtype, array.shape) == (np.dtype(dtype), tuple(5 if d == "n" else d for d in shape))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_integers_stay_within_their_inclusive_range(dtype: str) -> None:
    """Both ends are drawn."""
    array = drawn(x={"dtype": dtype, "shape": [200], "range": [3, 5]})({}, 0)["x"]
    assert (array.dtype, sorted(set(array.tolist()))) == (np.dtype(dtype), [3, 4, 5])


def test_a_fill_is_constant() -> None:
    """``fill: ones`` and ``fill: zeros``, with no range."""
    arrays = drawn(
        mask={"dtype": "int64", "shape": [2], "fill": "ones"}, bias={"dtype": "float32", "shape": [2], "fill": "zeros"}
    )({}, 0)
    assert (arrays["mask"].tolist(), arrays["bias"].tolist()) == ([1, 1], [0.0, 0.0])


def test_an_integer_with_neither_range_nor_fill_is_refused() -> None:
    """No random integer is safe to try."""
    with pytest.raises(SourceError, match="neither range nor fill"):
        drawn(x={"dtype": "int64", "shape": [2]})({}, 0)


def test_stored_rows_are_cut_repeated_and_rolled_by_the_seed() -> None:
    """Three stored rows serve any batch; another seed starts elsewhere."""
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
def test_stored_arrays_of_another_type_or_shape_are_refused(array: Array, words: str) -> None:
    """The message has both sides."""
    with pytest.raises(SourceError) as caught:
        StoredExamples(({"x": array},), "e.npz", ROWS)({"batch": 4}, 0)
    assert words in caught.value.message


def test_a_missing_array_is_named_with_those_there_are() -> None:
    """The names there are help to see the typo."""
    with pytest.raises(SourceError, match=r"'x' is missing \(there are: y\)"):
        StoredExamples(({"y": np.zeros(1)},), "e.npz", ROWS)({"batch": 4}, 0)


@pytest.mark.parametrize("parameters", ["batch", "n", "*, batch, seed", "**sizes", "batch=1"])
def test_a_callable_is_told_what_it_asks_for(parameters: str) -> None:
    """By name, by position when the name is its own, or everything."""
    names: dict[str, object] = {"np": np}
    size = {"n": "n", "**sizes": "sizes['batch']"}.get(parameters, "batch")
    exec(f"def made({parameters}): return {{'x': np.ones(({size}, 2), np.float32)}}", names)  # noqa: S102 - signatures are the subject
    function = names["made"]
    assert callable(function)
    made = MadeExamples(function, "m.py:made", Path(), {})
    arrays = CalledExamples(made, ROWS, "batch")({"batch": 3}, 7)
    assert arrays["x"].shape == (3, 2)


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04 cut off"])
def test_what_is_no_npz_is_refused_without_its_directory(tmp_path: Path, content: bytes) -> None:
    """Empty, foreign and cut files are one clear error."""
    path = tmp_path / "e.npz"
    path.write_bytes(content)
    with pytest.raises(SourceError) as caught:
        load_data(path)
    assert caught.value.code == "source.npz"
    assert str(tmp_path) not in caught.value.message


def test_pickled_objects_in_an_npz_are_not_loaded(tmp_path: Path) -> None:
    """No pickle, whatever the user's data."""
    np.savez(tmp_path / "e.npz", x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(SourceError, match=r"e\.npz cannot be read"):
        load_data(tmp_path / "e.npz")

"""Seeded example inputs: drawn from the spec's declarations, or taken from the user's data."""

from __future__ import annotations

import inspect
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from repogen.artifacts.tensors import numpy_dtype
from repogen.errors import SourceError
from repogen.source.common.call import CapturedCall, Parameters, capture_call
from repogen.source.common.callables import RAISED, UserCallable, user_error
from repogen.source.common.strings import as_strings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.artifacts.tensors import Array, TensorSpec
    from repogen.spec.models import InputSpec


@dataclass(frozen=True)
class DrawnExamples:
    """Example inputs drawn from ``inputs:``; each input has a random stream of its own."""

    inputs: Mapping[str, InputSpec]

    def __call__(self, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Return arrays of the declared dtypes and shapes."""
        return {name: _draw(name, spec, sizes, seed) for name, spec in self.inputs.items()}


def _draw(name: str, spec: InputSpec, sizes: Mapping[str, int], seed: int) -> Array:
    shape = tuple(sizes[dim] if isinstance(dim, str) else dim for dim in spec.shape)
    dtype = np.dtype(spec.dtype)
    if spec.fill is not None:
        return np.zeros(shape, dtype) if spec.fill == "zeros" else np.ones(shape, dtype)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    if dtype.kind == "f":
        return np.asarray(rng.standard_normal(shape), dtype)
    if dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, shape), dtype)
    if spec.range is None:  # the spec room refuses this; a callable that is tested alone may still come here
        raise SourceError(f"input {name!r} is {spec.dtype} and has neither range nor fill", code="source.no-range")
    low, high = spec.range
    return np.asarray(rng.integers(low, high, shape, dtype=np.int64, endpoint=True), dtype)


@dataclass(frozen=True)
class CalledExamples:
    """Example inputs from the user's callable, which takes any of: ``batch``, other dims by name, ``seed``.

    What it returns is cut or repeated along the symbolic dims that it was not told of.
    """

    made: MadeExamples
    inputs: tuple[TensorSpec, ...]
    batch_dim: str

    def __call__(self, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Return the callable's arrays, fitted to ``sizes``."""
        arrays = self.made.take(sizes, self.batch_dim, seed)[1]
        if not any(spec.name in arrays for spec in self.inputs) and len(arrays) == len(self.inputs):
            # Declared under names of the user's own choice: they go in order.
            arrays = dict(zip((spec.name for spec in self.inputs), arrays.values(), strict=True))
        return fit(arrays, self.inputs, sizes, self.made.reference)


@dataclass(frozen=True)
class StoredExamples:
    """Example inputs from data files, cut or repeated along the symbolic dims; the seed rolls rows and files."""

    stored: tuple[Mapping[str, Array], ...]
    reference: str
    inputs: tuple[TensorSpec, ...]

    def __call__(self, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Return the stored arrays, fitted to ``sizes``."""
        arrays = self.stored[seed % len(self.stored)]
        rolled = {name: np.roll(a, seed, axis=0) if a.ndim else a for name, a in arrays.items()}
        return fit(rolled, self.inputs, sizes, self.reference)


@dataclass(frozen=True)
class BlendedExamples:
    """Some inputs from stored examples, the others drawn."""

    stored: StoredExamples
    drawn: DrawnExamples
    names: tuple[str, ...]

    def __call__(self, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Return arrays of both, in order."""
        arrays = {**self.stored(sizes, seed), **self.drawn(sizes, seed)}
        return {name: arrays[name] for name in self.names}


@dataclass(frozen=True)
class MadeExamples:
    """The user's callable and the forward whose arguments it makes.

    Attributes:
        function: It.
        reference: As the spec names it.
        root: Directory of the spec.
        parameters: Of the forward.
        texts: Whether a list of strings is an input, too: PyTorch takes none, Python code does.
    """

    function: UserCallable
    reference: str
    root: Path
    parameters: Parameters
    texts: bool = False

    def take(self, sizes: Mapping[str, int], batch_dim: str, seed: int) -> tuple[CapturedCall, dict[str, Array]]:
        """Call it with those of batch, dim names and seed that its signature takes.

        Returns:
            How its answer is an argument list, and the arrays in it by input name.

        Raises:
            SourceError: It raised, or returned something that is not made of tensors.
        """
        offered = {**sizes, "seed": seed}
        parameters = inspect.signature(self.function).parameters
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        known = {name: value for name, value in offered.items() if takes_all or name in parameters}
        unknown = [
            p
            for p in parameters.values()
            if p.name not in offered and p.default is p.empty and p.kind < p.VAR_POSITIONAL
        ]
        arguments = [sizes.get(batch_dim, 2)] if unknown and batch_dim not in known else []
        try:
            made = self.function(*arguments, **known)
        except RAISED as error:
            raise user_error(error, f"{self.reference!r} failed", self.root) from error
        taken = capture_call(made, self.parameters, is_array if self.texts else is_tensor, self.reference)
        return taken, _as_arrays(taken.tensors, self.reference)


def is_tensor(value: object) -> bool:
    """Whether a value is a tensor, an array, or a list of numbers that makes one; torch is not imported."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, (bool, int, float)) or is_tensor_list(item) for item in value)
    return isinstance(value, np.ndarray) or (hasattr(value, "detach") and hasattr(value, "dtype"))


def is_array(value: object) -> bool:
    """Whether a value is a tensor, or a list of strings, nested at will."""
    return is_tensor(value) or (
        isinstance(value, list) and all(isinstance(v, (str, bytes)) or is_array(v) for v in value)
    )


def is_tensor_list(value: object) -> bool:
    """Whether a value is a list of numbers, nested at will."""
    return isinstance(value, list) and is_tensor(value)


def _as_arrays(made: Mapping[str, object], reference: str) -> dict[str, Array]:
    try:
        return {name: to_array(value) for name, value in made.items()}
    except (TypeError, ValueError) as error:  # bfloat16 tensors, ragged lists
        raise SourceError(
            f"{reference!r} returned what is no array: {error}",
            "return NumPy arrays, or tensors of a dtype that NumPy has",
            code="source.examples-type",
            where=reference,
        ) from error


def to_array(value: object) -> Array:
    """Return ``value`` (a tensor, an array, a list) as a C-contiguous NumPy array."""
    detach = getattr(value, "detach", None)
    plain = detach().cpu().numpy() if callable(detach) else value
    if isinstance(plain, list) and not is_tensor(plain):
        return np.array(plain, dtype=object, order="C")  # strings: NumPy's own types would cut and recode them
    return np.array(plain, order="C")


def load_data(path: Path) -> dict[str, Array]:
    """Read an ``.npz``, without pickle, or a ``.safetensors``.

    Raises:
        SourceError: It is no such file, or holds Python objects.
    """
    if path.suffix == ".safetensors":
        return _load_safetensors(path)
    try:
        with zipfile.ZipFile(path):
            pass  # np.load takes other formats too, and answers each with something else
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = str(error).replace(str(path), path.name)
        raise SourceError(
            f"{path.name} cannot be read as .npz: {reason}",
            "write it with numpy.savez",
            code="source.npz",
            where=path.name,
        ) from error


def _load_safetensors(path: Path) -> dict[str, Array]:
    from safetensors import SafetensorError  # noqa: PLC0415 - only when asked for
    from safetensors.numpy import load_file  # noqa: PLC0415 - the same

    try:
        return dict(load_file(path))
    except (OSError, SafetensorError, KeyError) as error:  # KeyError: a dtype that NumPy has not
        raise SourceError(
            f"{path.name} cannot be read as safetensors: {error}",
            "write it with safetensors.numpy.save_file",
            code="source.safetensors",
            where=path.name,
        ) from error


def fit(
    arrays: Mapping[str, Array], inputs: tuple[TensorSpec, ...], sizes: Mapping[str, int], reference: str
) -> dict[str, Array]:
    """Cut or repeat each array along its symbolic dims to ``sizes``.

    Raises:
        SourceError: A name, a dtype, a rank or a fixed dim is not the declared one.
    """
    fitted: dict[str, Array] = {}
    problems: list[str] = []
    for spec in inputs:
        if spec.name not in arrays:
            problems.append(f"{spec.name!r} is missing (there are: {', '.join(arrays)})")
            continue
        array = _resize(as_strings(arrays[spec.name]), spec, sizes)
        wanted = tuple(sizes[d] if isinstance(d, str) else d for d in spec.shape)
        if array.dtype != numpy_dtype(spec.dtype):
            problems.append(f"{spec.name!r} is {array.dtype}, declared {spec.dtype}")
        elif array.shape != wanted:
            problems.append(f"{spec.name!r} has shape {list(array.shape)}, declared {list(spec.shape)}")
        fitted[spec.name] = array
    if problems:
        raise SourceError(
            f"examples do not fit the declared inputs: {'; '.join(problems)}",
            "change inputs: or the examples",
            code="source.examples-fit",
            where=reference,
        )
    return fitted


def _resize(array: Array, spec: TensorSpec, sizes: Mapping[str, int]) -> Array:
    """Cut or repeat ``array`` along its symbolic axes; one of another rank is returned as it is."""
    if array.ndim != len(spec.shape):
        return array
    for axis, dim in enumerate(spec.shape):
        if isinstance(dim, str) and array.shape[axis]:
            array = np.take(array, np.arange(sizes[dim]) % array.shape[axis], axis=axis)
    return array

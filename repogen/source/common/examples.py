"""Seeded example inputs: random values from the spec's declarations, or the user's data."""

from __future__ import annotations

import inspect
import zlib
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from repogen.artifacts.tensors import DTYPES
from repogen.errors import SourceError
from repogen.files.content import ContentError
from repogen.files.npz import read_npz
from repogen.source.common.call import CapturedCall, Parameters, capture_call
from repogen.source.common.callables import RAISED, UserCallable, user_error
from repogen.triton_config.rules.findings import listed
from repogen.triton_config.text.ragged import batch_input

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from repogen.artifacts.tensors import Array, TensorSpec
    from repogen.spec.models import InputSpec
    from repogen.triton_config.sections.tensors import BatchInputSpec


_MAX_PROBLEMS = 20
_MAX_BYTES = 2**31  # the limit of a gRPC message
_TEXT_KINDS = frozenset("USO")


def numpy_dtype(name: str) -> np.dtype[np.generic]:
    """Return the NumPy dtype for a key of ``DTYPES``; strings are objects, each of them ``bytes``."""
    return np.dtype(DTYPES[name].numpy)


def as_strings(array: Array) -> Array:
    r"""Return an array of text or bytes as objects that are UTF-8 ``bytes``, as Triton sends them; others unchanged.

    >>> as_strings(np.array(["é", "b"])).tolist()
    [b'\xc3\xa9', b'b']
    """
    if array.dtype.kind not in _TEXT_KINDS:
        return array
    strings = np.empty(array.shape, dtype=object)
    strings.ravel()[:] = [v if isinstance(v, bytes) else str(v).encode() for v in array.ravel().tolist()]
    return strings


@dataclass(frozen=True)
class DrawnExamples:
    """Random example inputs from ``inputs:``; each input has its own random stream.

    Attributes:
        inputs: The declarations.
        batch_inputs: The inputs that Triton derives from another one; they get values that match it.
    """

    inputs: Mapping[str, InputSpec]
    batch_inputs: tuple[BatchInputSpec, ...] = ()

    def __call__(self, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Return arrays of the declared dtypes and shapes."""
        targets = {entry.target_name[0]: entry for entry in self.batch_inputs}
        arrays = {
            name: _zeros(spec, sizes) if name in targets else _draw(name, spec, sizes, seed)
            for name, spec in self.inputs.items()
        }
        for name, entry in targets.items():
            if name in arrays and entry.source_input[0] in arrays:
                arrays[name] = _derived(entry.kind, arrays[entry.source_input[0]], arrays[name])
        return arrays


_MIN_FOR_ENDS = 8
"""Random inputs with at least this many values contain both ends of their range; half of the smaller ones the upper."""


def _zeros(spec: InputSpec, sizes: Mapping[str, int]) -> Array:
    return np.zeros(tuple(sizes[dim] if isinstance(dim, str) else dim for dim in spec.shape), numpy_dtype(spec.dtype))


def _derived(kind: str, source: Array, target: Array) -> Array:
    """Return what Triton derives from a flat input of as many rows as ``target`` can hold; its shape is kept."""
    if kind == "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE" or not target.ndim:
        return np.zeros_like(target)
    rows = max(len(target) - (kind == "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO"), 1)
    shapes = [(1, len(part)) for part in np.array_split(source.reshape(-1), rows)]
    derived = batch_input(kind, shapes, str(target.dtype)).reshape(-1)
    return np.resize(derived, target.shape) if derived.size else target


def _draw(name: str, spec: InputSpec, sizes: Mapping[str, int], seed: int) -> Array:
    shape = tuple(sizes[dim] if isinstance(dim, str) else dim for dim in spec.shape)
    dtype = numpy_dtype(spec.dtype)
    if prod(shape) * dtype.itemsize > _MAX_BYTES:
        raise SourceError(
            f"input {name!r} of shape {list(shape)} is larger than 2 GiB, the limit of a request to Triton",
            "lower dims.NAME.max and dims.NAME.example, or correct the shape of the input",
            code="source.too-large",
        )
    if spec.fill is not None:
        return np.zeros(shape, dtype) if spec.fill == "zeros" else np.ones(shape, dtype)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    if dtype.kind == "f":
        return np.asarray(rng.standard_normal(shape), dtype)
    if dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, shape), dtype)
    if spec.range is None:  # the spec is checked for this, but not every caller has a spec
        raise SourceError(f"input {name!r} is {spec.dtype} and has neither range nor fill", code="source.no-range")
    low, high = spec.range
    array = np.asarray(rng.integers(low, high, shape, dtype=np.int64, endpoint=True), dtype)
    # A table of the model may be one row too small, and random values seldom show it. In a small array, the lower end
    # would often make special rows, such as a text that is only padding.
    if array.size >= _MIN_FOR_ENDS:
        array.flat[rng.choice(array.size, 2, replace=False, shuffle=False)] = low, high
    elif array.size and seed % 2 == 0:  # not always: other values would never be tried alone
        array.flat[rng.integers(array.size)] = high
    return array


@dataclass(frozen=True)
class CalledExamples:
    """Example inputs from the user's callable, whose parameters may be ``batch``, other dims by name, and ``seed``.

    Its arrays are cut or repeated along the symbolic dims that are not parameters.
    """

    function: ExamplesFunction
    inputs: tuple[TensorSpec, ...]
    batch_dim: str

    def __call__(self, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Return the callable's arrays, cut or repeated to ``sizes``."""
        arrays = self.function.call(sizes, self.batch_dim, seed)[1]
        paths = paths_of([spec.name for spec in self.inputs], list(arrays), self.function.reference)
        if paths is not None:
            arrays = {name: arrays[path] for name, path in paths.items()}
        return fit(arrays, self.inputs, sizes, self.function.reference)


def paths_of(names: Sequence[str], paths: Sequence[str], reference: str) -> dict[str, str] | None:
    """Return the path in the examples, such as ``batch_query``, that each declared name stands for.

    It has this name, or ends with it: ``query``. If no name occurs in a path, the order decides.

    Args:
        names: Names of the declared inputs.
        paths: Names of the arrays in the examples.
        reference: Name of the examples in errors.

    Returns:
        None if the numbers differ, or if only some names are those of arrays, and others do not occur in a path.

    Raises:
        SourceError: Only some names occur in a path, or in the same one.

    >>> paths_of(["items", "query"], ["batch_query", "batch_items"], "m.py:examples")
    {'items': 'batch_items', 'query': 'batch_query'}
    >>> paths_of(["left", "right"], ["batch_query", "batch_items"], "m.py:examples")
    {'left': 'batch_query', 'right': 'batch_items'}
    >>> paths_of(["frame", "level"], ["frame", "state_level"], "m.py:examples")
    {'frame': 'frame', 'level': 'state_level'}
    """
    if len(names) != len(paths):
        return None
    exact = set(names) & set(paths)
    others = [path for path in paths if path not in exact]
    matches = {name: [path for path in others if path.endswith(f"_{name}")] for name in names if name not in exact}
    chosen = {name: name if name in exact else next(iter(matches[name]), "") for name in names}
    if not any(chosen.values()):
        return dict(zip(names, paths, strict=True))
    if len(set(chosen.values()) - {""}) == len(names):
        return chosen
    if exact:
        return None
    raise SourceError(
        f"inputs {', '.join(names)} do not match the examples' {', '.join(paths)}",
        "use the names of the examples or their last parts, or other names, in the order of the examples",
        code="source.inputs-mixed",
        where=reference,
    )


@dataclass(frozen=True)
class StoredExamples:
    """Example inputs from data files, cut or repeated along symbolic dims; the seed selects a file and rolls rows."""

    stored: tuple[Mapping[str, Array], ...]
    reference: str
    inputs: tuple[TensorSpec, ...]

    def __call__(self, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Return the stored arrays, cut or repeated to ``sizes``."""
        arrays = self.stored[seed % len(self.stored)]
        rolled = {name: np.roll(a, seed, axis=0) if a.ndim else a for name, a in arrays.items()}
        return fit(rolled, self.inputs, sizes, self.reference)


@dataclass(frozen=True)
class BlendedExamples:
    """Stored examples for some inputs, random ones for the others."""

    stored: StoredExamples
    drawn: DrawnExamples
    names: tuple[str, ...]

    def __call__(self, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Return the arrays of both in the order of ``names``."""
        arrays = {**self.stored(sizes, seed), **self.drawn(sizes, seed)}
        return {name: arrays[name] for name in self.names}


@dataclass(frozen=True)
class ExamplesFunction:
    """The user's callable for example inputs.

    Attributes:
        function: The callable.
        reference: Its name in the spec.
        root: Directory of the spec.
        parameters: Parameters of the forward that receives its result.
        strings: Whether a list of strings counts as a tensor, which Python code accepts and PyTorch does not.
    """

    function: UserCallable
    reference: str
    root: Path
    parameters: Parameters
    strings: bool = False

    def call(self, sizes: Mapping[str, int], batch_dim: str, seed: int) -> tuple[CapturedCall, dict[str, Array]]:
        """Call it with those of batch, dims and seed that are its parameters.

        Returns:
            The call of the forward that its result stands for, and the arrays by input name.

        Raises:
            SourceError: It raised an exception, or its result is not made of tensors.
        """
        values = {**sizes, "seed": seed}
        parameters = inspect.signature(self.function).parameters
        any_name = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        kwargs = {name: value for name, value in values.items() if any_name or name in parameters}
        unknown = [
            p
            for p in parameters.values()
            if p.name not in values and p.default is p.empty and p.kind < p.VAR_POSITIONAL
        ]
        args = [sizes.get(batch_dim, 2)] if unknown and batch_dim not in kwargs else []
        if undeclared := [p.name for p in unknown[len(args) :]]:
            declarations = ", ".join(f"{name}: {{min: 1, max: 64}}" for name in undeclared)
            raise SourceError(
                f"{self.reference!r} has parameters that are not dims of the spec: {', '.join(undeclared)}",
                f"declare them with their real bounds, dims: {{{declarations}}}, or give them defaults",
                code="source.examples-parameter",
                where=self.reference,
            )
        try:
            examples = self.function(*args, **kwargs)
        except RAISED as error:
            raise user_error(error, f"{self.reference!r} failed", self.root) from error
        call = capture_call(examples, self.parameters, is_array if self.strings else is_tensor, self.reference)
        return call, _to_arrays(call.tensors, self.reference)


def is_tensor(value: object) -> bool:
    """Return whether a value is a tensor, an array, or a nested list of numbers; torch is not imported."""
    if isinstance(value, list):
        return bool(value) and all(
            isinstance(item, (bool, int, float)) or (isinstance(item, list) and is_tensor(item)) for item in value
        )
    return isinstance(value, np.ndarray) or (hasattr(value, "detach") and hasattr(value, "dtype"))


def is_array(value: object) -> bool:
    """Return whether a value is a tensor or a nested list of strings."""
    return is_tensor(value) or (
        isinstance(value, list) and all(isinstance(v, (str, bytes)) or is_array(v) for v in value)
    )


def _to_arrays(tensors: Mapping[str, object], reference: str) -> dict[str, Array]:
    try:
        return {name: to_array(value) for name, value in tensors.items()}
    except (TypeError, ValueError) as error:  # bfloat16 tensors, ragged lists
        raise SourceError(
            f"{reference!r} returned a value that is not an array: {error}",
            "return NumPy arrays, or tensors of a dtype that NumPy supports",
            code="source.examples-type",
            where=reference,
        ) from error


def to_array(value: object) -> Array:
    """Return a tensor, an array or a list as a C-contiguous NumPy array; bfloat16 becomes float32."""
    if str(getattr(value, "dtype", "")) in {"torch.bfloat16", "bfloat16"}:
        value = _to_float32(value)
    detach = getattr(value, "detach", None)
    array_like = detach().cpu().numpy() if callable(detach) else value
    if isinstance(array_like, list) and not is_tensor(array_like):
        return np.array(array_like, dtype=object, order="C")  # strings: NumPy's string types truncate and recode them
    return np.array(array_like, order="C")


def _to_float32(value: Any) -> object:  # noqa: ANN401 - a tensor, or an array of ml_dtypes
    return value.float() if hasattr(value, "detach") else value.astype(np.float32)


def load_data(path: Path) -> dict[str, Array]:
    """Read an ``.npz`` file, without pickle, or a ``.safetensors`` file.

    Raises:
        SourceError: The file has another format, or contains Python objects.
    """
    if path.suffix == ".safetensors":
        return _load_safetensors(path)
    try:
        return read_npz(path)
    except (OSError, ContentError) as error:
        reason = f"it {error}" if isinstance(error, ContentError) else str(error).replace(str(path), path.name)
        raise SourceError(
            f"{path.name} cannot be read as .npz: {reason}",
            "write it with numpy.savez",
            code="source.npz",
            where=path.name,
        ) from error


def _load_safetensors(path: Path) -> dict[str, Array]:
    from safetensors import SafetensorError  # noqa: PLC0415 - part of the build extra
    from safetensors.torch import load_file  # noqa: PLC0415 - the same; NumPy has no bfloat16

    try:
        return {name: to_array(tensor) for name, tensor in load_file(path).items()}
    # KeyError and TypeError: a dtype that NumPy does not have; ValueError: more dims than it supports
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
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
        SourceError: A name, dtype, rank or fixed dim differs from the declaration.
    """
    fitted: dict[str, Array] = {}
    problems: list[str] = []
    for spec in inputs:
        if spec.name not in arrays:
            problems.append(f"{spec.name!r} is missing (the examples have {listed(arrays)})")
            continue
        array = _resize(as_strings(arrays[spec.name]), spec, sizes)
        expected = tuple(sizes[d] if isinstance(d, str) else d for d in spec.shape)
        if array.dtype != numpy_dtype(spec.dtype):
            problems.append(f"{spec.name!r} is {array.dtype}, declared {spec.dtype}")
        elif array.shape != expected:
            problems.append(f"{spec.name!r} has shape {list(array.shape)}, declared {list(spec.shape)}")
        fitted[spec.name] = array
    if problems:
        raise SourceError(
            f"examples do not match the declared inputs: {'; '.join(problems[:_MAX_PROBLEMS])}",
            "change inputs: or the examples",
            code="source.examples-fit",
            where=reference,
        )
    return fitted


def _resize(array: Array, spec: TensorSpec, sizes: Mapping[str, int]) -> Array:
    """Cut or repeat an array along its symbolic axes; an array of another rank is returned unchanged."""
    if array.ndim != len(spec.shape):
        return array
    for axis, dim in enumerate(spec.shape):
        if isinstance(dim, str) and array.shape[axis]:
            array = np.take(array, np.arange(sizes[dim]) % array.shape[axis], axis=axis)
    return array

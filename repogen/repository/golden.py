"""``golden.json`` and ``golden.npz``: recorded inputs, the outputs that PyTorch computed for them, and tolerances."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field, TypeAdapter

from repogen.artifacts.built_model import Golden, GoldenCase
from repogen.files.content import ContentError
from repogen.files.resolve import resolved
from repogen.repository.decode import (
    INT64_MAX,
    SCHEMA,
    Document,
    JsonFloat,
    Part,
    decode,
    encode,
    malformed,
    read_record,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from repogen.artifacts.tensors import Array

GOLDEN_JSON = "golden.json"
GOLDEN_NPZ = "golden.npz"
SEQUENCE_REQUEST = "request of a sequence"
"""Replaces a dim in the names of golden cases that are consecutive requests of one sequence."""
SEQUENCE_ID = 2**19
"""The ID of that sequence, in case the model receives it."""
_ENDS = ".ends"
_MAX_CASES = 1000
"""A build records up to four cases, and the requests of a sequence."""


def _valid_case(case: GoldenCase) -> GoldenCase:
    if not 0 <= case.batch <= INT64_MAX:
        raise ValueError("batch must not be negative, or above 64 bits")
    return case


class _Tolerance(Part):
    rtol: Annotated[JsonFloat, Field(ge=0, allow_inf_nan=False)]  # every output is within a tolerance of NaN
    atol: Annotated[JsonFloat, Field(ge=0, allow_inf_nan=False)]


class _Document(Document):
    """The format of ``golden.json``; ``key`` of a tensor is its name in ``golden.npz``."""

    cases: tuple[Annotated[GoldenCase, AfterValidator(_valid_case)], ...]
    tolerances: dict[str, _Tolerance]


_DOCUMENT = TypeAdapter(_Document)


def golden_to_json(golden: Golden) -> str:
    """Return ``golden`` as JSON; equal values give equal text, and the order of cases and tensors is preserved."""
    tolerances = {name: _Tolerance(rtol=rtol, atol=atol) for name, (rtol, atol) in golden.tolerances.items()}
    return encode(_Document(schema=SCHEMA, cases=golden.cases, tolerances=tolerances))


def golden_from_json(text: str, where: str = GOLDEN_JSON) -> Golden:
    """Return the golden cases in a JSON text; whether ``golden.npz`` contains their arrays is not checked.

    Args:
        text: Contents of ``golden.json``.
        where: The file's name for messages.

    Raises:
        MalformedRecordError: Not the format that ``golden_to_json`` writes, or a newer schema. Unknown keys are
            ignored.
    """
    return _golden(decode(_DOCUMENT, text, where), where)


def read_golden(directory: Path, where: str = GOLDEN_JSON) -> Golden:
    """Return the golden cases of a directory; see ``golden_from_json``.

    Raises:
        MalformedRecordError: The file is damaged.
        OSError: It can't be read.
    """
    return _golden(read_record(_DOCUMENT, directory / GOLDEN_JSON, where), where)


def _golden(document: _Document, where: str) -> Golden:
    if len(document.cases) > _MAX_CASES:
        raise malformed(where, f"has {len(document.cases)} cases; the limit is {_MAX_CASES}")
    # so that the tensors of all cases together need no more memory than golden.npz
    keys = Counter(tensor.key for case in document.cases for tensor in (*case.inputs, *case.outputs))
    if repeated := next((key for key, count in keys.items() if count > 1), None):
        raise malformed(where, f"has several tensors with the key {repeated}")
    outputs = {tensor.name for case in document.cases for tensor in case.outputs}
    if missing_outputs := sorted(outputs - document.tolerances.keys()):
        raise malformed(where, f"no tolerance for {', '.join(missing_outputs)}")
    return Golden(document.cases, {name: (each.rtol, each.atol) for name, each in document.tolerances.items()})


def packed(key: str, array: Array) -> dict[str, Array]:
    """Return the arrays by which ``golden.npz`` represents an array: strings are bytes, and the end of each string.

    Args:
        key: The array's key.
        array: Numbers, or objects that are ``bytes``.
    """
    import numpy as np  # noqa: PLC0415 - reading a manifest does not need it

    if array.dtype.kind != "O":
        return {key: array}
    items: list[bytes] = array.ravel().tolist()
    ends = np.cumsum([len(item) for item in items], dtype=np.int64).reshape(array.shape)
    return {key: np.frombuffer(b"".join(items), np.uint8), f"{key}{_ENDS}": ends}


def unpacked(arrays: Mapping[str, Array], key: str) -> Array:
    """Return the array that ``packed`` represented.

    Raises:
        KeyError: The array is missing.
        ValueError: The ends of its strings do not match its bytes.
    """
    import numpy as np  # noqa: PLC0415 - as above

    if f"{key}{_ENDS}" not in arrays:
        return arrays[key]
    content, ends = arrays[key].tobytes(), arrays[f"{key}{_ENDS}"]
    stops: list[int] = ends.ravel().tolist()
    is_packed = arrays[key].dtype == np.uint8 and ends.dtype.kind in "iu"
    if not is_packed or [0, *stops] != sorted([0, *stops]) or (stops[-1:] or [0]) != [len(content)]:
        raise ValueError(f"{key}: the ends of the strings do not match their bytes")
    strings = np.empty(len(stops), dtype=object)
    strings[:] = [content[start:stop] for start, stop in zip([0, *stops], stops, strict=False)]
    return strings.reshape(ends.shape)


def golden_inputs(directory: Path) -> list[dict[str, Array]]:
    """Return the inputs of every golden case, by name.

    Args:
        directory: Contains ``golden.json`` and ``golden.npz``.

    Raises:
        MalformedRecordError: ``golden.json`` or ``golden.npz`` is damaged.
        OSError: One of them can't be read.
    """
    return _inputs(directory, read_golden(directory).cases)


def first_golden_inputs(directory: Path, batched: bool) -> dict[str, Array] | None:  # noqa: FBT001 - partially applied
    """Return the inputs of the first golden case, by name; None if there is no such case.

    Args:
        directory: Contains ``golden.json`` and ``golden.npz``.
        batched: Whether the case must have at least one row.

    Raises:
        MalformedRecordError: ``golden.json`` or ``golden.npz`` is damaged.
        OSError: One of them can't be read.
    """
    golden = read_golden(directory)
    case = next((case for case in golden.cases if case.batch > 0 or not batched), None)
    return None if case is None else _inputs(directory, [case])[0]


def golden_arrays(directory: Path) -> dict[str, Array]:
    """Return the arrays of ``golden.npz`` by name.

    It must be a file in the directory, and not behind a symlink of another user: its content may be sent to a server.

    Raises:
        ContentError: It is damaged.
        OSError: It can't be read, or leads out of the directory.
        SpecError: A symlink of another user leads to the directory.
    """
    from repogen.files.npz import read_npz  # noqa: PLC0415 - reading a manifest does not need NumPy

    root = resolved(directory)
    return read_npz(root / GOLDEN_NPZ, compressed=False, root=root)


def _inputs(directory: Path, cases: Sequence[GoldenCase]) -> list[dict[str, Array]]:
    try:
        arrays = golden_arrays(directory)
        return [{tensor.name: unpacked(arrays, tensor.key) for tensor in case.inputs} for case in cases]
    except (ContentError, KeyError, ValueError) as error:
        raise malformed(GOLDEN_NPZ, f"lacks {error}" if isinstance(error, KeyError) else str(error)) from error

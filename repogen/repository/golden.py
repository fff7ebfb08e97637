"""``golden.json``: which arrays of ``golden.npz`` are a case's inputs and outputs, and how close is close enough."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from repogen.artifacts.built_model import Golden, GoldenCase, GoldenTensor
from repogen.repository.decode import JsonObject, json_number, malformed, parse_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from repogen.artifacts.tensors import Array

GOLDEN_JSON = "golden.json"
GOLDEN_NPZ = "golden.npz"
SCHEMA = 1
_ENDS = ".ends"


def golden_to_json(golden: Golden) -> str:
    """Return ``golden`` as JSON; equal values give equal text.

    Order of cases and tensors is kept. Tolerances are written as ``{"rtol": …, "atol": …}`` by output name.
    """
    document = {
        "schema": SCHEMA,
        "cases": [
            {
                "name": case.name,
                "batch": case.batch,
                "inputs": _tensors_to_json(case.inputs),
                "outputs": _tensors_to_json(case.outputs),
            }
            for case in golden.cases
        ],
        "tolerances": {
            name: {"rtol": json_number(rtol), "atol": json_number(atol)}
            for name, (rtol, atol) in golden.tolerances.items()
        },
    }
    return json.dumps(document, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


def golden_from_json(text: str, where: str = GOLDEN_JSON) -> Golden:
    """Return the golden cases that ``text`` describes.

    Args:
        text: Contents of ``golden.json``.
        where: The file's name for messages.

    Raises:
        MalformedRecordError: Not what ``golden_to_json`` writes, or a newer schema. Members that this version does
            not know are tolerated. Whether ``golden.npz`` holds the arrays is for its reader to say.
    """
    document = parse_object(text, where)
    if document.count("schema") > SCHEMA:
        raise malformed(where, f"schema {document.count('schema')} is newer than this repogen knows ({SCHEMA})")
    tolerances = document.child("tolerances")
    golden = Golden(
        cases=tuple(_case(case) for case in document.children("cases")),
        tolerances={name: _tolerance(tolerances.child(name)) for name in tolerances.members},
    )
    outputs = {tensor.name for case in golden.cases for tensor in case.outputs}
    if missing := sorted(outputs - golden.tolerances.keys()):
        raise malformed(where, f"no tolerance for {', '.join(missing)}")
    return golden


def packed(key: str, array: Array) -> dict[str, Array]:
    """Return what ``golden.npz`` holds of an array; strings are their bytes, and where each of them ends.

    Args:
        key: Its key.
        array: Numbers, or objects that are ``bytes``.
    """
    import numpy as np  # noqa: PLC0415 - this room's import stays light

    if array.dtype.kind != "O":
        return {key: array}
    items: list[bytes] = array.ravel().tolist()
    ends = np.cumsum([len(item) for item in items], dtype=np.int64).reshape(array.shape)
    return {key: np.frombuffer(b"".join(items), np.uint8), f"{key}{_ENDS}": ends}


def unpacked(arrays: Mapping[str, Array], key: str) -> Array:
    """Return an array of ``golden.npz`` as ``packed`` took it.

    Raises:
        KeyError: It is not there.
        ValueError: Its strings do not fit together.
    """
    import numpy as np  # noqa: PLC0415 - as above

    if f"{key}{_ENDS}" not in arrays:
        return arrays[key]
    content, ends = arrays[key].astype(np.uint8).tobytes(), arrays[f"{key}{_ENDS}"]
    stops: list[int] = ends.ravel().tolist()
    if stops != sorted(stops) or (stops[-1:] or [0]) != [len(content)]:
        raise ValueError(f"{key}: the strings do not fit together")
    made = np.empty(len(stops), dtype=object)
    made[:] = [content[start:stop] for start, stop in zip([0, *stops], stops, strict=False)]
    return made.reshape(ends.shape)


def _tensors_to_json(tensors: Iterable[GoldenTensor]) -> list[dict[str, str]]:
    return [{"name": tensor.name, "key": tensor.key} for tensor in tensors]


def _tensors(values: list[JsonObject]) -> tuple[GoldenTensor, ...]:
    return tuple(GoldenTensor(value.text("name"), value.text("key")) for value in values)


def _case(value: JsonObject) -> GoldenCase:
    return GoldenCase(
        name=value.text("name"),
        batch=value.count("batch"),
        inputs=_tensors(value.children("inputs")),
        outputs=_tensors(value.children("outputs")),
    )


def _tolerance(value: JsonObject) -> tuple[float, float]:
    return value.number("rtol"), value.number("atol")


def first_golden_inputs(directory: Path, batched: bool) -> dict[str, Array] | None:  # noqa: FBT001 - partially applied
    """Return the inputs of the first golden case, by name; None where there is none.

    Args:
        directory: Contains ``golden.json`` and ``golden.npz``.
        batched: Whether the case must have at least one row.

    Raises:
        MalformedRecordError: ``golden.json`` is damaged.
    """
    import numpy as np  # noqa: PLC0415 - as above

    golden = golden_from_json((directory / GOLDEN_JSON).read_text(encoding="utf-8"))
    case = next((case for case in golden.cases if case.batch > 0 or not batched), None)
    if case is None:
        return None
    with np.load(directory / GOLDEN_NPZ, allow_pickle=False) as arrays:
        return {tensor.name: unpacked(arrays, tensor.key) for tensor in case.inputs}

"""The inputs and outputs of ``predict``: data frames and JSON to arrays, and arrays to JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from repogen.artifacts.tensors import DTYPES, Array, Arrays
from repogen.errors import SpecError
from repogen.smoke.inference import WireTensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from repogen.smoke.inference import TensorMetadata

_BY_WIRE = {dtype.wire: dtype for dtype in DTYPES.values()}


def wire_tensors(inputs: Any, expected: Mapping[str, TensorMetadata]) -> Sequence[WireTensor]:  # noqa: ANN401 - any data
    """Return the inputs of a request.

    Args:
        inputs: A pandas DataFrame with a column for each input, and a number or a nested list in each row; a mapping
            from the name of each input to an array or nested list; or an array, if the model has one input.
        expected: The model's inputs, as the server describes them.

    Raises:
        SpecError: An input is missing or unknown, or its values do not have its dtype and rank.
    """
    columns: Mapping[str, Any]
    if isinstance(inputs, Mapping):
        columns = inputs
    elif hasattr(inputs, "columns"):  # a DataFrame: pandas need not be imported for this
        columns = {str(name): inputs[name].tolist() for name in inputs.columns}
    elif len(expected) == 1:
        columns = dict.fromkeys(expected, inputs)
    else:
        raise SpecError(
            f"the model has the inputs {', '.join(expected)}, but the data does not name them",
            "pass a data frame with a column for each input, or a mapping from names to arrays",
            code="deployments.inputs",
        )
    if set(columns) != set(expected):
        raise SpecError(
            f"the data has {', '.join(map(str, columns)) or 'no columns'}, but the model has {', '.join(expected)}",
            "pass exactly the inputs of the model",
            code="deployments.inputs",
        )
    return [WireTensor(name, tensor.dtype, _array(name, columns[name], tensor)) for name, tensor in expected.items()]


def _array(name: str, values: Any, tensor: TensorMetadata) -> Array:  # noqa: ANN401 - as above
    dtype = _BY_WIRE.get(tensor.dtype)
    if dtype is None:
        raise SpecError(
            f"the server describes {name} with the dtype {tensor.dtype}, which is not supported",
            f"the dtypes are {', '.join(sorted(_BY_WIRE))}",
            code="deployments.inputs",
        )
    try:
        array: Array = np.asarray(values, dtype=dtype.numpy)
    except (TypeError, ValueError, OverflowError) as error:
        raise SpecError(
            f"the values of {name} are not an array of {dtype.name}: {error}",
            "all rows must have the same shape",
            code="deployments.inputs",
        ) from error
    if array.ndim == len(tensor.shape) - 1 and tensor.shape[-1] == 1:  # Triton has no scalars
        array = array[..., np.newaxis]
    if array.ndim != len(tensor.shape):
        raise SpecError(
            f"{name} has the shape {list(array.shape)}, but the model expects {list(tensor.shape)}",
            "pass an array with the same number of dims, including the batch",
            code="deployments.inputs",
        )
    return array


def json_of(outputs: Arrays) -> dict[str, Any]:
    """Return outputs as nested lists by name."""
    return {name: _plain(array).tolist() for name, array in outputs.items()}


def _plain(array: Array) -> Array:
    """Return an array whose values JSON can represent: text for bytes, float32 for what NumPy lacks."""
    if array.dtype == object:
        decode = np.vectorize(lambda value: value.decode("utf-8", "replace"), otypes=[object])
        text: Array = decode(array)
        return text
    return array if array.dtype.kind in "biuf" else array.astype(np.float32)

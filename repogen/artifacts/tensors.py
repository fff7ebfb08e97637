"""Tensor specs and signatures, and the names of each dtype in NumPy, Triton and ONNX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import numpy.typing as npt

Dim: TypeAlias = "int | str"
"""A fixed size, or the name of a symbolic dim (``?`` if it has no name)."""

Array: TypeAlias = "npt.NDArray[np.generic]"
Arrays: TypeAlias = "Mapping[str, npt.NDArray[np.generic]]"
"""Arrays by tensor name."""
Sizes: TypeAlias = dict[str, int]
"""A size for each symbolic dim."""

MAX_RANK = 1000
"""Dims of a tensor in files of others; NumPy supports 64. The dims of one tensor may be compared with many others."""


@dataclass(frozen=True)
class Dtype:
    """The names of one element type.

    Attributes:
        name: The spec's name, for example ``float32``.
        triton: Name in config.pbtxt without ``TYPE_``, for example ``FP32`` (``STRING`` for strings).
        wire: Name in the inference protocol: the same as ``triton``, except ``BYTES`` for strings.
        onnx: Number of ``onnx.TensorProto.DataType``.
    """

    name: str
    triton: str
    wire: str
    onnx: int

    @property
    def numpy(self) -> str:
        """NumPy's name for the elements of arrays: strings are objects, and BF16 values are float32."""
        return {"string": "object", "bfloat16": "float32"}.get(self.name, self.name)


# Source: Triton's model_configuration.md (datatypes) and onnx.proto3's TensorProto.DataType.
DTYPES: dict[str, Dtype] = {
    d.name: d
    for d in (
        Dtype("bool", "BOOL", "BOOL", 9),
        Dtype("uint8", "UINT8", "UINT8", 2),
        Dtype("uint16", "UINT16", "UINT16", 4),
        Dtype("uint32", "UINT32", "UINT32", 12),
        Dtype("uint64", "UINT64", "UINT64", 13),
        Dtype("int8", "INT8", "INT8", 3),
        Dtype("int16", "INT16", "INT16", 5),
        Dtype("int32", "INT32", "INT32", 6),
        Dtype("int64", "INT64", "INT64", 7),
        Dtype("bfloat16", "BF16", "BF16", 16),
        Dtype("float16", "FP16", "FP16", 10),
        Dtype("float32", "FP32", "FP32", 1),
        Dtype("float64", "FP64", "FP64", 11),
        Dtype("string", "STRING", "BYTES", 8),
    )
}


@dataclass(frozen=True)
class TensorSpec:
    """A named tensor of a model's signature.

    Attributes:
        name: Tensor name in the graph and in config.pbtxt.
        dtype: A key of ``DTYPES``.
        shape: Full shape, the batch included; symbolic dims by name.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...]


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs of a model, in order."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @property
    def batch_dim(self) -> str | None:
        """The symbolic dim that is axis 0 of every input, the only possible batch; None if there is none."""
        first = {spec.shape[0] if spec.shape else 0 for spec in self.inputs}
        dim = next(iter(first)) if len(first) == 1 else 0
        return dim if isinstance(dim, str) else None

"""Tensors of a ModelConfig as plain frozen data, and its values as people read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tritonclient.grpc.model_config_pb2 import ModelInput, ModelOutput

    from repogen.artifacts.tensors import Dim


@dataclass(frozen=True)
class TensorView:
    """An input or output of the config.

    Attributes:
        name: Tensor name.
        dtype: Data type without ``TYPE_``, for example ``FP32``; ``INVALID`` when left out.
        dims: Without the batch when the model batches.
        reshape: The shape the model itself sees, without the batch; None when not given.
        label_filename: File of an output's class names; empty when it has none.
        format: Of an image, ``FORMAT_NCHW`` or ``FORMAT_NHWC``; empty when not said.
        allow_ragged_batch: Whether the rows of a batch may differ in length.
        optional: Whether a request may leave it out.
        from_spec: Whether a spec, and not the graph, says its dims.
    """

    name: str
    dtype: str
    dims: tuple[int, ...]
    reshape: tuple[int, ...] | None = None
    label_filename: str = ""
    format: str = ""
    allow_ragged_batch: bool = False
    optional: bool = False
    from_spec: bool = False

    @property
    def model_dims(self) -> tuple[int, ...]:
        """Dims as the model sees them, without the batch."""
        return self.dims if self.reshape is None else self.reshape


def tensor_views(tensors: Iterable[ModelInput | ModelOutput]) -> tuple[TensorView, ...]:
    """Return the inputs or outputs of a parsed config (see ``parse``)."""
    return tuple(
        TensorView(
            name=tensor.name,
            dtype=dtype_name(tensor.data_type),
            dims=tuple(tensor.dims),
            reshape=tuple(tensor.reshape.shape) if tensor.HasField("reshape") else None,
            label_filename=getattr(tensor, "label_filename", ""),
        )
        for tensor in tensors
    )


def dtype_name(number: int) -> str:
    """Return the name of a ``data_type`` without ``TYPE_``; of a number that is none, the number."""
    from tritonclient.grpc.model_config_pb2 import DataType  # noqa: PLC0415 - loaded by whoever parsed the config

    value = DataType.DESCRIPTOR.values_by_number.get(number)
    return str(number) if value is None else value.name.removeprefix("TYPE_")


def dims_text(dims: Iterable[Dim] | Sequence[int]) -> str:
    """Return dims as config.pbtxt writes them.

    >>> dims_text((3, -1)), dims_text(())
    ('[ 3, -1 ]', '[ ]')
    """
    listed = ", ".join(map(str, dims))
    return f"[ {listed} ]" if listed else "[ ]"


def fits(sizes: Sequence[int], dims: Sequence[int]) -> bool:
    """Whether sizes are of a shape with dims, of which -1 takes any.

    >>> fits((3, 5), (3, -1)), fits((3,), (3, -1)), fits((4, 5), (3, -1))
    (True, False, False)
    """
    return len(sizes) == len(dims) and all(dim in {-1, size} for size, dim in zip(sizes, dims, strict=True))

"""Tensors of a ModelConfig as frozen dataclasses, and readable forms of its values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.triton_config.text.parse import model_config_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Sized

    from tritonclient.grpc.model_config_pb2 import ModelInput, ModelOutput

    from repogen.artifacts.tensors import Dim


@dataclass(frozen=True)
class TensorView:
    """An input or output of the config.

    Attributes:
        name: Tensor name.
        dtype: Data type without ``TYPE_``, for example ``FP32``; ``INVALID`` when left out.
        dims: Without the batch when the model batches.
        reshape: Shape that the model receives or returns, without the batch; None if not set.
        label_filename: File of an output's class names; empty if not set.
        format: ``FORMAT_NCHW`` or ``FORMAT_NHWC`` for an image; empty if not set.
        allow_ragged_batch: Whether the rows of a batch may differ in length.
        optional: Whether a request may leave it out.
        from_spec: Whether its dims come from the spec instead of the graph.
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
        """Dims that the model receives or returns, without the batch."""
        return self.dims if self.reshape is None else self.reshape


def tensor_views(tensors: Iterable[ModelInput | ModelOutput]) -> tuple[TensorView, ...]:
    """Return the inputs or outputs of a parsed config."""
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
    """Return the name of a ``data_type`` without ``TYPE_``; the number itself if it has no name."""
    value = model_config_pb2().DataType.DESCRIPTOR.values_by_number.get(number)
    return str(number) if value is None else value.name.removeprefix("TYPE_")


def dims_text(dims: Iterable[Dim] | Sequence[int]) -> str:
    """Return dims in the notation of config.pbtxt.

    >>> dims_text((3, -1)), dims_text(())
    ('[ 3, -1 ]', '[ ]')
    """
    listed = ", ".join(map(str, dims))
    return f"[ {listed} ]" if listed else "[ ]"


def rank_text(dims: Sized) -> str:
    """Return the number of dims.

    >>> rank_text((3, -1)), rank_text((3,))
    ('2 dims', '1 dim')
    """
    return "1 dim" if len(dims) == 1 else f"{len(dims)} dims"


def fits(sizes: Sequence[int], dims: Sequence[int]) -> bool:
    """Return whether a shape of these sizes matches dims, where -1 matches any size.

    >>> fits((3, 5), (3, -1)), fits((3,), (3, -1)), fits((4, 5), (3, -1))
    (True, False, False)
    """
    return len(sizes) == len(dims) and all(dim in {-1, size} for size, dim in zip(sizes, dims, strict=True))

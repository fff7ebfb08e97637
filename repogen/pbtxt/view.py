"""A ModelConfig as plain frozen data: what the rules look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInput, ModelOutput


@dataclass(frozen=True)
class TensorView:
    """An input or output of the config.

    Attributes:
        name: Tensor name.
        dtype: Data type without ``TYPE_``, for example ``FP32``; ``INVALID`` when left out.
        dims: Without the batch when the model batches.
        reshape: The shape the model itself sees, without the batch; None when not given.
        label_filename: File of an output's class names; empty when it has none.
    """

    name: str
    dtype: str
    dims: tuple[int, ...]
    reshape: tuple[int, ...] | None = None
    label_filename: str = ""

    @property
    def model_dims(self) -> tuple[int, ...]:
        """Dims as the model sees them, without the batch."""
        return self.dims if self.reshape is None else self.reshape


@dataclass(frozen=True)
class GroupView:
    """An instance group; ``kind`` as in config.pbtxt, for example ``KIND_CPU``."""

    name: str
    count: int
    kind: str
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class WarmupView:
    """A warmup sample, and the names of the inputs it feeds."""

    name: str
    batch_size: int
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class ConfigView:
    """The parts of a config.pbtxt that rules speak of.

    Attributes:
        name: Model name; Triton takes the directory's when empty.
        backend: For example ``onnxruntime``.
        platform: The older way to say backend; empty when left out.
        max_batch_size: 0 when the model does not batch.
        inputs: In order.
        outputs: In order.
        groups: Instance groups.
        dynamic_batching: Whether the block is there.
        preferred_batch_sizes: Of the dynamic batcher.
        sequence_batching: Whether the block is there.
        specific_versions: Of a specific version policy; None under any other policy.
        warmups: Warmup samples.
    """

    name: str
    backend: str
    max_batch_size: int
    inputs: tuple[TensorView, ...]
    outputs: tuple[TensorView, ...]
    platform: str = ""
    groups: tuple[GroupView, ...] = ()
    dynamic_batching: bool = False
    preferred_batch_sizes: tuple[int, ...] = ()
    sequence_batching: bool = False
    specific_versions: tuple[int, ...] | None = None
    warmups: tuple[WarmupView, ...] = ()


def view_of(config: ModelConfig) -> ConfigView:
    """Return the view of a parsed config (see ``parse``)."""
    policy = config.version_policy
    return ConfigView(
        name=config.name,
        backend=config.backend,
        platform=config.platform,
        max_batch_size=config.max_batch_size,
        inputs=_tensors(config.input),
        outputs=_tensors(config.output),
        groups=tuple(
            GroupView(group.name, group.count, type(group).Kind.Name(group.kind), tuple(group.gpus))
            for group in config.instance_group
        ),
        dynamic_batching=config.HasField("dynamic_batching"),
        preferred_batch_sizes=tuple(config.dynamic_batching.preferred_batch_size),
        sequence_batching=config.HasField("sequence_batching"),
        specific_versions=tuple(policy.specific.versions) if policy.HasField("specific") else None,
        warmups=tuple(WarmupView(w.name, w.batch_size, tuple(w.inputs)) for w in config.model_warmup),
    )


def _tensors(tensors: Iterable[ModelInput | ModelOutput]) -> tuple[TensorView, ...]:
    from tritonclient.grpc.model_config_pb2 import DataType  # noqa: PLC0415 - loaded by whoever parsed the config

    return tuple(
        TensorView(
            name=tensor.name,
            dtype=DataType.Name(tensor.data_type).removeprefix("TYPE_"),
            dims=tuple(tensor.dims),
            reshape=tuple(tensor.reshape.shape) if tensor.HasField("reshape") else None,
            label_filename=getattr(tensor, "label_filename", ""),
        )
        for tensor in tensors
    )

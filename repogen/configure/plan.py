"""What a model's config.pbtxt is meant to say, before any text exists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf import json_format

from repogen.configure.wishes import wishes
from repogen.pbtxt import TensorView, config_dims, empty_config
from repogen.spec.triton import InstanceGroupSpec
from repogen.values.tensors import DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tritonclient.grpc.model_config_pb2 import ModelConfig as Message

    from repogen.spec.triton import DynamicBatchingSpec, TritonSpec, VersionPolicySpec
    from repogen.values.tensors import Signature, TensorSpec

ONNXRUNTIME = "onnxruntime"

# Left out, Triton would start two CPU instances, or one on each GPU; the config says what was verified instead.
DEFAULT_GROUPS = (InstanceGroupSpec(),)


@dataclass(frozen=True)
class Plan:
    """The template's variables, under the names that docs/config.md gives.

    Attributes:
        name: Model name.
        backend: ``onnxruntime``, or ``python`` for Python code.
        max_batch_size: 0 when the model does not batch.
        inputs: Tensors with Triton's dtypes and dims.
        outputs: The same.
        instance_groups: At least one.
        dynamic_batching: None when not asked for.
        version_policy: None when not asked for; Triton then serves the latest version.
        more: What else is said, as a message: optimization, parameters, warmups and the like.
    """

    name: str
    backend: str
    max_batch_size: int
    inputs: tuple[TensorView, ...]
    outputs: tuple[TensorView, ...]
    instance_groups: tuple[InstanceGroupSpec, ...]
    dynamic_batching: DynamicBatchingSpec | None
    version_policy: VersionPolicySpec | None
    more: Message


def plan_for(  # noqa: PLR0913 - all that a config is made of
    name: str,
    triton: TritonSpec,
    signature: Signature,
    max_batch_size: int,
    *,
    labels: Mapping[str, str] | None = None,
    sizes: Mapping[str, int] | None = None,
    backend: str = ONNXRUNTIME,
) -> Plan:
    """Return what the config of model ``name`` is meant to say.

    Args:
        name: Model name.
        triton: The spec's wishes.
        signature: The graph's, full shapes.
        max_batch_size: As measured and allowed.
        labels: Name of the label file of each output that has one.
        sizes: Of dynamic dims, for warmups.
        backend: What runs it.

    Raises:
        ConfigError: What the spec says beyond the signature does not fit it.
    """
    return Plan(
        name=name,
        backend=backend,
        max_batch_size=max_batch_size,
        inputs=_tensors(signature.inputs, batched=max_batch_size > 0, labels={}),
        outputs=_tensors(signature.outputs, batched=max_batch_size > 0, labels=labels or {}),
        instance_groups=triton.instance_group or DEFAULT_GROUPS,
        dynamic_batching=triton.dynamic_batching,
        version_policy=triton.version_policy,
        more=wishes(name, triton, signature, sizes or {}, batched=max_batch_size > 0),
    )


def message_for(plan: Plan) -> Message:
    """Return ``plan`` as tritonclient's protobuf message, built without any text.

    Raises:
        ValueError: A number does not fit its field.
    """
    message = empty_config()
    message.name, message.backend, message.max_batch_size = plan.name, plan.backend, plan.max_batch_size
    for field, tensors in ((message.input, plan.inputs), (message.output, plan.outputs)):
        for tensor in tensors:
            added = field.add(name=tensor.name, data_type=f"TYPE_{tensor.dtype}", dims=tensor.dims)
            if tensor.label_filename:
                added.label_filename = tensor.label_filename
            if tensor.reshape is not None:
                added.reshape.SetInParent()
                added.reshape.shape.extend(tensor.reshape)
    for group in plan.instance_groups:
        said = group.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
        json_format.ParseDict(said, message.instance_group.add(count=group.count, kind=group.kind))
    _set_dynamic_batching(message, plan.dynamic_batching)
    _set_version_policy(message, plan.version_policy)
    message.MergeFrom(plan.more)
    return message


def _set_dynamic_batching(message: Message, batching: DynamicBatchingSpec | None) -> None:
    if batching is None:
        return
    message.dynamic_batching.SetInParent()
    said = batching.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    json_format.ParseDict(said, message.dynamic_batching)


def _set_version_policy(message: Message, policy: VersionPolicySpec | None) -> None:
    if policy is None:
        return
    if policy.latest is not None:
        message.version_policy.latest.num_versions = policy.latest.num_versions
    elif policy.specific:
        message.version_policy.specific.versions.extend(policy.specific)
    else:
        message.version_policy.all.SetInParent()


def _tensors(tensors: Iterable[TensorSpec], *, batched: bool, labels: Mapping[str, str]) -> tuple[TensorView, ...]:
    return tuple(
        TensorView(
            tensor.name,
            DTYPES[tensor.dtype].triton,
            *config_dims(tensor.shape, batched=batched),
            label_filename=labels.get(tensor.name, ""),
        )
        for tensor in tensors
    )

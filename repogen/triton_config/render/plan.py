"""What a model's config.pbtxt is meant to say, before any text exists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf import json_format

from repogen.triton_config.render.config_sections import wishes
from repogen.triton_config.render.tensors import declared_inputs, declared_outputs
from repogen.triton_config.sections.model import InstanceGroupSpec
from repogen.triton_config.text.parse import empty_config

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig as Message

    from repogen.artifacts.steps import EnsembleStep
    from repogen.triton_config.render.model_facts import Known
    from repogen.triton_config.sections.model import DynamicBatchingSpec, TritonSpec, VersionPolicySpec
    from repogen.triton_config.text.view import TensorView

# Left out, Triton would start two CPU instances, or one on each GPU; the config says what was verified instead.
_ON_CPU = (InstanceGroupSpec(),)
_ON_GPU = (InstanceGroupSpec(kind="KIND_GPU"),)


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
        batch_origin: Where max_batch_size comes from, for people.
        instances_from_spec: Whether the spec says ``instance_groups``.
        uses_graph: Whether ``more`` says names, types or dims of the graph's.
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
    batch_origin: str
    instances_from_spec: bool
    uses_graph: bool
    more: Message


@dataclass(frozen=True)
class EnsemblePlan:
    """The template's variables, under the names that docs/config.md gives.

    Attributes:
        name: Model name.
        max_batch_size: 0 when the ensemble does not batch.
        batch_origin: Where it comes from, for people.
        inputs: Tensors with Triton's dtypes and dims.
        outputs: The same.
        version_policy: None when not asked for.
        steps: Each with ``model``, ``version`` (None for the newest), ``inputs`` and ``outputs``.
        more: What else is said, as a message.
    """

    name: str
    max_batch_size: int
    batch_origin: str
    inputs: tuple[TensorView, ...]
    outputs: tuple[TensorView, ...]
    version_policy: VersionPolicySpec | None
    steps: tuple[EnsembleStep, ...]
    more: Message


def plan_for(triton: TritonSpec, known: Known) -> Plan:
    """Return what the config of a model is meant to say.

    Args:
        triton: The spec's wishes.
        known: What they are about.

    Raises:
        ConfigError: What the spec says beyond the signature does not fit it.
    """
    return Plan(
        name=known.name,
        backend=known.backend,
        max_batch_size=known.max_batch_size,
        inputs=declared_inputs(triton, known),
        outputs=declared_outputs(triton, known),
        instance_groups=triton.instance_group or (_ON_GPU if known.gpu else _ON_CPU),
        dynamic_batching=triton.dynamic_batching,
        version_policy=triton.version_policy,
        batch_origin=_batch_origin(triton, known),
        instances_from_spec=bool(triton.instance_group),
        uses_graph=bool(triton.model_warmup or triton.sequence_batching or triton.batch_input or triton.batch_output),
        more=wishes(triton, known),
    )


def _batch_origin(triton: TritonSpec, known: Known) -> str:
    said = triton.max_batch_size != "auto"
    if not known.batch_measured:
        return "from the spec, and not measured: rows that differ in length, or are counted by Triton"
    if not known.batched:
        return "from the spec" if said else "measured: rows are not to be joined"
    return "measured: rows do not touch each other" + ("; the spec's max_batch_size" if said else "")


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
            for extra in ("label_filename", "format", "allow_ragged_batch", "optional"):
                if said := getattr(tensor, extra):
                    json_format.ParseDict({extra: said}, added)
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

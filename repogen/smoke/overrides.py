"""What a private smoke config may change, and nothing else; each change is a line of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tritonclient.grpc.model_config_pb2 import ModelConfig


def overridden(config: ModelConfig, *, version: int, has_gpu: bool) -> tuple[ModelConfig, tuple[str, ...]]:
    """Return a copy of ``config`` that can be served here, and what was changed.

    Changed are only: an instance group's kind and gpus and the GPU's execution accelerators, where there is no GPU;
    and the version policy, where it would not serve ``version``.
    """
    from tritonclient.grpc.model_config_pb2 import ModelConfig as Message  # noqa: PLC0415 - gRPC is heavy

    copy = Message()
    copy.CopyFrom(config)
    lines = list(_version_policy(copy, version))
    if not has_gpu:
        lines += [*_groups(copy), *_accelerators(copy)]
    return copy, tuple(lines)


def as_json(config: ModelConfig) -> str:
    """Return the JSON that Triton's load request takes as a config."""
    from google.protobuf import json_format  # noqa: PLC0415 - as above

    return str(json_format.MessageToJson(config, preserving_proto_field_name=True))


def _version_policy(config: ModelConfig, version: int) -> Iterator[str]:
    policy = config.version_policy
    if policy.HasField("specific") and version not in policy.specific.versions:
        yield f"version_policy: specific {list(policy.specific.versions)} -> specific [{version}]"
        del policy.specific.versions[:]
        policy.specific.versions.append(version)


def _groups(config: ModelConfig) -> Iterator[str]:
    for index, group in enumerate(config.instance_group):
        kinds = type(group).Kind
        if group.kind == kinds.KIND_GPU or (group.kind == kinds.KIND_AUTO and group.gpus):
            yield f"instance_group[{index}].kind: {kinds.Name(group.kind)} -> KIND_CPU (no GPU here)"
            group.kind = kinds.KIND_CPU
            if group.gpus:
                yield f"instance_group[{index}].gpus: {list(group.gpus)} -> []"
                del group.gpus[:]


def _accelerators(config: ModelConfig) -> Iterator[str]:
    accelerators = config.optimization.execution_accelerators
    if accelerators.gpu_execution_accelerator:
        names = [accelerator.name for accelerator in accelerators.gpu_execution_accelerator]
        yield f"optimization.execution_accelerators.gpu_execution_accelerator: {names} -> [] (no GPU here)"
        accelerators.ClearField("gpu_execution_accelerator")

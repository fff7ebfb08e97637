"""instance_group, and what its instances share."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from repogen.triton_config.rules.findings import Finding
from repogen.triton_config.rules.identity import is_tensorrt
from repogen.triton_config.text.view import dims_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

_MANY = 64


def instance_rules(config: ModelConfig) -> Iterator[Finding]:
    """Yield what is wrong with instance groups."""
    for index, group in enumerate(config.instance_group):
        if group.profile and not is_tensorrt(config):
            message = "an instance group has a profile, which TensorRT alone takes"
            yield Finding("RG130", "error", message, "drop it", f"instance_group[{index}].profile")
        yield from _group(f"instance_group[{index}]", group)
    for name, times in Counter(group.name for group in config.instance_group if group.name).items():
        if times > 1:
            message = f"{times} instance groups are named {name!r}"
            yield Finding("RG112", "warning", message, "give each its own name", "instance_group")


def _group(path: str, group: ModelInstanceGroup) -> Iterator[Finding]:
    kind = type(group).Kind.Name(group.kind)
    if group.gpus and kind in {"KIND_CPU", "KIND_MODEL"}:
        message = f"an instance group of {kind} names gpus {dims_text(group.gpus)}"
        yield Finding("RG110", "error", message, "use KIND_GPU, or drop gpus", f"{path}.gpus")
    if negative := [gpu for gpu in group.gpus if gpu < 0]:
        message = f"an instance group names gpu {negative[0]}"
        yield Finding("RG110", "error", message, "gpus count from 0", f"{path}.gpus")
    if group.count < 0:
        message = f"an instance group has count {group.count}, and Triton takes a number of its own"
        yield Finding("RG111", "warning", message, "write count: 1 or more", f"{path}.count")
    if group.count > _MANY:
        message = f"an instance group has {group.count} instances, each with the model in memory"
        yield Finding("RG111", "warning", message, "a few are enough: measure", f"{path}.count")
    for number, resource in enumerate(group.rate_limiter.resources):
        where = f"{path}.rate_limiter.resources[{number}]"
        if not resource.name:
            yield Finding("RG131", "warning", "a rate limiter's resource has no name", "name it", where)
        if not resource.count:
            message = f"resource {resource.name!r} is asked for 0 times"
            yield Finding("RG131", "warning", message, "write count: 1 or more", where)

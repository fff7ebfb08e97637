"""Rules for max_batch_size, the dynamic batcher and its queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.triton_config.rules.findings import Finding
from repogen.triton_config.text.source_map import entry_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelDynamicBatching, ModelQueuePolicy

_DELAY = 1
_LONG_MICROSECONDS = 10_000_000


def batching_findings(config: ModelConfig) -> Iterator[Finding]:
    """Yield the violations in max_batch_size and dynamic_batching."""
    if config.max_batch_size < 0:
        message = f"max_batch_size is {config.max_batch_size}"
        hint = "write the largest batch that the model accepts, such as 8, or 0 if it does not batch"
        yield Finding("RG103", "error", message, hint, "max_batch_size")
    if not config.HasField("dynamic_batching"):
        return
    batching = config.dynamic_batching
    if config.max_batch_size == 0:
        message = "dynamic_batching has no effect because max_batch_size is 0"
        hint = "remove dynamic_batching, or raise max_batch_size if the model can batch"
        yield Finding("RG109", "warning", message, hint, "dynamic_batching")
    yield from preferred_size_findings(config, batching.preferred_batch_size, "dynamic_batching.preferred_batch_size")
    yield from _priority_findings(batching)
    yield from _ordering_findings(batching)
    yield from long_delay_findings(
        batching.max_queue_delay_microseconds, "dynamic_batching.max_queue_delay_microseconds"
    )


def preferred_size_findings(config: ModelConfig, sizes: list[int], path: str) -> Iterator[Finding]:
    """Yield the preferred batch sizes of a batcher that are out of range."""
    for index, size in enumerate(sizes):
        if config.max_batch_size >= 0 and not 1 <= size <= config.max_batch_size:
            message = f"preferred_batch_size {size} is not between 1 and max_batch_size {config.max_batch_size}"
            yield Finding("RG108", "error", message, "lower it, or raise max_batch_size", f"{path}[{index}]")


def long_delay_findings(microseconds: int, path: str) -> Iterator[Finding]:
    """Yield a warning for a delay above ten seconds, which is probably meant in another unit."""
    if microseconds > _LONG_MICROSECONDS:
        message = f"requests wait up to {microseconds / 1e6:g} s for a batch"
        yield Finding("RG129", "warning", message, "the unit is microseconds: 500 is half a millisecond", path)


def _priority_findings(batching: ModelDynamicBatching) -> Iterator[Finding]:
    levels = batching.priority_levels
    path = "dynamic_batching"
    if levels and not 1 <= batching.default_priority_level <= levels:
        message = f"default_priority_level is {batching.default_priority_level}, and there are {levels} levels"
        yield Finding("RG118", "error", message, f"use a level from 1 to {levels}", f"{path}.default_priority_level")
    for level in sorted(batching.priority_queue_policy):
        if levels and not 1 <= level <= levels:
            message = f"priority_queue_policy has an entry for level {level}, and there are {levels} levels"
            field = entry_path(f"{path}.priority_queue_policy", level)
            yield Finding("RG118", "error", message, f"use keys from 1 to {levels}", field)
    if not levels and batching.priority_queue_policy:
        message = "priority_queue_policy is set, but priority_levels is 0"
        yield Finding("RG118", "warning", message, "set priority_levels", f"{path}.priority_queue_policy")


def _ordering_findings(batching: ModelDynamicBatching) -> Iterator[Finding]:
    if not batching.preserve_ordering:
        return
    path = "dynamic_batching.preserve_ordering"
    if batching.priority_levels > 1:
        message = f"preserve_ordering conflicts with {batching.priority_levels} priority levels"
        yield Finding("RG119", "error", message, "remove preserve_ordering or priority_levels", path)
    policies: list[ModelQueuePolicy] = [batching.default_queue_policy]
    if batching.priority_levels:
        policies += batching.priority_queue_policy.values()
    if any(policy.default_timeout_microseconds and policy.timeout_action == _DELAY for policy in policies):
        message = "preserve_ordering conflicts with timeout_action DELAY, which reorders requests"
        yield Finding("RG119", "error", message, "use REJECT, or remove preserve_ordering", path)

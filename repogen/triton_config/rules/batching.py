"""max_batch_size, the dynamic batcher and its queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.triton_config.rules.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelDynamicBatching, ModelQueuePolicy

_DELAY = 1
_LONG_MICROSECONDS = 10_000_000


def batching_rules(config: ModelConfig) -> Iterator[Finding]:
    """Yield what is wrong with max_batch_size and dynamic_batching."""
    if config.max_batch_size < 0:
        message = f"max_batch_size is {config.max_batch_size}"
        yield Finding("RG103", "error", message, "use 0 where it does not batch", "max_batch_size")
    if not config.HasField("dynamic_batching"):
        return
    batching = config.dynamic_batching
    if config.max_batch_size == 0:
        message = "dynamic_batching is asked for, but max_batch_size is 0"
        hint = "drop dynamic_batching, or give a max_batch_size the model can keep"
        yield Finding("RG109", "warning", message, hint, "dynamic_batching")
    yield from preferred_sizes(config, batching.preferred_batch_size, "dynamic_batching.preferred_batch_size")
    yield from _priorities(batching)
    yield from _ordering(batching)
    yield from long_delay(batching.max_queue_delay_microseconds, "dynamic_batching.max_queue_delay_microseconds")


def preferred_sizes(config: ModelConfig, sizes: list[int], path: str) -> Iterator[Finding]:
    """Yield what is wrong with preferred batch sizes, of whatever batcher."""
    for index, size in enumerate(sizes):
        if not 1 <= size <= config.max_batch_size:
            message = f"preferred_batch_size {size} is not between 1 and max_batch_size {config.max_batch_size}"
            yield Finding("RG108", "error", message, "lower it, or raise max_batch_size", f"{path}[{index}]")


def long_delay(microseconds: int, path: str) -> Iterator[Finding]:
    """Yield a warning for a delay of more than ten seconds: somebody took microseconds for nanoseconds."""
    if microseconds > _LONG_MICROSECONDS:
        message = f"a queue delay of {microseconds / 1e6:g} s: requests wait that long for company"
        yield Finding("RG129", "warning", message, "it counts microseconds: 500 is half a millisecond", path)


def _priorities(batching: ModelDynamicBatching) -> Iterator[Finding]:
    levels = batching.priority_levels
    path = "dynamic_batching"
    if levels and not 1 <= batching.default_priority_level <= levels:
        message = f"default_priority_level is {batching.default_priority_level} of {levels} levels"
        yield Finding("RG118", "error", message, f"write one from 1 to {levels}", f"{path}.default_priority_level")
    for index, level in enumerate(batching.priority_queue_policy):
        if levels and not 1 <= level <= levels:
            message = f"a queue policy is for priority {level} of {levels} levels"
            hint = f"use keys from 1 to {levels}"
            yield Finding("RG118", "error", message, hint, f"{path}.priority_queue_policy[{index}]")
    if not levels and batching.priority_queue_policy:
        message = "queue policies are given for priorities, and priority_levels is 0"
        yield Finding("RG118", "warning", message, "write priority_levels", f"{path}.priority_queue_policy")


def _ordering(batching: ModelDynamicBatching) -> Iterator[Finding]:
    if not batching.preserve_ordering:
        return
    path = "dynamic_batching.preserve_ordering"
    if batching.priority_levels > 1:
        message = f"preserve_ordering with {batching.priority_levels} priority levels: a priority overtakes"
        yield Finding("RG119", "error", message, "drop one of both", path)
    policies: list[ModelQueuePolicy] = [batching.default_queue_policy]
    if batching.priority_levels:
        policies += batching.priority_queue_policy.values()
    if any(policy.default_timeout_microseconds and policy.timeout_action == _DELAY for policy in policies):
        message = "preserve_ordering with the timeout_action DELAY: what is delayed is overtaken"
        yield Finding("RG119", "error", message, "use REJECT, or drop preserve_ordering", path)

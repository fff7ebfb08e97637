"""What the embedded server cannot be asked: its backend is an imitation, and leaves some of NVIDIA's out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.serving import SmokeCheck

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tritonclient.grpc.model_config_pb2 import ModelConfig

    from repogen.artifacts.serving import Endpoint


def untried(endpoint: Endpoint, config: ModelConfig) -> SmokeCheck | None:
    """Return what a report says of a model that this server cannot serve, and NVIDIA's can; None for all others."""
    found = list(_beyond_the_imitation(config)) if endpoint.kind == "embedded" else []
    if not found:
        return None
    what = f"not tried: the embedded server's backend, unlike NVIDIA's, has no {', '.join(found)}"
    return SmokeCheck("served", passed=True, detail=f"{what}; try it with --server docker", warning=True)


def _beyond_the_imitation(config: ModelConfig) -> Iterator[str]:
    if any(tensor.allow_ragged_batch for tensor in config.input):
        yield "allow_ragged_batch"
    for key in ("batch_input", "batch_output"):
        if getattr(config, key):
            yield key
    states = config.sequence_batching.state
    if any(state.use_same_buffer_for_input_output or state.use_growable_memory for state in states):
        yield "use_same_buffer_for_input_output"

"""How long and how large a smoke test may become."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of one model's smoke test; what they cut off is said in the report, never left out silently.

    Attributes:
        request_seconds: One inference; the largest batch of a slow model must fit.
        load_seconds: Loading, weights of many GB included.
        unload_seconds: Unloading.
        request_bytes: Inputs of one request, and of one burst.
        answer_bytes: Outputs of one batch; a gRPC message ends at 2 GiB, and the expected ones lie in memory as well.
        batches_seconds: All sampled batch sizes together.
        bursts: Numbers of requests sent at once to see dynamic batching.
        latency_requests: Single-row requests timed, at most.
        latency_seconds: The same, in time.
    """

    request_seconds: float = 120.0
    load_seconds: float = 600.0
    unload_seconds: float = 60.0
    request_bytes: int = 128 * 2**20
    answer_bytes: int = 512 * 2**20
    batches_seconds: float = 20.0
    bursts: tuple[int, ...] = (8, 16, 32, 64, 128)
    latency_requests: int = 30
    latency_seconds: float = 2.0

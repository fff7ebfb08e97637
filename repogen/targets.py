"""The Triton release a repository is built for, and its limits."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources

DEFAULT_RELEASE = "24.10"


@dataclass(frozen=True)
class Target:
    """One Triton release.

    Attributes:
        release: Container release, for example ``24.10``.
        server_version: tritonserver version, for example ``2.51.0``.
        onnxruntime: ONNX Runtime version of the stock backend, for example ``1.19.2``.
        max_opset: Newest ``ai.onnx`` opset it loads.
        max_ir: Newest ONNX IR version it loads.
    """

    release: str
    server_version: str
    onnxruntime: str
    max_opset: int
    max_ir: int


@cache
def targets() -> dict[str, Target]:
    """Return every known release, oldest first, from the shipped ``triton_releases.csv``.

    Source: ONNX Runtime versions from Triton's own build files; opset and IR probed with each ONNX Runtime wheel.
    """
    text = (resources.files("repogen") / "data" / "triton_releases.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {
        row["release"]: Target(
            row["release"], row["server_version"], row["onnxruntime"], int(row["max_opset"]), int(row["max_ir"])
        )
        for row in rows
    }

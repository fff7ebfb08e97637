"""The Triton releases that repogen can build for: their limits, and the ModelConfig fields that they support."""

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
        max_opset: Newest ``ai.onnx`` opset that it loads.
        max_ir: Newest ONNX IR version that it loads.
    """

    release: str
    server_version: str
    onnxruntime: str
    max_opset: int
    max_ir: int


@cache
def targets() -> dict[str, Target]:
    """Return all supported releases, oldest first, from the shipped ``triton_releases.csv``.

    Source: ONNX Runtime versions from Triton's own build files; opset and IR limits measured with each ONNX Runtime
    wheel.
    """
    return {
        row["release"]: Target(
            row["release"], row["server_version"], row["onnxruntime"], int(row["max_opset"]), int(row["max_ir"])
        )
        for row in _rows("triton_releases.csv")
    }


def field_releases(message: str, field: str) -> tuple[str, str]:
    """Return the first and the last release that support a field of ModelConfig; "" if there is no limit.

    Args:
        message: Message or enum without the package, for example ``ModelDynamicBatching``.
        field: Field or enum value.
    """
    return _limited_fields().get((message, field), ("", ""))


def supports_field(release: str, message: str, field: str) -> bool:
    """Return whether ``release`` supports a field of ModelConfig; True for a field without limits."""
    releases = list(targets())
    first_release, last_release = field_releases(message, field)
    index = releases.index(release)
    return (not first_release or releases.index(first_release) <= index) and (
        not last_release or index <= releases.index(last_release)
    )


@cache
def _limited_fields() -> dict[tuple[str, str], tuple[str, str]]:
    """Return the fields that some releases do not support: (message, field) -> (first release, last release or "").

    Source: the protobuf classes of tritonclient's wheels; ``tools/model_config_fields.py`` writes the file.
    """
    oldest = next(iter(targets()))
    return {
        (row["message"], row["field"]): (row["since"], row["until"])
        for row in _rows("model_config_fields.csv")
        if row["since"] != oldest or row["until"]
    }


def _rows(file: str) -> csv.DictReader[str]:
    text = (resources.files("repogen") / "data" / file).read_text(encoding="utf-8")
    return csv.DictReader(text.splitlines())

"""The Triton releases that repogen can build for: their limits, and the ModelConfig fields that they support."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

DEFAULT_RELEASE = "24.10"
"""The release of a spec without ``target:``, and of commands without ``--target``."""
BFLOAT16_SINCE = "26.03"
"""The first release whose onnxruntime backend serves BF16 inputs and outputs (its commit 89b93a7)."""
_PYTHON_312_SINCE = "24.11"
_RELEASE = re.compile(r"[2-9][0-9]\.(0[1-9]|1[0-2])")


@dataclass(frozen=True)
class Target:
    """One Triton release.

    Attributes:
        release: Container release, for example ``24.10``.
        server_version: tritonserver version, for example ``2.51.0``.
        onnxruntime: ONNX Runtime version of the stock backend, for example ``1.19.2``.
        max_opset: Newest ``ai.onnx`` opset that it loads.
        max_ir: Newest ONNX IR version that it loads.
        judged_as: The newest release of the table, if this one is newer; empty for a release of the table.
    """

    release: str
    server_version: str
    onnxruntime: str
    max_opset: int
    max_ir: int
    judged_as: str = ""

    @property
    def serves_bfloat16(self) -> bool:
        """Whether inputs and outputs can be BF16."""
        return self.release >= BFLOAT16_SINCE

    @property
    def python(self) -> str:
        """Version of the Python in NVIDIA's image, which the stub of the Python backend is built for.

        Source: Ubuntu 22.04 from 23.05 (server#5895), Ubuntu 24.04 from 24.11 (python_backend commit f059435).
        """
        return "3.12" if self.release >= _PYTHON_312_SINCE else "3.10"

    @property
    def unknown_note(self) -> str:
        """What a user should know about a release that is not in the table; empty for one that is."""
        if not self.judged_as:
            return ""
        return (
            f"Triton {self.release} is newer than the releases that this version of repogen knows; the limits of "
            f"{self.judged_as} (ONNX Runtime {self.onnxruntime}) apply"
        )


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


def newest_target() -> Target:
    """Return the newest release of the table."""
    return next(reversed(targets().values()))


def find_target(release: str) -> Target | None:
    """Return a release, or None for text that is not one; a release newer than the table has the newest one's limits.

    >>> find_target("24.10").onnxruntime, find_target("24.13")
    ('1.19.2', None)
    >>> find_target("99.01").judged_as == newest_target().release
    True
    """
    newest = newest_target()
    if _RELEASE.fullmatch(release) and release > newest.release:
        return replace(newest, release=release, server_version="", judged_as=newest.release)
    return targets().get(release)


def target_of(release: str) -> Target:
    """Return a release that ``find_target`` knows, such as that of a loaded spec.

    Raises:
        KeyError: It is not a release of Triton.
    """
    target = find_target(release)
    if target is None:
        raise KeyError(release)
    return target


@dataclass(frozen=True)
class AcceleratorParameter:
    """A parameter of an accelerator.

    Attributes:
        type: ``integer``, ``unsigned``, ``boolean``, ``choice`` or ``text``.
        values: The values of a choice.
    """

    type: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Accelerator:
    """An execution accelerator of the onnxruntime backend.

    Attributes:
        name: Its name in config.pbtxt.
        device: ``gpu`` or ``cpu``.
        parameters: Its parameters by name; empty if it reads none.
    """

    name: str
    device: str
    parameters: dict[str, AcceleratorParameter]


@cache
def accelerators_of(target: Target) -> dict[str, Accelerator]:
    """Return the accelerators of a release by name, from the shipped ``accelerator_parameters.csv``.

    Source: src/onnxruntime.cc (LoadModel) of triton-inference-server/onnxruntime_backend, in the branch of each release
    from r23.08 to r26.06; later releases have those of 26.06. The parameters of CUDA are ONNX Runtime's provider
    options.
    """
    accelerators: dict[str, Accelerator] = {}
    for row in _rows("accelerator_parameters.csv"):
        if row["since"] > target.release or (row["until"] and row["until"] < target.release):
            continue
        accelerator = accelerators.setdefault(row["accelerator"], Accelerator(row["accelerator"], row["device"], {}))
        if row["parameter"]:
            accelerator.parameters[row["parameter"]] = AcceleratorParameter(row["type"], tuple(row["values"].split()))
    return accelerators


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
    release = min(release, releases[-1])
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

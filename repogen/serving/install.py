"""Installs the embedded Triton atomically in the cache directory; several versions can be installed together.

The cache directory contains ``tritonserver-<version>`` (the server, shared by all targets),
``onnxruntime-<version>-<tag>`` (the packages that the backend imports), and ``backends-<server>-<tag>-<digest>``
(Triton's backend directory with this version's backend). Each has a ``stamp.json``, which is written last, before the
directory is renamed to its final name.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.errors import ServerError
from repogen.files import cache_directory, foreign_reason
from repogen.repository.digest import sha256_bytes
from repogen.repository.filesystem import make_directory
from repogen.repository.lock import file_lock
from repogen.serving import interpreter, wheels
from repogen.triton_config.text import ragged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from repogen.artifacts.progress import Progress

CACHE_VARIABLE = "REPOGEN_CACHE_DIR"
NEEDED_BYTES = 450 * 2**20
"""Free space that a first installation needs, downloads included."""
_BACKEND = Path(__file__).with_name("onnxruntime_backend")
_SKIPPED = ("/tests/", "onnxruntime/transformers/", "onnxruntime/quantization/", "onnxruntime/tools/")
_STAGING = ".staging-"
_SHELL_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+", re.ASCII)


@dataclass(frozen=True)
class Installation:
    """The parts of one embedded Triton, installed or not.

    Attributes:
        root: Directory that contains all parts.
        lock: Its wheels.
        python: The interpreter that hosts ONNX Runtime.
        onnxruntime: ONNX Runtime's version.
        server: Directory of the server: ``bin``, ``lib``, ``python``, ``stubs``.
        site: Directory with NumPy and ONNX Runtime.
        backends: Triton's ``--backend-directory``.
    """

    root: Path
    lock: wheels.WheelLock
    python: interpreter.Interpreter
    onnxruntime: str
    server: Path
    site: Path
    backends: Path

    @property
    def complete(self) -> bool:
        """Whether every part is installed."""
        return all(map(self.has, (self.server, self.site, self.backends)))

    def has(self, part: Path) -> bool:
        """Return whether a part is installed, in a directory to which no other user can write."""
        return (part / "stamp.json").is_file() and not foreign_reason(self.root)


def cache_root() -> Path:
    """Return the directory for the embedded Tritons of this user."""
    return cache_directory(os.environ.get(CACHE_VARIABLE)) / "triton"


def shell_safe(path: Path) -> bool:
    """Return whether a shell reads ``path`` unchanged as one word: the Python backend passes paths to bash unquoted."""
    return _SHELL_SAFE.fullmatch(str(path)) is not None


def locate(onnxruntime: str, root: Path | None = None, lock: wheels.WheelLock | None = None) -> Installation:
    """Return the paths of the embedded Triton for an ONNX Runtime version, installed or not.

    Args:
        onnxruntime: The version.
        root: Directory for all parts; the user's cache by default.
        lock: The wheels; by default those that repogen ships.

    Raises:
        ServerError: There is no wheel or no interpreter for it.
    """
    lock = lock or wheels.shipped_lock()
    python = interpreter.choose(lock.tags_for(onnxruntime))
    base = root or cache_root()
    version = lock.server_version
    return Installation(
        root=base,
        lock=lock,
        python=python,
        onnxruntime=onnxruntime,
        server=base / f"tritonserver-{version}",
        site=base / f"onnxruntime-{onnxruntime}-{python.tag}",
        backends=base / f"backends-{version}-{python.tag}-{_backend_digest()}",
    )


def install(installation: Installation, progress: Progress, source: Path | None = None) -> None:
    """Install the missing parts.

    Args:
        installation: From ``locate``.
        progress: Receives progress events of each step and download.
        source: Directory of wheels to use instead of an index.

    Raises:
        ServerError: A wheel is not available or is not the locked one, or the files cannot be written. Parts that were
            installed before stay unchanged.
    """
    if installation.complete:
        return
    with exclusive(installation.root):
        _install_parts(installation, progress, source)


@contextlib.contextmanager
def exclusive(root: Path) -> Iterator[None]:
    """Hold the lock of a cache directory while the block installs into it; first delete remains of killed processes.

    Raises:
        ServerError: The disk is full, the directory is not writable, or another user can write to it.
    """
    try:
        make_directory(root)
        if problem := foreign_reason(root):
            raise ServerError(
                f"{root} {problem}, and repogen would run the programs in it",
                f"set {CACHE_VARIABLE} to a directory of your own, or correct the owner and the permissions with "
                "`chown` and `chmod go-w`",
                code="server.install",
            )
        with file_lock(root / "install.lock"):
            for remains in root.glob(f"{_STAGING}*"):
                shutil.rmtree(remains, ignore_errors=True)
            yield
    except OSError as error:
        raise ServerError(
            f"the embedded Triton could not be installed in {root}: {error}",
            f"free some space, or set {CACHE_VARIABLE} to a writable directory",
            code="server.install",
        ) from error


def _install_parts(installation: Installation, progress: Progress, source: Path | None) -> None:
    lock, tag = installation.lock, installation.python.tag
    triton = lock.tritonserver.wheel
    numpy, runtime = lock.wheels_for(installation.onnxruntime, tag)

    def unpack(wheel: wheels.Wheel, part: Path, destination_of: Callable[[str], str | None]) -> None:
        unpack_wheel(wheel, tag, part, destination_of, progress, source)

    with part(installation.server, {"wheel": triton.sha256}) as server:
        if server is not None:
            unpack(triton, server, _server_path)
    with part(installation.site, {"numpy": numpy.sha256, "onnxruntime": runtime.sha256}) as site:
        if site is not None:
            unpack(numpy, site, _site_path)
            unpack(runtime, site, _site_path)
    with part(installation.backends, {"backend": _backend_digest()}) as backends:
        if backends is not None:
            _assemble_backends(installation, backends)


def unpack_wheel(
    wheel: wheels.Wheel,
    tag: str,
    part: Path,
    destination_of: Callable[[str], str | None],
    progress: Progress,
    source: Path | None,
) -> None:
    """Download a wheel, or read it from the directory ``source``, and unpack it to ``part``.

    Raises:
        ServerError: It is not available, or is not the locked one.
    """
    progress.step("", f"installing {wheel.file.split('-')[0]} {wheel.file.split('-')[1]}")
    with tempfile.TemporaryDirectory(prefix=_STAGING, dir=part.parent) as folder:
        private = Path(folder)
        archive = wheels.collect(wheel, source, private) if source else wheels.fetch(wheel, tag, private, progress)
        wheels.unpack(archive, part, destination_of)


@contextlib.contextmanager
def part(final: Path, stamp: dict[str, str]) -> Iterator[Path | None]:
    """Yield a directory, which is renamed to ``final`` when the block succeeds; None when ``final`` is complete."""
    if (final / "stamp.json").is_file():
        yield None
        return
    with tempfile.TemporaryDirectory(prefix=_STAGING, dir=final.parent, ignore_cleanup_errors=True) as staging:
        directory = Path(staging, "part")
        directory.mkdir()
        yield directory
        (directory / "stamp.json").write_text(json.dumps(stamp, indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(final, ignore_errors=True)
        directory.rename(final)


def _assemble_backends(installation: Installation, part: Path) -> None:
    """Create Triton's backend directory with copies, since Triton rejects symlinks that lead out of it."""
    server = installation.server
    shutil.copytree(server / "python", part / "python")
    shutil.copy2(server / "stubs" / installation.python.version / "triton_python_backend_stub", part / "python")
    (part / "onnxruntime").mkdir()
    for source in _backend_sources():
        shutil.copy2(source, part / "onnxruntime")


def _server_path(member: str) -> str | None:
    """Return the path of a member of nvidia-pytriton's wheel; the binary's rpath contains ``../lib``."""
    folder, _, name = member.rpartition("/")
    if folder == "nvidia_pytriton.libs":
        # This libpython is for a stub that is not used; the other stubs need the interpreter's own.
        return None if name.startswith("libpython") else f"lib/{name}"
    if folder.endswith(".dist-info/licenses"):
        return f"licenses/{name}"
    home, stubs = "pytriton/tritonserver", "pytriton/tritonserver/python_backend_stubs/"
    if folder in (f"{home}/bin", f"{home}/backends/python"):
        return f"{folder.rpartition('/')[2]}/{name}"
    if folder.startswith(stubs) and folder.removeprefix(stubs) in interpreter.SUPPORTED:
        return f"stubs/{folder.removeprefix(stubs)}/{name}"
    return None


def _site_path(member: str) -> str | None:
    """Return the path of a member of NumPy's or ONNX Runtime's wheel; None for tests and tools."""
    return None if any(part in member for part in _SKIPPED) else member


def _backend_sources() -> list[Path]:
    own = [_BACKEND / name for name in ("graph_rules.py", "model.py", "ort_session.py")]
    return sorted([*own, Path(ragged.__file__)])


@cache
def _backend_digest() -> str:
    return sha256_bytes(b"\0".join(source.read_bytes() for source in _backend_sources()))[:12]

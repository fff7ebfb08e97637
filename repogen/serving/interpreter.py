"""Finds the Python that hosts ONNX Runtime inside Triton: 3.10-3.12 with a shared libpython.

Triton's Python stub links against ``libpython3.X.so.1.0``, which locates the standard library by the first ``python3``
on PATH. This Python may differ from the one that runs repogen.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SUPPORTED = ("3.12", "3.11", "3.10")
"""Versions with a Triton stub and a NumPy 1.26 wheel, preferred first."""

_PROBE = (
    "import json,sys,sysconfig as c;v=c.get_config_var;"
    "print(json.dumps([sys.implementation.name,list(sys.version_info[:2]),sys.base_prefix,"
    "[v('LIBDIR'),v('LIBPL'),v('LDLIBRARY'),v('INSTSONAME'),v('MULTIARCH')]]))"
)
_PROBE_SECONDS = 10


@dataclass(frozen=True)
class Interpreter:
    """A Python that the stub can embed.

    Attributes:
        executable: Its real executable, outside any virtual environment.
        version: ``3.11``.
        libpython: Its ``libpython3.11.so.1.0``.
    """

    executable: Path
    version: str
    libpython: Path

    @property
    def tag(self) -> str:
        """Wheel tag, for example ``cp311``."""
        return "cp" + self.version.replace(".", "")


@dataclass(frozen=True)
class Rejected:
    """A Python of a supported version without a shared libpython."""

    executable: Path
    version: str


def choose(tags: Iterable[str]) -> Interpreter:
    """Return an interpreter for which the lock has wheels.

    Args:
        tags: Wheel tags to choose from, for example ``{"cp310", "cp311"}``.

    Raises:
        ServerError: There is none; the message lists the unusable Pythons, and the hint the packages to install.
    """
    allowed = frozenset(tags)
    interpreter = _first(allowed)
    if interpreter is not None:
        return interpreter
    interpreters, rejections = survey()
    versions = [version for version in SUPPORTED if "cp" + version.replace(".", "") in allowed]
    candidates = [f"{python.executable} ({python.version}, no libpython)" for python in rejections]
    candidates += [f"{python.executable} ({python.version})" for python in interpreters]
    raise ServerError(
        f"no usable Python {', '.join(versions)} for the embedded Triton; found: {'; '.join(candidates) or 'none'}",
        f"{remedy(versions)}, or use another --server, such as docker",
        code="server.interpreter",
    )


def remedy(versions: Iterable[str] = SUPPORTED) -> str:
    """Return the command that installs a usable interpreter."""
    allowed = tuple(versions)
    incomplete = [python.version for python in survey()[1] if python.version in allowed]
    if incomplete:
        return f"apt-get install libpython{incomplete[0]}"
    version = "3.11" if "3.11" in allowed else next(iter(allowed), "3.11")
    return f"apt-get install python{version} libpython{version}"


@cache
def _first(tags: frozenset[str]) -> Interpreter | None:
    """Return the first usable interpreter with one of the tags; probes no more than needed."""
    return next((python for python in _pythons() if isinstance(python, Interpreter) and python.tag in tags), None)


@cache
def survey() -> tuple[tuple[Interpreter, ...], tuple[Rejected, ...]]:
    """Return the interpreters that can host ONNX Runtime, preferred first, and those that lack only libpython."""
    pythons = tuple(_pythons())
    interpreters = tuple(python for python in pythons if isinstance(python, Interpreter))
    return interpreters, tuple(python for python in pythons if isinstance(python, Rejected))


def _pythons() -> Iterator[Interpreter | Rejected]:
    """Probe each candidate once."""
    seen_paths: set[Path] = set()
    for candidate in _candidates():
        if candidate.resolve() in seen_paths:
            continue
        seen_paths.add(candidate.resolve())
        probed = _probe(candidate)
        if probed is not None and (probed.executable == candidate.resolve() or probed.executable not in seen_paths):
            seen_paths.add(probed.executable)
            yield probed


def _candidates() -> Iterator[Path]:
    """Yield executables: this process's base interpreter, PATH, system directories, version managers."""
    current = ".".join(map(str, sys.version_info[:2]))
    versions = sorted(SUPPORTED, key=lambda version: version != current)  # this interpreter's version first
    folders = [Path(sys.base_prefix, "bin"), *_version_manager_folders()]
    system = [Path("/usr/bin"), Path("/usr/local/bin")]
    for version in versions:
        on_path = shutil.which(f"python{version}")
        paths = [folder / f"python{version}" for folder in (*folders[:1], *system, *folders[1:])]
        for path in ([*paths[:1], Path(on_path)] if on_path else []) + paths:
            if path.exists() and os.access(path, os.X_OK):
                yield path


def _version_manager_folders() -> Iterator[Path]:
    """Yield the ``bin`` directories of the Pythons that pyenv and uv installed, in descending order of their names."""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home fails for a user without one
    pyenv = Path(os.environ.get("PYENV_ROOT", home / ".pyenv"), "versions")
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR", home / ".local/share/uv/python"))
    for root in (path for path in (pyenv, uv) if path.is_absolute()):  # "~" stays as it is for a user without a home
        yield from sorted(root.glob("*/bin"), reverse=True)


def _probe(executable: Path) -> Interpreter | Rejected | None:
    """Run a Python to read its version and libpython; None when Triton has no stub for it."""
    try:
        outcome = subprocess.run(
            [executable, "-I", "-S", "-c", _PROBE], capture_output=True, timeout=_PROBE_SECONDS, check=True
        )
        name, (major, minor), base, variables = json.loads(outcome.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    version = f"{major}.{minor}"
    if name != "cpython" or version not in SUPPORTED:
        return None
    base_executable = Path(base, "bin", f"python{version}")
    base_executable = (base_executable if base_executable.exists() else executable).resolve()
    libpython = find_libpython(version, Path(base), variables)
    return Rejected(base_executable, version) if libpython is None else Interpreter(base_executable, version, libpython)


def find_libpython(version: str, base: Path, variables: list[str | None]) -> Path | None:
    """Return the shared library of one Python, or None.

    Args:
        version: ``3.11``.
        base: Its ``sys.base_prefix``.
        variables: Its LIBDIR, LIBPL, LDLIBRARY, INSTSONAME and MULTIARCH from sysconfig.
    """
    libdir, libpl, ldlibrary, soname, multiarch = variables
    standard = f"libpython{version}.so.1.0"
    names = dict.fromkeys(name for name in (standard, soname, ldlibrary) if name and ".so" in name)
    folders = dict.fromkeys(
        Path(folder)
        for folder in (
            *(libdir, libpl, str(base / "lib"), multiarch and str(base / "lib" / multiarch)),
            *(multiarch and f"/usr/lib/{multiarch}", "/usr/lib64", "/usr/local/lib", "/usr/lib"),
        )
        if folder
    )
    files = (folder / name for folder in folders for name in names)
    return next((file.resolve() for file in files if file.exists()), None)

"""pip that builds nothing, and that reads no wheel outside given directories: a program for any Python that has pip.

An index is a foreign page: it may link to a file of this machine, and may answer a request with a redirect to one. pip
follows both. ``--only-binary`` does not apply to the URLs that a wheel's metadata may require either: pip would run the
build of an archive. pip also runs ``rustc`` for its user agent; rustup's proxy of that name runs the program that a
``rust-toolchain.toml`` in the working directory, or above it, names.
"""

from __future__ import annotations

import errno
import inspect
import json
import os
import runpy
import stat
import sys
from pathlib import Path

_BUILDERS = frozenset({"git", "hg", "svn", "bzr"})
_WHEEL = b"PK\x03\x04"
_CACHE_MODULE = "pip/_internal/network/cache.py"  # it opens the responses that pip keeps


class _Limits:
    """An audit hook that ends pip."""

    def __init__(self, directories: list[str]) -> None:
        paths = [Path(directory).absolute() for directory in directories]
        self._directories = frozenset({*paths, *(path.resolve() for path in paths)})
        self._is_reading = False

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "subprocess.Popen":
            _refuse_program(arguments)
        elif event == "open" and not self._is_reading:
            self._is_reading = True
            try:
                self._refuse_wheel(arguments[0])
            finally:
                self._is_reading = False

    def _refuse_wheel(self, opened: object) -> None:
        if not isinstance(opened, str | bytes | os.PathLike):  # a descriptor
            return
        path = Path(os.path.normpath(Path(os.fsdecode(opened)).absolute()))
        if self._directories.isdisjoint({path, *path.parents}) and _is_wheel(path) and not _is_cached():
            _end(
                f"the index links to {path}, a file of this machine that is not in a directory of pip's configuration; "
                "if you trust the index, add the directory to PIP_FIND_LINKS"
            )


def _refuse_program(arguments: tuple[object, ...]) -> None:
    program, command = arguments[0], arguments[1]
    path = os.fsdecode(program or command[0])  # type: ignore[arg-type, index]
    if Path(path).name == "rustc":
        raise FileNotFoundError(errno.ENOENT, "not run", path)  # pip continues without its version
    if path == sys.executable or Path(path).name in _BUILDERS:
        _end("repogen accepts only wheels: no package is built from source, or cloned")


def _is_wheel(path: Path) -> bool:
    """Return whether a file is a ZIP archive, but not one from which Python imports modules."""
    try:
        if str(path) in sys.path or not stat.S_ISREG(path.stat().st_mode):
            return False
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
            return stream.read(len(_WHEEL)) == _WHEEL
    except (OSError, ValueError):  # pip reports it
        return False


def _is_cached() -> bool:
    """Return whether pip's cache opens the file: the function that caused the event, below this hook's three."""
    frame = inspect.currentframe()
    for _ in range(3):
        frame = frame and frame.f_back
    return frame is not None and Path(frame.f_code.co_filename).as_posix().endswith(_CACHE_MODULE)


def _end(message: str) -> None:
    """End pip without a traceback, which an exception in an audit hook would lead to."""
    sys.stderr.write(f"ERROR: {message}\n")
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    sys.addaudithook(_Limits(json.loads(sys.argv.pop(1))))
    runpy.run_module("pip", run_name="__main__", alter_sys=True)

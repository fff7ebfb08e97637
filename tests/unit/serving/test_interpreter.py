"""The choice of the Python that hosts ONNX Runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repogen.errors import ServerError
from repogen.serving import interpreter

if TYPE_CHECKING:
    from pathlib import Path


def test_libpython_is_found_in_libdir(tmp_path: Path) -> None:
    """LIBDIR of sysconfig is searched first."""
    library = tmp_path / "odd" / "libpython3.11.so.1.0"
    library.parent.mkdir()
    library.touch()

    path = interpreter.find_libpython(
        "3.11", tmp_path, [str(library.parent), None, "libpython3.11.so", "libpython3.11.so.1.0", None]
    )

    assert path == library


def test_libpython_is_found_below_the_prefix(tmp_path: Path) -> None:
    """LIBDIR of a relocated Python is a path of its build machine."""
    library = tmp_path / "lib" / "libpython3.12.so.1.0"
    library.parent.mkdir()
    library.touch()

    path = interpreter.find_libpython("3.12", tmp_path, ["/build/lib", None, "libpython3.12.a", None, None])

    assert path == library


def test_static_library_is_ignored(tmp_path: Path) -> None:
    """A Python that was built without --enable-shared has only a static library."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libpython3.99.a").touch()

    path = interpreter.find_libpython("3.99", tmp_path, [str(tmp_path / "lib"), None, "libpython3.99.a", None, None])

    assert path is None


def test_chosen_interpreter_has_wheels() -> None:
    """Its tag is one of the allowed tags."""
    assert interpreter.choose(["cp310", "cp311", "cp312"]).tag in {"cp310", "cp311", "cp312"}


def test_missing_interpreter_is_an_error_with_a_command() -> None:
    """The hint is a command to run."""
    with pytest.raises(ServerError, match="no usable Python") as caught:
        interpreter.choose(["cp399"])

    assert "apt-get install" in caught.value.hint

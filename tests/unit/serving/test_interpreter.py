"""Which Python hosts ONNX Runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repogen.errors import ServerError
from repogen.serving import interpreter

if TYPE_CHECKING:
    from pathlib import Path


def test_libpython_is_found_where_sysconfig_says(tmp_path: Path) -> None:
    """LIBDIR comes first."""
    library = tmp_path / "odd" / "libpython3.11.so.1.0"
    library.parent.mkdir()
    library.touch()

    found = interpreter.find_libpython(
        "3.11", tmp_path, [str(library.parent), None, "libpython3.11.so", "libpython3.11.so.1.0", None]
    )

    assert found == library


def test_libpython_is_found_below_the_prefix_when_sysconfig_is_wrong(tmp_path: Path) -> None:
    """A relocated Python's LIBDIR names the machine it was built on."""
    library = tmp_path / "lib" / "libpython3.12.so.1.0"
    library.parent.mkdir()
    library.touch()

    found = interpreter.find_libpython("3.12", tmp_path, ["/build/lib", None, "libpython3.12.a", None, None])

    assert found == library


def test_a_static_library_is_no_libpython(tmp_path: Path) -> None:
    """A Python built without --enable-shared has only the archive."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libpython3.99.a").touch()

    found = interpreter.find_libpython("3.99", tmp_path, [str(tmp_path / "lib"), None, "libpython3.99.a", None, None])

    assert found is None


def test_the_chosen_interpreter_fits_the_wheels() -> None:
    """Of the tags that are offered, one is taken."""
    assert interpreter.choose(["cp310", "cp311", "cp312"]).tag in {"cp310", "cp311", "cp312"}


def test_no_fitting_interpreter_is_an_error_with_a_command() -> None:
    """The hint is something to type."""
    with pytest.raises(ServerError, match="no usable Python") as caught:
        interpreter.choose(["cp399"])

    assert "apt-get install" in caught.value.hint

"""The user's callables: found, imported once, and their failures placed."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from repogen.errors import SourceError
from repogen.source.common.callables import import_callable

if TYPE_CHECKING:
    from pathlib import Path


def refused(reference: str, root: Path) -> SourceError:
    """Return the error of an import that must fail; no message may show where the directory lies."""
    with pytest.raises(SourceError) as caught:
        import_callable(reference, root)
    assert str(root) not in caught.value.message + caught.value.hint + caught.value.where
    return caught.value


def test_a_file_beside_the_spec_is_imported(root: Path) -> None:
    """``file.py:callable`` starts at the spec, and sees its neighbors."""
    (root / "neighbor.py").write_text("ANSWER = 42\n")
    (root / "mine.py").write_text("import neighbor\ndef build():\n    return neighbor.ANSWER\n")
    assert import_callable("mine.py:build", root)() == 42


def test_a_package_beside_the_spec_is_imported(root: Path) -> None:
    """``package.module:Class.method`` works, too."""
    (root / "mypackage").mkdir()
    (root / "mypackage" / "nets.py").write_text("class Net:\n    @staticmethod\n    def make():\n        return 7\n")
    assert import_callable("mypackage.nets:Net.make", root)() == 7


def test_one_file_runs_once_for_two_callables(root: Path) -> None:
    """Factory and examples in the same file share its state."""
    (root / "both.py").write_text("SEEN = []\ndef build(): SEEN.append(1)\ndef examples(): return len(SEEN)\n")
    import_callable("both.py:build", root)()
    assert import_callable("both.py:examples", root)() == 1


def test_a_file_named_like_a_standard_module_takes_nobodys_place(root: Path) -> None:
    """A user's ``json.py`` is imported without breaking the json of others."""
    (root / "json.py").write_text("def build():\n    return 'mine'\n")
    assert import_callable("json.py:build", root)() == "mine"
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    ("code", "where", "words"),
    [
        ("x = 1\nimport nowhere_to_be_found\n", "mine.py:2", "ModuleNotFoundError"),
        ("import sys\nsys.exit(3)\n", "mine.py:2", "called sys.exit: 3"),
        ("def build(:\n    pass\n", "mine.py:1", "SyntaxError"),
        ("import os\nos.nothing_of_that_name\n", "mine.py:2", "AttributeError"),
        ("1 / 0\n", "mine.py:1", "ZeroDivisionError"),
    ],
)
def test_a_failing_import_is_placed_at_the_users_line(root: Path, code: str, where: str, words: str) -> None:
    """Whatever the module's top level does, the error says where."""
    (root / "mine.py").write_text(code)
    error = refused("mine.py:build", root)
    assert (error.code, error.where) == ("source.user-code", where)
    assert words in error.message


def test_a_missing_module_says_what_to_install(root: Path) -> None:
    """The hint names the module."""
    (root / "mine.py").write_text("import nowhere_to_be_found\n")
    assert "install 'nowhere_to_be_found'" in refused("mine.py:build", root).hint


def test_a_missing_callable_says_what_there_is(root: Path) -> None:
    """The hint lists the module's names."""
    (root / "mine.py").write_text("def make(): ...\n_private = 1\n")
    error = refused("mine.py:build", root)
    assert (error.code, error.hint) == ("source.callable-missing", "it defines: make")


def test_what_is_no_callable_is_refused(root: Path) -> None:
    """A constant is no factory."""
    (root / "mine.py").write_text("build = 3\n")
    error = refused("mine.py:build", root)
    assert (error.code, error.message) == ("source.not-callable", "'mine.py:build' is a int, not a callable")


def test_a_missing_file_is_said_without_its_directory(root: Path) -> None:
    """The name is enough."""
    assert refused("gone.py:build", root).message == "there is no file gone.py"


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        ("raise ValueError('x' * 5000)", "ValueError: " + "x" * 1000 + "…"),
        (
            "class Mute(Exception):\n    def __str__(self): raise TypeError\nraise Mute",
            "Mute: (its text can't be had: TypeError)",
        ),
    ],
)
def test_whatever_an_exception_says_is_told_in_bounds(root: Path, code: str, ending: str) -> None:
    """A dump of a tensor does not fill the screen, and an exception that cannot speak is named."""
    (root / "mine.py").write_text(code + "\n")
    assert refused("mine.py:build", root).message == f"importing 'mine.py:build' failed: {ending}"

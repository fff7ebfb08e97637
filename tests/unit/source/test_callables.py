"""Tests for importing user callables, and for locating their errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from repogen.errors import SourceError
from repogen.source.common.callables import import_callable

REPLACEABLE = (
    "working-directory.foreign a directory or a symlink on the way to models.py belongs to another user, who could "
    "replace the code\n"
)


def rejected(reference: str, root: Path) -> SourceError:
    """Return the error of an import that fails; its text must not contain the directory."""
    with pytest.raises(SourceError) as caught:
        import_callable(reference, root)
    assert str(root) not in caught.value.message + caught.value.hint + caught.value.where
    return caught.value


def test_file_next_to_the_spec_is_imported(root: Path) -> None:
    """``file.py:callable`` is relative to the spec, and can import modules next to it."""
    (root / "neighbor.py").write_text("ANSWER = 42\n")
    (root / "mine.py").write_text("import neighbor\ndef build():\n    return neighbor.ANSWER\n")
    assert import_callable("mine.py:build", root)() == 42


def test_package_next_to_the_spec_is_imported(root: Path) -> None:
    """``package.module:Class.method`` is allowed."""
    (root / "mypackage").mkdir()
    (root / "mypackage" / "nets.py").write_text("class Net:\n    @staticmethod\n    def make():\n        return 7\n")
    assert import_callable("mypackage.nets:Net.make", root)() == 7


def test_file_with_two_callables_runs_once(root: Path) -> None:
    """A factory and examples in the same file share module state."""
    (root / "both.py").write_text("SEEN = []\ndef build(): SEEN.append(1)\ndef examples(): return len(SEEN)\n")
    import_callable("both.py:build", root)()
    assert import_callable("both.py:examples", root)() == 1


def test_file_named_like_a_standard_module_does_not_replace_it(root: Path) -> None:
    """A user's ``json.py`` does not affect other modules that import json."""
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
def test_failing_import_is_located_in_user_code(root: Path, code: str, where: str, words: str) -> None:
    """The error has the file and line of the cause."""
    (root / "mine.py").write_text(code)
    error = rejected("mine.py:build", root)
    assert (error.code, error.where) == ("source.user-code", where)
    assert words in error.message


def test_missing_module_is_named_in_the_hint(root: Path) -> None:
    """The hint is to install it."""
    (root / "mine.py").write_text("import nowhere_to_be_found\n")
    assert "install 'nowhere_to_be_found'" in rejected("mine.py:build", root).hint


def test_missing_callable_lists_existing_names(root: Path) -> None:
    """The hint lists the public names of the module."""
    (root / "mine.py").write_text("def make(): ...\n_private = 1\n")
    error = rejected("mine.py:build", root)
    assert (error.code, error.hint) == ("source.callable-missing", "it defines: make")


def test_value_that_is_not_callable_is_rejected(root: Path) -> None:
    """A constant is not a factory."""
    (root / "mine.py").write_text("build = 3\n")
    error = rejected("mine.py:build", root)
    assert (error.code, error.message) == ("source.not-callable", "'mine.py:build' is a int, not a callable")


def test_missing_file_is_reported_without_its_directory(root: Path) -> None:
    """The message has the file name only."""
    assert rejected("gone.py:build", root).message == "file not found: gone.py"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit
@pytest.mark.parametrize(
    ("code", "ending"),
    [
        ("raise ValueError('x' * 5000)", "ValueError: " + "x" * 1000 + "…"),
        (
            "class Mute(Exception):\n    def __str__(self): raise TypeError\nraise Mute",
            "Mute: (no message: str() raised TypeError)",
        ),
        (
            (
                "import torch\n@torch.jit.script\ndef half(x: torch.Tensor):\n    if x.shape[0] % 2:\n"
                "        raise ValueError('odd\\nrows: 1')\n    return x\nhalf(torch.ones(1))"
            ),
            "ValueError: odd\nrows: 1",
        ),
    ],
)
def test_exception_text_is_limited(root: Path, code: str, ending: str) -> None:
    """Long text is shortened, an exception without text is named, and TorchScript's traceback is left out."""
    (root / "mine.py").write_text(code + "\n")
    assert rejected("mine.py:build", root).message == f"importing 'mine.py:build' failed: {ending}"


@pytest.mark.parametrize("entry", ["models.py", "helper.py", "package", "package/__init__.py", "link.py", "google"])
def test_modules_of_other_users(root: Path, entry: str) -> None:
    """In a directory in which every user can create files, they are not imported; in others, they are."""
    (root / "package").mkdir()
    (root / "package" / "__init__.py").write_text("")
    (root / "helper.py").write_text("")
    (root / "google" / "planted").mkdir(parents=True)
    (root / "google" / "planted" / "__init__.py").write_text("")
    (root / "own_package").mkdir()
    (root / "own_package" / "foreign.py").write_text("")
    (root / "own.py").write_text("")
    (root / "link.py").symlink_to("own.py")
    (root / "models.py").write_text(
        "import helper\nimport link\nimport package, google.planted, own_package.foreign\ndef build(): return 1\n"
    )
    os.chown(root / entry, 65534, 65534, follow_symlinks=False)
    reference = "models.py:build"
    assert printed_in_a_new_process(root, reference) == "1\n"
    root.chmod(0o777)
    allowed = "1\n" if entry == "package/__init__.py" else "working-directory.foreign "  # in a directory of the user
    assert printed_in_a_new_process(root, reference).startswith(allowed)
    os.chown(root / entry, os.geteuid(), os.getegid(), follow_symlinks=False)
    assert printed_in_a_new_process(root, reference) == "1\n"


@pytest.mark.parametrize("shared", ["", "package", "code", "package/inner"])
@pytest.mark.parametrize("mode", [0o1777, 0o1775])
def test_code_in_a_directory_like_tmp(root: Path, shared: str, mode: int) -> None:
    """Other users could create a package/__init__.py, or a .dist-info with entry points, which libraries load."""
    for directory in ("package", "code", "package/inner"):
        (root / directory).mkdir()
    (root / "package" / "m.py").write_text("import package.inner.m\ndef build(): return 1\n")
    (root / "package" / "inner" / "m.py").touch()
    (root / "code" / "models.py").write_text("def build(): return 1\n")
    reference = "code/models.py:build" if shared == "code" else "package.m:build"
    assert printed_in_a_new_process(root, reference) == "1\n"
    os.chown(root / shared, -1, 65534)
    (root / shared).chmod(mode)
    error = f"working-directory.foreign other users can create files in {root / shared}, and Python could import them\n"
    assert printed_in_a_new_process(root, reference) == error


def test_packages_of_a_virtual_environment_are_not_user_code(root: Path) -> None:
    """Their compiled code is read: compiling that of torch at each start would take long."""
    packages = root / ".venv" / "site-packages"
    (packages / "installed").mkdir(parents=True)
    (packages / "installed" / "__init__.py").touch()
    (root / "models.py").write_text("import installed\ndef build(): return type(installed.__loader__).__name__\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(packages), str(Path.cwd())])}
    assert printed_in_a_new_process(root, "models.py:build", environment) == "SourceFileLoader\n"


def test_compiled_code_is_not_read(root: Path) -> None:
    """Another user may have created the ``__pycache__``."""
    (root / "package").mkdir()
    (root / "package" / "m.py").write_text("def build(): return 1\n")
    (root / "models.py").write_text("from package.m import build\n")
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(root)], check=True)
    for cached in root.rglob("*.pyc"):
        cached.write_bytes(cached.read_bytes()[:-1] + b"?")
    command = [sys.executable, "-c", "import package.m"]
    assert subprocess.run(command, check=False, capture_output=True, cwd=root).returncode == 1
    for reference in ("models.py:build", "models:build", "package.m:build"):
        assert printed_in_a_new_process(root, reference) == "1\n"


def printed_in_a_new_process(root: Path, reference: str, environment: dict[str, str] | None = None) -> str:
    """Import a callable in a new process, and return what it returns, or the error."""
    code = """if True:
        import sys
        from pathlib import Path
        import google.protobuf
        from repogen.source.common.callables import import_callable
        try:
            print(import_callable(sys.argv[2], Path(sys.argv[1]))())
        except Exception as error:
            print(getattr(error, "code", ""), error)
        """
    command = [sys.executable, "-c", code, str(root), reference]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


@pytest.mark.parametrize("link", ["shared/code", "shared/models.py"])
def test_link_of_another_user(tmp_path: Path, link: str) -> None:
    """That user could exchange it for a link to other code at any time; links of this user are followed."""
    root, shared, private = (tmp_path / name for name in ("spec", "shared", "private"))
    for directory in (root, shared, private):
        directory.mkdir()
    (private / "models.py").write_text("def build(): return 1\n")
    (tmp_path / link).symlink_to(private if link == "shared/code" else private / "models.py")
    reference = "../shared/code/models.py:build" if link == "shared/code" else "../shared/models.py:build"
    assert printed_in_a_new_process(root, reference) == "1\n"
    os.chown(tmp_path / link, 65534, 65534, follow_symlinks=False)
    error = f"foreign-link {tmp_path / link} is a symlink of another user, who does not own what it leads to\n"
    assert printed_in_a_new_process(root, reference) == error


@pytest.mark.parametrize("mode", [0o1777, 0o777])
@pytest.mark.parametrize("entry", ["link", "directory"])
def test_entry_of_another_user_in_a_public_directory(tmp_path: Path, mode: int, entry: str) -> None:
    """Also if it leads to code of that user, and if a symlink of this user leads to it."""
    root, shared, private = (tmp_path / name for name in ("spec", "shared", "private"))
    for directory in (root, shared / "directory", private):
        directory.mkdir(parents=True)
    for directory in (shared / "directory", private):
        (directory / "models.py").write_text("def build(): return 1\n")
    (shared / "link").symlink_to(private)
    (private / "below").mkdir()
    (shared / "directory" / "below").mkdir()
    (shared / "models.py").write_text("def build(): return 'another file'\n")
    (root / "own").symlink_to(shared / entry)
    shared.chmod(mode)
    references = (
        f"../shared/{entry}/models.py:build",
        "own/models.py:build",
        f"../shared/{entry}/below/../models.py:build",
        f"../shared/{entry}/../{'directory' if entry == 'directory' else 'private'}/models.py:build",
    )
    for reference in references:
        assert printed_in_a_new_process(root, reference) == "1\n"
    for path in (private, private / "models.py", shared / "directory", shared / "link"):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    for reference in references:
        assert printed_in_a_new_process(root, reference) == REPLACEABLE


@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_directory_above_the_code_belongs_to_another_user(tmp_path: Path, mode: int) -> None:
    """That user could rename the directory; if the spec is below it as well, it is trusted."""
    root, above = tmp_path / "spec", tmp_path / "above"
    for directory in (root, above / "code", above / "spec"):
        directory.mkdir(parents=True)
    (above / "code" / "models.py").write_text("def build(): return 1\n")
    reference = "../above/code/models.py:build"
    assert printed_in_a_new_process(root, reference) == "1\n"
    above.chmod(mode)
    os.chown(above, 65534, 65534)
    assert printed_in_a_new_process(root, reference) == REPLACEABLE
    assert printed_in_a_new_process(above / "spec", "../code/models.py:build") == "1\n"
    os.chown(above / "code", 65534, 65534)  # the spec names code of that user
    assert printed_in_a_new_process(root, reference) == "1\n"


def test_file_in_a_directory_of_another_user(root: Path) -> None:
    """The spec names it, but another user created the directory."""
    (root / "code").mkdir()
    (root / "code" / "models.py").write_text("def build(): return 1\n")
    os.chown(root / "code", 65534, 65534)
    root.chmod(0o777)
    assert rejected("code/models.py:build", root).code == "working-directory.foreign"

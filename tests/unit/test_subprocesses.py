"""What other programs print is bytes of any encoding: repogen decodes all of it, also under a locale without UTF-8."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

import repogen
from repogen.artifacts.progress import Silent
from repogen.doctor import diagnose
from repogen.errors import ServerError
from repogen.serving import wheels
from repogen.serving.docker import DockerTriton
from repogen.targets import DEFAULT_RELEASE, targets

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(repogen.__file__).parent
_STARTS = {"run", "Popen", "check_output", "call", "check_call"}
_TEXT = {"text", "encoding", "universal_newlines"}


def _undecided(path: Path) -> Iterator[str]:
    """Yield the calls that start a program, decode its output, and have no rule for other bytes."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _STARTS:
            keywords = {keyword.arg for keyword in node.keywords}
            if keywords & _TEXT and "errors" not in keywords:
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}"


def test_every_program_that_is_read_as_text_has_a_rule_for_other_bytes() -> None:
    """A new one must have `errors=`."""
    assert [line for path in sorted(PACKAGE.rglob("*.py")) for line in _undecided(path)] == []


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory on PATH, in which `docker` and `nvidia-smi` print bytes that are not UTF-8, and fail."""
    script = "#!/bin/sh\nprintf 'caf\\351\\n'; printf 'd\\351mon\\n' >&2; exit ${STATUS:-0}\n"
    for name in ("docker", "nvidia-smi", "pip-python"):
        path = tmp_path / name
        path.write_text(script, encoding="utf-8")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


@pytest.mark.usefixtures("program")
def test_doctor() -> None:
    """The output is in the report."""
    states = {check.name: check.found for check in diagnose()}
    assert (states["docker"], states["gpu"]) == ("engine caf\ufffd", "caf\ufffd")


@pytest.mark.usefixtures("program")
def test_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the text."""
    monkeypatch.setenv("STATUS", "1")
    with pytest.raises(ServerError, match="the Docker daemon does not respond: d\ufffdmon"):
        DockerTriton(targets()[DEFAULT_RELEASE], Silent()).preflight()


def test_pip(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for pip."""
    monkeypatch.setenv("STATUS", "1")
    monkeypatch.setattr(wheels, "python_with_pip", lambda: str(program / "pip-python"))
    assert wheels.run_pip(["download"], program).stderr == "d\ufffdmon\n"


def test_perf_analyzer_that_prints_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It fails without a message."""
    binary = tmp_path / "bin" / "perf_analyzer"
    binary.parent.mkdir()
    binary.write_text("#!/bin/sh\nprintf ' ' >&2; exit 1\n", encoding="utf-8")
    binary.chmod(0o755)
    monkeypatch.setattr("repogen.doctor.installed_perf_analyzer", lambda _: tmp_path)
    lock = SimpleNamespace(perf_analyzer=SimpleNamespace(version="1"))
    monkeypatch.setattr("repogen.doctor.locate", lambda _: SimpleNamespace(lock=lock))
    (check,) = [check for check in diagnose() if check.name == "perf_analyzer"]
    assert check.found.endswith("does not run: it printed no error")

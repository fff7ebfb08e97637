"""Signals at every moment of the start, and standard streams, directories and terminals that can't be used."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from repogen.errors import ExitCode

pytestmark = pytest.mark.usefixtures("interruptible")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MAIN = "from repogen.__main__ import main\nmain()\n"


def run(program: str, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a Python program."""
    command = [sys.executable, "-P", "-c", textwrap.dedent(program), *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(command, text=True, check=False, **pipes)  # type: ignore[call-overload, no-any-return] # options


def repogen(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    return run(MAIN, *arguments, **options)


def interrupted_import(module: str, number: signal.Signals, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line, which receives a signal when it imports a module."""
    program = f"""\
    import os, sys
    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name == {module!r}:
                os.kill(os.getpid(), {int(number)})
    sys.meta_path.insert(0, Finder())
    """
    return run(textwrap.dedent(program) + MAIN, *arguments)


@pytest.fixture
def spec(tmp_path: Path) -> str:
    """Return a spec whose model is not built yet."""
    path = tmp_path / "repogen.yaml"
    (tmp_path / "models.py").touch()
    path.write_text("models: {m: {source: {factory: models.py:build}, inputs: {x: {dtype: float32, shape: [4]}}}}\n")
    return str(path)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("module", ["click", "repogen.cli.group", "repogen.errors"])
def test_signal_during_the_imports_of_help(module: str, number: signal.Signals) -> None:
    """One line and exit code 130."""
    ended = interrupted_import(module, number, "--help")
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "interrupted\n")


@pytest.mark.parametrize(
    "module",
    [
        "click",
        "pydantic",
        "repogen.cli.build",
        "repogen.build.pipeline",
        "repogen.build.run",
    ],
)
def test_signal_during_the_imports_of_a_build(module: str, spec: str) -> None:
    """One line, with its code once the build has begun; no traceback."""
    ended = interrupted_import(module, signal.SIGINT, "build", spec, "--no-smoke")
    assert (ended.returncode, ended.stdout) == (130, "")
    assert "Traceback" not in ended.stderr
    assert "interrupted" in ended.stderr
    assert not list(Path(spec).parent.glob(".*"))


@pytest.mark.parametrize("module", ["repogen.cli.check", "repogen.check.checker"])
def test_signal_during_the_imports_of_a_check(module: str, tmp_path: Path) -> None:
    """The same."""
    ended = interrupted_import(module, signal.SIGTERM, "check", str(tmp_path))
    assert (ended.returncode, ended.stdout) == (130, "")
    assert ended.stderr.startswith("interrupted")
    assert "Traceback" not in ended.stderr


PUBLISHED = str(Path(__file__).parents[3] / "model_repository")
CLEANUP = """\
import os, signal, sys, time
from repogen.cli import interrupts
interrupts.install()
def send(number):
    os.kill(os.getpid(), number)
    time.sleep(0.01)
"""


def test_later_signals_do_not_disturb_the_cleanup() -> None:
    """The second one prints a line; the third one ends the process."""
    program = """
    count = int(sys.argv[1])
    with interrupts.command_running():
        try:
            send(signal.SIGHUP)
        except KeyboardInterrupt:
            for _ in range(count):
                send(signal.SIGINT)
            print("clean", flush=True)
    """
    second, third = (run(CLEANUP + textwrap.dedent(program), count) for count in ("1", "2"))
    assert (second.returncode, second.stdout) == (0, "clean\n")
    assert second.stderr == "cleaning up; interrupt again to exit immediately\n"
    assert (third.returncode, third.stdout, len(third.stderr.splitlines())) == (130, "", 2)


def test_interrupt_in_a_destructor_is_not_lost() -> None:
    """Python drops exceptions of destructors; the interrupt is raised again after it, without a traceback."""
    program = """
    class Resource:
        def __del__(self):
            send(signal.SIGINT)
    with interrupts.command_running():
        try:
            resource = Resource()
            del resource
            time.sleep(600)
        except KeyboardInterrupt:
            print("interrupted")
    """
    ended = run(CLEANUP + textwrap.dedent(program))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "interrupted\n", "")


def test_import_is_completed_before_an_interrupt(tmp_path: Path) -> None:
    """A library such as numpy would turn the exception into an error of the import."""
    (tmp_path / "library.py").write_text("""
import os, signal, time
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.1)
except KeyboardInterrupt:
    raise ImportError("failed to import") from None
""")
    program = f"""
    sys.path.insert(0, {str(tmp_path)!r})
    with interrupts.command_running():
        try:
            import library
            time.sleep(600)
        except KeyboardInterrupt:
            print("interrupted")
    """
    ended = run(CLEANUP + textwrap.dedent(program))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "interrupted\n", "")


def test_third_interrupt_ends_an_import(tmp_path: Path) -> None:
    """It could take long."""
    (tmp_path / "library.py").write_text("""
import os, signal, time
for _ in range(3):
    os.kill(os.getpid(), signal.SIGINT)
time.sleep(600)
""")
    program = f"""
    sys.path.insert(0, {str(tmp_path)!r})
    with interrupts.command_running():
        import library
    """
    ended = run(CLEANUP + textwrap.dedent(program))
    assert (ended.returncode, ended.stdout) == (130, "")


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_while_python_ends_does_not_change_the_exit_code(number: signal.Signals) -> None:
    """The command is complete; a destructor that the interpreter calls last sends the signal."""
    program = f"""
    class Last:
        def __del__(self, kill=os.kill, pid=os.getpid(), sleep=time.sleep):
            kill(pid, {int(number)})
            sleep(0.01)
    sys.last = Last()
    sys.exit(3)
    """
    ended = run(CLEANUP + textwrap.dedent(program))
    assert (ended.returncode, ended.stderr) == (3, "")


def test_ignored_signal_stays_ignored() -> None:
    """``nohup repogen build`` survives the end of its terminal."""
    program = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + CLEANUP + "send(signal.SIGHUP)\n"
    assert run(program).returncode == 0


@pytest.mark.parametrize("arguments", [("--help",), ("schema",), ("check", PUBLISHED)])
def test_reader_that_has_ended_is_not_an_error(arguments: tuple[str, ...]) -> None:
    """As in ``repogen check | head -0``: the exit code is that of the command, and nothing is printed."""
    reader, writer = os.pipe()
    os.close(reader)
    ended = repogen(*arguments, stdout=writer)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [("--help",), ("explain",), ("schema",), ("check", "--format=json", PUBLISHED)])
def test_full_disk_is_an_error(arguments: tuple[str, ...]) -> None:
    """The report is lost, so the exit code is not 0."""
    with Path("/dev/full").open("w") as full:
        ended = repogen(*arguments, stdout=full)
    assert ended.returncode == ExitCode.SPEC
    assert ended.stderr.startswith("error: standard output can't be written: ")
    assert "Traceback" not in ended.stderr
    assert "No space left" in ended.stderr


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams(closed: str, spec: str) -> None:
    """No file that repogen opens is mistaken for one of them, and the exit code is that of the command."""
    command = ["sh", "-c", f'"$@" {closed}', "sh", sys.executable, "-P", "-m", "repogen"]
    process = subprocess.run([*command, "check", PUBLISHED], capture_output=True, text=True, check=False)
    command += ["build", spec, "--model", "none"]
    missing = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (process.returncode, missing.returncode) == (0, 2)
    assert "Traceback" not in process.stderr + missing.stderr


@pytest.mark.parametrize("number", [1, 2])
def test_failing_standard_error_does_not_fail_the_command(number: int, spec: str) -> None:
    """A pipe whose reader has ended, and a full disk: the error's own exit code is kept."""
    reader, writer = os.pipe()
    os.close(reader)
    with Path("/dev/full").open("w") as full:
        ended = repogen("build", spec, "--model", "none", stderr=writer if number == 1 else full)
    os.close(writer)
    assert (ended.returncode, ended.stdout) == (2, "")


@pytest.mark.parametrize("arguments", [("--help",), ("check",), ("build",), ("init",)])
def test_deleted_working_directory(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """A clear message instead of a traceback."""
    directory = tmp_path / "deleted"
    directory.mkdir()
    script = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    command = ["sh", "-c", script, "sh", str(directory), sys.executable, "-P", "-m", "repogen", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in ended.stderr
    assert ended.returncode == (0 if arguments == ("--help",) else 2)
    if ended.returncode:
        assert ended.stderr.startswith("error: the working directory can't be used: No such file or directory\n")


@pytest.mark.full
@pytest.mark.parametrize("variable", ["HOME", "TMPDIR", "XDG_CACHE_HOME"])
def test_unusable_directory_of_the_environment(variable: str, spec: str) -> None:
    """Commands that do not need it work; others have a message."""
    variables = {**os.environ, variable: "/dev/null/directory"}
    if variable != "XDG_CACHE_HOME":
        variables.pop("XDG_CACHE_HOME", None)
    checked = repogen("check", PUBLISHED, env=variables)
    assert (checked.returncode, checked.stdout) == (0, "checked 1 model: no findings\n")
    for arguments, codes in ((("server", "path"), {0, 6}), (("build", spec, "--dry-run", "--no-smoke"), {3})):
        ended = repogen(*arguments, env=variables)
        assert ended.returncode in codes
        assert "Traceback" not in ended.stderr

"""The command group, loaded lazily, and code that commands share: options, output, and exit codes of errors."""

from __future__ import annotations

import errno
import os
import resource
import sys
import traceback
from contextlib import contextmanager, suppress
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.shell_completion import CompletionItem

from repogen.cli.interrupts import command_running
from repogen.errors import (
    ExitCode,
    InterruptedBuildError,
    MachineError,
    OutputError,
    RepogenError,
    SpecError,
    machine_errors,
)
from repogen.files import no_home_directory
from repogen.files.url import RepositoryUrl, is_model_uri, location
from repogen.reporting.output import write_json, write_text
from repogen.spec.problems import suggestion
from repogen.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MIN_OPEN_FILES = 32


class _Repository(click.Path):
    """A local directory, or the URL of a repository in a store."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Return a path; a URL is not looked up on the disk, and a file is an error if a directory is required."""
        try:
            place = location(Path(value)) if isinstance(value, os.PathLike) else location(value)
        except RepogenError as error:
            self.fail(f"{error.message}; {error.hint}", param, ctx)
        if isinstance(place, RepositoryUrl):
            return place
        if not self.file_okay and os.path.isfile(value):  # noqa: PTH113 - no error for a name that is too long
            raise click.UsageError(f"{os.fspath(value)} is a file; pass the directory or the URL of a repository", ctx)
        return super().convert(value, param, ctx)


class _RepositoryOrModel(_Repository):
    """The same, or the URI of a registered model."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Return a path; a URI is not looked up."""
        return Path(value) if is_model_uri(str(value)) else super().convert(value, param, ctx)


class Integer(click.IntRange):
    """An integer in a range; click's own message says "integer range" for text that is not a number."""

    name = "integer"


DIRECTORY = click.Path(file_okay=False, path_type=Path)
REPOSITORY = _Repository(file_okay=False, path_type=Path)
REPOSITORY_OR_MODEL = _RepositoryOrModel(file_okay=False, path_type=Path)
PATH_OR_URL = _Repository(path_type=Path)
FILE = click.Path(path_type=Path)  # `load_spec` has a message for a directory
CONTROL_VARIABLE = "REPOGEN_CONTROL_HEADER"
SERVER = "embedded, docker, HOST:PORT of a running server, or the name of a plug-in server"

json_option = click.option("as_json", "--json", is_flag=True, help="Print one JSON document on stdout.")
tracking_option = click.option(
    "--tracking-uri", metavar="URI", help="MLflow server; overrides MLFLOW_TRACKING_URI and the spec."
)
control_header_option = click.option(
    "--control-header",
    metavar="KEY=VALUE",
    expose_value=False,
    callback=lambda _context, _option, value: _set_control_header(value),
    help="Header that the server's control API requires. Other users of the machine can read this option, but not the "
    f"variable {CONTROL_VARIABLE}.",
)
debug_option = click.option("--debug", is_flag=True, help="Show tracebacks and logs.")

_COMMANDS = {
    "bench": ("repogen.cli.bench", "Measure PyTorch, ONNX Runtime and Triton side by side."),
    "build": ("repogen.cli.build", "Export, verify, smoke-test and publish the models of SPEC."),
    "check": ("repogen.cli.check", "Find problems in a model repository, without a server."),
    "deploy": ("repogen.cli.deploy", "Make running servers serve the versions that a repository selects."),
    "diagnose": ("repogen.cli.build", "Try every exporter on MODEL; publish nothing."),
    "diff": ("repogen.cli.repository", "Compare two versions of NAME."),
    "doctor": ("repogen.cli.about", "Check this environment and print how to fix what is missing."),
    "explain": ("repogen.cli.explain", "Print the page for a rule or error code."),
    "history": ("repogen.cli.registry", "Show which version each alias of NAME pointed to, and when."),
    "init": ("repogen.cli.init", "Write a commented, working repogen.yaml."),
    "plan": ("repogen.cli.plan", "Show what `repogen build` would do, and why."),
    "promote": ("repogen.cli.registry", "Point an alias of NAME to VERSION if it passes its gates."),
    "prune": ("repogen.cli.repository", "Delete old versions that are no longer needed."),
    "publish": ("repogen.cli.repository", "Copy verified versions from one repository to another."),
    "report": ("repogen.cli.report", "Write a report of a repository as one HTML file."),
    "rollback": ("repogen.cli.repository", "Make a repository serve an older version of NAME again."),
    "schema": ("repogen.cli.about", "Print the JSON Schema of the spec, for editors."),
    "serve": ("repogen.cli.serving", "Run a Triton server on a repository until Ctrl-C."),
    "server": ("repogen.cli.serving", "Install or locate the embedded Triton server."),
    "sign": ("repogen.cli.repository", "Sign a published version."),
    "smoke": ("repogen.cli.serving", "Test a published repository on a real Triton server."),
    "sync": ("repogen.cli.registry", "Make a repository serve what an alias points to."),
    "tune": ("repogen.cli.tune", "Search for the settings and passes that make MODEL fastest."),
    "verify": ("repogen.cli.repository", "Compare every file of a repository with the manifests."),
    "versions": ("repogen.cli.repository", "List the versions of a repository, and which are served."),
    "view": ("repogen.cli.report", "Show the published graph of a model in Netron until Ctrl-C."),
}
"""Command -> the module that defines it, and its line in ``repogen --help``, which imports none of these modules."""


class LazyGroup(click.Group):
    """A click group that imports the module of a command when that command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all commands."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the same
        """Import and return a command; None when there is no such command."""
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(_COMMANDS[cmd_name][0]), cmd_name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that start with ``incomplete``, without importing the commands."""
        names = [name for name in sorted(_COMMANDS) if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=_COMMANDS[name][1]) for name in names]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options before the command; that of a command is an error that says where to write it."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            option = error.option_name
            ctx.fail(f"No such option {option!r}; options of a command follow its name, as in repogen build {option}")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command and its arguments; an unknown command is an error with the most similar one."""
        if args and not ctx.resilient_parsing and args[0] not in _COMMANDS and not args[0].startswith("-"):
            hint = suggestion(args[:1], sorted(_COMMANDS), "see `repogen --help`")
            if args[0] == "help" and args[1:] and args[1] in _COMMANDS:
                hint = f"write repogen {args[1]} --help"
            ctx.fail(f"No such command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - the same
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name][1]) for name in sorted(_COMMANDS)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="repogen")
def main() -> None:
    """Build a verified, versioned Triton model repository from trained PyTorch models."""


def run() -> NoReturn:
    """Run the command line as a process."""
    stdout = sys.stdout
    try:
        code = main(prog_name="repogen", standalone_mode=False)
    except click.ClickException as error:
        usage = StringIO()
        error.show(usage)
        write_text(usage.getvalue().rstrip("\n"), err=True, wrap=True)
        sys.exit(error.exit_code)
    except MemoryError:  # also while another error is reported, so this text is not formatted
        os.write(2, b"error: the command cannot continue: there is not enough memory\n")
        sys.exit(int(MachineError.exit_code))
    except OSError as error:  # of the help or a usage error; a command's own errors have been handled
        write_text(f"error: standard output can't be written: {error.strerror}", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(int(OutputError.exit_code))
    except SystemExit:
        if sys.stdout is not stdout:  # click replaces it if a pipe is closed, and exits with 1
            sys.exit(int(ExitCode.OK))
        raise
    sys.exit(code if isinstance(code, int) else int(ExitCode.OK))


@contextmanager
def handle_errors(*, debug: bool, as_json: bool = False) -> Iterator[None]:
    """Print an error as text, or as JSON, and exit with its code."""
    try:
        with command_running(), machine_errors():
            _require_working_directory()
            _require_open_files()
            yield
    except RepogenError as error:
        _fail(error, debug=debug, as_json=as_json)
    except KeyboardInterrupt:
        _fail(InterruptedBuildError("interrupted; nothing is half-written"), debug=debug, as_json=as_json)
    except click.ClickException:  # a usage error, which `run` prints
        raise
    except Exception as error:  # noqa: BLE001 - a bug of repogen, reported like any other error
        if isinstance(error, RuntimeError) and "home directory" in str(error).lower():  # of pathlib, in any library
            _fail(no_home_directory(error), debug=debug, as_json=as_json)
        bug = RepogenError(
            f"unexpected {type(error).__name__}: {error}",
            "this is a bug in repogen; please report it with the output of --debug",
            details=traceback.format_exc(),
        )
        _fail(bug, debug=debug, as_json=as_json)


def print_report(
    text: Callable[[], str], document: Callable[[], dict[str, Any]], *, as_json: bool, wrap: bool = True
) -> None:
    """Print a report on standard output: as one JSON document, or as text, with long lines wrapped if ``wrap``."""
    if as_json:
        write_json(document())
    else:
        write_text(text(), wrap=wrap)


def _require_working_directory() -> None:
    try:
        Path.cwd()
    except OSError as error:
        raise SpecError(
            f"the working directory can't be used: {error.strerror}",
            "change to a directory that exists",
            code="working-directory",
        ) from error


def _require_open_files() -> None:
    """Require a limit of open files with which gRPC can start: it ends the process otherwise."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= limit < _MIN_OPEN_FILES:
        raise OSError(errno.EMFILE, f"a process may have only {limit} open files")


def _fail(error: RepogenError, *, debug: bool, as_json: bool) -> NoReturn:
    from repogen.reporting.github import write_error  # noqa: PLC0415 - not for --help
    from repogen.reporting.json import as_dict  # noqa: PLC0415 - the same
    from repogen.reporting.text import error_text  # noqa: PLC0415 - the same

    write_text(error_text(error.record, debug=debug), err=True, wrap=True)
    with suppress(OutputError):  # this is the error, or there is another one to report
        write_error(error, click.get_current_context().info_name or "repogen")
        if as_json:
            write_json(as_dict(error))
    sys.exit(int(error.exit_code))


def _set_control_header(value: str | None) -> None:
    """Set the variable from which `repogen.serving.control` reads the header."""
    if value is not None:
        os.environ[CONTROL_VARIABLE] = value

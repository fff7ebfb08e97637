"""The errors of repogen: each has a message, a hint, a code, a place, and an exit code."""

from __future__ import annotations

import errno
import os
import re
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class ExitCode(IntEnum):
    """Process exit codes; with several failures, the lowest one is used."""

    OK = 0
    GATE = 1
    SPEC = 2
    EXPORT = 3
    PARITY = 4
    CONFIG = 5
    SMOKE = 6
    PUBLISH = 7
    TRACKING = 8
    BUG = 70
    INTERRUPTED = 130


@dataclass(frozen=True)
class ErrorRecord:
    """An error as data, for other processes and for JSON.

    Attributes:
        code: Stable identifier, for example ``export.specialized-dim``.
        message: What went wrong, one sentence or a few lines.
        hint: The next action; may be empty.
        where: ``file:line`` or a key path; may be empty.
        exit_code: Exit code of a process that ends with this error.
        details: Traceback or log, shown only with ``--debug``.
        classes: Full names of the error's class and of its base classes below `RepogenError`, most specific first;
            empty for a record that was not made from an exception.
    """

    code: str
    message: str
    hint: str = ""
    where: str = ""
    exit_code: int = int(ExitCode.BUG)
    details: str = ""
    classes: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The first line of the message, without the colon before further lines."""
        return self.message.partition("\n")[0].removesuffix(":")


_CLASSES: dict[str, type[RepogenError]] = {}
"""Every subclass of `RepogenError` that this process has defined, by full name, in order of definition."""


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


# The variables of MLflow, the stores, the Hugging Face Hub, Ray, sigstore and repogen, and those that look like them.
_SECRET_NAME = re.compile(
    r"(?P<header>REPOGEN_(?:CONTROL|SERVER)_HEADER)|"
    r".*(?:(?P<url>_(?:URI|URL|PROXY))|(?P<fields>_CONNECTION_STRING|_AUTH_CONFIG)|"
    r"(?:TOKEN|PASSWORD|PASSWD|PASSPHRASE|_PASS|SECRET|(?:ACCESS|ACCOUNT|API|ENCRYPTION|PRIVATE|SIGNING|STORAGE)_KEY))",
    re.IGNORECASE,
)
_PASSWORD_OF_URL = re.compile(r"(?:^|:)/{0,3}[^:@/]*:([^/].*)@", re.DOTALL)
# Of Azure's connection strings, and of the JSON in DOCKER_AUTH_CONFIG.
_SECRET_FIELD = re.compile(
    r"(?:(?:AccountKey|SharedAccessSignature)\s*=\s*|\"(?:auth|password|\w+token)\"\s*:\s*\")([^;\"]+)", re.IGNORECASE
)
# What is the same in every quotation of a secret: no white space, no character that is escaped, no delimiter of a URL.
_UNESCAPED = re.compile(r"[!$%(-.0-9<>A-\[\]-~]{8,}")
_NOT_SECRET = frozenset({"true", "false", "none"})
_MIN_SECRET = 4
"""Characters; a shorter text is likely to be a part of other words."""


def scrubbed(text: str, environment: Mapping[str, str] = os.environ) -> str:
    r"""Return text without the secrets in an environment.

    Libraries quote them in errors: for example, a token that ends with a line break in a header that cannot be sent.

    >>> scrubbed(r"Invalid header value b'Bearer 0123456789\n'", {"MLFLOW_TRACKING_TOKEN": "0123456789\n"})
    "Invalid header value b'Bearer ***\\n'"
    """
    for secret in sorted(_secrets(environment), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _secrets(environment: Mapping[str, str]) -> set[str]:
    """Return the secrets in an environment, and the parts of them that no quotation changes."""
    secrets = set[str]()
    for name, value in environment.items():
        match = _SECRET_NAME.fullmatch(name)
        if match is None or _is_path(value):
            continue
        values = [value]
        if match["header"]:
            values = [value.partition("=")[2]]
        elif match["url"]:
            values = _PASSWORD_OF_URL.findall(value)
        elif match["fields"]:
            values = _SECRET_FIELD.findall(value)
        for each in values:
            secrets |= {each, each.strip(), *_UNESCAPED.findall(each)}
    return {secret for secret in secrets if len(secret) >= _MIN_SECRET and secret.lower() not in _NOT_SECRET}


def _is_path(value: str) -> bool:
    """Return whether a value is the absolute path of a file that exists or could be created.

    A password in base64 may start with a slash as well.
    """
    if not value.startswith("/"):
        return False
    directory = Path(value).parent  # `os.access` has no errors, unlike `Path.exists` for a long name
    return os.access(value, os.F_OK) or (directory != Path("/") and os.access(directory, os.F_OK))


class RepogenError(Exception):
    """A failure with a message, a hint and an exit code; none of them contains a secret of the environment.

    Args:
        message: What went wrong.
        hint: What to do about it.
        code: Stable identifier ``step.reason``; the default of the class if empty.
        where: ``file:line`` or a key path.
        details: Long text for ``--debug`` only.
    """

    exit_code = ExitCode.BUG
    default_code = "bug"

    def __init_subclass__(cls) -> None:
        """Register the class by its full name, for `error_from_record`."""
        _CLASSES[_full_name(cls)] = cls

    def __init__(self, message: str, hint: str = "", *, code: str = "", where: str = "", details: str = "") -> None:
        """Keep the parts; the exception's text is the message."""
        self.message, self.hint, self.where, self.details = map(scrubbed, (message, hint, where, details))
        self.code = code or self.default_code
        super().__init__(self.message)

    @property
    def record(self) -> ErrorRecord:
        """The error as data."""
        classes = tuple(_full_name(cls) for cls in type(self).__mro__ if _full_name(cls) in _CLASSES)
        return ErrorRecord(self.code, self.message, self.hint, self.where, int(self.exit_code), self.details, classes)


class SpecError(RepogenError):
    """The spec, or a file that it names, is invalid (exit 2)."""

    exit_code = ExitCode.SPEC
    default_code = "spec"


class SourceError(RepogenError):
    """The model could not be loaded or called (exit 3)."""

    exit_code = ExitCode.EXPORT
    default_code = "source"


class ExportError(RepogenError):
    """No exporter produced a graph that matches the model (exit 3)."""

    exit_code = ExitCode.EXPORT
    default_code = "export"


class ParityError(RepogenError):
    """ONNX Runtime and PyTorch disagree, or a measurement contradicts the spec (exit 4)."""

    exit_code = ExitCode.PARITY
    default_code = "parity"


class ConfigError(RepogenError):
    """config.pbtxt cannot be generated as requested (exit 5)."""

    exit_code = ExitCode.CONFIG
    default_code = "config"


class SmokeError(RepogenError):
    """A smoke test against a real Triton failed (exit 6)."""

    exit_code = ExitCode.SMOKE
    default_code = "smoke"


class ServerError(SmokeError):
    """A Triton could not be installed, started or reached (exit 6)."""

    default_code = "server"


class BenchError(SmokeError):
    """A model could not be measured (exit 6)."""

    default_code = "bench"


class PublishError(RepogenError):
    """The repository could not be written; it is unchanged (exit 7)."""

    exit_code = ExitCode.PUBLISH
    default_code = "publish"


class TrackingError(RepogenError):
    """MLflow could not be reached, or its entries have changed; published versions stay published (exit 8)."""

    exit_code = ExitCode.TRACKING
    default_code = "tracking"


class GateError(RepogenError):
    """A gate failed, and no alias was moved (exit 1)."""

    exit_code = ExitCode.GATE
    default_code = "gate"


class InterruptedBuildError(RepogenError):
    """Ctrl-C, SIGTERM or SIGHUP; nothing is half-written (exit 130)."""

    exit_code = ExitCode.INTERRUPTED
    default_code = "interrupted"


class OutputError(RepogenError):
    """Standard output can't be written, for example because its disk is full (exit 2)."""

    exit_code = ExitCode.SPEC
    default_code = "output"


class MachineError(RepogenError):
    """The disk is full, no memory is left, or there are too many processes or open files (exit 7)."""

    exit_code = ExitCode.PUBLISH
    default_code = "machine"


class MissingExtraError(SpecError):
    """A distribution of an optional extra is not installed (exit 2)."""

    default_code = "missing-extra"


_EXHAUSTED = frozenset({
    errno.EAGAIN, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EROFS,
})  # fmt: skip
NO_THREAD = "can't start new thread"
"""Text of the ``RuntimeError`` that Python raises if the process may not have another thread."""
# What the dynamic linker says about a module that it cannot load now; source: elf/dl-load.c of glibc 2.36.
_NOT_LOADED = re.compile(
    "failed to map segment from shared object|cannot (?:read file data|stat shared object|map zero-fill pages|create "
    "shared object descriptor|allocate memory for program header)|Cannot allocate memory|Too many open files"
)
_LIMITS = {
    errno.EAGAIN: "raise the limit on processes (`ulimit -u`), and run the same command again",
    errno.EMFILE: "raise the limit on open files: ulimit -n 4096",
    errno.ENFILE: "raise the limit on open files: sysctl fs.file-max",
}


@contextmanager
def machine_errors() -> Iterator[None]:
    """Turn what Python raises when the machine has nothing left into an error; code that has a better one raises it.

    Raises:
        MachineError: There is no disk space, memory, process or open file left.
    """
    try:
        yield
    except (OSError, MemoryError, RuntimeError, ImportError) as error:
        if isinstance(error, OSError) and error.errno in _EXHAUSTED:
            problem = f"{error.strerror}" + (f": {error.filename}" if error.filename else "")
        elif isinstance(error, MemoryError):
            problem = "there is not enough memory"
        elif NO_THREAD in str(error):
            problem = NO_THREAD
        elif isinstance(error, ImportError) and (cause := _not_loaded(error)):
            problem = cause
        else:
            raise
        raise MachineError(
            f"the command cannot continue: {problem}",
            _LIMITS.get(
                getattr(error, "errno", None) or 0, "free disk space or memory, and run the same command again"
            ),
            details=traceback.format_exc(),
        ) from error


def _not_loaded(error: BaseException | None) -> str:
    """Return why the dynamic linker could not load a module; empty if the cause is not the state of the machine."""
    while error is not None:
        if _NOT_LOADED.search(str(error)):
            return str(error)
        error = error.__cause__ or error.__context__
    return ""


def error_from_record(record: ErrorRecord) -> RepogenError:
    """Return the exception that a record was made from.

    Its class is the most specific one in ``record.classes`` that this process has defined: a plug-in's own error class
    may exist only in the worker. Without any, the exit code selects the class.
    """
    names = (*record.classes, *(name for name, cls in _CLASSES.items() if cls.exit_code == record.exit_code))
    cls = next((_CLASSES[name] for name in names if name in _CLASSES), RepogenError)
    error = cls.__new__(cls)  # a class may have different arguments from RepogenError's
    RepogenError.__init__(
        error, record.message, record.hint, code=record.code, where=record.where, details=record.details
    )
    return error


def first_line(error: BaseException, directory: Path | None = None) -> str:
    """Return the first line of an error's message, without the path of ``directory`` and a colon at its end."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - user code can define the class
        text = ""
    lines = [line.strip() for line in scrubbed(text).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    line = lines[0].removesuffix(":")
    return line if directory is None else line.replace(f"{directory}/", "")

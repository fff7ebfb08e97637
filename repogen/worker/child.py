"""The worker process: reads a ``Job``, builds the model, and sends ``Event``s."""

from __future__ import annotations

import errno
import traceback
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.errors import ErrorRecord, ExportError, PublishError, RepogenError, SourceError, first_line
from repogen.source.common.callables import user_error
from repogen.worker.interference import ProcessState
from repogen.worker.job import EVENT, JOB, Event, Job
from repogen.worker.progress import BuildLog
from repogen.worker.requirements import REQUIREMENTS, missing_requirements
from repogen.worker.subreaper import run_supervised

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_MESSAGE = 20_000
_MAX_DETAILS = 1_000_000
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


def work(job_json: bytes, send: Callable[[bytes], None]) -> None:
    """Build the job's model and send its events."""
    job = JOB.validate_json(job_json)

    def report(event: Event) -> None:
        send(EVENT.dump_json(event))

    report(_result(job, report))


def _result(job: Job, report: Callable[[Event], None]) -> Event:
    """Return the last event: ``built`` or ``error``."""
    log = BuildLog(lambda step, diagnostics: report(Event("step", step=step, diagnostics=diagnostics)))
    state = ProcessState()
    try:
        warnings.simplefilter("default")
        from repogen.worker.sequence import build_model  # noqa: PLC0415 - torch may be missing, which is reported below

        built = build_model(job, log)
        return Event("built", diagnostics=log.diagnostics, built=built)
    except BaseException as error:  # noqa: BLE001 - the process ends here, and the parent reports the error
        return Event("error", diagnostics=log.diagnostics, error=_sendable(_record(error, job, state)))


def _sendable(record: ErrorRecord) -> ErrorRecord:
    """Return a record that JSON can contain and that has a limited size: user code writes a part of the texts."""
    message, hint = (text.encode(errors="backslashreplace").decode() for text in (record.message, record.hint))
    details = record.details[-_MAX_DETAILS:].encode(errors="backslashreplace").decode()
    return replace(record, message=message[:_MAX_MESSAGE], hint=hint[:_MAX_MESSAGE], details=details)


def _record(error: BaseException, job: Job, state: ProcessState) -> ErrorRecord:
    if isinstance(error, RepogenError):
        return replace(error.record, where=_spec_key(error.where, job) or _relative(error.where, job.root))
    if changes := state.changes(error):
        return SourceError(
            f"the model's code {' and '.join(changes)}, after which {_name_and_message(error)}",
            "the worker needs this for the export; change it in a separate process, or undo the change",
            code="source.process",
            details="".join(traceback.format_exception(error)),
        ).record
    if isinstance(error, ModuleNotFoundError):
        return _missing_module(error).record
    return _unexpected_error(error, job.root).record


def _spec_key(where: str, job: Job) -> str:
    """Return the key path of the callable, file or key that an error names; empty for any other place."""
    values = {key: value for key, value in job.model.source if isinstance(value, str) and key != "kind"}
    keys = {value: f"source.{key}" for key, value in values.items()}
    keys |= {Path(values[key]).name: f"source.{key}" for key in job.model.source.files if key in values}
    keys |= {key: key for key in ("outputs", "parity")}
    if isinstance(job.model.examples, str):
        keys[job.model.examples] = "examples"
    if job.model.quality is not None:
        keys[job.model.quality.callable] = "quality.callable"
    for number, step in enumerate(job.model.passes):
        keys |= {file: f"optimize[{number}].options.{option}" for option, file in step.files.items()}
    return f"models.{job.name}.{keys[where]}" if where in keys else ""


def _relative(where: str, root: Path) -> str:
    """Return ``file:line`` with the file relative to the spec or to site-packages."""
    name, _, line = where.rpartition(":")
    file = Path(name)
    if not file.is_absolute():
        return where
    if file.resolve().is_relative_to(root.resolve()):
        return f"{file.resolve().relative_to(root.resolve())}:{line}"
    installed = "/site-packages/"
    return f"{name.rpartition(installed)[2] if installed in name else file.name}:{line}"


def _missing_module(error: ModuleNotFoundError) -> RepogenError:
    name = (error.name or "").partition(".")[0]
    if name in REQUIREMENTS:
        return missing_requirements([name])
    return RepogenError(f"{error}", details=traceback.format_exc())


def _unexpected_error(error: BaseException, root: Path) -> RepogenError:
    text = _name_and_message(error)
    if isinstance(error, MemoryError):
        return ExportError(f"out of memory: {text}", code="worker.memory")
    if isinstance(error, OSError) and error.errno in _NO_SPACE:
        hint = "free disk space, or choose another directory with --stage-dir"
        return PublishError(f"a file cannot be written: {text}", hint, code="stage.write")
    raised = user_error(error, "the model's code failed", root)
    # repogen raises no KeyboardInterrupt, SystemExit or GeneratorExit here, and the user's line is in no other stack.
    if not isinstance(error, Exception) or (raised.where and (root / raised.where.rpartition(":")[0]).is_file()):
        return raised
    return RepogenError(f"unexpected {text}", "run with --debug and report this", details=raised.details)


def _name_and_message(error: BaseException) -> str:
    name, message = type(error).__name__, first_line(error)
    return name if message == name else f"{name}: {message}"


if __name__ == "__main__":
    run_supervised(work)

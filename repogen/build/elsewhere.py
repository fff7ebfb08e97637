"""Exports, verifies and tests a model through an executor; this process configures, stages and publishes it."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from repogen.build.dependencies import ensemble_dependencies
from repogen.build.fingerprint import input_files
from repogen.build.order import FETCHED, ORDER, ORDER_FILE, REPOSITORY, RESULT, Order, Result, build_environment
from repogen.build.user_packages import with_local_paths
from repogen.build.verified import with_paths
from repogen.errors import SpecError, error_from_record, first_line
from repogen.executors import process
from repogen.executors.interface import Task, TaskLostError, unusable_file
from repogen.files import is_inside, read_bytes
from repogen.repository.layout import model_dir
from repogen.worker.job import Outcome

if TYPE_CHECKING:
    from repogen.artifacts.built_model import BuiltModel
    from repogen.build.model_run import ModelRun
    from repogen.build.session import BuildSession
    from repogen.executors.interface import RunningExecutor


def build_elsewhere(
    session: BuildSession, executor: RunningExecutor, run: ModelRun, fetched: Path | None
) -> tuple[BuiltModel, str]:
    """Return a model that an executor built, and ``Manifest.content_sha256`` of what was tested there; empty without.

    Args:
        session: The build session.
        executor: The executor.
        run: Records the results.
        fetched: Files that were downloaded for a source of kind ``mlflow``; None for any other.

    Raises:
        RepogenError: A step failed, or no machine could run it.
        KeyboardInterrupt: The build was cancelled.
    """
    task = _task(session, run.name, fetched)
    result = Result()

    def outcome() -> Outcome:
        nonlocal result
        executor.run(task, partial(session.progress.step, run.name), session.cancelled)
        result = _read(task.outputs)
        diagnostics = replace(result.diagnostics, seconds={**result.diagnostics.seconds, **result.seconds})
        if result.built is not None:
            code = with_local_paths(result.built.imported, session.packages, session.spec.root)
            return Outcome(diagnostics, _with_files(replace(result.built, imported=code), task.outputs))
        if result.error is None:
            raise TaskLostError("the task returned neither a model nor an error")
        return Outcome(diagnostics, error_from_record(result.error))

    built = run.work(outcome)
    if result.smoke is not None:
        run.record(result.smoke)
    if result.error is not None:
        raise error_from_record(result.error)
    return built, result.content if result.smoke is not None else ""


def _task(session: BuildSession, name: str, fetched: Path | None) -> Task:
    """Write the input files of a task.

    Raises:
        SpecError: The model needs a file that is not in the spec's directory.
    """
    spec, resources = session.spec, session.spec.models[name].resources
    directory = session.private_directory / "work" / name
    shutil.rmtree(directory, ignore_errors=True)
    inputs, outputs = directory / "inputs", directory / "outputs"
    inputs.mkdir(parents=True)
    outputs.mkdir()
    for file in input_files(spec, name):
        if not is_inside(file, spec.root):
            raise SpecError(
                f"{file} is not in the directory of the spec, and other machines receive no other files",
                "move it there, or build with --executor local",
                code="executor.outside",
                where=f"models.{name}",
            )
    dependencies = ensemble_dependencies(spec.models, name)
    for step in dependencies:
        source = model_dir(session.private_repository, step)
        shutil.copytree(source, model_dir(inputs / REPOSITORY, step), symlinks=True, copy_function=os.link)
    if fetched is not None:
        shutil.copytree(fetched, inputs / FETCHED, copy_function=os.link)
    order = Order(
        name,
        {member: spec.models[member] for member in (*dependencies, name)},
        spec.path.name,
        spec.release,
        spec.gpu,
        spec.registry,
        None if spec.templates is None else Path(os.path.relpath(spec.templates, spec.root)),
        _server(session.options.server),
        session.options.try_all_exporters,
        resources.cpus,
        not session.options.force,
        build_environment(),
    )
    (inputs / ORDER_FILE).write_bytes(ORDER.dump_json(order, by_alias=True))
    return Task(name, inputs, outputs, resources.cpus, resources.memory_mb, resources.gpus)


def _server(server: str | None) -> str | None:
    """Return the Triton server for the smoke test on another machine; this machine uses a running one."""
    return None if server is not None and ":" in server else server


def _read(outputs: Path) -> Result:
    """Return the result of a task.

    Raises:
        TaskLostError: There is none.
    """
    path = outputs / process.RESULT
    try:
        content = read_bytes(path)
        path.unlink()  # the other files are the model's
        if b"\\u0000" in content:  # JSON's only form of a character that no name of a file or a tensor has
            raise TaskLostError("the result of the task cannot be read: it contains a NUL character")
        return RESULT.validate_json(content)
    except (OSError, ValidationError) as error:
        raise TaskLostError(f"the result of the task cannot be read: {first_line(error)}") from error


def _with_files(built: BuiltModel, outputs: Path) -> BuiltModel:
    """Return a model with the paths of its files.

    Raises:
        TaskLostError: A file is missing.
        SpecError: A file cannot be one of the model.
    """
    try:
        return with_paths(built, outputs)
    except FileNotFoundError as error:
        raise TaskLostError(f"the task did not return the file {error.filename!r}") from error
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise unusable_file(str(error.filename), f"which is {error.strerror}") from error

"""The spec and the repository of commands that name none: those of the working directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from repogen.api import working_directory
from repogen.api.working_directory import require_own
from repogen.errors import SpecError
from repogen.files import is_directory
from repogen.spec.load import load_spec, load_tracking_spec

if TYPE_CHECKING:
    from repogen.spec.models import Spec

DEFAULT_REPOSITORY = Path(working_directory.REPOSITORY)
_SPEC = Path(working_directory.SPEC)


def load_optional_spec(path: Path | None) -> Spec | None:
    """Return the spec of ``--spec``, or repogen.yaml of the working directory; None when neither exists."""
    path = optional_spec(path)
    return None if path is None else load_spec(path)


def load_optional_tracking_spec(path: Path | None) -> Spec | None:
    """Return the same for a command that needs only the MLflow server: the spec without its models."""
    path = optional_spec(path)
    return None if path is None else load_tracking_spec(path)


def optional_spec(path: Path | None) -> Path | None:
    """Return the path of ``--spec``, or repogen.yaml of the working directory; None when neither exists."""
    return path if path is not None or not _SPEC.is_file() else spec_or_default(None)


def spec_or_default(path: Path | None) -> Path:
    """Return the path of the spec, or repogen.yaml if the command names none."""
    return path or require_own(_SPEC)


def repository_or_default(path: Path | None) -> Path:
    """Return the repository of a command that runs the code of its models, or model_repository if it names none."""
    return require_own(DEFAULT_REPOSITORY) if path is None else repository_argument(path, f"--model {path}")


def repository_argument(path: Path, argument: str) -> Path:
    """Return an argument for a repository, unless it is only the name of a model in model_repository.

    Args:
        path: The argument.
        argument: What to pass in its place.

    Raises:
        SpecError: It is.
    """
    if len(path.parts) == 1 and not os.path.lexists(path) and is_directory(DEFAULT_REPOSITORY / path):
        raise SpecError(
            f"{path} does not exist, but {DEFAULT_REPOSITORY} has a model with this name",
            f"pass {argument}",
            code="repository.missing",
        )
    return path


def named_repository(path: Path) -> Path:
    """Return the value of ``--repository``; its default only if it does not belong to another user."""
    source = click.get_current_context().get_parameter_source("repository")
    return require_own(path) if source is ParameterSource.DEFAULT else path

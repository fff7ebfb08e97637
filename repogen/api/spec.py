"""``repogen.load_spec``: a spec file as typed, frozen data."""

from __future__ import annotations

from pathlib import Path

from repogen.api.working_directory import own_default
from repogen.spec import load
from repogen.spec.models import Spec


def load_spec(path: Path | str = "repogen.yaml", *, target: str | None = None) -> Spec:
    """Load and check a spec file.

    Example::

        spec = repogen.load_spec("repogen.yaml")
        list(spec.models)  # ['digits']

    Args:
        path: The file.
        target: The Triton release to build for, instead of the spec's.

    Returns:
        The spec, with the defaults merged into every model.

    Raises:
        repogen.spec.problems.SpecProblemsError: The spec is wrong; it has every problem with its line.
        repogen.errors.SpecError: The file does not exist, or cannot be read.
    """
    return load.load_spec(Path(own_default(path)), target)


def spec_of(spec: Spec | Path | str, target: str | None = None) -> Spec:
    """Return a spec that a caller of the Python API passes as a file or as a loaded spec.

    Raises:
        repogen.errors.SpecError: As ``load_spec``.
    """
    return spec if isinstance(spec, Spec) else load_spec(spec, target=target)


def optional_spec(spec: Spec | Path | str | None) -> Spec | None:
    """Return a spec as ``spec_of`` does, or None if the caller passes none.

    Raises:
        repogen.errors.SpecError: As ``load_spec``.
    """
    return None if spec is None else spec_of(spec)

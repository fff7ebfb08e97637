"""``repogen.load_spec``: a spec file as typed, frozen data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from repogen.api.working_directory import own_default
from repogen.spec import load

if TYPE_CHECKING:
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

"""The option ``--spec`` of commands that need a spec only for its settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from repogen.spec.load import load_spec

if TYPE_CHECKING:
    from repogen.spec.models import Spec

_SPEC = Path("repogen.yaml")


def load_optional_spec(path: Path | None) -> Spec | None:
    """Return the spec of ``--spec``, or repogen.yaml of the working directory; None when neither exists."""
    if path is None and not _SPEC.is_file():
        return None
    return load_spec(path or _SPEC)

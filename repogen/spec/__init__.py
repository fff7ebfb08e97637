"""YAML -> Spec: every problem at once, each with its place; and the spec's JSON Schema.

Names are imported on first use: who needs only the models does not pay for the YAML reader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.spec.models import Spec


def load_spec(path: Path, release: str | None = None) -> Spec:
    """Load a spec; see ``repogen.spec.load.load_spec``.

    Raises:
        SpecProblemsError: The file is wrong; it carries every problem with its place.
        SpecError: There is no such file, or it can't be read.
    """
    from repogen.spec.load import load_spec as load  # noqa: PLC0415 - heavy, on first use

    return load(path, release)


def json_schema() -> dict[str, object]:
    """Return the JSON Schema of a spec file; see ``repogen.spec.schema.json_schema``."""
    from repogen.spec.schema import json_schema as make  # noqa: PLC0415 - heavy, on first use

    return make()

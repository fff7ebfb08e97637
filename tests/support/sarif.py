"""The schema of SARIF 2.1.0."""

from __future__ import annotations

import json
from pathlib import Path

from jsonschema import Draft202012Validator

_SCHEMA = Path(__file__).with_name("sarif_2_1_0.json")


def schema_errors(document: object) -> list[str]:
    """Return why a document is not SARIF 2.1.0, one line for each reason."""
    validator = Draft202012Validator(
        json.loads(_SCHEMA.read_text(encoding="utf-8")), format_checker=Draft202012Validator.FORMAT_CHECKER
    )
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]

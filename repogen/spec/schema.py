"""The spec's JSON Schema, for editors and `repogen schema`."""

from __future__ import annotations

import copy

from pydantic.json_schema import GenerateJsonSchema

from repogen.spec.models import SpecFile

_DIALECT = GenerateJsonSchema.schema_dialect
_REFERENCE = "#/$defs/"
_PARTIAL = "Partial"


def json_schema() -> dict[str, object]:
    """Return the JSON Schema (2020-12) of a spec file; ``defaults`` completes like a model without required keys."""
    schema = SpecFile.model_json_schema()
    definitions: dict[str, object] = schema["$defs"]
    partial = {f"{_PARTIAL}{name}": _optional(copy.deepcopy(part)) for name, part in definitions.items()}
    needed = _reachable(partial, f"{_PARTIAL}ModelSpec")
    definitions.update((name, part) for name, part in partial.items() if name in needed)
    schema["properties"]["defaults"] = {
        "$ref": f"{_REFERENCE}{_PARTIAL}ModelSpec",
        "description": "Anything a model may say; merged under every model",
        "default": {},
    }
    title = "repogen spec"
    return {"$schema": _DIALECT, "$id": "urn:repogen:spec", **schema, "title": title}


def _optional(part: object) -> object:
    """Drop every ``required`` and let references point at the partial definitions."""
    if isinstance(part, list):
        return [_optional(item) for item in part]
    if not isinstance(part, dict):
        return part
    kept = {key: _optional(value) for key, value in part.items() if key != "required"}
    reference = kept.get("$ref")
    if isinstance(reference, str):
        kept["$ref"] = reference.replace(_REFERENCE, f"{_REFERENCE}{_PARTIAL}")
    return kept


def _reachable(definitions: dict[str, object], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _references(definitions[name])
    return found


def _references(part: object) -> list[str]:
    if isinstance(part, list):
        return [name for item in part for name in _references(item)]
    if not isinstance(part, dict):
        return []
    own = part.get("$ref")
    here = [own.removeprefix(_REFERENCE)] if isinstance(own, str) else []
    return here + [name for value in part.values() for name in _references(value)]

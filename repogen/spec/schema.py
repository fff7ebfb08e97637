"""The spec's JSON Schema, for editors and `repogen schema`."""

from __future__ import annotations

import copy
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from repogen.spec.models import SpecFile

_DIALECT = GenerateJsonSchema.schema_dialect
_REFERENCE = "#/$defs/"
_PARTIAL = "Partial"


def json_schema() -> dict[str, object]:
    """Return the JSON Schema (2020-12) of a spec file; ``defaults`` has the keys of a model, none of them required."""
    schema = SpecFile.model_json_schema()
    definitions: dict[str, dict[str, Any]] = schema["$defs"]
    for mapping in (schema, *definitions.values()):
        _describe_keys(mapping, definitions)
    partial: dict[str, Any] = {
        f"{_PARTIAL}{name}": _optional(copy.deepcopy(part)) for name, part in definitions.items()
    }
    required_names = _reachable_names(partial, f"{_PARTIAL}ModelSpec")
    definitions.update((name, part) for name, part in partial.items() if name in required_names)
    schema["properties"]["defaults"] = {
        "$ref": f"{_REFERENCE}{_PARTIAL}ModelSpec",
        "description": "Settings that are merged into every model",
        "default": {},
    }
    title = "repogen spec"
    return {"$schema": _DIALECT, "$id": "urn:repogen:spec", **schema, "title": title}


def _describe_keys(mapping: dict[str, Any], definitions: dict[str, dict[str, Any]]) -> None:
    """Describe the keys of a mapping that have no description: a section by its own description."""
    for key, value in mapping.get("properties", {}).items():
        sections = [part["$ref"] for part in (value, *value.get("anyOf", ())) if "$ref" in part]
        if "description" not in value and sections:
            description = definitions[sections[0].removeprefix(_REFERENCE)].get("description", "")
            value["description"] = description.partition("\n")[0].removesuffix(".")
        if key == "kind" and "const" in value:
            value.setdefault("description", "Kind of source")


def _optional(part: object) -> object:
    """Return a schema without ``required``, with references to the partial definitions."""
    if isinstance(part, list):
        return [_optional(item) for item in part]
    if not isinstance(part, dict):
        return part
    optional = {key: _optional(value) for key, value in part.items() if key != "required"}
    reference = optional.get("$ref")
    if isinstance(reference, str):
        optional["$ref"] = reference.replace(_REFERENCE, f"{_REFERENCE}{_PARTIAL}")
    return optional


def _reachable_names(definitions: dict[str, object], start: str) -> set[str]:
    reachable: set[str] = set()
    pending = [start]
    while pending:
        name = pending.pop()
        if name not in reachable:
            reachable.add(name)
            pending += _references(definitions[name])
    return reachable


def _references(part: object) -> list[str]:
    if isinstance(part, list):
        return [name for item in part for name in _references(item)]
    if not isinstance(part, dict):
        return []
    reference = part.get("$ref")
    names = [reference.removeprefix(_REFERENCE)] if isinstance(reference, str) else []
    return names + [name for value in part.values() for name in _references(value)]

"""Tests of the JSON Schema that editors use."""

from __future__ import annotations

from typing import Any

import pytest

from repogen.spec.schema import json_schema


@pytest.fixture(scope="module")
def schema() -> Any:
    """Return the schema as untyped data."""
    return json_schema()


def test_dialect_and_id(schema: Any) -> None:
    """The schema declares its dialect and an ID without a host."""
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == "urn:repogen:spec"


def test_unknown_keys_and_missing_models_are_rejected(schema: Any) -> None:
    """The top level is closed, and models is required."""
    assert (schema["additionalProperties"], schema["required"]) == (False, ["models"])


def test_defaults_have_every_model_key(schema: Any) -> None:
    """Every key of a model is an optional key of defaults, down to the leaves."""
    complete, partial = (schema["$defs"][name] for name in ("ModelSpec", "PartialModelSpec"))
    assert schema["properties"]["defaults"]["$ref"] == "#/$defs/PartialModelSpec"
    assert (list(complete["properties"]), False) == (list(partial["properties"]), "required" in partial)
    sources = {choice["$ref"] for choice in partial["properties"]["source"]["oneOf"]}
    assert "#/$defs/PartialHuggingFaceSource" in sources
    assert "required" not in schema["$defs"]["PartialHuggingFaceSource"]


def test_every_reference_has_a_definition(schema: Any) -> None:
    """Every `$ref` names an existing definition."""
    names = {reference.removeprefix("#/$defs/") for reference in references(schema)}
    assert names <= set(schema["$defs"])


def test_every_key_has_a_description(schema: Any) -> None:
    """Editors and the docs show it; a section's key has the description of the section."""
    mappings = {"": schema, **schema["$defs"]}
    undescribed = [
        f"{name}.{key}"
        for name, mapping in mappings.items()
        for key, value in mapping.get("properties", {}).items()
        if not value.get("description")
    ]
    assert undescribed == []


def test_union_has_both_types(schema: Any) -> None:
    """max_batch_size is auto or a number."""
    sides = schema["$defs"]["TritonSpec"]["properties"]["max_batch_size"]["anyOf"]
    assert [side["type"] for side in sides] == ["string", "integer"]


def references(part: Any) -> list[str]:
    """Return every `$ref` in a part of a schema."""
    if isinstance(part, list):
        return [name for item in part for name in references(item)]
    if not isinstance(part, dict):
        return []
    names = [part["$ref"]] if isinstance(part.get("$ref"), str) else []
    return names + [name for value in part.values() for name in references(value)]

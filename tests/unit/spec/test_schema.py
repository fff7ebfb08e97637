"""The JSON Schema that editors complete from."""

from __future__ import annotations

from typing import Any

import pytest

from repogen.spec.schema import json_schema


@pytest.fixture(scope="module")
def schema() -> Any:
    """Return the schema, free to be indexed."""
    return json_schema()


def test_it_is_a_2020_12_schema_with_a_name_of_its_own(schema: Any) -> None:
    """The dialect is declared, and no host is named."""
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == "urn:repogen:spec"


def test_unknown_keys_and_a_spec_without_models_are_refused(schema: Any) -> None:
    """The top level is closed, and models is required."""
    assert (schema["additionalProperties"], schema["required"]) == (False, ["models"])


def test_defaults_complete_like_a_model_of_which_nothing_is_required(schema: Any) -> None:
    """Every key of a model is a key of defaults, down to the leaves, and none is required."""
    whole, partial = (schema["$defs"][name] for name in ("ModelSpec", "PartialModelSpec"))
    assert schema["properties"]["defaults"]["$ref"] == "#/$defs/PartialModelSpec"
    assert (list(whole["properties"]), False) == (list(partial["properties"]), "required" in partial)
    sources = {choice["$ref"] for choice in partial["properties"]["source"]["oneOf"]}
    assert "#/$defs/PartialHuggingFaceSource" in sources
    assert "required" not in schema["$defs"]["PartialHuggingFaceSource"]


def test_every_reference_leads_somewhere(schema: Any) -> None:
    """No `$ref` names a definition that is not there."""
    names = {reference.removeprefix("#/$defs/") for reference in references(schema)}
    assert names <= set(schema["$defs"])


def test_a_union_keeps_both_sides(schema: Any) -> None:
    """max_batch_size completes to auto or a number."""
    sides = schema["$defs"]["TritonSpec"]["properties"]["max_batch_size"]["anyOf"]
    assert [side["type"] for side in sides] == ["string", "integer"]


def references(part: Any) -> list[str]:
    """Return every `$ref` below a part of a schema."""
    if isinstance(part, list):
        return [name for item in part for name in references(item)]
    if not isinstance(part, dict):
        return []
    own = [part["$ref"]] if isinstance(part.get("$ref"), str) else []
    return own + [name for value in part.values() for name in references(value)]

"""Positions of fields in a text."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repogen.triton_config.text.parse import PbtxtError
from repogen.triton_config.text.source_map import Position, locate_fields

TEXT = """\
# a comment: { not a brace
name: "m # { \\" no comment"
max_batch_size: 8
input [
  { name: "x" data_type: TYPE_FP32 dims: [ 3,
      -1 ] },
  { name: 'y' 'z' dims: 4 dims: 5; }
]
input < name: "w" reshape { shape: [ ] } >
parameters { key: "k" value { string_value: "v" } }
future_field { a: 1 b [ 2 ] }
"""


@pytest.mark.parametrize(
    ("path", "line", "column"),
    [
        ("name", 2, 1),
        ("max_batch_size", 3, 1),
        ("input[0]", 5, 3),
        ("input[0].data_type", 5, 15),
        ("input[0].dims[0]", 5, 44),
        ("input[0].dims[1]", 6, 7),
        ("input[0].dims", 5, 36),
        ("input[1].name", 7, 5),
        ("input[1].dims[1]", 7, 27),
        ("input[2].reshape.shape", 9, 29),
        ("input[2].reshape.shape[7]", 9, 29),
        ("input", 4, 1),
        ("parameters[0].value.string_value", 10, 31),
        ('parameters["k"]', 10, 1),
        ('parameters["unknown"]', 10, 1),
        ("future_field.a", 11, 16),
        ("nothing.like[3].that", 1, 1),
    ],
)
def test_position_of_a_field(path: str, line: int, column: int) -> None:
    """Lists, angle brackets, adjacent strings and unknown fields; a missing field has its parent's position."""
    assert locate_fields(TEXT, "test").position(path) == Position(line, column)


def test_schema_fields_have_the_position_of_their_first_use() -> None:
    """Fields and enum values are included, unknown fields are not."""
    fields = locate_fields(TEXT, "test").schema_fields
    assert fields["inference.ModelInput", "dims"] == Position(5, 36)
    assert fields["inference.DataType", "TYPE_FP32"] == Position(5, 26)
    assert not any(name == "future_field" for _, name in fields)


@pytest.mark.parametrize("text", ["input {", "input [ { name: ", "a { b < c }", "{" * 200, "a{" * 100])
def test_what_does_not_close_is_an_error_with_a_place(text: str) -> None:
    """An unclosed block is an error with a position, without exhausting the stack."""
    with pytest.raises(PbtxtError) as caught:
        locate_fields(text, "test")
    assert caught.value.line == 1


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("input {", "add the missing '}'"),
        ("input <", "add the missing '>'"),
        ("name:", "add a value, or remove the field"),
        ("a {" * 100, "remove levels of nesting"),
    ],
)
def test_hint_of_an_error(text: str, hint: str) -> None:
    """Each error has its own hint."""
    with pytest.raises(PbtxtError) as caught:
        locate_fields(text, "test")
    assert caught.value.hint == hint


@given(st.text(alphabet="{}[]<>:,;\"'#\\ \nax1-", max_size=200))
def test_any_text_ends(text: str) -> None:
    """In fields or in an error."""
    with contextlib.suppress(PbtxtError):
        assert locate_fields(text, "test").position("") == Position(1, 1)

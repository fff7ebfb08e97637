"""parse: what is no ModelConfig is an error with its place."""

from __future__ import annotations

import pytest

from repogen.triton_config.text.parse import PbtxtError, parse


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('name: "m"\n  nmae: "m"', (2, 3)),
        ("max_batch_size: 99999999999", (1, 17)),
        ('name: "m"\nname: "n"', (2, 7)),
        ("input [ { dims: [ 1 }", (1, 21)),
        ('\N{BYTE ORDER MARK}name: "m"', (1, 1)),
        ('data_type: "x', (1, 1)),
    ],
)
def test_a_wrong_text_is_placed(text: str, place: tuple[int, int]) -> None:
    """The error knows line and column, and says them with the file's name."""
    with pytest.raises(PbtxtError) as caught:
        parse(text, "digits/config.pbtxt")
    assert place == (caught.value.line, caught.value.column)
    assert f"digits/config.pbtxt:{place[0]}:{place[1]}" == caught.value.where

"""Limits on the content of files that somebody else wrote."""

from __future__ import annotations

from io import BytesIO

import pytest

from repogen.files.content import ContentError, copy_bytes, require_few_values


@pytest.mark.parametrize("text", ["[0,0,0,0]", "[[[[]]]]", '{"a":{"a":{"a":{}}}}', '[{"a":[[0]]}]'])
def test_values_without_commas_are_counted(text: str) -> None:
    """A list in a list needs no comma, and 150 times as much memory as text."""
    require_few_values(text, 4)
    require_few_values(text.encode(), 4)
    with pytest.raises(ContentError, match="more than 2 values"):
        require_few_values(f"[{text},{text}]", 2)
    with pytest.raises(ContentError, match="more than 2 values"):
        require_few_values(f"[{text},{text}]".encode(), 2)


@pytest.mark.parametrize("size", [0, 2, 5, 2**20 + 3])
def test_copy_of_a_file_that_grows(size: int) -> None:
    """The copy has the size that the file had, or what is left of a shorter one."""
    content = bytes(2**20) + b"abcd"
    for available in (content, content[: size // 2]):
        writer = BytesIO()
        copy_bytes(BytesIO(available), writer, size)
        assert writer.getvalue() == available[:size]

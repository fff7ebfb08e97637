"""``repogen explain``."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from repogen.cli.group import main
from repogen.errors import SpecError
from repogen.explain import codes, explain


@pytest.mark.parametrize("code", codes())
def test_every_code_has_a_page_with_a_body(code: str) -> None:
    """A title with the code, and at least one sentence."""
    title, _, body = explain(code).partition("\n")
    assert title.startswith(f"# {code}")
    assert len(body.split()) >= 5


def test_case_does_not_matter() -> None:
    """People type rg101."""
    assert explain("rg101") == explain("RG101")


def test_an_unknown_code_names_similar_ones() -> None:
    """A typo is answered with the codes that look like it."""
    with pytest.raises(SpecError, match=r"'source\.randm' is not a code of repogen") as caught:
        explain("source.randm")
    assert "source.random" in caught.value.hint


def test_the_command_prints_the_page() -> None:
    """As plain Markdown where the output is not a terminal."""
    result = CliRunner().invoke(main, ["explain", "RG208"])
    assert result.exit_code == 0
    assert result.output == explain("RG208")


def test_without_a_code_the_command_lists_all() -> None:
    """One per line."""
    result = CliRunner().invoke(main, ["explain"])
    assert result.output.split() == list(codes())

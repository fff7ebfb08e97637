"""Tests of ``repogen explain``."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from repogen.cli.group import main
from repogen.errors import SpecError
from repogen.explain import codes, explain


@pytest.mark.parametrize("code", codes())
def test_every_page_has_a_title_and_text(code: str) -> None:
    """Each page has a title with the code and at least one sentence."""
    title, _, body = explain(code).partition("\n")
    assert title.startswith(f"# {code}")
    assert len(body.split()) >= 5


def test_code_is_case_insensitive() -> None:
    """rg101 is RG101."""
    assert explain("rg101") == explain("RG101")


@pytest.mark.parametrize("code", ["RG2", "rg20", "RG"])
def test_beginning_of_rule_codes_lists_the_rules(code: str) -> None:
    """As `repogen check --select RG2` selects them."""
    rules = [rule for rule in codes() if rule.startswith(code.upper())]
    assert explain(code) == "".join(f"- {explain(rule).splitlines()[0].removeprefix('# ')}\n" for rule in rules)
    assert len(rules) > 5


def test_unknown_code_suggests_similar_codes() -> None:
    """An unknown code is rejected with similar codes."""
    with pytest.raises(SpecError, match=r"'source\.randm' is not a known code") as caught:
        explain("source.randm")
    assert "source.random" in caught.value.hint


def test_command_prints_the_page() -> None:
    """Output that is not a terminal gets plain Markdown."""
    result = CliRunner().invoke(main, ["explain", "RG208"])
    assert result.exit_code == 0
    assert result.output == explain("RG208")


def test_command_without_a_code_lists_all() -> None:
    """All codes are listed, one per line."""
    result = CliRunner().invoke(main, ["explain"])
    assert result.output.split() == list(codes())


@pytest.mark.parametrize("code", ["UNKNOWN", "RG999", "zzz"])
def test_unrelated_codes_are_not_suggested(code: str) -> None:
    """A suggestion that shares a word with the code would not help."""
    with pytest.raises(SpecError) as caught:
        explain(code)
    assert "did you mean" not in caught.value.hint

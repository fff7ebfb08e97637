"""Each rule has a page; its example violates the rule at the marked line, and its fix violates no rule."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from repogen.api.check import check
from repogen.triton_config.rules.findings import RULES, errors_of
from tests.unit.check.conftest import CONFIG, add_model

PAGES = Path(__file__).parents[3] / "repogen" / "explain" / "rules"
HERE = "  # here"


def page(code: str) -> str:
    """Return a rule's page."""
    return (PAGES / f"{code}.md").read_text(encoding="utf-8")


def blocks(code: str, language: str) -> list[str]:
    """Return the fenced blocks of a page in one language: the example and the fix."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page(code), re.MULTILINE | re.DOTALL)


def repository_of(root: Path, config: str) -> Path:
    """Write a repository that contains an example; return it."""
    model = add_model(root, "m", CONFIG if "ensemble" in config else config)
    if 'backend: "python"' in config:
        (model / "1" / "model.py").touch()
    if 'backend: "tensorrt"' in config:
        (model / "1" / "model.plan").touch()
    if "ensemble" in config:
        (root / "e" / "1").mkdir(parents=True)
        (root / "e" / "config.pbtxt").write_text(config, encoding="utf-8")
    return root


WITH_CONFIG = [code for code in RULES if (PAGES / f"{code}.md").exists() and blocks(code, "pbtxt")]


def test_every_code_has_a_page() -> None:
    """And every page has a code."""
    assert {path.stem for path in PAGES.glob("*.md")} == set(RULES)


@pytest.mark.parametrize("code", RULES)
def test_a_page_s_shape(code: str) -> None:
    """The title is the rule; every page has the same sections, an example, a fix, and how to suppress the finding."""
    lines = page(code).splitlines()
    assert lines[0] == f"# {code}: {RULES[code]}"
    assert [line for line in lines if line.startswith("## ")] == ["## Why", "## Example", "## Fix"]
    assert len(blocks(code, "pbtxt")) + len(blocks(code, "text")) == 2
    assert lines[-1] in {f"Suppress with: `# repogen: ignore[{code}]`", f"Suppress with: `--ignore {code}`"}


@pytest.mark.parametrize("code", WITH_CONFIG)
def test_an_example_breaks_its_rule(tmp_path: Path, code: str) -> None:
    """The rule is reported at each marked line and nowhere else; a comment there suppresses it, if the page says so."""
    example, _ = blocks(code, "pbtxt")
    marked = {number for number, line in enumerate(example.splitlines(), 1) if line.endswith(HERE)}
    findings = check(repository_of(tmp_path / "marked", example))
    assert {finding.line for finding in findings if finding.code == code} == marked != set()
    suppressed = repository_of(tmp_path / "suppressed", example.replace(HERE, f"  # repogen: ignore[{code}]"))
    has_comment = page(code).endswith(f"Suppress with: `# repogen: ignore[{code}]`\n")
    assert (code not in {finding.code for finding in check(suppressed)}) == has_comment


@pytest.mark.parametrize("code", WITH_CONFIG)
def test_a_fix_keeps_every_rule(tmp_path: Path, code: str) -> None:
    """The fix violates neither the rule itself nor any rule whose violation is an error."""
    _, fix = blocks(code, "pbtxt")
    findings = check(repository_of(tmp_path, fix))
    assert errors_of(findings) == ()
    assert code not in {finding.code for finding in findings}

"""Property tests: loading any text returns a Spec or raises a SpecError with positions inside the text."""

from __future__ import annotations

import tempfile
from pathlib import Path

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from repogen.spec.load import load_spec
from repogen.spec.models import ModelSpec, Spec, SpecFile
from repogen.spec.problems import SpecProblemsError

_WORDS = [
    *SpecFile.model_fields, *ModelSpec.model_fields, "m", "a b", "x", "batch", "dtype", "shape", "float32", "int64",
    "range", "min", "max", "true", "no", "~", "1", "-1", "1e3", "0.5", "2024-01-01", "99999999999", ".nan", "auto",
    "models.py:build", "24.10",
]  # fmt: skip
_PIECES = [
    *_WORDS,
    *":,[]{}&*!?|>-#%@'\"\n\t ",
    ": ",
    "\n  ",
    "\n    ",
    "\n- ",
    "&a ",
    "*a",
    "!!str ",
    "<<: ",
    "---\n",
    "\x00",
]
_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(_WORDS) | st.text(max_size=5)
_TREES = st.recursive(
    _SCALARS,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.sampled_from(_WORDS), below, max_size=6),
    max_leaves=30,
)


def load(raw: bytes) -> Spec | SpecProblemsError:
    """Load bytes as a spec."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "repogen.yaml"
        path.write_bytes(raw)
        try:
            return load_spec(path)
        except SpecProblemsError as error:
            return error


def assert_spec_or_problems(raw: bytes) -> None:
    """Assert that the result is a Spec, or one-line problems with positions inside the text."""
    result = load(raw)
    if isinstance(result, Spec):
        return
    # One more than the line feeds, and one more for an end of the text that stands for a line.
    lines = sum(raw.count(end) for end in (b"\n", b"\r", b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9")) + 2
    assert result.problems
    assert all(0 <= problem.line <= lines for problem in result.problems)
    assert all(str(problem).isprintable() for problem in result.problems)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes(raw: bytes) -> None:
    """Any bytes are a spec or a list of problems."""
    assert_spec_or_problems(raw)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(_PIECES), max_size=60).map("".join))
def test_any_text_made_of_yaml(text: str) -> None:
    """YAML indicators in any order are a spec or a list of problems."""
    assert_spec_or_problems(text.encode())


@settings(max_examples=100, deadline=None)
@given(st.fixed_dictionaries({"models": _TREES}, optional={"defaults": _TREES, "target": _TREES, "repository": _TREES}))
def test_any_tree_of_known_keys(tree: dict[str, object]) -> None:
    """Well-formed YAML with the spec's own keys in wrong places is a spec or a list of problems."""
    assert_spec_or_problems(yaml.safe_dump(tree, allow_unicode=True).encode())


@settings(max_examples=100, deadline=None)
@given(_TREES, st.dictionaries(st.sampled_from([*ModelSpec.model_fields]), _TREES, max_size=4))
def test_any_model(defaults: object, model: dict[str, object]) -> None:
    """A model with arbitrary sections under arbitrary defaults is a spec or a list of problems."""
    model.setdefault("source", {"factory": "package:build"})
    assert_spec_or_problems(yaml.safe_dump({"defaults": defaults, "models": {"m": model}}, allow_unicode=True).encode())

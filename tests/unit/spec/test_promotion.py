"""The promotion: section of a model, and of defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repogen.build.fingerprint import spec_digest
from repogen.spec.gates import GatesSpec
from repogen.spec.load import load_spec
from repogen.spec.schema import json_schema

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Problems = Callable[[str | bytes], list[tuple[str, str, str]]]

MODEL = """\
models:
  m:
    source: {factory: "models.py:build"}
    inputs: {x: {dtype: float32, shape: [batch, 4]}}
    dims: {batch: {max: 8}}
"""


@pytest.fixture
def load(tmp_path: Path) -> Callable[[str], GatesSpec]:
    """Return a function that loads a spec and returns the gates of model ``m``."""

    def gates_of(text: str) -> GatesSpec:
        (tmp_path / "models.py").touch()
        (tmp_path / "repogen.yaml").write_text(text, encoding="utf-8")
        return load_spec(tmp_path / "repogen.yaml").models["m"].promotion.gates

    return gates_of


def test_gates_merge_with_those_of_defaults(load: Callable[[str], GatesSpec]) -> None:
    """A model changes one limit; the others are inherited."""
    defaults = "defaults: {promotion: {gates: {size: {max_mb: 500, max_ratio: 1.1}, smoke: true}}}\n"
    gates = load(defaults + MODEL + "    promotion: {gates: {size: {max_mb: 5}, parity: {max_abs_diff: 1.0e-3}}}\n")
    expected = {"size": {"max_mb": 5, "max_ratio": 1.1}, "parity": {"max_abs_diff": 1e-3}, "smoke": True}
    assert GatesSpec.model_validate(expected) == gates


def test_default_gates(load: Callable[[str], GatesSpec]) -> None:
    """Smoke, and parity without a limit."""
    gates = load(MODEL)
    assert (gates.smoke, gates.parity.max_abs_diff) == (True, None)
    assert (gates.size, gates.latency, gates.throughput, gates.evaluation) == (None, None, None, None)


def test_holdout_is_accepted_as_the_old_name_of_evaluation(load: Callable[[str], GatesSpec], tmp_path: Path) -> None:
    """It is not part of the JSON Schema."""
    (tmp_path / "g.py").touch()
    gates = load(MODEL + "    promotion: {gates: {holdout: {callable: 'g.py:f', min: 0.9}}}\n")
    assert gates.evaluation is not None
    assert (gates.evaluation.min, list(gates.active())) == (0.9, ["smoke", "parity", "size", "evaluation"])
    assert "holdout" not in str(json_schema())


@pytest.mark.parametrize(
    ("section", "key", "what"),
    [
        ("{gate: {}}", "gate", 'unknown key (did you mean "gates"?)'),
        ("{gates: {latency: {p95: 3}}}", "gates.latency.p95", "unknown key (use one of p95_max_ms, max_ratio)"),
        ("{gates: {size: {max_ratio: 0}}}", "gates.size.max_ratio", "must be a number > 0 and <= 1e9, not 0"),
        ("{gates: {smoke: 1}}", "gates.smoke", "must be true or false, not 1"),
        ("{gates: {evaluation: {min: 1}}}", "gates.evaluation", "callable is missing"),
        ("{gates: {evaluation: {callable: x}}}", "gates.evaluation.callable",
         ('"x" is neither file.py:callable nor package.module:callable (for example "gates.py:accuracy", or '
         '"package.module:accuracy")')),
        ("{gates: {evaluation: {callable: 'g.py:f'}}}", "gates.evaluation.callable",
         'file "g.py" does not exist (paths are relative to the spec)'),
    ],
)  # fmt: skip
def test_invalid_section_is_reported_with_its_key(problems: Problems, section: str, key: str, what: str) -> None:
    """As for every other section."""
    ((_, path, actual),) = problems(MODEL + f"    promotion: {section}\n")
    assert (f"models.m.promotion.{key}", what) == (path, actual)


def test_gates_do_not_invalidate_a_build(load: Callable[[str], GatesSpec], tmp_path: Path) -> None:
    """They do not affect the built files."""
    digests = []
    for section in ("", "    promotion: {gates: {size: {max_mb: 5}}}\n"):
        load(MODEL + section)
        digests.append(spec_digest(load_spec(tmp_path / "repogen.yaml"), "m"))
    assert digests[0] == digests[1]


def test_editors_complete_gates() -> None:
    """In models and in defaults."""
    definitions = json_schema()["$defs"]
    assert isinstance(definitions, dict)
    assert {"PromotionSpec", "GatesSpec", "PartialGatesSpec", "PartialEvaluationGate"} <= set(definitions)

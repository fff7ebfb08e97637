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
    """Return what loads a spec and gives the gates of model ``m``."""

    def made(text: str) -> GatesSpec:
        (tmp_path / "models.py").touch()
        (tmp_path / "repogen.yaml").write_text(text, encoding="utf-8")
        return load_spec(tmp_path / "repogen.yaml").models["m"].promotion.gates

    return made


def test_gates_merge_with_those_of_defaults(load: Callable[[str], GatesSpec]) -> None:
    """A model changes one limit, and keeps the others."""
    defaults = "defaults: {promotion: {gates: {size: {max_mb: 500, max_ratio: 1.1}, smoke: true}}}\n"
    gates = load(defaults + MODEL + "    promotion: {gates: {size: {max_mb: 5}, parity: {max_abs_diff: 1.0e-3}}}\n")
    expected = {"size": {"max_mb": 5, "max_ratio": 1.1}, "parity": {"max_abs_diff": 1e-3}, "smoke": True}
    assert GatesSpec.model_validate(expected) == gates


def test_without_gates_smoke_is_asked_and_parity_recorded(load: Callable[[str], GatesSpec]) -> None:
    """Nothing else is."""
    gates = load(MODEL)
    assert (gates.smoke, gates.parity.max_abs_diff) == (True, None)
    assert (gates.size, gates.latency, gates.throughput, gates.holdout) == (None, None, None, None)


@pytest.mark.parametrize(
    ("section", "key", "what"),
    [
        ("{gate: {}}", "gate", 'unknown key (did you mean "gates"?)'),
        ("{gates: {latency: {p95: 3}}}", "gates.latency.p95", "unknown key (use one of p95_max_ms, max_ratio)"),
        ("{gates: {size: {max_ratio: 0}}}", "gates.size.max_ratio", "must be a number > 0 and <= 1e9, not 0"),
        ("{gates: {smoke: 1}}", "gates.smoke", "must be true or false, not 1"),
        ("{gates: {holdout: {min: 1}}}", "gates.holdout", "callable is missing"),
        ("{gates: {holdout: {callable: x}}}", "gates.holdout.callable",
         ('"x" is neither file.py:callable nor package.module:callable (for example "gates.py:accuracy", or '
         '"package.module:accuracy")')),
        ("{gates: {holdout: {callable: 'g.py:f'}}}", "gates.holdout.callable",
         'file "g.py" does not exist (paths are relative to the spec)'),
    ],
)  # fmt: skip
def test_a_wrong_section_is_told_with_its_key(problems: Problems, section: str, key: str, what: str) -> None:
    """As everywhere in the spec."""
    ((_, path, said),) = problems(MODEL + f"    promotion: {section}\n")
    assert (f"models.m.promotion.{key}", what) == (path, said)


def test_gates_are_no_reason_to_build_again(load: Callable[[str], GatesSpec], tmp_path: Path) -> None:
    """They decide about promotion, not about bytes."""
    digests = []
    for section in ("", "    promotion: {gates: {size: {max_mb: 5}}}\n"):
        load(MODEL + section)
        digests.append(spec_digest(load_spec(tmp_path / "repogen.yaml"), "m"))
    assert digests[0] == digests[1]


def test_editors_complete_gates() -> None:
    """In models and in defaults."""
    definitions = json_schema()["$defs"]
    assert isinstance(definitions, dict)
    assert {"PromotionSpec", "GatesSpec", "PartialGatesSpec", "PartialHoldoutGate"} <= set(definitions)

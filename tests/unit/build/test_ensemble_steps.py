"""The versions that an ensemble uses, as its worker receives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.steps import EnsembleStep
from repogen.build.ensemble_steps import built_steps
from repogen.errors import ConfigError

from .conftest import PLAIN, SIGNATURE, ensemble_of, write_spec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

INNER_CONFIG = """\
name: "inner"
ensemble_scheduling {
  step { model_name: "a" model_version: 1 input_map { key: "x" value: "IN" } output_map { key: "y" value: "OUT" } }
}
"""


def test_steps_have_the_signature_of_their_newest_version(tmp_path: Path, publish_version: Callable[..., Path]) -> None:
    """The steps of an ensemble that is a step itself are read from its config.pbtxt."""
    spec = write_spec(tmp_path, a=PLAIN, inner=ensemble_of("a"), outer=ensemble_of("inner"))
    publish_version(spec, "a", 1)
    newest = publish_version(spec, "a", 2)
    inner = publish_version(spec, "inner")
    (inner / "config.pbtxt").write_text(INNER_CONFIG)

    steps = built_steps(spec, "outer", spec.repository)

    assert list(steps) == ["a", "inner"]
    assert (steps["a"].version_dir, steps["a"].signature, steps["a"].steps) == (newest, SIGNATURE, ())
    assert steps["inner"].steps == (EnsembleStep("a", {"x": "IN"}, {"y": "OUT"}, 1),)
    assert built_steps(spec, "a", spec.repository) == {}


@pytest.mark.parametrize(
    ("version", "code", "message"),
    [
        (1, "config.foreign-step", "version 1 of step a was not built by repogen"),
        (2, "config.step-version", "step a needs version 2; existing versions: 1"),
    ],
)
def test_step_without_a_manifest_is_rejected(tmp_path: Path, version: int, code: str, message: str) -> None:
    """Its shapes are unknown; a version that the spec pins must exist."""
    step = f"{{source: {{kind: ensemble, steps: [{{model: a, version: {version}}}]}}}}"
    spec = write_spec(tmp_path, a=PLAIN, e=step)
    (spec.repository / "a" / "1").mkdir(parents=True)

    with pytest.raises(ConfigError, match=message) as caught:
        built_steps(spec, "e", spec.repository)

    assert (caught.value.code, caught.value.where) == (code, "models.e.source.steps")

"""Which models an ensemble uses, and the order in which models are built."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repogen.build.dependencies import build_order, ensemble_dependencies, with_ensembles

from .conftest import PLAIN, ensemble_of, write_spec

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.spec.models import Spec


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """Return an ensemble of an ensemble, first in the file, and a model that is in neither."""
    return write_spec(
        tmp_path, outer=ensemble_of("inner", "c"), other=PLAIN, inner=ensemble_of("a", "b"), a=PLAIN, b=PLAIN, c=PLAIN
    )


def test_dependencies_include_those_of_the_steps(spec: Spec) -> None:
    """Each after the models that it uses."""
    assert ensemble_dependencies(spec.models, "outer") == ("a", "b", "inner", "c")
    assert ensemble_dependencies(spec.models, "a") == ()


def test_ensemble_is_built_after_its_dependencies(spec: Spec) -> None:
    """With one thread, an ensemble before its steps would wait forever."""
    assert build_order(spec, spec.models) == ["a", "b", "inner", "c", "outer", "other"]
    assert build_order(spec, ["outer", "c"]) == ["c", "outer"]


def test_ensembles_of_a_changed_model_are_built_again(spec: Spec) -> None:
    """In the order of the spec."""
    assert with_ensembles(spec, spec.models, ["a"]) == ["outer", "inner", "a"]
    assert with_ensembles(spec, spec.models, ["other"]) == ["other"]

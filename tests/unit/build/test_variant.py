"""Builds with other passes for `repogen tune`: what counts as current, and which model is built."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.progress import Silent
from repogen.artifacts.report import BuildReport, ModelReport, Status
from repogen.build import pipeline
from repogen.build.variant import VariantBuilder
from repogen.spec.models import PassSpec

from .conftest import PLAIN, write_spec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from repogen.build.plan import BuildOptions
    from repogen.spec.models import Spec


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """Return a spec of two models."""
    return write_spec(tmp_path, a=PLAIN, b=PLAIN)


def test_current_graph(spec: Spec, publish_version: Callable[..., Path]) -> None:
    """A newer version, or another graph, is a reason; a change of the config is not."""
    publish_version(spec, "a")
    builder = VariantBuilder(spec, "a")
    assert builder.outdated(spec.repository, 1) == ""
    assert VariantBuilder(spec, "b").outdated(spec.repository, 1) == "no version is published"
    model = spec.models["a"]
    for key, value, reason in (
        ("triton", model.triton.model_copy(update={"extra": "# text"}), ""),
        ("optimize", (PassSpec(name="onnxsim"),), "optimize in the spec is now set"),
    ):
        changed = replace(spec, models={**spec.models, "a": model.model_copy(update={key: value})})
        assert VariantBuilder(changed, "a").outdated(spec.repository, 1) == reason
    publish_version(spec, "a", 2)
    assert builder.outdated(spec.repository, 1) == "version 2 is newer"


def test_one_model_is_built(spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the passes, into another repository; nothing is tested, tracked or reported elsewhere."""
    report = ModelReport("a", Status.PUBLISHED, version=1)

    def build(built: Spec, options: BuildOptions, _progress: object) -> BuildReport:
        assert (list(built.models), built.models["a"].optimize) == (["a"], passes)
        assert (options.repository, options.server) == (tmp_path / "other", None)
        assert not any((options.track, options.report, options.dry_run, options.force))
        return BuildReport(tmp_path, (report,))

    passes = (PassSpec(name="onnxsim"),)
    monkeypatch.setattr(pipeline, "build", build)
    assert VariantBuilder(spec, "a").build(passes, tmp_path / "other", Silent()) is report

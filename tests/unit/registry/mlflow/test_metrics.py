"""What describes a model in MLflow's pages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from repogen.registry.mlflow.metrics import headlines, metrics, model_tags
from repogen.spec.load import load_spec

from .conftest import Stage, built, report

if TYPE_CHECKING:
    from pathlib import Path

SPEC = """\
models:
  m:
    description: Finds digits
    source: {source}
    inputs: {{x: {{dtype: float32, shape: [4]}}}}
    outputs: [y]
"""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "{factory: 'models.py:build', kwargs: {hidden: 16}}",
            {
                "repogen.source": "torch",
                "repogen.source.factory": "models.py:build",
                "repogen.source.kwargs": '{"hidden": 16}',
            },
        ),
        (
            "{kind: huggingface, model: org/name, revision: abc}",
            {
                "repogen.source": "huggingface",
                "repogen.source.model": "org/name",
                "repogen.source.revision": "abc",
            },
        ),
    ],
)
def test_tags_of_a_source(source: str, expected: dict[str, str], tmp_path: Path) -> None:
    """The options that the spec sets, and the description, which MLflow shows on the page of the run."""
    (tmp_path / "models.py").write_text("def build(hidden): ...\n")
    (tmp_path / "repogen.yaml").write_text(SPEC.format(source=source))
    spec = load_spec(tmp_path / "repogen.yaml")
    assert model_tags(spec.models["m"]) == {**expected, "mlflow.note.content": "Finds digits"}


def test_model_without_a_graph_has_no_figures_of_one(stage: Stage) -> None:
    """Charts of zeros would look like measurements."""
    staged = stage("m")
    full, empty = report(staged), replace(report(staged), opset=0, size=0)
    names = {name for name, _, _ in (*metrics(built(staged), full), *headlines(full))}
    left_out = names - {name for name, _, _ in (*metrics(built(staged), empty), *headlines(empty))}
    assert left_out == {"graph/nodes_exported", "graph/nodes_optimized", "model/size_bytes", "m/size_bytes"}

"""config.pbtxt of an ensemble: a golden text, and mismatches with the models of its steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from repogen.artifacts.built_model import BatchReport
from repogen.artifacts.steps import EnsembleArtifact, EnsembleStep, PythonArtifact
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.errors import ConfigError
from repogen.repository.ensembles import neighbor_at
from repogen.spec.models import ModelSpec
from repogen.targets import DEFAULT_RELEASE, targets
from repogen.triton_config.render.model import configure
from repogen.triton_config.render.model_facts import RenderOptions, VerifiedModel
from repogen.triton_config.text.parse import parse

if TYPE_CHECKING:
    from repogen.artifacts.versions import ModelConfig

GOLDEN = Path(__file__).parent / "golden" / "steps"
TARGET = targets()[DEFAULT_RELEASE]
TEXT = TensorSpec("text", "string", ("batch", 1))
IDS = TensorSpec("ids", "int64", ("batch", "tokens"))
STEPS = (
    EnsembleStep("tokenizer", {"text": "text"}, {"ids": "ids"}),
    EnsembleStep("scorer", {"ids": "ids"}, {"score": 'the "score"'}, version=2),
)
WHOLE = Signature((TEXT,), (TensorSpec('the "score"', "float32", ("batch", 1)),))  # its shape between models
TOKENIZER = """\
backend: "python"
input { name: "text" data_type: TYPE_STRING dims: [ -1, 1 ] }
output { name: "ids" data_type: TYPE_INT64 dims: [ -1, -1 ] }
"""
SCORER = """\
backend: "onnxruntime"
max_batch_size: 8
input { name: "ids" data_type: TYPE_INT64 dims: [ -1 ] }
output { name: "score" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } }
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with the models of the two steps."""
    for name, text in (("tokenizer", TOKENIZER), ("scorer", SCORER)):
        for version in ("1", "2"):
            (tmp_path / name / version).mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(text)
    return tmp_path


def configured(
    repository: Path,
    *,
    steps: tuple[EnsembleStep, ...] = STEPS,
    largest: int = 8,
    triton: dict[str, Any] | None = None,
    labels: dict[str, tuple[str, ...]] | None = None,
    templates: Path | None = None,
) -> ModelConfig:
    """Configure an ensemble named whole."""
    source = {"kind": "ensemble", "steps": [{"model": step.model} for step in steps]}
    spec = ModelSpec.model_validate({"source": source, "triton": triton or {}})
    batch = BatchReport(batchable=largest > 0, max_batch_size=largest, reason="" if largest else "rows mix")
    models = {step.model: neighbor_at(repository / step.model) for step in steps}
    verified = VerifiedModel(EnsembleArtifact(steps, WHOLE), batch, labels or {}, models=models)
    return configure("whole", spec, verified, RenderOptions(TARGET, templates))


def test_text_equals_golden_file(repository: Path) -> None:
    """Inherited keys that Triton rejects in an ensemble are omitted."""
    section = {
        "version_policy": {"latest": {"num_versions": 2}},
        "metric_tags": {"team": "text"},
        "response_cache": {},
        "instance_group": [{"count": 4}],
    }

    text = configured(repository, triton=section, labels={'the "score"': ("a", "b")}).text

    assert text == (GOLDEN / "ensemble.pbtxt").read_text(encoding="utf-8")


def test_config_contains_the_steps(repository: Path) -> None:
    """Platform, versions and tensor maps match the spec."""
    config = parse(configured(repository).text, "config.pbtxt")

    first, second = config.ensemble_scheduling.step
    assert (config.platform, config.max_batch_size) == ("ensemble", 8)
    assert (first.model_version, second.model_version) == (-1, 2)
    assert dict(second.output_map) == {"score": 'the "score"'}


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        ("TYPE_INT64 dims: [ -1 ]", "TYPE_INT32 dims: [ -1 ]", "RG503", "tensor 'ids' is TYPE_INT64"),
        ("max_batch_size: 8", "max_batch_size: 4", "RG503", "accepts batches up to 8, and 'scorer' up to 4"),
        ('name: "score"', 'name: "scores"', "RG502", "maps output 'score', which 'scorer' does not have"),
    ],
)
def test_mismatch_with_a_step_is_rejected(repository: Path, old: str, new: str, code: str, message: str) -> None:
    """The rules are those of `repogen check`."""
    (repository / "scorer" / "config.pbtxt").write_text(SCORER.replace(old, new))

    with pytest.raises(ConfigError, match=message) as caught:
        configured(repository)

    assert (caught.value.code, caught.value.where) == (code, "models.whole.source.steps")


def test_missing_version_is_rejected(repository: Path) -> None:
    """Triton could not load the ensemble."""
    (repository / "scorer" / "2").rmdir()

    with pytest.raises(ConfigError, match="uses version 2 of 'scorer', which is not served"):
        configured(repository)


def test_template_must_keep_the_steps(repository: Path, tmp_path: Path) -> None:
    """The rendered text is compared with the requested configuration."""
    overrides = tmp_path / "templates"
    overrides.mkdir()
    (overrides / "ensemble.pbtxt.j2").write_text('name: {{ name | pbstr }}\nplatform: "ensemble"\nmax_batch_size: 8\n')

    with pytest.raises(ConfigError, match=r"(?s)templates/ensemble\.pbtxt\.j2.*ensemble_scheduling: expected step"):
        configured(repository, templates=overrides)


def test_python_model_uses_the_python_backend() -> None:
    """It can have strings, and has no graph to compare with."""
    spec = ModelSpec.model_validate({"source": {"kind": "python", "path": "model.py"}})
    batch = BatchReport(batchable=False, max_batch_size=0, reason="rows mix")

    artifact = PythonArtifact(Path("model.py"), Signature((TEXT,), (IDS,)))
    text = configure("tokenizer", spec, VerifiedModel(artifact, batch), RenderOptions(TARGET)).text

    assert text == (GOLDEN / "python.pbtxt").read_text(encoding="utf-8")

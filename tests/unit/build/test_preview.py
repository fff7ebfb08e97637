"""What `repogen plan` says about a build."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from pydantic import TypeAdapter

import repogen
from repogen.artifacts.plan import Cost
from repogen.artifacts.report import BuildReport, ModelReport, Status
from repogen.build.costs import read_costs, record_costs
from repogen.build.fingerprint import build_inputs
from repogen.build.pipeline import plan_build
from repogen.build.plan import BuildOptions
from repogen.build.plan_file import read_plan
from repogen.build.preconditions import check_preconditions
from repogen.cli.group import main
from repogen.errors import SpecError
from repogen.reporting.json_types import PlanDocument
from repogen.repository.hold import hold_text
from repogen.repository.layout import journal_path, model_dir
from tests.support.published import contents

from .conftest import PLAIN, ensemble_of, write_spec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from repogen.spec.models import Spec


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """Return a spec with an ensemble."""
    return write_spec(tmp_path, a=PLAIN, b=PLAIN, e=ensemble_of("b"))


def test_plan_names_models_reasons_dependencies_and_inputs(spec: Spec, publish_version: Callable[..., Path]) -> None:
    """A model that is up to date has no reason; nothing is written."""
    publish_version(spec, "a", 2)
    journal = journal_path(model_dir(spec.repository, "a"))
    journal.write_text("{}")  # of a publish that was interrupted: a build would recover it
    before = contents(spec.repository)
    plan = repogen.plan(spec)
    assert contents(spec.repository) == before
    assert [(model.name, model.version, model.reasons) for model in plan.models] == [
        ("a", 2, ()), ("b", None, ("no version is published",)), ("e", None, ("no version is published",)),
    ]  # fmt: skip
    assert [model.name for model in plan.pending] == ["b", "e"]
    assert plan.models[2].dependencies == ("b",)
    assert plan.models[0].fingerprint == build_inputs(spec, "a")
    assert plan.models[2].fingerprint["step:b"] == "gone"
    assert [model.shard for model in plan.models] == [None] * 3


def test_ensemble_is_built_with_its_step(spec: Spec, publish_version: Callable[..., Path]) -> None:
    """The reason names the step."""
    plan = repogen.plan(spec, force=True, models=["b"])
    assert [(model.name, model.reasons) for model in plan.models] == [("b", ("--force was given",))]
    publish_version(spec, "e")
    reasons = {model.name: model.reasons for model in repogen.plan(spec).models}
    assert reasons["e"] == ("its step b is new",)


def test_shards_of_a_plan_are_those_of_the_build(
    spec: Spec, publish_version: Callable[..., Path], tmp_path: Path
) -> None:
    """The document is what `build --plan` reads: models that are up to date cost nothing."""
    publish_version(spec, "a")
    result = CliRunner().invoke(main, ["plan", str(spec.path), "--json", "--shards", "2"])
    assert result.exit_code == 0, result.output
    document = TypeAdapter(PlanDocument).validate_json(result.output)
    assert [(model["name"], model["shard"], model["status"]) for model in document["models"]] == [
        ("a", 2, "up-to-date"), ("b", 1, "pending"), ("e", 1, "pending"),
    ]  # fmt: skip
    path = tmp_path / "plan.json"
    path.write_text(result.output)
    assert read_plan(path) == {"a": 0.0, "b": 12.0, "e": 4.0}
    assert document["seconds"] == 16.0


def test_table(spec: Spec, publish_version: Callable[..., Path]) -> None:
    """One row per model; estimates are marked."""
    publish_version(spec, "a", 3)
    result = CliRunner().invoke(main, ["plan", str(spec.path), "--shards", "2"])
    lines = [line.split() for line in result.output.splitlines()]
    assert lines[0] == ["model", "status", "shard", "version", "uses", "seconds", "memory", "reason"]
    assert lines[2][:6] == ["a", "up", "to", "date", "2", "3"]
    assert lines[4][:6] == ["e", "pending", "1", "-", "b", "~4.0"]
    assert "2 of 3 models would be built: about 16 s" in result.output


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "can't be read: No such file or directory"),
        ("{", "is not a plan: Invalid JSON"),
        ('{"models": [{"name": "a", "status": "pending"}]}', "is not a plan: models.0.cost: Field required"),
        ('{"models": [{"name": "a", "status": "pending", "cost": {"seconds": NaN}}]}', "is not a plan"),
        ('{"models": [{"name": "a", "status": "pending", "cost": {"seconds": 1e10}}]}', "is not a plan"),
        (f'{{"models": [{"1," * 5_000_001}1]}}', "has more than 5,000,000 values"),
    ],
)
def test_file_that_is_not_a_plan(tmp_path: Path, text: str | None, problem: str) -> None:
    """One message that says what is wrong."""
    path = tmp_path / "plan.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SpecError) as caught:
        read_plan(path)
    assert problem in caught.value.message
    assert caught.value.code == "plan.file"


def test_costs_are_those_of_the_last_export(spec: Spec) -> None:
    """A result from the cache, and a failure, say less; a file that cannot be read counts as absent."""
    assert read_costs(spec)["a"] == Cost(12.0, 700_000_000, measured=False)
    built = ModelReport("a", Status.PUBLISHED, seconds={"export": 2.0, "smoke": 1.5}, peak_rss_bytes=10**9)
    cached = ModelReport("b", Status.PUBLISHED, seconds={"configure": 0.1})
    failed = ModelReport("e", Status.FAILED, seconds={"export": 9.0}, peak_rss_bytes=10**9)
    record_costs(BuildReport(spec.repository, (built, cached, failed)), spec.root)
    record_costs(BuildReport(spec.repository, (cached,)), spec.root)
    costs = read_costs(spec)
    assert costs["a"] == Cost(3.5, 10**9, measured=True)
    assert not costs["b"].measured
    assert not costs["e"].measured
    record_costs(BuildReport(spec.repository, (ModelReport(
        "b", Status.VERIFIED, seconds={"export": 1.0}, peak_rss_bytes=5),)), spec.root)  # fmt: skip
    path = spec.root / "build" / "reports" / "costs.json"
    assert sorted(json.loads(path.read_text())) == ["a", "b"]
    for damaged in ("{", '{"a": {"seconds": -1, "peak_rss_bytes": 5}}', '{"a": {"seconds": Infinity}}'):
        path.write_text(damaged)
        assert not read_costs(spec)["a"].measured


def test_memory_without_a_record_depends_on_the_weights(tmp_path: Path) -> None:
    """And is at most the limit of the worker."""
    source = "{factory: models.py:build, weights: w.pt}"
    inputs = "{x: {dtype: float32, shape: [2]}}"
    (tmp_path / "w.pt").write_bytes(bytes(10**6))
    spec = write_spec(
        tmp_path,
        a=f"{{source: {source}, inputs: {inputs}}}",
        b=f"{{source: {source}, inputs: {inputs}, limits: {{memory_mb: 600}}}}",
    )
    costs = read_costs(spec)
    assert (costs["a"].memory_bytes, costs["b"].memory_bytes) == (706_000_000, 600 * 2**20)


def test_models_that_a_build_rejects(spec: Spec, publish_version: Callable[..., Path], tmp_path: Path) -> None:
    """An ensemble with a step that is held, and its step, are rejected with the errors of the build."""
    for version in (1, 2):
        publish_version(spec, "b", version)
    config = spec.repository / "b" / "config.pbtxt"
    config.write_text(hold_text(config.read_text(), 1))
    before = contents(spec.repository)
    plan = repogen.plan(spec, force=True)
    assert contents(spec.repository) == before
    rejected = check_preconditions(plan_build(spec, BuildOptions(force=True))).rejected
    assert {model.name: model.error for model in plan.models if model.error} == {
        name: report.error for name, report in rejected.items()
    }
    assert [(model.name, model.status, model.error and model.error.code) for model in plan.models] == [
        ("a", "pending", None), ("b", "rejected", "ensemble.held-back"), ("e", "rejected", "ensemble.held-step"),
    ]  # fmt: skip
    result = CliRunner().invoke(main, ["plan", str(spec.path), "--force"])
    assert "1 of 3 models would be built: about 12 s, one at a time; 2 rejected; ~" in result.output
    assert "e: error: " in result.output
    path = tmp_path / "plan.json"
    path.write_text(CliRunner().invoke(main, ["plan", str(spec.path), "--force", "--json"]).output)
    assert read_plan(path) == {"a": 12.0, "b": 0.0, "e": 0.0}


def test_plan_imports_no_heavy_package(spec: Spec) -> None:
    """It runs on a machine that only distributes the work."""
    program = (
        "import sys, repogen\n"
        f"repogen.plan({str(spec.path)!r})\n"
        "print([name for name in ('torch', 'onnxruntime', 'mlflow', 'grpc', 'onnx') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"

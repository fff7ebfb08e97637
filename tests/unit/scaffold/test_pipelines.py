"""The pipelines of `repogen init`: one task per part of the models."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from repogen.cli.group import main
from repogen.scaffold.files import scaffold
from repogen.scaffold.pipelines import Pipelines
from repogen.version import __version__


def test_matrix_has_one_job_per_part(tmp_path: Path) -> None:
    """And a job that joins the parts; the workflow passes actionlint."""
    (tmp_path / ".git").mkdir()
    directory = tmp_path / "it's a model"
    scaffold(directory, force=False, github=True, pipelines=Pipelines(matrix=True, shards=3))
    path = tmp_path / ".github" / "workflows" / "repogen.yml"
    workflow: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    jobs = workflow["jobs"]
    assert list(jobs) == ["plan", "build", "join"]
    assert jobs["build"]["strategy"]["matrix"] == {"shard": [1, 2, 3]}
    assert workflow["env"]["SPEC"] == "it's a model/repogen.yaml"
    (build,) = (step["run"] for step in jobs["build"]["steps"] if "repogen build" in step.get("run", ""))
    assert '--shard "${SHARD}/3" --plan plan.json' in build
    assert workflow["env"]["REPOGEN"].split("${{")[0].endswith("triton-repogen[build,track")
    assert "publish --all" in jobs["join"]["steps"][-2]["run"]
    assert all(
        len(step["uses"].partition("@")[2]) == 40 for job in jobs.values() for step in job["steps"] if "uses" in step
    )
    command = [str(Path(sys.executable).parent / "actionlint"), str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (run.returncode, run.stdout) == (0, "")


def test_argo_workflow_builds_every_part(tmp_path: Path) -> None:
    """After the plan, which every part receives."""
    written = scaffold(tmp_path, force=False, pipelines=Pipelines(argo=True, shards=7))
    assert [path.name for path in written] == ["models.py", "repogen.yaml", "repogen-argo.yaml"]
    workflow = yaml.safe_load(written[-1].read_text(encoding="utf-8"))
    assert (workflow["apiVersion"], workflow["kind"]) == ("argoproj.io/v1alpha1", "Workflow")
    templates = {template["name"]: template for template in workflow["spec"]["templates"]}
    plan, build = templates["models"]["dag"]["tasks"]
    assert (plan["name"], build["dependencies"], build["withSequence"]) == (
        "plan",
        ["plan"],
        {"start": "1", "end": "7"},
    )
    assert "--shard={{inputs.parameters.shard}}/7" in templates["build"]["container"]["args"]
    assert templates["build"]["container"]["env"] == templates["plan"]["container"]["env"]


ARGO = Path(__file__).parents[2] / "support" / "argo_workflow.json"


def argo_schema() -> dict[str, Any]:
    """Return Argo's published schema of a Workflow; unknown keys are errors, which the schema itself allows."""
    schema: dict[str, Any] = json.loads(ARGO.read_text(encoding="utf-8"))
    for definition in schema["definitions"].values():
        if "properties" in definition:
            definition["additionalProperties"] = False
    return schema


def test_argo_workflow_is_valid(tmp_path: Path) -> None:
    """By Argo's schema, in which a misspelled key or another type is an error."""
    written = scaffold(tmp_path, force=False, pipelines=Pipelines(argo=True, shards=2))
    text = written[-1].read_text(encoding="utf-8")
    validator = jsonschema.Draft202012Validator(argo_schema())
    validator.validate(yaml.safe_load(text))
    for old, new in (("retryPolicy:", "retry_policy:"), ("dependencies: [plan]", "dependencies: plan")):
        assert old in text
        assert not validator.is_valid(yaml.safe_load(text.replace(old, new)))


def test_kubeflow_pipeline_is_python(tmp_path: Path) -> None:
    """With the spec and the number of parts as constants; an existing spec is kept."""
    (tmp_path / "repogen.yaml").write_text("mine", encoding="utf-8")
    (written,) = scaffold(tmp_path, force=False, pipelines=Pipelines(kfp=True, shards=2))
    tree = ast.parse(written.read_text(encoding="utf-8"))
    constants = {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    assert constants == {"SPEC": "repogen.yaml", "SHARDS": 2}


@pytest.mark.parametrize("options", [["--argo", "--kfp", "--shards", "5"], ["--github", "--matrix"]])
def test_command_writes_pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]) -> None:
    """As the options say."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["init", *options])
    assert result.exit_code == 0, result.output
    names = {path.name for path in tmp_path.rglob("*") if path.is_file()} - {"models.py", "repogen.yaml"}
    assert names == ({"repogen-argo.yaml", "repogen_pipeline.py"} if "--argo" in options else {"repogen.yml"})


def test_existing_pipeline_is_not_taken_for_a_model(tmp_path: Path) -> None:
    """It is code, which is never overwritten if it was edited; the hint says what to do."""
    for exit_code in (0, 0, 2):
        if exit_code:
            (tmp_path / "repogen_pipeline.py").write_text("x = 1\n")
        result = CliRunner().invoke(main, ["init", str(tmp_path), "--kfp", "--force"])
        assert result.exit_code == exit_code, result.output
    assert "hint: move or delete repogen_pipeline.py, and run the command again" in result.output


@pytest.mark.parametrize(
    ("options", "variable"),
    [(["--github"], "MLFLOW_TRACKING_URI"), (["--github", "--matrix"], "MODEL_REPOSITORY"), (["--argo"], None)],
)
def test_command_prints_what_the_workflow_needs(tmp_path: Path, options: list[str], variable: str | None) -> None:
    """The files are committed, the variable is set, and the tag of repogen exists."""
    result = CliRunner().invoke(main, ["init", str(tmp_path), *options])
    assert result.exit_code == 0, result.output
    steps = result.output.partition("\nnext: ")[2].splitlines()[1:]
    assert len(steps) == (0 if variable is None else 2)
    if variable is not None:
        assert steps[0].startswith("on GitHub: commit the files;")
        assert steps[1].endswith("the SHA of a commit" if "--matrix" in options else "a step of your own workflow")
        assert f"the variable {variable}" in steps[0]
        assert f"the tag v{__version__} of triton-repogen/repogen" in steps[1]


def test_matrix_requires_github() -> None:
    """It is a part of the workflow."""
    result = CliRunner().invoke(main, ["init", "--matrix"])
    assert result.exit_code == 2
    assert "--matrix requires --github" in result.output

"""Runs the pipelines that `repogen init` writes: the matrix workflow with `act`, the Kubeflow pipeline in processes.

Both publish the files of a local build. Actions from GitHub are replaced by stubs, as in `test_github`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from repogen.artifacts.file_names import ATTESTATION_FILES
from repogen.scaffold.files import scaffold
from repogen.scaffold.pipelines import KFP, Pipelines
from repogen.version import __version__
from tests.support.moto_s3 import create_bucket, s3_server

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Project

pytestmark = pytest.mark.full
GIT = shutil.which("git") or "git"
BIN = Path(sys.executable).parent
SPEC = """\
models:
  first: {source: {factory: "models.py:build", kwargs: {seed: 1}}}
  second: {source: {factory: "models.py:build", kwargs: {seed: 2}}}
defaults:
  inputs: {x: {dtype: float32, shape: [batch, 4]}}
  outputs: [y]
  dims: {batch: {min: 1, max: 8}}
  export: {exporter: torchscript}
  triton: {instance_group: [{count: 1, kind: KIND_CPU}]}
"""
MODELS = """\
import torch


def build(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Linear(4, 4)
"""
UPLOAD = """\
[ -e "$INPUT_PATH" ] || exit 0
mkdir -p "$KEPT/$INPUT_NAME"
if [ -d "$INPUT_PATH" ]; then cp -r "$INPUT_PATH/." "$KEPT/$INPUT_NAME"; fi
if [ -f "$INPUT_PATH" ]; then cp "$INPUT_PATH" "$KEPT/$INPUT_NAME"; fi
"""
DOWNLOAD = """\
if [ -n "$INPUT_NAME" ]; then cp -r "$KEPT/$INPUT_NAME/." "${INPUT_PATH:-.}"; exit; fi
mkdir -p "$INPUT_PATH"
set -- "$KEPT"/$INPUT_PATTERN
if [ $# = 1 ]; then cp -r "$1/." "$INPUT_PATH"; exit; fi
for artifact in "$@"; do cp -r "$artifact" "$INPUT_PATH"; done
"""
"""As the action does it: a single artifact has no directory of its own."""
STUBS = {"setup-python": "true", "upload-artifact": UPLOAD, "download-artifact": DOWNLOAD}


@pytest.fixture
def project(tmp_path: Path, new_project: Callable[[Path], Project], monkeypatch: pytest.MonkeyPatch) -> Project:
    """Return a project of two models; nothing comes from the cache."""
    monkeypatch.setenv("REPOGEN_CACHE_GB", "0")
    project = new_project(tmp_path / "project")
    project.spec.write_text(SPEC, encoding="utf-8")
    (project.directory / "models.py").write_text(MODELS, encoding="utf-8")
    return project


def files(repository: Path) -> dict[str, bytes]:
    """Return the files of a repository, without the attestations, which contain the time of the build."""
    paths = (path for path in repository.glob("*/**/*") if path.is_file() and path.name not in ATTESTATION_FILES)
    return {path.relative_to(repository).as_posix(): path.read_bytes() for path in paths}


def local_files(project: Project) -> dict[str, bytes]:
    """Return the files that a local build publishes."""
    run = project.run("build", "--no-report", "--repository", "local")
    assert run.returncode == 0, run.stderr
    return files(project.directory / "local")


@dataclass(frozen=True)
class Hub:
    """A git repository with the matrix workflow, and the local replacements of GitHub's actions."""

    root: Path
    project: Project

    @property
    def artifacts(self) -> Path:
        """Directory of the uploaded artifacts."""
        return self.root / "artifacts"

    def act(self, *options: str) -> tuple[int, list[dict[str, Any]]]:
        """Commit, and run the workflow for a push; return the exit code and the events."""
        directory = self.project.directory
        identity = ("-c", "user.name=n", "-c", "user.email=n@example.com")
        for words in (("init", "-q", "-b", "main"), ("add", "-A"), (*identity, "commit", "-qm", "x")):
            subprocess.run([GIT, *words], cwd=directory, check=True)
        event = self.root / "event.json"
        event.write_text(json.dumps({"repository": {"default_branch": "main"}}), encoding="utf-8")
        text = (directory / ".github" / "workflows" / "repogen.yml").read_text(encoding="utf-8")
        pins = set(re.findall(r"uses: (actions/(?!checkout@)[^@\s]+@[0-9a-f]{40})", text))
        stubs = {pin: self.root / "stubs" / pin.partition("@")[0].partition("/")[2] for pin in pins}
        environment = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "KEPT": str(self.artifacts)}
        command = [
            *(str(BIN / "act"), "push", "--json", "--no-cache-server", "--concurrent-jobs", "1"),
            *("-P", "ubuntu-latest=-self-hosted", "--eventpath", str(event)),
            *("--action-cache-path", str(self.root / "act")),
            *(word for pin, place in stubs.items() for word in ("--local-repository", f"{pin}={place}")),
            *(word for name, value in environment.items() for word in ("--env", f"{name}={value}")),
            *options,
        ]
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        run = subprocess.run(
            command, cwd=directory, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
        )
        return run.returncode, [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


@pytest.fixture
def hub(tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """Return the project with the workflow of `init --github --matrix`; repogen is not installed from GitHub."""
    (project.directory / ".git").mkdir()
    monkeypatch.chdir(project.directory)
    scaffold(Path(), force=False, github=True, pipelines=Pipelines(matrix=True, shards=2))
    workflow = project.directory / ".github" / "workflows" / "repogen.yml"
    text = workflow.read_text(encoding="utf-8")
    workflow.write_text(text.replace('python -m pip install "${REPOGEN}"', 'echo "installs ${REPOGEN}"'), "utf-8")
    names = ("python-version", "path", "name", "pattern", "if-no-files-found")
    variables = {f"INPUT_{name.upper()}": f"${{{{ inputs.{name} }}}}" for name in ("path", "name", "pattern")}
    for stub, script in STUBS.items():
        step = {"shell": "bash", "env": variables, "run": script}
        inputs = {name: {"default": ""} for name in names}
        document = {"name": stub, "inputs": inputs, "runs": {"using": "composite", "steps": [step]}}
        (tmp_path / "stubs" / stub).mkdir(parents=True)
        (tmp_path / "stubs" / stub / "action.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return Hub(tmp_path, project)


def jobs_of(events: list[dict[str, Any]]) -> dict[str, str]:
    """Return the result of each job that ran."""
    return {event["jobID"]: event["jobResult"] for event in events if "jobResult" in event}


def installed(events: list[dict[str, Any]]) -> set[str]:
    """Return what the jobs install."""
    return {event["msg"].strip().removeprefix("installs ") for event in events if event["msg"].startswith("installs ")}


def messages(events: list[dict[str, Any]]) -> str:
    """Return the end of the log."""
    return "".join(event["msg"] for event in events[-60:])


def test_matrix_workflow_joins_its_parts(hub: Hub) -> None:
    """Each job of the matrix builds a part, and the last one joins them."""
    code, events = hub.act()
    assert code == 0, messages(events)
    assert jobs_of(events) == {"plan": "success", "build": "success", "join": "success"}
    assert installed(events) == {
        f"triton-repogen[build,track] @ git+https://github.com/triton-repogen/repogen@v{__version__}"
    }
    parts = [files(hub.artifacts / f"part-{number}") for number in (1, 2)]
    assert sorted({path.partition("/")[0] for path in part} for part in parts) == [{"first"}, {"second"}]
    assert files(hub.artifacts / "model_repository") == local_files(hub.project)


def test_matrix_workflow_with_fewer_models_than_parts(hub: Hub) -> None:
    """The only part is the whole repository."""
    lines = hub.project.spec.read_text(encoding="utf-8").splitlines(keepends=True)
    hub.project.spec.write_text("".join(line for line in lines if "second:" not in line), encoding="utf-8")
    code, events = hub.act()
    assert code == 0, messages(events)
    assert len(list(hub.artifacts.glob("part-*"))) == 1
    assert files(hub.artifacts / "model_repository") == local_files(hub.project)


def test_matrix_workflow_publishes_to_a_store(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable names it: repogen is installed with its extra, every job publishes there, and nothing is joined."""
    url = "s3://bucket/models"
    with s3_server() as variables:
        create_bucket(variables, "bucket")
        options = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
        code, events = hub.act("--var", f"MODEL_REPOSITORY={url}", *options)
        assert code == 0, messages(events)
        assert jobs_of(events) == {"plan": "success", "build": "success"}
        (requirement,) = installed(events)
        assert requirement.startswith("triton-repogen[build,track,s3] @ git+https://")
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        copied = hub.project.run("publish", "--all", "--from", url, "--to", "copied")
        assert copied.returncode == 0, copied.stderr
    assert files(hub.project.directory / "copied") == local_files(hub.project)


@pytest.mark.parametrize(
    ("url", "extras"),
    [("gs://bucket/models", "build,track,gcs"), ("az://models/x", "build,track,azure"), ("", "build,track")],
)
def test_extra_of_a_store(hub: Hub, url: str, extras: str) -> None:
    """As the URL says."""
    _, events = hub.act("--job", "plan", *(("--var", f"MODEL_REPOSITORY={url}") if url else ()))
    assert {requirement.partition(" ")[0] for requirement in installed(events)} == {f"triton-repogen[{extras}]"}


RUN = """\
import sys

import repogen_pipeline
from kfp import local

local.init(runner=local.SubprocessRunner(use_venv=False))
repogen_pipeline.models(repository=sys.argv[1])
"""


def test_kubeflow_pipeline_is_compiled_and_run(tmp_path: Path, project: Project) -> None:
    """By kfp's own compiler and local runner, in an environment of its own: kfp needs other versions of packages."""
    environment = tmp_path / "kfp"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = str(environment / "bin" / "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "kfp>=2.14,<3"], check=True)
    (written,) = scaffold(project.directory, force=False, pipelines=Pipelines(kfp=True, shards=2))
    assert written.name == KFP
    subprocess.run([python, KFP], cwd=project.directory, check=True)
    compiled = yaml.safe_load(written.with_suffix(".yaml").read_text(encoding="utf-8"))
    assert set(compiled["deploymentSpec"]["executors"]) == {"exec-plan", "exec-build", "exec-build-2"}
    (project.directory / "run.py").write_text(RUN, encoding="utf-8")
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.run(
        [python, "run.py", str(project.directory / "piped")],
        cwd=project.directory,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    assert files(project.directory / "piped") == local_files(project)

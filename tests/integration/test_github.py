"""Runs the workflow that `repogen init --github` writes with `act` in host mode, without Docker.

Actions from GitHub are replaced by stubs of this test (act's ``--local-repository``). The checkout is act's own;
repogen's action and reusable workflow are those of this project.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from repogen.cli.group import main
from repogen.repository.manifest import damaged_files, read_manifest
from repogen.scaffold.files import ACTION, scaffold
from repogen.version import __version__
from tests.unit.check.conftest import CONFIG, add_model

ROOT = Path(__file__).parents[2]
GIT = shutil.which("git") or "git"
UPLOAD = 'if [ -d "$INPUT_PATH" ]; then cp -r "$INPUT_PATH" "$KEPT"; else cp "$INPUT_PATH" "$KEPT.html"; fi'
STUBS = {"setup-python": "true", "cache": "true", "upload-artifact": UPLOAD}
"""The command of each stub; a stub has the inputs of the real action."""

NEXT_JOB = """
  next:
    needs: models
    runs-on: ubuntu-latest
    steps:
      - env:
          MODELS: ${{ needs.models.outputs.models }}
          REPOSITORY: ${{ needs.models.outputs.repository }}
        run: echo "next job has $REPOSITORY $MODELS"
"""


@dataclass(frozen=True)
class Run:
    """The result of one run of act.

    Attributes:
        code: Its exit code.
        events: Its log, one event per line.
        uploaded: Directory with the files that were uploaded as an artifact.
    """

    code: int
    events: list[dict[str, Any]]
    uploaded: Path

    def commands(self, name: str, job: str) -> list[dict[str, Any]]:
        """Return the workflow commands with this name from the job's repogen step."""
        job_events = [event for event in self.events if event.get("command") == name and event["jobID"] == job]
        return [event for event in job_events if event["stepID"][-1] == "repogen"]

    def outputs(self, job: str) -> dict[str, str]:
        """Return the outputs of the job's repogen step."""
        return {event["name"]: event["arg"] for event in self.commands("set-output", job)}

    def jobs(self) -> dict[str, str]:
        """Return the result of each job that ran."""
        return {event["jobID"]: event["jobResult"] for event in self.events if "jobResult" in event}

    def summary(self, job: str) -> str:
        """Return the step summary of the job's repogen step."""
        (event,) = self.commands("summary", job)
        return str(event["content"])


@dataclass(frozen=True)
class Hub:
    """A user's git repository, and the local replacements of GitHub's actions."""

    root: Path

    @property
    def project(self) -> Path:
        """The user's repository."""
        return self.root / "project"

    def act(self, event: str) -> Run:
        """Commit, and run the workflow with act for an event on the default branch."""
        for words in (("add", "-A"), ("-c", "user.name=n", "-c", "user.email=n@example.com", "commit", "-qm", "x")):
            subprocess.run([GIT, *words], cwd=self.project, check=True)
        payload = self.root / "event.json"
        payload.write_text('{"repository": {"default_branch": "main"}}', encoding="utf-8")
        actions = {pin: self.root / "stubs" / pin.partition("@")[0].partition("/")[2] for pin in _pins()}
        actions[f"{ACTION}@v{__version__}"] = self.root / "action"
        command = [
            *(str(Path(sys.executable).parent / "act"), event, "--json", "--no-cache-server"),
            *("-P", "ubuntu-latest=-self-hosted", "--eventpath", str(payload)),
            *("--action-cache-path", str(self.root / "act"), "--env", f"KEPT={self.root / 'kept'}"),
            *("--var", f"MLFLOW_TRACKING_URI=sqlite:///{self.root / 'mlflow.db'}"),
            *(word for pin, place in actions.items() for word in ("--local-repository", f"{pin}={place}")),
        ]
        run = subprocess.run(command, cwd=self.project, capture_output=True, text=True, check=False, timeout=120)
        events = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
        return Run(run.returncode, events, self.root / "kept")


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    """Return a new git repository with the spec and workflow of `repogen init --github`, and the actions it uses."""
    new_hub = Hub(tmp_path)
    new_hub.project.mkdir()
    subprocess.run([GIT, "init", "-q", "-b", "main"], cwd=new_hub.project, check=True)
    result = CliRunner().invoke(main, ["init", str(new_hub.project), "--github"])
    assert (result.exit_code, result.output.count("wrote ")) == (0, 3)
    workflow = new_hub.project / ".github" / "workflows" / "repogen.yml"
    text = workflow.read_text(encoding="utf-8")
    # The one setting that is this machine's: an interpreter that has repogen, as a self-hosted runner would.
    text = text.replace("    with:\n", f"    with:\n      python: {sys.executable}\n")
    workflow.write_text(text + NEXT_JOB, encoding="utf-8")
    for name, script in STUBS.items():
        _stub(tmp_path / "stubs" / name, script)
    for name in (".github", "templates"):
        shutil.copytree(ROOT / name, tmp_path / "action" / name, symlinks=True)
    for file in (
        "action.yml",
        "pyproject.toml",
        "constraints.txt",
        "repogen/version.py",
        "repogen/data/embedded.lock.json",
    ):
        target = tmp_path / "action" / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, target)
    return new_hub


def test_push_publishes_and_promotes(hub: Hub) -> None:
    """A push publishes and uploads the repository, moves the alias, and sets summaries and outputs."""
    run = hub.act("push")
    assert (run.code, run.jobs()) == (0, {"publish": "success", "promote": "success", "next": "success"})
    outputs = run.outputs("publish")
    (model,) = json.loads(outputs["models"])
    assert (model["name"], model["status"], model["version"]) == ("tiny", "published", 1)
    assert (outputs["repository"], outputs["failed"]) == ("model_repository", "false")
    version = run.uploaded / "tiny" / "1"
    assert "<h1>repogen build: 1 published</h1>" in run.uploaded.with_suffix(".html").read_text(encoding="utf-8")
    manifest = read_manifest(version)
    assert (manifest.sha256, manifest.size) == (model["sha256"], model["size"])
    assert damaged_files(version, manifest) == ()
    assert run.summary("publish").startswith("### repogen build: 1 published\n\n| model | status | version |")
    assert "| tiny | published | 1 | dynamo |" in run.summary("publish")
    assert run.commands("error", "publish") == []
    message = next(event["msg"] for event in run.events if event["msg"].startswith("next job has"))
    assert message.rstrip() == f"next job has model_repository {outputs['models']}"
    assert (model["registry_version"], run.outputs("promote")["failed"]) == (1, "false")
    promoted = "### repogen promote: champion of tiny, no version → version 1: promoted\n\n| gate | measured |"
    assert run.summary("promote").startswith(promoted)


@pytest.mark.full
def test_pull_request_is_a_dry_run(hub: Hub) -> None:
    """A pull request verifies and reports everything, and publishes and uploads nothing."""
    _set(hub, "smoke: none")
    run = hub.act("pull_request")
    assert (run.code, run.jobs()["dry-run"]) == (0, "success")
    (model,) = json.loads(run.outputs("dry-run")["models"])
    assert (model["status"], model["version"]) == ("verified", None)
    assert run.summary("dry-run").startswith("### repogen build: 1 verified\n")
    assert {"publish", "promote"}.isdisjoint(run.jobs())
    assert not run.uploaded.exists()


def test_spec_problems_are_annotated(hub: Hub) -> None:
    """Each problem of a spec is an error annotation on its line, and the outputs report the failure."""
    spec = hub.project / "repogen.yaml"
    text = spec.read_text(encoding="utf-8")
    text = text.replace("outputs: [logits]", "outputs: 3").replace("exporter: auto", "exporter: none")
    spec.write_text(text, encoding="utf-8")
    lines = text.splitlines()
    run = hub.act("pull_request")
    assert (run.code, run.jobs()["dry-run"]) == (1, "failure")
    errors = [event["kvPairs"] | {"message": event["arg"]} for event in run.commands("error", "dry-run")]
    assert [(e["file"], e["title"]) for e in errors] == [("repogen.yaml", "spec.problems")] * 2
    excerpts = [lines[int(e["line"]) - 1][int(e["col"]) - 1 :].partition(" #")[0] for e in errors]
    assert excerpts == ["outputs: 3", "exporter: none}"]
    assert errors[1]["message"] == (
        "models.tiny.export.exporter: must be auto, dynamo, dynamo-eager, onnx, torchscript, torchscript-eager or "
        'torchscript-traced, not "none"'
    )
    outputs = run.outputs("dry-run")
    assert (outputs["models"], outputs["repository"], outputs["failed"]) == ("[]", "", "true")
    assert run.summary("dry-run").startswith(
        "### repogen build failed\n\n**Failed** (spec.problems):\n\n```text\nrepogen.yaml:"
    )
    assert not run.uploaded.exists()


CHECKS = f"""\
name: models
on: push
permissions: {{}}
jobs:
  check:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v6
      - id: repogen
        uses: {ACTION}@v{__version__}
        with: {{command: check, python: {sys.executable}, cache: "false"}}
        continue-on-error: true
      - id: old
        uses: {ACTION}/.github/actions/repogen@v{__version__}
        with: {{command: check, python: {sys.executable}, cache: "false", models: good}}
      - env:
          SARIF: ${{{{ steps.repogen.outputs.sarif }}}}
          COUNTS: ${{{{ steps.repogen.outputs.errors }}}} ${{{{ steps.old.outputs.errors }}}}
        run: cp "$SARIF" "$KEPT" && echo "errors $COUNTS"
"""


def test_check_by_both_paths_of_the_action(hub: Hub) -> None:
    """The action at the root and the one at its old path check a repository; a later step can upload the findings."""
    repository = hub.project / "model_repository"
    add_model(repository, "good", CONFIG.replace('"m"', '"good"'))
    add_model(repository, "bad", CONFIG.replace('"m"', '"bad"').replace("max_batch_size: 8", "max_batch_size: -1"))
    (hub.project / ".github" / "workflows" / "repogen.yml").write_text(CHECKS, encoding="utf-8")
    run = hub.act("push")
    assert (run.code, run.jobs()) == (0, {"check": "success"})
    assert [event["msg"] for event in run.events if event["msg"].startswith("errors")] == ["errors 3 0\n"]
    findings = json.loads(run.uploaded.read_text(encoding="utf-8"))["runs"][0]["results"]
    assert [finding["ruleId"] for finding in findings] == ["RG103", "RG206", "RG206"]
    locations = [finding["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for finding in findings]
    assert set(locations) == {"model_repository/bad/config.pbtxt"}
    headlines = {event["content"].partition("\n")[0]: None for event in run.commands("summary", "check")}
    assert list(headlines) == ["### repogen check: 2 models, 3 errors", "### repogen check: 1 model, no findings"]


@pytest.mark.usefixtures("interruptible")
def test_cancelled_step_leaves_no_partial_output(tmp_path: Path) -> None:
    """The runner's signal reaches repogen, which cleans up and sets its outputs as interrupted."""
    scaffold(tmp_path / "project", force=False)
    project = str(tmp_path / "project")
    inputs = {"COMMAND": "build", "SMOKE": "none", "EXTRA_ARGS": "--no-track", "WORKING_DIRECTORY": project}
    environment = os.environ | {f"INPUT_{name}": value for name, value in inputs.items()}
    environment |= {"GITHUB_OUTPUT": str(tmp_path / "output")}
    program = [sys.executable, str(ROOT / ".github" / "actions" / "repogen" / "action.py"), "run"]
    with subprocess.Popen(program, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.partition("tiny: ")[2].startswith("source"):
                process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    assert re.fullmatch(r"failed<<(\w+)\ntrue\n\1\n", (tmp_path / "output").read_text(encoding="utf-8"))
    left = {path.name for path in (tmp_path / "project").iterdir()} - {"__pycache__"}
    assert left == {"models.py", "repogen.yaml"}


def _set(hub: Hub, line: str) -> None:
    workflow = hub.project / ".github" / "workflows" / "repogen.yml"
    workflow.write_text(workflow.read_text("utf-8").replace("    with:\n", f"    with:\n      {line}\n"), "utf-8")


def _pins() -> set[str]:
    """Return GitHub's actions that repogen's actions use, except checkout, which act implements."""
    files = (".github/actions/repogen/action.yml", ".github/workflows/repogen.yml")
    text = "".join((ROOT / file).read_text(encoding="utf-8") for file in files)
    return set(re.findall(r"uses: (actions/(?!checkout@)[^@\s]+@[0-9a-f]{40})", text))


def _stub(place: Path, script: str) -> None:
    """Write an action that accepts the inputs that repogen passes to the real one."""
    inputs = ("python-version", "path", "key", "name", "if-no-files-found", "archive")
    step = {"shell": "bash", "env": {"INPUT_PATH": "${{ inputs.path }}"}, "run": script}
    document = {"inputs": {name: {"default": ""} for name in inputs}, "runs": {"using": "composite", "steps": [step]}}
    place.mkdir(parents=True)
    (place / "action.yml").write_text(yaml.safe_dump({"name": place.name} | document), encoding="utf-8")

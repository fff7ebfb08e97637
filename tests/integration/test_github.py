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

from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlMode
from repogen.cli.group import main
from repogen.repository.manifest import damaged_files, read_manifest
from repogen.scaffold.files import ACTION, scaffold
from repogen.serving.control import VARIABLE
from repogen.serving.servers import find_server
from repogen.targets import DEFAULT_RELEASE, targets
from repogen.version import __version__
from tests.support.github_api import github_api
from tests.support.sarif import schema_errors
from tests.unit.check.conftest import CONFIG, add_model

ROOT = Path(__file__).parents[2]
GIT = shutil.which("git") or "git"
UPLOAD = 'if [ -d "$INPUT_PATH" ]; then cp -r "$INPUT_PATH" "$KEPT"; else cp "$INPUT_PATH" "$KEPT.html"; fi'
DOWNLOAD = 'cp -r "$KEPT" "$INPUT_PATH"'
STUBS = {"setup-python": "true", "cache": "true", "upload-artifact": UPLOAD, "download-artifact": DOWNLOAD}
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

    def headlines(self, job: str) -> list[str]:
        """Return the first line of each part of the summaries of a job's repogen steps."""
        contents = "\n".join(event["content"] for event in self.commands("summary", job))
        return [line for line in contents.splitlines() if line.startswith("### ")]


@dataclass(frozen=True)
class Hub:
    """A user's git repository, and the local replacements of GitHub's actions."""

    root: Path

    @property
    def project(self) -> Path:
        """The user's repository."""
        return self.root / "project"

    def act(self, event: str, *options: str) -> Run:
        """Commit, and run the workflow with act for an event on the default branch."""
        for words in (
            ("add", "-A"),
            ("-c", "user.name=n", "-c", "user.email=n@example.com", "commit", "-qm", "x", "--allow-empty"),
        ):
            subprocess.run([GIT, *words], cwd=self.project, check=True)
        payload = self.root / "event.json"
        document: dict[str, object] = {"repository": {"default_branch": "main"}}
        if event == "pull_request":
            document |= {"pull_request": {"number": 7, "head": {"repo": {"full_name": "team/models"}}}}
        payload.write_text(json.dumps(document), encoding="utf-8")
        actions = {pin: self.root / "stubs" / pin.partition("@")[0].partition("/")[2] for pin in _pins()}
        actions[f"{ACTION}@v{__version__}"] = self.root / "action"
        command = [
            *(str(Path(sys.executable).parent / "act"), event, "--json", "--no-cache-server"),
            *("-P", "ubuntu-latest=-self-hosted", "--eventpath", str(payload)),
            *("--action-cache-path", str(self.root / "act"), "--env", f"KEPT={self.root / 'kept'}"),
            *("--var", f"MLFLOW_TRACKING_URI=sqlite:///{self.root / 'mlflow.db'}"),
            *(word for pin, place in actions.items() for word in ("--local-repository", f"{pin}={place}")),
            *options,
        ]
        run = subprocess.run(command, cwd=self.project, capture_output=True, text=True, check=False, timeout=900)
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
    assert (manifest.sha256, manifest.model_size) == (model["sha256"], model["size"])
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
    workflow = hub.project / ".github" / "workflows" / "repogen.yml"
    workflow.write_text(workflow.read_text("utf-8").replace("compare: true", "compare: false"), "utf-8")
    run = hub.act("pull_request")
    assert (run.code, run.jobs()["dry-run"]) == (0, "success")
    (model,) = json.loads(run.outputs("dry-run")["models"])
    assert (model["status"], model["version"]) == ("verified", None)
    assert run.summary("dry-run").startswith("### repogen build: 1 verified\n")
    assert {"publish", "promote", "compare"}.isdisjoint(run.jobs())
    assert not run.uploaded.exists()


@pytest.mark.full
def test_pull_request_is_compared_with_the_champion(hub: Hub) -> None:
    """A comment has the differences from the champion, and a later run replaces it."""
    _set(hub, "smoke: none")
    remote = ("remote", "add", "origin", "https://github.com/team/models.git")
    subprocess.run([GIT, *remote], cwd=hub.project, check=True)
    with github_api() as api:
        options = ("--env", f"GITHUB_API_URL={api.url}", "--secret", "GITHUB_TOKEN=t0ken")
        first = hub.act("pull_request", *options)
        assert (first.code, first.jobs().get("compare")) == (0, "success")
        assert "### repogen diff: tiny: not registered before" in api.comments[0]["body"]
        shutil.rmtree(hub.root / "kept")
        assert hub.act("push", *options).code == 0
        shutil.rmtree(hub.root / "kept")
        models = hub.project / "models.py"
        models.write_text(models.read_text("utf-8").replace("manual_seed(0)", "manual_seed(1)"), "utf-8")
        run = hub.act("pull_request", *options)
    assert (run.code, run.jobs()["compare"]) == (0, "success")
    assert run.headlines("dry-run") == ["### repogen build: 1 published"]
    (headline,) = run.headlines("compare")
    assert headline.startswith("### repogen diff: tiny: version 1 of models:/tiny/1")
    (comment,) = api.comments
    assert headline in comment["body"]
    assert "- weights: " in comment["body"]
    assert {authorization for _, authorization in api.requests} == {"Bearer t0ken"}


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


COMMANDS = f"""\
name: models
on: push
permissions: {{}}
jobs:
  commands:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v6
      - id: build
        uses: {ACTION}@v{__version__}
        with: {{command: build, smoke: none, OPTIONS}}
      - uses: {ACTION}@v{__version__}
        with: {{command: smoke, OPTIONS}}
      - uses: {ACTION}@v{__version__}
        with: {{command: bench, extra-args: --rounds=1 --seconds=0.05 --batch=1 --concurrency=1, OPTIONS}}
      - uses: {ACTION}@v{__version__}
        with: {{command: deploy, servers: SERVER, OPTIONS}}
      - uses: {ACTION}@v{__version__}
        with: {{command: promote, smoke: none, extra-args: --gate smoke=off, models: "MODELS", OPTIONS}}
      - id: drift
        uses: {ACTION}@v{__version__}
        with: {{command: sync, extra-args: --dry-run, python: PYTHON, cache: "false", repository: synced}}
      - run: test ! -e synced && echo "drift ${{{{ steps.drift.outputs.changed }}}}"
      - uses: {ACTION}@v{__version__}
        with: {{command: sync, python: PYTHON, cache: "false", repository: synced}}
      - uses: {ACTION}@v{__version__}
        with: {{command: diff, models: tiny, python: PYTHON, cache: "false", repository: synced}}
      - uses: {ACTION}@v{__version__}
        with: {{command: check, python: PYTHON, cache: "false", repository: synced}}
"""


@pytest.mark.full
def test_every_command(hub: Hub) -> None:
    """Each command of the action runs in one job, on one repository and a running server, and writes a summary."""
    served = hub.root / "served"
    served.mkdir()
    text = COMMANDS.replace("OPTIONS", f'python: PYTHON, cache: "false", repository: {served}')
    text = text.replace("PYTHON", sys.executable).replace("MODELS", "${{ steps.build.outputs.models }}")
    triton = find_server("embedded", targets()[DEFAULT_RELEASE], Silent())
    with triton.running(served, ControlMode.EXPLICIT) as running:
        control = running.endpoint.control
        assert control is not None
        text = text.replace("SERVER", running.endpoint.grpc)
        (hub.project / ".github" / "workflows" / "repogen.yml").write_text(text, encoding="utf-8")
        header = f"{VARIABLE}={control.key}={control.value}"
        tracking = f"MLFLOW_TRACKING_URI=sqlite:///{hub.root / 'mlflow.db'}"
        run = hub.act("push", "--env", header, "--env", tracking)
    assert (run.code, run.jobs()) == (0, {"commands": "success"})
    headlines = [line.partition(":")[0].removeprefix("### repogen ") for line in run.headlines("commands")]
    assert headlines == ["build", "smoke", "bench", "deploy", "promote", "sync", "sync", "diff", "check"]
    assert [event["msg"] for event in run.events if event["msg"].startswith("drift")] == ["drift true\n"]


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
    assert [event["msg"] for event in run.events if event["msg"].startswith("errors")] == ["errors 1 0\n"]
    document = json.loads(run.uploaded.read_text(encoding="utf-8"))
    assert schema_errors(document) == []
    findings = document["runs"][0]["results"]
    assert [finding["ruleId"] for finding in findings] == ["RG103"]
    locations = [finding["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for finding in findings]
    assert set(locations) == {"model_repository/bad/config.pbtxt"}
    headlines = {event["content"].partition("\n")[0]: None for event in run.commands("summary", "check")}
    assert list(headlines) == ["### repogen check: 2 models, 1 error", "### repogen check: 1 model, no findings"]


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

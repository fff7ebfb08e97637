"""The program of the composite action: each input becomes one word of a command line."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import repogen
from repogen.scaffold.files import ACTION
from tests.support.github_api import GitHubApi, github_api

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / ".github" / "actions" / "repogen" / "action.py"
_PIN = re.compile(r"uses: ([\w./-]+)@([0-9a-f]{40}) # (v[\w.]+)")


def _load_action() -> Any:
    spec = importlib.util.spec_from_file_location("action", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


action = _load_action()


def words(**inputs: str) -> list[list[str]]:
    """Return the words after ``python -P -m repogen`` of each command line."""
    lines: list[list[str]] = action.command_lines({f"INPUT_{name}": value for name, value in inputs.items()})
    assert all(line[:4] == [sys.executable, "-P", "-m", "repogen"] for line in lines)
    return [line[4:] for line in lines]


def test_build_uses_every_input() -> None:
    """Each option is one word, so that no value is parsed as an option; names are split at spaces, commas, newlines."""
    actual = words(
        COMMAND="build",
        SPEC="--force",
        MODELS="a, b\nc",
        REPOSITORY="r $(id)",
        TARGET="24.10",
        MLFLOW_TRACKING_URI="https://mlflow.example.com",
        SMOKE="none",
        EXTRA_ARGS="--jobs 2 --stage-dir 'a b'",
    )
    assert actual == [
        [
            *("build", "--model=a", "--model=b", "--model=c", "--repository=r $(id)", "--target=24.10"),
            *(
                "--tracking-uri=https://mlflow.example.com",
                "--no-smoke",
                "--jobs",
                "2",
                "--stage-dir",
                "a b",
                "--",
                "--force",
            ),
        ]
    ]


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({"COMMAND": "build"}, ["build", "--", "repogen.yaml"]),
        ({"COMMAND": "smoke", "SMOKE": "docker"}, ["smoke", "--server=docker", "--", "model_repository"]),
        ({"COMMAND": "smoke", "REPOSITORY": "r", "MODELS": "a"}, ["smoke", "--model=a", "--", "r"]),
        ({"COMMAND": "sync", "REPOSITORY": "r", "EXTRA_ARGS": "--prune"}, ["sync", "--repository=r", "--prune"]),
        ({"COMMAND": "promote", "MODELS": "-x", "SMOKE": "none"}, ["promote", "--", "-x"]),
        (
            {"COMMAND": "sync", "ALIAS": "champion", "EXTRA_ARGS": "--dry-run"},
            ["sync", "--alias=champion", "--dry-run"],
        ),
        (
            {"COMMAND": "promote", "MODELS": "m", "ALIAS": "champion", "EXTRA_ARGS": "--alias=other"},
            ["promote", "--alias=champion", "--alias=other", "--", "m"],
        ),
        (
            {"COMMAND": "deploy", "SERVERS": "a:8001, b:8001", "REPOSITORY": "r", "MODELS": "m --x"},
            ["deploy", "--server=a:8001", "--server=b:8001", "--repository=r", "--", "m", "--x"],
        ),
        (
            {"COMMAND": "bench", "SPEC": "s.yaml", "SMOKE": "embedded", "MODELS": "m", "EXTRA_ARGS": "--rounds=1"},
            ["bench", "--spec=s.yaml", "--server=embedded", "--rounds=1", "--", "m"],
        ),
        (
            {"COMMAND": "diff", "MODELS": "m", "SPEC": "missing.yaml", "REPOSITORY": "r", "SMOKE": "docker"},
            ["diff", "--against=models:/m@champion", "--repository=r", "--markdown", "--", "m"],
        ),
        ({"COMMAND": "check", "SMOKE": "docker"}, ["check", "--format=sarif", "--", "model_repository"]),
        (
            {"COMMAND": "check", "REPOSITORY": "r", "MODELS": "a b", "TARGET": "26.08", "EXTRA_ARGS": "--strict"},
            ["check", "--format=sarif", "--target=26.08", "--strict", "--", "r/a", "r/b"],
        ),
    ],
)
def test_each_command_gets_its_own_options(inputs: dict[str, str], expected: list[str]) -> None:
    """No command gets an option that it does not have."""
    assert words(**inputs) == [expected]


def test_sync_uses_the_server_of_an_existing_spec(tmp_path: Path) -> None:
    """It need not be named repogen.yaml; sync does not need a spec."""
    spec = tmp_path / "s.yaml"
    expected = ["sync", f"--spec={spec}", "--repository=r"]
    assert words(COMMAND="sync", REPOSITORY="r", SPEC=str(spec)) == [["sync", "--repository=r"]]
    spec.touch()
    assert words(COMMAND="sync", REPOSITORY="r", SPEC=str(spec)) == [expected]


def test_promote_uses_the_version_that_the_build_registered() -> None:
    """Models that are unchanged, failed or not registered are not promoted."""
    models = """[
      {"name": "a", "status": "published", "registry_version": 7},
      {"name": "b", "status": "unchanged", "registry_version": 3},
      {"name": "c", "status": "published", "registry_version": null}
    ]"""
    actual = words(COMMAND="promote", MODELS=models, SPEC="s.yaml", EXTRA_ARGS="--alias=champion")
    assert actual == [["promote", "--spec=s.yaml", "--alias=champion", "--", "a", "7"]]


def test_diff_compares_what_the_build_published() -> None:
    """One command line for each model that was published, registered or not, with the alias."""
    models = """[
      {"name": "a", "status": "published", "registry_version": null},
      {"name": "b", "status": "failed"},
      {"name": "c", "status": "published", "registry_version": 3}
    ]"""
    actual = words(COMMAND="diff", MODELS=models, ALIAS="production", SPEC="s.yaml")
    assert actual == [["diff", f"--against=models:/{name}@production", "--markdown", "--", name] for name in ("a", "c")]
    assert words(COMMAND="diff", MODELS="[]") == []


@pytest.mark.parametrize("name", ["a\n::set-output name=comment::/proc/self/environ", "a\x1b[2J", "a\u202eb"])
def test_names_of_an_output_are_printable(name: str) -> None:
    """The code of the models runs in the job that sets it, and can write anything there."""
    with pytest.raises(action.InputError, match="not printable"):
        words(COMMAND="diff", MODELS=json.dumps([{"name": name, "status": "published"}]))


def test_name_of_a_model_that_is_not_registered_is_plain(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is a part of the comment on the pull request, and is printed."""

    def unregistered(_command: list[str], _stdout: object, stderr: Any, _environment: object) -> int:
        stderr.write(b"repogen explain promotion.no-such-model")
        return 8

    monkeypatch.setattr(action, "_run_command", unregistered)
    monkeypatch.setenv("RUNNER_TEMP", str(tmp_path))
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    assert action._diff(["--", "##[add-mask]x @team <img src=//x>"]) == 0  # noqa: SLF001 - what the step prints
    assert capsys.readouterr().out == "### repogen diff: ---add-mask-x--team--img-src---x-: not registered before\n\n"


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[GitHubApi]:
    """Return an API of GitHub with 150 comments of users that contain the marker of the action."""
    (tmp_path / "event.json").write_text('{"pull_request": {"number": 7}}', encoding="utf-8")
    (tmp_path / "comment.md").write_text("### repogen diff\n\n- same\n", encoding="utf-8")
    with github_api() as api:
        user = {"user": {"type": "User"}, "url": "", "body": "<!-- repogen diff: ci/compare -->"}
        api.comments += [dict(user) for _ in range(150)]
        variables = {
            "API_URL": api.url,
            "SERVER_URL": "https://github.example.com",
            "REPOSITORY": "team/models",
            "RUN_ID": "5",
            "TOKEN": "t0ken",
            "WORKFLOW": "ci",
            "JOB": "compare",
            "EVENT_PATH": str(tmp_path / "event.json"),
        }
        for name, value in variables.items():
            monkeypatch.setenv(f"GITHUB_{name}", value)
        yield api


def test_comment_is_written_once_and_then_replaced(github: GitHubApi, tmp_path: Path) -> None:
    """A second run replaces the comment of the first one, and not that of a user; the token authorizes each request."""
    inputs = {"COMMENT_FILE": str(tmp_path / "comment.md")}
    first = program("comment", tmp_path, **inputs)
    assert (first.returncode, first.stdout, first.stderr) == (0, "comment: page\n", "")
    link = "[Summary of the run](https://github.example.com/team/models/actions/runs/5)"
    marker = "<!-- repogen diff: ci/compare -->"
    assert github.comments[150]["body"] == f"{marker}\n### repogen diff\n\n- same\n\n{link}\n"
    (tmp_path / "comment.md").write_text("x" * 70_000, encoding="utf-8")
    assert program("comment", tmp_path, **inputs).returncode == 0
    assert len(github.comments) == 151
    assert github.comments[150]["body"].startswith(f"{marker}\nxxx")
    assert "Truncated" in github.comments[150]["body"]
    assert len(github.comments[150]["body"]) < 65_536
    assert {method for method, _ in github.requests} == {"GET", "POST", "PATCH"}
    assert {authorization for _, authorization in github.requests} == {"Bearer t0ken"}


def test_comment_that_cannot_be_written_is_a_warning(github: GitHubApi, tmp_path: Path) -> None:
    """A token without permission does not fail the step, and is not printed; a push has no pull request."""
    github.status = 403
    inputs = {"COMMENT_FILE": str(tmp_path / "comment.md")}
    run = program("comment", tmp_path, **inputs)
    assert run.returncode == 0
    assert run.stdout.startswith("::warning title=No comment on the pull request::HTTP Error 403")
    assert "pull-requests: write" in run.stdout
    assert "t0ken" not in run.stdout + run.stderr
    (tmp_path / "event.json").write_text("{}", encoding="utf-8")
    assert program("comment", tmp_path, **inputs).stdout == "no comment: the event is not a pull request\n"


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"COMMAND": "serve"}, "command 'serve' is not one of build, check, smoke, promote, sync, deploy, bench, diff"),
        ({"COMMAND": "diff"}, "diff requires models: the names, or the output `models` of a build"),
        ({"COMMAND": "promote", "MODELS": " "}, "promote requires models: the names, or the output"),
        ({"COMMAND": "build", "EXTRA_ARGS": "'a"}, "extra-args cannot be split: No closing quotation"),
        (
            {"COMMAND": "build", "MLFLOW_TRACKING_URI": "http://[::1"},
            "mlflow-tracking-uri is not a URI",
        ),
        ({"COMMAND": "build", "MODELS": "[" * 100_000}, "models is neither a list of names nor this action's output: "),
        ({"COMMAND": "promote", "MODELS": "[1]"}, "models is neither a list of names nor this action's output: "),
    ],
)
def test_invalid_inputs_are_errors(inputs: dict[str, str], message: str) -> None:
    """The message names the input and its valid values."""
    with pytest.raises(action.InputError) as raised:
        words(**inputs)
    assert str(raised.value).startswith(message)


def test_credentials_are_not_an_input(tmp_path: Path) -> None:
    """A tracking URI with a password fails the step before anything runs, and is not printed."""
    run = program("run", tmp_path, COMMAND="build", MLFLOW_TRACKING_URI="https://me:secret@mlflow.example.com")
    assert run.returncode == 2
    assert run.stdout.startswith("::error title=Invalid input of repogen::mlflow-tracking-uri contains credentials")
    assert "secret@" not in run.stdout + run.stderr


def test_nothing_to_promote_is_not_a_failure(tmp_path: Path) -> None:
    """A run that published nothing does not move an alias."""
    run = program("run", tmp_path, COMMAND="promote", MODELS="[]")
    expected = "no model for promote: none was published, or none was registered\n"
    assert (run.returncode, run.stdout) == (0, expected)
    assert outputs(tmp_path) == {"failed": "false"}


def test_cache_keys_depend_on_the_content(tmp_path: Path) -> None:
    """The embedded Triton's key has repogen's version and its lock file; pip has a key only if it will be used."""
    run = program("plan", tmp_path, CACHE="true", INSTALL="never", XDG_CACHE_HOME=str(tmp_path))
    assert run.returncode == 0
    keys = outputs(tmp_path)
    assert sorted(keys) == ["triton-cache", "triton-key"]
    assert f"-{repogen.__version__}-" in keys["triton-key"]


def test_line_break_in_the_environment_sets_no_output(tmp_path: Path) -> None:
    """The value is read back unchanged."""
    cache = f"{tmp_path}\nfailed=false\nmodels<<x\n[]\nx"
    assert program("plan", tmp_path, CACHE="true", INSTALL="never", XDG_CACHE_HOME=cache).returncode == 0
    assert sorted(outputs(tmp_path)) == ["triton-cache", "triton-key"]
    assert outputs(tmp_path)["triton-cache"] == f"{cache}/repogen"


@pytest.mark.parametrize("directory", ["missing", "file"])
@pytest.mark.parametrize("step", ["run", "install"])
def test_working_directory_must_be_a_directory(step: str, directory: str, tmp_path: Path) -> None:
    """An annotation and exit code 2 instead of a traceback."""
    (tmp_path / "file").touch()
    inputs = {
        "COMMAND": "build",
        "INSTALL": "never",
        "REQUIREMENTS": "r.txt",
        "WORKING_DIRECTORY": str(tmp_path / directory),
    }
    run = program(step, tmp_path, **inputs)
    assert (run.returncode, run.stderr) == (2, "")
    assert run.stdout.startswith("::error title=Invalid input of repogen::working-directory ")


def test_outputs_behind_a_link(tmp_path: Path) -> None:
    """Another user could have made the link; the runner makes none."""
    (tmp_path / "private").write_text("keep", encoding="utf-8")
    (tmp_path / "output").symlink_to("private")
    assert program("plan", tmp_path, CACHE="true", INSTALL="never").returncode != 0
    assert (tmp_path / "private").read_text(encoding="utf-8") == "keep"


def test_runner_without_an_output_file_is_an_error(tmp_path: Path) -> None:
    """The message names the file."""
    (tmp_path / "output").mkdir()
    run = program("run", tmp_path, COMMAND="promote", MODELS="[]")
    assert (run.returncode, run.stderr) == (2, "")
    assert "::error title=The repogen action can't run::[Errno 21] Is a directory" in run.stdout


def test_install_skips_an_interpreter_that_has_this_repogen(tmp_path: Path) -> None:
    """`install: auto` does not run pip here, where repogen is installed; an invalid choice is an error."""
    assert program("install", tmp_path, INSTALL="auto").stdout == ""
    assert "install 'maybe' is not one of auto, always, never" in program("install", tmp_path, INSTALL="maybe").stdout


def test_pip_does_not_run_in_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip would use a directory ``https:/pypi.org/simple`` of a pull request as its index."""
    stub = tmp_path / "modules" / "pip.py"
    stub.parent.mkdir()
    stub.write_text("import os\nprint(os.getcwd(), os.environ['PIP_FIND_LINKS'], os.environ['PIP_CONSTRAINT'])\n")
    monkeypatch.setenv("PYTHONPATH", str(stub.parent))
    monkeypatch.setenv("PIP_FIND_LINKS", "wheels https://example.com/wheels ~/wheels file:wheels")
    monkeypatch.setenv("PIP_CONSTRAINT", "/constraints.txt")
    run = program("install", tmp_path, INSTALL="always", TORCH_INDEX="none")
    assert (run.returncode, run.stderr) == (0, "")
    links = f"{tmp_path}/wheels https://example.com/wheels ~/wheels file:wheels"
    assert run.stdout.splitlines() == [f"/ {links} /constraints.txt"] * 2


def test_extras_are_names(tmp_path: Path) -> None:
    """No other text becomes part of the requirement that pip gets."""
    run = program("install", tmp_path, INSTALL="always", EXTRAS="s3], evil[x", TORCH_INDEX="none")
    assert run.returncode == 2
    assert "extras contains 's3]', which is not the name of an extra such as s3" in run.stdout


@pytest.mark.parametrize(
    "file",
    [
        ".github/workflows/repogen.yml",
        "examples/github/drift.yml",
        "examples/github/store.yml",
        "docs/guides/github-actions.md",
        "docs/guides/signatures.md",
    ],
)
def test_workflows_use_the_action_of_their_own_release(file: str) -> None:
    """The reusable workflow, the examples and the guides use the action by the tag of this version."""
    text = (ROOT / file).read_text(encoding="utf-8")
    references = set(re.findall(rf"{re.escape(ACTION)}(?:/[\w./-]+)?@([\w.]+)", text))
    assert references == {f"v{repogen.__version__}"}


def test_each_version_of_an_action_is_pinned_to_one_commit() -> None:
    """A pin whose comment names a version that is pinned to a different commit elsewhere is a mistake."""
    paths = [path for folder in (".github", "docs", "examples", "templates") for path in (ROOT / folder).rglob("*")]
    pins: dict[str, set[str]] = {}
    for path in (ROOT / "action.yml", *paths):
        text = path.read_text(encoding="utf-8") if path.suffix in {".j2", ".md", ".yml"} else ""
        for name, commit, version in _PIN.findall(text):
            pins.setdefault(f"{name} {version}", set()).add(commit)
    assert pins
    assert {name: commits for name, commits in pins.items() if len(commits) > 1} == {}


def test_job_with_secrets_reads_no_cache_of_the_job_that_runs_code() -> None:
    """Both run for one pull request, so that code could put packages into the cache that the other job installs."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "repogen.yml").read_text(encoding="utf-8"))
    (step,) = (step for step in workflow["jobs"]["compare"]["steps"] if ACTION in step["uses"])
    assert step["with"]["cache"] == "false"


def test_workflow_passes_the_extras() -> None:
    """Every job of the reusable workflow may read a spec that needs one."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "repogen.yml").read_text(encoding="utf-8"))
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    actions = [step["with"] for step in steps if step.get("uses", "").startswith("triton-repogen/")]
    assert [inputs.get("extras") for inputs in actions] == ["${{ inputs.extras }}"] * 4


def test_old_path_is_the_same_action() -> None:
    """Workflows that use `.github/actions/repogen` get the action at the root, with a program that exists."""
    old = PROGRAM.parent / "action.yml"
    assert old.is_symlink()
    assert old.resolve() == ROOT / "action.yml"
    first = yaml.safe_load(old.read_text(encoding="utf-8"))["runs"]["steps"][0]["run"]
    for directory in (ROOT, PROGRAM.parent):
        environment = {"GITHUB_ACTION_PATH": str(directory), "GITHUB_OUTPUT": "/dev/stdout", "INPUT_PYTHON": "3.11"}
        step = subprocess.run(["/bin/bash", "-c", first], env=environment, capture_output=True, text=True, check=True)
        path = step.stdout.partition("program=")[2].partition("\n")[0]
        assert Path(path) == directory / PROGRAM.relative_to(directory)


def test_check_keeps_its_findings(tmp_path: Path) -> None:
    """Errors fail the step; the output is the path of a SARIF file, and the findings are annotated."""
    (tmp_path / "repository" / "m").mkdir(parents=True)
    runner = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(tmp_path / "s.md"), "RUNNER_TEMP": str(tmp_path)}
    run = program("run", tmp_path, COMMAND="check", REPOSITORY="repository", **runner)
    assert run.returncode == 1
    assert "::error title=RG401::m/ is a directory without a model" in run.stderr
    values = outputs(tmp_path)
    assert (values["failed"], values["errors"], values["warnings"]) == ("true", "1", "0")
    assert "1 error" in (tmp_path / "s.md").read_text(encoding="utf-8")
    assert json.loads(Path(values["sarif"]).read_text(encoding="utf-8"))["version"] == "2.1.0"


def test_check_uses_the_settings_of_the_spec(tmp_path: Path) -> None:
    """The input `spec` may be outside of the working directory, and need not be named repogen.yaml."""
    (tmp_path / "work" / "repository" / "m").mkdir(parents=True)
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "prod.yaml").write_text("check: {ignore: [RG401]}\n", encoding="utf-8")
    inputs = {"COMMAND": "check", "REPOSITORY": "repository", "WORKING_DIRECTORY": "work"}
    run = program("run", tmp_path, **inputs, SPEC="../specs/prod.yaml", RUNNER_TEMP=str(tmp_path))
    assert (run.returncode, outputs(tmp_path)["failed"]) == (0, "false"), run.stderr


def test_check_of_nothing_has_no_findings(tmp_path: Path) -> None:
    """A wrong path is an error, and there is no file to upload."""
    run = program("run", tmp_path, COMMAND="check", REPOSITORY="missing", RUNNER_TEMP=str(tmp_path))
    assert run.returncode == 2
    assert outputs(tmp_path)["failed"] == "true"
    assert "sarif" not in outputs(tmp_path)


def test_scripts_do_not_contain_inputs() -> None:
    """Expressions of the action are values of `env`, `with`, `if` or an output; no script contains one."""
    document = yaml.safe_load((PROGRAM.parent / "action.yml").read_text(encoding="utf-8"))
    scripts = [step["run"] for step in document["runs"]["steps"] if "run" in step]
    assert scripts
    assert [script for script in scripts if "${{" in script] == []


def outputs(directory: Path) -> dict[str, str]:
    """Return the outputs of a step, read as the runner does."""
    values, lines = {}, (directory / "output").read_text(encoding="utf-8").split("\n")
    while len(lines) > 1:
        name, separator, delimiter = lines[0].partition("<<")
        assert separator
        end = lines.index(delimiter, 1)
        values[name] = "\n".join(lines[1:end])
        lines = lines[end + 1 :]
    return values


def program(step: str, directory: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run a step of the action as the runner does."""
    plain = {"GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "RUNNER_TEMP", "XDG_CACHE_HOME"}
    variables = {name if name in plain else f"INPUT_{name}": value for name, value in inputs.items()}
    environment = os.environ | variables | {"GITHUB_OUTPUT": str(directory / "output")}
    command = [sys.executable, str(PROGRAM), step]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=directory)


def _push(tmp_path: Path, **secrets: str) -> tuple[subprocess.CompletedProcess[str], dict[str, str], str]:
    """Run the step that pushes an image with a stub of repogen; return it, and the stub's environment and file."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "publish-image.yml").read_text(encoding="utf-8"))
    step = next(step for step in workflow["jobs"]["publish"]["steps"] if step.get("id") == "publish")
    stub = tmp_path / "bin" / "repogen"
    stub.parent.mkdir()
    lines = ("#!/bin/sh", "env -0 > env", 'cat "$GOOGLE_APPLICATION_CREDENTIALS" > file', """echo '{"digest": "d"}'""")
    stub.write_text("\n".join(lines) + "\n", encoding="utf-8")
    stub.chmod(0o755)
    values = {"IMAGE": "ghcr.io/acme/digits:3", "MODEL": "digits", "REPOSITORY": "s3://bucket/models"}
    run = subprocess.run(
        ["/bin/bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=tmp_path,
        env={
            "PATH": f"{stub.parent}:{os.environ['PATH']}",
            "RUNNER_TEMP": str(tmp_path),
            "GITHUB_OUTPUT": str(tmp_path / "output"),
            **dict.fromkeys(step["env"], ""),
            **values,
            **secrets,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    passed = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().rstrip("\0").split("\0"))
    return run, passed, (tmp_path / "file").read_text()


def test_credentials_of_a_store_are_passed_to_the_push(tmp_path: Path) -> None:
    """Those that are set; an empty variable would replace a default."""
    settings = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "s3cr=t", "AWS_REGION": "eu-west-1"}
    run, passed, _ = _push(tmp_path, **settings)
    assert run.returncode == 0, run.stderr
    stores = {name: value for name, value in passed.items() if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))}
    assert stores == settings
    assert (tmp_path / "output").read_text() == "digest=d\nname=ghcr.io/acme/digits\n"


def test_credentials_of_google_are_a_private_file_that_is_removed(tmp_path: Path) -> None:
    """The variable of Google's libraries names a file."""
    run, passed, content = _push(tmp_path, GOOGLE_CREDENTIALS='{"type": "x"}')
    assert (run.returncode, content) == (0, '{"type": "x"}')
    assert "GOOGLE_CREDENTIALS" not in passed
    assert not Path(passed["GOOGLE_APPLICATION_CREDENTIALS"]).exists()

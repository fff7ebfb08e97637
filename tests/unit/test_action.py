"""Tests of the composite action's program, which turns inputs into command-line arguments."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import repogen
from repogen.scaffold.files import ACTION

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / ".github" / "actions" / "repogen" / "action.py"


def _loaded() -> Any:
    spec = importlib.util.spec_from_file_location("action", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


action = _loaded()


def words(**inputs: str) -> list[list[str]]:
    """Return the arguments after ``python -P -m repogen`` of each command line."""
    lines: list[list[str]] = action.command_lines({f"INPUT_{name}": value for name, value in inputs.items()})
    assert all(line[:4] == [sys.executable, "-P", "-m", "repogen"] for line in lines)
    return [line[4:] for line in lines]


def test_build_arguments() -> None:
    """Each option is one argument, so that no value becomes an option; names are split at spaces, commas and lines."""
    arguments = words(
        COMMAND="build",
        SPEC="--force",
        MODELS="a, b\nc",
        REPOSITORY="r $(id)",
        TARGET="24.10",
        MLFLOW_TRACKING_URI="https://mlflow.example.com",
        SMOKE="none",
        EXTRA_ARGS="--jobs 2 --stage-dir 'a b'",
    )
    assert arguments == [
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
    ],
)
def test_each_command_gets_its_own_options(inputs: dict[str, str], expected: list[str]) -> None:
    """A command does not get options that it does not have."""
    assert words(**inputs) == [expected]


def test_promote_uses_the_registered_versions() -> None:
    """Only models that the build published and registered are promoted."""
    models = """[
      {"name": "a", "status": "published", "registry_version": 7},
      {"name": "b", "status": "unchanged", "registry_version": 3},
      {"name": "c", "status": "published", "registry_version": null}
    ]"""
    arguments = words(COMMAND="promote", MODELS=models, SPEC="s.yaml", EXTRA_ARGS="--alias=champion")
    assert arguments == [["promote", "--spec=s.yaml", "--alias=champion", "--", "a", "7"]]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"COMMAND": "serve"}, "command is 'serve', not one of build, smoke, promote, sync"),
        ({"COMMAND": "build", "EXTRA_ARGS": "'a"}, "extra-args cannot be split: No closing quotation"),
        ({"COMMAND": "promote", "MODELS": "[1]"}, "models is neither names nor this action's output: "),
    ],
)
def test_invalid_input_is_rejected(inputs: dict[str, str], message: str) -> None:
    """The error names the input and its valid values."""
    with pytest.raises(action.InputError) as caught:
        words(**inputs)
    assert str(caught.value).startswith(message)


def test_tracking_uri_with_password_is_rejected(tmp_path: Path) -> None:
    """A tracking URI with a password stops the step before anything runs, and is not printed."""
    run = program("run", tmp_path, COMMAND="build", MLFLOW_TRACKING_URI="https://me:secret@mlflow.example.com")
    assert run.returncode == 2
    assert run.stdout.startswith("::error title=repogen's inputs::mlflow-tracking-uri holds credentials")
    assert "secret@" not in run.stdout + run.stderr


def test_nothing_to_promote_succeeds(tmp_path: Path) -> None:
    """A run that published nothing new does not move the aliases."""
    run = program("run", tmp_path, COMMAND="promote", MODELS="[]")
    assert (run.returncode, run.stdout) == (0, "no model to promote: none was published and registered\n")
    assert (tmp_path / "output").read_text(encoding="utf-8") == "failed=false\n"


def test_cache_keys(tmp_path: Path) -> None:
    """The Triton cache key has repogen's version and lock file; pip is cached only when it is used."""
    run = program("plan", tmp_path, CACHE="true", INSTALL="never", XDG_CACHE_HOME=str(tmp_path))
    assert run.returncode == 0
    outputs = dict(line.split("=", 1) for line in (tmp_path / "output").read_text(encoding="utf-8").splitlines())
    assert sorted(outputs) == ["triton-cache", "triton-key"]
    assert f"-{repogen.__version__}-" in outputs["triton-key"]


def test_install_auto_skips_an_installed_repogen(tmp_path: Path) -> None:
    """`install: auto` does not run pip where repogen is installed; an invalid choice is rejected."""
    assert program("install", tmp_path, INSTALL="auto").stdout == ""
    assert "install is 'maybe', not auto, always or never" in program("install", tmp_path, INSTALL="maybe").stdout


def test_workflow_uses_the_action_of_its_release() -> None:
    """The reusable workflow uses the action with the tag of the current version."""
    text = (ROOT / ".github" / "workflows" / "repogen.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    actions = {step["uses"] for job in jobs.values() for step in job["steps"]}
    own_actions = {name for name in actions if name.startswith(ACTION)}
    assert own_actions == {f"{ACTION}/.github/actions/repogen@v{repogen.__version__}"}


def test_scripts_contain_no_expressions() -> None:
    """Expressions are used only in `env`, `with`, `if` and outputs, never in a script."""
    document = yaml.safe_load((PROGRAM.parent / "action.yml").read_text(encoding="utf-8"))
    scripts = [step["run"] for step in document["runs"]["steps"] if "run" in step]
    assert scripts
    assert [script for script in scripts if "${{" in script] == []


def program(step: str, directory: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run a step of the action like the runner."""
    plain = {"XDG_CACHE_HOME"}
    variables = {name if name in plain else f"INPUT_{name}": value for name, value in inputs.items()}
    environment = os.environ | variables | {"GITHUB_OUTPUT": str(directory / "output")}
    command = [sys.executable, str(PROGRAM), step]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=directory)

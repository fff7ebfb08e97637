"""The composite action's own program: inputs become words of a command line, and never anything else."""

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
    """Return what follows ``python -P -m repogen`` in each command line."""
    lines: list[list[str]] = action.command_lines({f"INPUT_{name}": value for name, value in inputs.items()})
    assert all(line[:4] == [sys.executable, "-P", "-m", "repogen"] for line in lines)
    return [line[4:] for line in lines]


def test_a_build_takes_every_input() -> None:
    """One word an option, so that no value becomes an option; names are split at spaces, commas and lines."""
    found = words(
        COMMAND="build",
        SPEC="--force",
        MODELS="a, b\nc",
        REPOSITORY="r $(id)",
        TARGET="24.10",
        MLFLOW_TRACKING_URI="https://mlflow.example.com",
        SMOKE="none",
        EXTRA_ARGS="--jobs 2 --stage-dir 'a b'",
    )
    assert found == [
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
def test_each_command_takes_its_own(inputs: dict[str, str], expected: list[str]) -> None:
    """An option that a command does not have is not given to it."""
    assert words(**inputs) == [expected]


def test_what_a_build_published_is_promoted_as_the_version_it_registered() -> None:
    """A later build is promoted by its own run; what was unchanged, failed or not registered is left alone."""
    models = """[
      {"name": "a", "status": "published", "registry_version": 7},
      {"name": "b", "status": "unchanged", "registry_version": 3},
      {"name": "c", "status": "published", "registry_version": null}
    ]"""
    found = words(COMMAND="promote", MODELS=models, SPEC="s.yaml", EXTRA_ARGS="--alias=champion")
    assert found == [["promote", "--spec=s.yaml", "--alias=champion", "--", "a", "7"]]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"COMMAND": "serve"}, "command is 'serve', not one of build, smoke, promote, sync"),
        ({"COMMAND": "build", "EXTRA_ARGS": "'a"}, "extra-args cannot be split: No closing quotation"),
        ({"COMMAND": "promote", "MODELS": "[1]"}, "models is neither names nor this action's output: "),
    ],
)
def test_wrong_inputs_are_named(inputs: dict[str, str], message: str) -> None:
    """One line says which input, and what it may be."""
    with pytest.raises(action.InputError) as told:
        words(**inputs)
    assert str(told.value).startswith(message)


def test_credentials_are_no_input(tmp_path: Path) -> None:
    """A tracking URI with a password ends the step before anything runs, and is not printed."""
    run = program("run", tmp_path, COMMAND="build", MLFLOW_TRACKING_URI="https://me:secret@mlflow.example.com")
    assert run.returncode == 2
    assert run.stdout.startswith("::error title=repogen's inputs::mlflow-tracking-uri holds credentials")
    assert "secret@" not in run.stdout + run.stderr


def test_nothing_to_promote_is_no_failure(tmp_path: Path) -> None:
    """A run that published nothing new leaves the aliases where they are."""
    run = program("run", tmp_path, COMMAND="promote", MODELS="[]")
    assert (run.returncode, run.stdout) == (0, "no model to promote: none was published and registered\n")
    assert (tmp_path / "output").read_text(encoding="utf-8") == "failed=false\n"


def test_the_plan_keys_caches_by_what_they_hold(tmp_path: Path) -> None:
    """The embedded Triton's by repogen's version and its lock file; pip's only if pip will be used."""
    run = program("plan", tmp_path, CACHE="true", INSTALL="never", XDG_CACHE_HOME=str(tmp_path))
    assert run.returncode == 0
    outputs = dict(line.split("=", 1) for line in (tmp_path / "output").read_text(encoding="utf-8").splitlines())
    assert sorted(outputs) == ["triton-cache", "triton-key"]
    assert f"-{repogen.__version__}-" in outputs["triton-key"]


def test_an_interpreter_that_has_this_repogen_is_left_alone(tmp_path: Path) -> None:
    """`install: auto` runs no pip here, where repogen is installed; a wrong choice is named."""
    assert program("install", tmp_path, INSTALL="auto").stdout == ""
    assert "install is 'maybe', not auto, always or never" in program("install", tmp_path, INSTALL="maybe").stdout


def test_the_workflow_names_the_action_of_its_own_release() -> None:
    """The tag of the reusable workflow's action is that of the version it lies beside."""
    text = (ROOT / ".github" / "workflows" / "repogen.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    used = {step["uses"] for job in jobs.values() for step in job["steps"]}
    own = {name for name in used if name.startswith(ACTION)}
    assert own == {f"{ACTION}/.github/actions/repogen@v{repogen.__version__}"}


def test_inputs_never_stand_in_a_script() -> None:
    """Every expression of the action is a value of `env`, `with`, `if` or an output; no script holds one."""
    document = yaml.safe_load((PROGRAM.parent / "action.yml").read_text(encoding="utf-8"))
    scripts = [step["run"] for step in document["runs"]["steps"] if "run" in step]
    assert scripts
    assert [script for script in scripts if "${{" in script] == []


def program(step: str, directory: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run a step of the action as the runner does."""
    plain = {"XDG_CACHE_HOME"}
    given = {name if name in plain else f"INPUT_{name}": value for name, value in inputs.items()}
    environment = os.environ | given | {"GITHUB_OUTPUT": str(directory / "output")}
    command = [sys.executable, str(PROGRAM), step]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=directory)

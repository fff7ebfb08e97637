"""The gate of the example plug-in, installed by pip, in the real `repogen promote` with a SQLite registry."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from repogen.artifacts.registry import EntryState
from repogen.artifacts.report import ModelReport, Status
from repogen.artifacts.tracking import Tracking
from repogen.artifacts.versions import ModelConfig, StagedVersion
from repogen.registry.mlflow.client import connect
from repogen.registry.mlflow.entries import STATE, TRITON_VERSION, pending_tags
from repogen.registry.mlflow.registry import MlflowRegistry
from repogen.repository.manifest import read_manifest
from tests.integration.plugin_environment import make_plugin_environment
from tests.support.simulated_registry import version_of_bytes

if TYPE_CHECKING:
    from pathlib import Path

SPEC = """\
models:
  m:
    source: {{factory: "models.py:build"}}
    inputs: {{x: {{dtype: float32, shape: [batch, 4]}}}}
    dims: {{batch: {{max: 8}}}}
    promotion: {{gates: {{smoke: false, opset: {{{option}}}}}}}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a SQLite registry that has version 1 of model ``m``, of opset 20."""
    root = tmp_path_factory.mktemp("project")
    (root / "models.py").touch()
    version_dir = version_of_bytes(root / "stage")
    connection = connect(Tracking(f"sqlite:///{root}/mlflow.db", "repogen", register=True, root=root))
    logged = connection.client.create_logged_model(connection.experiment(), "m")
    connection.client.log_model_artifacts(logged.model_id, str(version_dir))
    manifest = read_manifest(version_dir)
    staged = StagedVersion("m", root, 1, ModelConfig("m", "", 8, manifest.signature), manifest)
    tags = pending_tags(staged, ModelReport("m", Status.PUBLISHED), root)
    tags |= {STATE: EntryState.PUBLISHED.value, TRITON_VERSION: "1"}
    MlflowRegistry(connection).register("m", logged, tags, "")
    return root


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment with the plug-in."""
    return make_plugin_environment(tmp_path_factory.mktemp("environment") / "venv")


def promote(python: Path, project: Path, option: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run `repogen promote --dry-run` with one option of the plug-in's gate in the spec."""
    (project / "repogen.yaml").write_text(SPEC.format(option=option), encoding="utf-8")
    uri = f"sqlite:///{project}/mlflow.db"
    command = [str(python), "-m", "repogen", "promote", "m", "--dry-run", "--json", "--tracking-uri", uri, *flags]
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


def opset_result(run: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the result of the plug-in's gate."""
    (result,) = (gate for gate in json.loads(run.stdout)["gates"] if gate["gate"] == "opset.max")
    return dict(result)


def test_gate_of_an_installed_plugin_decides(python: Path, project: Path) -> None:
    """Its limit comes from the spec, or from --gate."""
    passed = promote(python, project, "max: 20")
    assert (passed.returncode, json.loads(passed.stdout)["outcome"]) == (0, "would move"), passed.stderr
    assert (opset_result(passed)["measured"], opset_result(passed)["verdict"]) == ("opset 20", "passed")
    failed = promote(python, project, "max: 20", "--gate", "opset.max=19")
    assert (failed.returncode, json.loads(failed.stdout)["outcome"]) == (1, "refused"), failed.stderr
    assert (opset_result(failed)["limit"], opset_result(failed)["verdict"]) == ("<= 19", "failed")


def test_options_of_an_installed_plugin_are_validated(python: Path, project: Path) -> None:
    """With line and column of the spec, and the option of the flag."""
    in_spec = promote(python, project, "maximum: 20")
    assert in_spec.returncode == 2
    problem = 'repogen.yaml:6:47 models.m.promotion.gates.opset.maximum: unknown key (did you mean "max"?)'
    assert problem in json.loads(in_spec.stdout)["error"]["message"]
    in_flag = promote(python, project, "max: 20", "--gate", "opset=high")
    assert in_flag.returncode == 2
    assert json.loads(in_flag.stdout)["error"]["message"].startswith("--gate opset.max: ")

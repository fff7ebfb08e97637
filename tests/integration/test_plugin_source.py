"""A kind of source of another package: installed by pip, named in a spec, and built by the real command."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.integration.plugin_environment import make_plugin_environment

SPEC = """\
models:
  scores:
    source: {kind: matrix, path: weights.npz, activation: relu, scale: 2.0}
    outputs: [y]
    export: {exporter: torchscript}
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment with the example plug-in."""
    return make_plugin_environment(tmp_path_factory.mktemp("environment"))


def build(python: Path, directory: Path, spec: str = SPEC) -> subprocess.CompletedProcess[str]:
    """Run ``repogen build`` without a smoke test."""
    np.savez(directory / "weights.npz", weight=np.eye(3, 4, dtype=np.float32))
    (directory / "repogen.yaml").write_text(spec)
    command = [str(python), "-m", "repogen", "build", "--no-smoke", "--json"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def built_model(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the model's entry in the report of a successful build."""
    assert (result.returncode, result.stderr) == (0, "")
    (model,) = json.loads(result.stdout)["models"]
    assert isinstance(model, dict)
    return model


def test_model_of_a_plugin_source_is_built_and_kept_up_to_date(python: Path, tmp_path: Path) -> None:
    """The options reach the loader, and an upgrade of the plug-in starts a new build."""
    model = built_model(build(python, tmp_path))
    assert (model["status"], model["version"], model["max_batch_size"]) == ("published", 1, 8)
    assert model["parity"]["passed"]
    version = tmp_path / "model_repository" / "scores" / "1"
    run = (
        "import sys, onnxruntime, numpy; session = onnxruntime.InferenceSession(sys.argv[1]);"
        "print(session.run(None, {'x': numpy.float32([[1, -1, 3, 4]])})[0].tolist())"
    )
    result = subprocess.run(
        [str(python), "-c", run, str(version / "model.onnx")], capture_output=True, text=True, check=True
    )
    assert json.loads(result.stdout) == [[2.0, 0.0, 6.0]]
    assert built_model(build(python, tmp_path))["status"] == "unchanged"

    base = python.parents[1]
    site = Path(sysconfig.get_path("purelib", vars={"base": str(base), "platbase": str(base)}))
    upgraded = (site / "repogen_example_plugin-0.1.0.dist-info").rename(site / "repogen_example_plugin-0.2.0.dist-info")
    try:
        model = built_model(build(python, tmp_path))
    finally:
        upgraded.rename(site / "repogen_example_plugin-0.1.0.dist-info")
    assert (model["status"], model["version"]) == ("published", 2)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("scale:", "scal:", '3:65 models.scores.source.scal: unknown key (did you mean "scale"?)'),
        ("scale: 2.0", "scale: big", '3:65 models.scores.source.scale: must be a number > 0, not "big"'),
        ("relu", "tanh", '3:47 models.scores.source.activation: must be none or relu, not "tanh"'),
        ("weights.npz", "gone.npz", '3:28 models.scores.source.path: file "gone.npz" does not exist'),
        (
            "kind: matrix",
            "kind: matrx",
            '3:14 models.scores.source.kind: "matrx" is not a kind of source (did you mean "matrix"?)',
        ),
    ],
)
def test_options_are_validated_by_the_plugins_model(
    python: Path, tmp_path: Path, old: str, new: str, problem: str
) -> None:
    """A wrong option is reported with line and column, before any model is loaded."""
    result = build(python, tmp_path, SPEC.replace(old, new))
    assert result.returncode == 2
    assert f"repogen.yaml:{problem}" in json.loads(result.stdout)["error"]["message"]


def test_loading_a_spec_with_a_plugin_source_does_not_import_torch(python: Path, tmp_path: Path) -> None:
    """The schema of the spec contains the plug-in's options."""
    (tmp_path / "repogen.yaml").write_text(SPEC)
    np.savez(tmp_path / "weights.npz", weight=np.eye(3, 4, dtype=np.float32))
    code = (
        "import sys; from pathlib import Path; from repogen.spec.load import load_spec;"
        "from repogen.spec.schema import json_schema; print(load_spec(Path('repogen.yaml')).models['scores'].source);"
        "assert 'MatrixSource' in json_schema()['$defs']; assert 'torch' not in sys.modules"
    )
    result = subprocess.run([str(python), "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert "scale=2.0" in result.stdout

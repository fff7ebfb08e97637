"""What is rendered for a trial, and the models that are rejected before a server is started."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from repogen.artifacts.progress import Silent
from repogen.bench.server import ServerChoice
from repogen.errors import BenchError, ConfigError, SpecError
from repogen.spec.load import load_spec
from repogen.targets import target_of
from repogen.triton_config.text.parse import parse_file
from repogen.tune import triton
from repogen.tune.space import current_settings
from repogen.tune.triton import LoadShape, TritonTestBed

if TYPE_CHECKING:
    from repogen.spec.models import Spec

ROOT = Path(__file__).resolve().parents[3]
NAME = "digits_cnn"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a copy of the committed example."""
    target = tmp_path / "model_repository" / NAME
    shutil.copytree(ROOT / "model_repository" / NAME, target)
    return target


@pytest.fixture
def spec() -> Spec:
    """Return the spec that it was built from."""
    return load_spec(ROOT / "examples" / "digits" / "repogen.yaml")


def bed_of(spec: Spec, directory: Path, batch: int = 1) -> TritonTestBed:
    """Return the test bed of the model."""
    choice = ServerChoice("embedded", target_of(spec.release), Silent())
    return TritonTestBed(spec, NAME, directory, 1, choice, Path("unused"), LoadShape(batch, 1), directory)


def edit_manifest(directory: Path, **values: Any) -> None:
    """Change the manifest of the version."""
    path = directory / "1" / "manifest.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    for key, value in values.items():
        document[key] = {**document[key], **value} if isinstance(value, dict) else value
    path.write_text(json.dumps(document), encoding="utf-8")


def test_current_settings_render_the_published_config(spec: Spec, directory: Path) -> None:
    """The trial of the spec's settings serves what `repogen build` wrote."""
    bed = bed_of(spec, directory)
    bed.check()

    assert bed.config(current_settings(bed.model)) == parse_file(directory / "config.pbtxt", "config.pbtxt")


def test_other_settings_change_their_fields_only(spec: Spec, directory: Path) -> None:
    """The rest of the config is that of the spec."""
    bed = bed_of(spec, directory)
    before = bed.config({})

    config = bed.config({"max_batch_size": 4, "instance_count": 3, "intra_op_thread_count": 1, "graph_level": 1})

    assert (config.max_batch_size, config.instance_group[0].count, config.optimization.graph.level) == (4, 3, 1)
    assert config.parameters["intra_op_thread_count"].string_value == "1"
    for field in ("max_batch_size", "instance_group", "parameters", "optimization", "dynamic_batching"):
        config.ClearField(field)
        before.ClearField(field)
    assert config == before


def test_graph_of_other_passes_is_served(spec: Spec, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same settings; other values of the parameter serve the published version."""
    bed = bed_of(spec, directory)
    other = directory.parents[1] / "passes" / NAME
    shutil.copytree(directory / "1", other / "3")
    shutil.copy(directory / "config.pbtxt", other)
    bed.add_graph("onnxsim", other, 3)
    opened = []

    def serve(_choice: object, served: Path, config: Any) -> Any:
        opened.append((served, config))
        raise BenchError("not served", code="bench.not-served")

    monkeypatch.setattr(triton, "serve_model", serve)
    for passes in ("onnxsim", "spec"):
        with pytest.raises(BenchError), bed.open({"instance_count": 3, "passes": passes}):
            pass
    assert bed.model.passes == ("onnxsim",)
    assert opened == [(place, bed.config({"instance_count": 3})) for place in (other, directory)]


def test_settings_that_break_a_rule_are_an_error(spec: Spec, directory: Path) -> None:
    """The trial fails, without a server."""
    bed = bed_of(spec, directory)
    model = spec.models[NAME]
    triton = model.triton.model_copy(update={"extra": "optimization { }"})
    broken = replace(spec, models={NAME: model.model_copy(update={"triton": triton})})

    with pytest.raises(ConfigError):
        bed_of(broken, directory).config({"graph_level": 1})
    assert bed.config({"graph_level": 1})


@pytest.mark.parametrize(
    ("manifest", "batch", "code"),
    [
        ({"provenance": {"exporter": "ensemble"}}, 1, "tune.ensemble"),
        ({"max_batch_size": 16}, 1, "tune.outdated"),
        ({}, 64, "tune.batch"),
    ],
)
def test_rejected_models(spec: Spec, directory: Path, manifest: dict[str, Any], batch: int, code: str) -> None:
    """Before a server is started."""
    if code == "tune.ensemble":  # its main file is its config
        shutil.copy(directory / "config.pbtxt", directory / "1" / "config.pbtxt")
        files = json.loads((directory / "1" / "manifest.json").read_text(encoding="utf-8"))["files"]
        manifest = {**manifest, "files": [*files, {**files[0], "path": "config.pbtxt"}]}
    edit_manifest(directory, **manifest)

    with pytest.raises(SpecError) as caught:
        bed_of(spec, directory, batch).check()
    assert (caught.value.code, caught.value.exit_code) == (code, 2)
    assert caught.value.hint


def test_model_of_another_tool(spec: Spec, directory: Path) -> None:
    """Its settings can't be rendered."""
    (directory / "1" / "manifest.json").unlink()

    with pytest.raises(SpecError, match="repogen did not build version 1") as caught:
        bed_of(spec, directory).check()
    assert caught.value.code == "tune.not-built"

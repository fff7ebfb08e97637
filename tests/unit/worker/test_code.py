"""Python code is verified with the batch size that config.pbtxt will have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.source import Companion
from repogen.errors import PublishError
from repogen.spec.models import ModelSpec
from repogen.worker.job import Job
from repogen.worker.progress import BuildLog
from repogen.worker.sequence import _companions, build_model
from tests.support.swapping import swap_when_opened

if TYPE_CHECKING:
    from pathlib import Path

CODE = """\
import json
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        with (Path(__file__).resolve().parent / "configs.txt").open("a") as file:
            file.write(f"{config['max_batch_size']} {config['input'][0]['dims']}\\n")

    def execute(self, requests):
        arrays = [request.inputs()[0].as_numpy() for request in requests]
        return [pb.InferenceResponse([pb.Tensor("y", x - x.mean(0))]) for x in arrays]
"""


@pytest.mark.parametrize("replaced", ["none", "shared/data.txt", "shared"])
def test_data_is_copied_only_from_the_directory_of_the_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: str
) -> None:
    """The owner of a data file may replace it, or its directory, by a link before it is published."""
    for directory in ("shared", "secret", "spec"):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "data.txt").write_text(directory)
    root = tmp_path / "spec"
    (tmp_path / "shared").rename(root / "shared")
    data = root / "shared" / "data.txt"
    companion = Companion("data.txt", data, root)
    if replaced == "none":
        (copy,) = _companions([companion], tmp_path / "companions").values()
        assert copy.read_text() == "shared"
        return
    secret = tmp_path / "secret"
    swap_when_opened(monkeypatch, data, root / replaced, secret if replaced == "shared" else secret / "data.txt")
    with pytest.raises(PublishError, match=r"data\.txt cannot be published: leads out of") as caught:
        _companions([companion], tmp_path / "companions")
    assert caught.value.code == "stage.write"


def test_code_is_verified_with_the_measured_batch_size(tmp_path: Path) -> None:
    """It is first run with batching; if rows are not independent, it is verified again without."""
    (tmp_path / "step.py").write_text(CODE)
    (tmp_path / "work").mkdir()
    tensor = {"dtype": "float32", "shape": ["batch", 2]}
    model = ModelSpec.model_validate(
        {
            "source": {"kind": "python", "path": "step.py"},
            "inputs": {"x": tensor},
            "outputs": {"y": tensor},
            "dims": {"batch": {"max": 4}},
        }
    )
    job = Job("m", model, tmp_path, "24.10", tmp_path / "work", 1)

    built = build_model(job, BuildLog(lambda _, __: None))

    assert built.batch.max_batch_size == 0
    assert "a row has a different output alone" in built.batch.reason
    assert (tmp_path / "configs.txt").read_text().splitlines() == [*["4 [2]"] * 2, *["0 [-1, 2]"] * 2]

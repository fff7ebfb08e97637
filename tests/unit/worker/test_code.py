"""Python code in the worker's sequence: proved with the config that it is going to get."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.spec.models import ModelSpec
from repogen.worker.job import Job
from repogen.worker.progress import BuildLog
from repogen.worker.sequence import build_model

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
        with (Path(__file__).resolve().parent / "told.txt").open("a") as told:
            told.write(f"{config['max_batch_size']} {config['input'][0]['dims']}\\n")

    def execute(self, requests):
        given = [request.inputs()[0].as_numpy() for request in requests]
        return [pb.InferenceResponse([pb.Tensor("y", x - x.mean(0))]) for x in given]
"""


def test_code_is_told_of_the_batch_that_was_measured(tmp_path: Path) -> None:
    """It is tried as if it batched; where rows mix, it is proved again with a config that says so."""
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
    assert "a row alone is answered otherwise" in built.batch.reason
    assert (tmp_path / "told.txt").read_text().splitlines() == [*["4 [2]"] * 2, *["0 [-1, 2]"] * 2]

"""A model without inputs: there is no input whose dtype could be wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from repogen.smoke.batch_checks import rejected_requests
from repogen.smoke.deployed_model import DeployedModel, WireCase
from repogen.smoke.inference import Limits
from repogen.triton_config.text.parse import parse
from tests.unit.smoke.conftest import SimulatedTriton

if TYPE_CHECKING:
    from collections.abc import Sequence

    from repogen.artifacts.tensors import Arrays
    from repogen.smoke.inference import SequencePosition, WireTensor

CONFIG = 'name: "constant" backend: "onnxruntime" output { name: "y" data_type: TYPE_FP32 dims: 2 }'


@dataclass
class ConstantTriton(SimulatedTriton):
    """Serves zeros to requests without inputs."""

    def infer(
        self,
        model: str,
        version: int,
        inputs: Sequence[WireTensor],
        position: SequencePosition | None = None,
        max_bytes: int | None = None,
    ) -> Arrays:
        """Return the output."""
        assert (model, version, list(inputs), position, max_bytes) == ("constant", 1, [], None, 2**20 + 16)
        return {"y": np.zeros(2, np.float32)}


def test_only_a_valid_request_is_sent() -> None:
    """It was an unexpected error, which lost the reports of all other models."""
    config = parse(CONFIG, "config.pbtxt")
    case = WireCase("case", 0, {}, {"y": np.zeros(2, np.float32)})
    model = DeployedModel(ConstantTriton(config), "constant", 1, config, {}, (case,), {"y": (0.0, 0.0)})
    checks = list(rejected_requests(model, Limits()))
    assert [(check.name, check.passed) for check in checks] == [("still serves after rejected requests", True)]

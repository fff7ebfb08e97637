"""The real Triton serves what `repogen publish --format` packs, started as SageMaker starts it."""

from __future__ import annotations

import tarfile
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput

import repogen
from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlMode
from repogen.serving.servers import find_server
from repogen.targets import DEFAULT_RELEASE, targets
from tests.support.scaled_models import Scaled, publish_ensemble, publish_scaled

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.full
@pytest.mark.parametrize("package_format", ["sagemaker", "azureml"])
def test_ensemble_is_served(package_format: str, tmp_path: Path) -> None:
    """In explicit mode, a load of the ensemble alone loads its steps; the golden tensors agree."""
    repository, models = tmp_path / "repo", tmp_path / "models"
    for factor in (2.0, 3.0):
        publish_scaled(repository, "step", Scaled(factor))
    publish_ensemble(repository, "outer", "step", Scaled(3.0))
    if package_format == "sagemaker":
        repogen.publish("outer", source=repository, target=tmp_path / "m.tar.gz", package_format=package_format)
        with tarfile.open(tmp_path / "m.tar.gz") as archive:
            archive.extractall(models, filter="data")
    else:
        repogen.publish("outer", source=repository, target=models, package_format=package_format)
    server = find_server("embedded", targets()[DEFAULT_RELEASE], Silent())
    x = InferInput("x", [1, 4], "FP32")
    x.set_data_from_numpy(np.ones((1, 4), np.float32))
    with server.running(models, ControlMode.EXPLICIT) as triton:
        control = triton.endpoint.control
        assert control is not None
        with closing(InferenceServerClient(triton.endpoint.grpc)) as client:
            client.load_model("outer", headers=control.grpc)
            result = client.infer("outer", [x])
    assert (result.get_response().model_version, result.as_numpy("y").tolist()) == ("1", [[3.0] * 4])
    assert all(report.passed for report in repogen.smoke(models))

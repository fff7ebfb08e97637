"""Versions served for measurements on the real Triton."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from repogen.smoke.inference import RefusedError
from repogen.smoke.predict import predictor
from repogen.smoke.served import serving

if TYPE_CHECKING:
    from repogen.artifacts.serving import RunningTriton
    from repogen.artifacts.tensors import Array
    from tests.integration.smoke.conftest import Model, SharedTriton, Stage


def test_version_is_served_under_its_directorys_name(triton: SharedTriton, stage: Stage, linear: Model) -> None:
    """Two versions of one model can be served at the same time, each with its own weights."""
    staged = stage.add("served_here", linear)
    assert linear.weights is not None
    twice = replace(linear, weights={"w": _twice(linear.weights["w"])}, outputs={"y": _twice(linear.outputs["y"])})
    twin = stage.add("served_twin", twice)
    config = replace(twin.config, text=twin.config.text.replace("served_twin", "served_here"))
    rows = np.tile(linear.inputs["x"], (7, 1))  # 21, more than the model batches
    with serving(triton.running, staged) as one, serving(triton.running, replace(twin, config=config)) as two:
        assert (one.address.model, two.address.model) == ("served_here", "served_twin")
        one.send(one.row())
        one.send_many(one.row(), one.burst_size())
        outputs = [predictor(served.deployed.client, served.address)({"x": rows})["y"] for served in (one, two)]
    expected = np.tile(linear.outputs["y"], (7, 1)).astype(np.float32)
    np.testing.assert_allclose(outputs[0].astype(np.float32), expected, rtol=1e-5)
    np.testing.assert_allclose(outputs[1].astype(np.float32), 2 * expected, rtol=1e-5)


def _twice(array: Array) -> Array:
    return 2 * array.astype(np.float32)


def test_remote_triton_receives_the_files(remote: RunningTriton, stage: Stage, linear: Model) -> None:
    """They are loaded under a private name."""
    staged = stage.add("served_remotely", linear)
    with serving(remote, staged) as served:
        assert served.address.model.endswith("-served_remotely")
        assert served.address.model != staged.name
        served.send(served.row())
        assert served.deployed.client.ready(served.address.model, staged.version)


def test_model_that_does_not_load_is_an_error(triton: SharedTriton, stage: Stage, linear: Model) -> None:
    """The message is the server's."""
    staged = stage.add("served_never", linear, content=b"no graph")
    with pytest.raises(RefusedError, match="served_never"), serving(triton.running, staged):
        pytest.fail("it was served")

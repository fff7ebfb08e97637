"""What is downloaded of a registry for a deployment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from repogen.deployments.download import download
from repogen.deployments.tensors import wire_tensors
from repogen.errors import PublishError, SpecError, TrackingError
from repogen.smoke.inference import TensorMetadata
from tests.support.simulated_registry import SimulatedRegistry, version_of_bytes

if TYPE_CHECKING:
    from pathlib import Path


def test_step_that_leads_out_of_the_directory(tmp_path: Path) -> None:
    """The names of steps are in a manifest, which anyone who can write to the registry may have written."""
    registry = SimulatedRegistry(tmp_path / "registry")
    step = registry.register(version_of_bytes(tmp_path / "step"), name="../escaped")
    version = version_of_bytes(tmp_path / "ensemble", "e", b"e")
    document = json.loads((version / "manifest.json").read_text(encoding="utf-8"))
    document["provenance"]["fingerprint"]["step:../escaped"] = step.content
    (version / "manifest.json").write_text(json.dumps(document), encoding="utf-8")
    target = tmp_path / "temporary" / "models"
    target.mkdir(parents=True)
    with pytest.raises(PublishError) as caught:
        download(registry, registry.register(version), target)
    assert caught.value.code == "publish.model-name"
    assert [path.name for path in target.parent.iterdir()] == ["models"]


def test_ensemble_that_uses_itself(tmp_path: Path) -> None:
    """Nothing is downloaded twice, and no number of steps takes hours."""
    registry = SimulatedRegistry(tmp_path / "registry")
    for number, steps in enumerate([{"e": "0" * 64}, {f"m{n}": "0" * 64 for n in range(257)}]):
        entry = registry.register(version_of_bytes(tmp_path / str(number), "e", b"e", steps=steps))
        (tmp_path / f"models{number}").mkdir()
        with pytest.raises(TrackingError) as caught:
            download(registry, entry, tmp_path / f"models{number}")
        assert caught.value.code == "tracking.step"


def test_dtype_that_is_not_known() -> None:
    """A server may describe an input with any text."""
    with pytest.raises(SpecError, match="FP8"):
        wire_tensors([1.0], {"x": TensorMetadata("FP8", (-1,))})

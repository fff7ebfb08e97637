"""What is downloaded of a registry for a deployment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from repogen.deployments.download import download
from repogen.deployments.tensors import wire_tensors
from repogen.errors import PublishError, SourceError, SpecError
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


def test_steps_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each version may name another one as its step."""
    monkeypatch.setattr("repogen.deployments.download._MAX_VERSIONS", 2)
    registry, step = SimulatedRegistry(tmp_path / "registry"), None
    for name in ("a", "b", "c"):
        version = version_of_bytes(tmp_path / name, name, name.encode())
        document = json.loads((version / "manifest.json").read_text(encoding="utf-8"))
        if step is not None:
            document["provenance"]["fingerprint"][f"step:{step.name}"] = step.content
        (version / "manifest.json").write_text(json.dumps(document), encoding="utf-8")
        step = registry.register(version)
    assert step is not None
    (tmp_path / "models").mkdir()
    with pytest.raises(SourceError, match="lead to more than 2 versions"):
        download(registry, step, tmp_path / "models")
    assert len(list((tmp_path / "models").iterdir())) == 2


def test_dtype_that_is_not_known() -> None:
    """A server may describe an input with any text."""
    with pytest.raises(SpecError, match="FP8"):
        wire_tensors([1.0], {"x": TensorMetadata("FP8", (-1,))})

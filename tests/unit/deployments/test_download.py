"""What is downloaded of a registry for a deployment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from repogen.deployments.download import download
from repogen.errors import PublishError
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

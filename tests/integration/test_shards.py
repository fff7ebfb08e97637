"""Shards publish the same files as one build: into one repository, or through `repogen publish --all`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.file_names import ATTESTATION_FILES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Project

SPEC = """\
models:
  both:
    source: {kind: ensemble, steps: [{model: first}, {model: second, inputs: {x: y}, outputs: {y: z}}]}
    outputs: [z]
  first: {source: {factory: "models.py:first"}}
  second: {source: {factory: "models.py:second"}}
  other: {source: {factory: "models.py:first"}}
defaults:
  inputs: {x: {dtype: float32, shape: [batch, 4]}}
  outputs: [y]
  dims: {batch: {min: 1, max: 8}}
  export: {exporter: torchscript}
"""
MODELS = """\
import torch


def first() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(4, 4)


def second() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Linear(4, 4)
"""


def published(repository: Path) -> dict[str, bytes]:
    """Return the files of a repository, without the attestations, which contain the time of the build."""
    return {
        str(path.relative_to(repository)): path.read_bytes()
        for path in sorted(repository.glob("*/**/*"))
        if path.is_file() and path.name not in ATTESTATION_FILES
    }


@pytest.mark.full
def test_shards_publish_what_one_build_publishes(tmp_path: Path, new_project: Callable[[Path], Project]) -> None:
    """With the ensemble in the shard of its steps; the second run of a shard has nothing to do."""
    project = new_project(tmp_path / "project")
    project.spec.write_text(SPEC, encoding="utf-8")
    (project.directory / "models.py").write_text(MODELS, encoding="utf-8")

    def build(*options: str) -> dict[str, str]:
        run = project.run("build", "--json", "--no-report", *options)
        assert run.returncode == 0, run.stderr
        return {model["name"]: model["status"] for model in json.loads(run.stdout)["models"]}

    assert set(build("--repository", "whole").values()) == {"published"}
    plan = project.run("plan", "--repository", "one", "--json")
    assert plan.returncode == 0, plan.stderr
    (project.directory / "plan.json").write_text(plan.stdout, encoding="utf-8")
    parts = []
    for part in ("1/2", "2/2"):
        parts.append(build("--shard", part, "--plan", "plan.json", "--repository", "one"))
        build("--shard", part, "--plan", "plan.json", "--repository", f"part-{part[0]}")
        joined = project.run("publish", "--all", "--from", f"part-{part[0]}", "--to", "joined")
        assert joined.returncode == 0, joined.stderr
    assert [set(models) for models in parts] == [{"both", "first", "second"}, {"other"}]
    assert set(build("--shard", "1/2", "--plan", "plan.json", "--repository", "one").values()) == {"unchanged"}
    whole = published(project.directory / "whole")
    assert len(whole) > 12
    assert published(project.directory / "one") == whole
    assert published(project.directory / "joined") == whole

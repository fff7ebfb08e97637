"""smoke_repository on the real Triton: every served version of what repogen built, and plain words for all else."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from repogen.smoke.repository import smoke_repository
from repogen.triton_config.sections.model import LatestPolicy, TritonSpec, VersionPolicySpec

if TYPE_CHECKING:
    from repogen.artifacts.serving import RunningTriton, SmokeReport


def failures(report: SmokeReport) -> list[tuple[str, str]]:
    """Return name and detail of each failed check."""
    return [(check.name, check.detail) for check in report.checks if not check.passed]


@pytest.fixture
def two_versions(stage: Any, linear: Any, request: pytest.FixtureRequest) -> Path:
    """Return a model directory with versions 1, 2 and 10, of which the policy serves the last two."""
    wishes = TritonSpec(version_policy=VersionPolicySpec(latest=LatestPolicy(num_versions=2)))
    name = request.node.name.removeprefix("test_")
    staged = stage.add(name, replace(linear, triton=wishes))
    for version in ("2", "10"):
        shutil.copytree(staged.version_dir, staged.model_dir / version)
    return Path(staged.model_dir)


def test_every_served_version_is_tested(triton: Any, two_versions: Path) -> None:
    """The version policy decides which versions are tested, by number and not by name."""
    reports = smoke_repository(triton.running, triton.repository, [two_versions.name])
    assert [(report.version, failures(report)) for report in reports] == [(2, []), (10, [])]


def test_remote_server_is_asked_for_what_it_serves(triton: Any, remote: RunningTriton, two_versions: Path) -> None:
    """Nothing is loaded into a remote server: what it does not serve is not ready."""
    reports = smoke_repository(remote, triton.repository, [two_versions.name])
    expected = [("ready", f"the server does not serve version {version}") for version in (2, 10)]
    assert expected == [failure for report in reports for failure in failures(report)]


def test_damage_is_told_version_by_version(triton: Any, two_versions: Path) -> None:
    """A changed file fails its own version, while the other one is tested as usual."""
    golden = two_versions / "10" / "golden.json"
    golden.write_bytes(golden.read_bytes().replace(b"seed=0", b"seed=1"))
    reports = smoke_repository(triton.running, triton.repository, [two_versions.name])
    assert [failures(report) for report in reports] == [[], [("files", "golden.json has a different sha256")]]


def test_what_repogen_did_not_build_is_said(triton: Any, two_versions: Path) -> None:
    """A version without a manifest is a finding in words, not a crash."""
    (two_versions / "10" / "manifest.json").unlink()
    ((name, detail),) = failures(smoke_repository(triton.running, triton.repository, [two_versions.name])[1])
    assert (name, f"{two_versions.name}/10/manifest.json" in detail) == ("built by repogen", True)


def test_directories_that_are_no_models_are_said(triton: Any, tmp_path: Path) -> None:
    """Without names, every directory counts, as it does for Triton; files at the root don't."""
    (tmp_path / "README.md").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.pbtxt").write_text("nmae: 1", encoding="utf-8")
    (tmp_path / "versionless").mkdir()
    (tmp_path / "versionless" / "config.pbtxt").write_text('backend: "onnxruntime"', encoding="utf-8")
    reports = smoke_repository(triton.running, tmp_path)
    assert [report.model for report in reports] == ["broken", "empty", "versionless"]
    assert [failures(report)[0][0] for report in reports] == ["config.pbtxt", "config.pbtxt", "versions"]
    assert "broken/config.pbtxt:1:1" in failures(reports[0])[0][1]
    assert "empty/config.pbtxt: No such file or directory" in failures(reports[1])[0][1]

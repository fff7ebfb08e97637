"""smoke_repository on the real Triton: every served version is tested, and unreadable models are reported."""

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
    """Return a model directory with versions 1, 2 and 10; its policy serves the last two."""
    section = TritonSpec(version_policy=VersionPolicySpec(latest=LatestPolicy(num_versions=2)))
    name = request.node.originalname.removeprefix("test_")
    staged = stage.add(name, replace(linear, triton=section))
    for version in ("2", "10"):
        shutil.copytree(staged.version_dir, staged.model_dir / version)
    return Path(staged.model_dir)


def test_every_served_version_is_tested(triton: Any, two_versions: Path) -> None:
    """The version policy selects the tested versions by number, not by name."""
    reports = smoke_repository(triton.running, triton.repository, [two_versions.name])
    assert [(report.version, failures(report)) for report in reports] == [(2, []), (10, [])]


def test_remote_server_is_tested_with_its_own_models(triton: Any, remote: RunningTriton, two_versions: Path) -> None:
    """Nothing is loaded into a remote server; versions that it does not serve are not ready."""
    reports = smoke_repository(remote, triton.repository, [two_versions.name])
    expected = [("ready", f"the server does not serve version {version}") for version in (2, 10)]
    assert expected == [failure for report in reports for failure in failures(report)]


def test_damage_fails_its_own_version(triton: Any, two_versions: Path) -> None:
    """A changed file does not affect the other version."""
    golden = two_versions / "10" / "golden.json"
    golden.write_bytes(golden.read_bytes().replace(b"seed=0", b"seed=1"))
    reports = smoke_repository(triton.running, triton.repository, [two_versions.name])
    assert [failures(report) for report in reports] == [[], [("files", "golden.json has a different sha256")]]


def test_version_without_a_manifest_is_reported(triton: Any, two_versions: Path) -> None:
    """It was not built by repogen, and has a failed check."""
    (two_versions / "10" / "manifest.json").unlink()
    ((name, detail),) = failures(smoke_repository(triton.running, triton.repository, [two_versions.name])[1])
    assert (name, f"{two_versions.name}/10/manifest.json" in detail) == ("built by repogen", True)


def test_directories_that_are_not_models_are_reported(triton: Any, tmp_path: Path) -> None:
    """Every directory of the root is tested, as Triton loads it; files are ignored."""
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

"""`repogen.report`: the report of a repository."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import repogen
from repogen.artifacts.report import BuildReport, ModelReport, Status
from repogen.cli.group import main
from repogen.errors import SpecError
from repogen.reporting.results import write_build_results
from tests.support.published import Publisher, contents
from tests.support.swapping import swap_when_opened

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with two versions of a model, and a model that repogen did not build."""
    publisher = Publisher(tmp_path / "place" / "repo")
    publisher.publish("m", b"one")
    publisher.publish("m", b"two")
    (publisher.repository / "foreign" / "1").mkdir(parents=True)
    (publisher.repository / "foreign" / "config.pbtxt").write_bytes(b"name: '\xff'")
    return publisher.repository


def test_report_of_a_repository(repository: Path, tmp_path: Path) -> None:
    """Nothing in the repository changes, and the same repository gives the same bytes."""
    before = contents(repository)
    report = repogen.report(repository, results=tmp_path / "results")
    assert report.path == tmp_path / "results" / "repo.html"
    assert (report.models, report.versions, report.measured) == (2, 3, ())
    text = report.path.read_bytes()
    assert report.size == len(text)
    assert b"Versions, newest first" in text
    assert b"it has no manifest.json" in text
    assert repogen.report(repository, output=tmp_path / "a" / "b.html").path.read_bytes() == text
    assert contents(repository) == before


def test_results_of_the_models(repository: Path, tmp_path: Path) -> None:
    """A note says if there are none, because the name of the directory may be misspelled."""
    results = tmp_path / "results"
    unmeasured = repogen.report(repository, results=tmp_path / "result", output=tmp_path / "report.html")
    assert unmeasured.notes == (f"no results of these models in {tmp_path / 'result'}",)
    assert not (tmp_path / "result").exists()
    write_build_results(BuildReport(repository, (ModelReport("m", Status.PUBLISHED, version=2),)), results)
    report = repogen.report(repository, results=results)
    assert (report.measured, report.notes) == (("m",), ())
    (tmp_path / "empty").mkdir()
    assert repogen.report(tmp_path / "empty", results=results).notes == ()


def test_report_is_not_written_into_the_repository(repository: Path, tmp_path: Path) -> None:
    """Nor through a link, and a file that cannot be written is an error with a code."""
    (tmp_path / "link").symlink_to(repository)
    for path in (repository / "m" / "report.html", tmp_path / "link" / "report.html"):
        with pytest.raises(SpecError, match="is in the model repository") as raised:
            repogen.report(repository, output=path)
        assert raised.value.code == "report.inside-repository"
    (tmp_path / "file").touch()
    with pytest.raises(SpecError, match="can't be written") as raised:
        repogen.report(repository, output=tmp_path / "file" / "report.html")
    assert raised.value.code == "report.write"
    with pytest.raises(SpecError, match="is not a directory"):
        repogen.report(tmp_path / "missing")


def test_config_that_is_a_link_to_another_file(repository: Path, tmp_path: Path) -> None:
    """Its text is left out: the report may be readable by users who cannot read the file."""
    (tmp_path / "private").write_text("SECRET", encoding="utf-8")
    config = repository / "foreign" / "config.pbtxt"
    config.unlink()
    config.symlink_to(tmp_path / "private")
    assert "SECRET" not in repogen.report(repository, output=tmp_path / "a.html").path.read_text(encoding="utf-8")
    config.unlink()
    (repository / "shared.pbtxt").write_text("# shared by models", encoding="utf-8")
    config.symlink_to("../shared.pbtxt")
    assert "shared by models" in repogen.report(repository, output=tmp_path / "b.html").path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["m", "m/2"])
def test_link_of_another_user(repository: Path, tmp_path: Path, name: str) -> None:
    """It could lead to a private model of this user."""
    (repository / name).rename(tmp_path / "private")
    (repository / name).symlink_to(tmp_path / "private")
    assert repogen.report(repository, output=tmp_path / "report.html").versions == 3
    os.chown(repository / name, 65534, -1, follow_symlinks=False)
    with pytest.raises(SpecError) as raised:
        repogen.report(repository, output=tmp_path / "report.html")
    assert raised.value.code == "foreign-link"


def test_manifest_that_is_a_link_to_another_file(repository: Path, tmp_path: Path) -> None:
    """Nothing in it is reported, whoever made the link."""
    manifest = repository / "m" / "2" / "manifest.json"
    manifest.rename(tmp_path / "private")
    manifest.symlink_to(tmp_path / "private")
    assert (
        b"manifest.json cannot be read: leads out of"
        in repogen.report(repository, output=tmp_path / "a").path.read_bytes()
    )


@pytest.mark.parametrize(
    ("replaced", "read"), [("m", "config.pbtxt"), ("m", "2/manifest.json"), ("m/2", "manifest.json")]
)
def test_directory_that_another_user_replaces(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: str, read: str
) -> None:
    """It is a link to private files when a file in it is opened."""
    directory = repository / replaced
    private = tmp_path / "private"
    shutil.copytree(directory, private)
    for path in private.rglob("*"):
        if path.is_file():
            path.write_text(path.read_text(errors="replace").replace("dynamo", "SECRET") + "# SECRET")
    swap_when_opened(monkeypatch, directory / read, directory, private)
    assert b"SECRET" not in repogen.report(repository, output=tmp_path / "report.html").path.read_bytes()
    assert directory.is_symlink()


def test_command_prints_the_path(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As text and as JSON."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["report", str(repository)])
    assert (result.exit_code, result.output) == (
        0,
        "note: no results of these models in build/reports\nreport: build/reports/repo.html\n",
    )
    output = tmp_path.parent / "r.html"
    result = CliRunner().invoke(main, ["report", str(repository), "--output", str(output)])
    assert (result.exit_code, result.output) == (
        0,
        f"note: no results of these models in build/reports\nreport: {output}\n",
    )
    result = CliRunner().invoke(main, ["report", str(repository), "--output", "r.html", "--json"])
    assert json.loads(result.output)["path"] == "r.html"
    result = CliRunner().invoke(main, ["report", str(repository), "--output", str(repository / "r.html")])
    assert result.exit_code == 2

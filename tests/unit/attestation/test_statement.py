"""The attestation and the bill of materials of a version."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

import repogen
from repogen.attestation.attest import attest
from repogen.attestation.bill_of_materials import bill_of_materials
from repogen.attestation.statement import builder, public_url, read_attestation, source_url
from repogen.repository.publish import publish
from tests.support.published import Publisher

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.versions import StagedVersion

STARTED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    """Return what publishes into a repository that does not exist yet."""
    return Publisher(tmp_path / "place" / "repo")


def attested(publisher: Publisher, root: Path) -> StagedVersion:
    """Return a staged version with its attestation."""
    staged = publisher.stage()
    fingerprint = {"dist:numpy": "2.0", "file:models.py": "0" * 64, "target": "24.10", "spec": "1" * 64}
    origin = replace(staged.manifest.provenance, fingerprint=fingerprint, git_commit="c0ffee-dirty")
    staged = replace(staged, manifest=replace(staged.manifest, provenance=origin))
    attest(staged, root, STARTED, None)
    return staged


def test_statement_names_files_inputs_and_builder(publisher: Publisher, tmp_path: Path) -> None:
    """In the format of in-toto and SLSA; the digest of the version does not depend on it."""
    staged = attested(publisher, tmp_path)
    document = json.loads((staged.version_dir / "attestation.json").read_text())
    files = {file.path: file.sha256 for file in staged.manifest.files}
    assert document["_type"] == "https://in-toto.io/Statement/v1"
    assert {subject["name"]: subject["digest"]["sha256"] for subject in document["subject"]} == files
    definition = document["predicate"]["buildDefinition"]
    assert definition["externalParameters"]["model"] == "m"
    assert definition["resolvedDependencies"] == [
        {"name": "git", "digest": {"gitCommit": "c0ffee"}, "annotations": {"uncommittedChanges": True}},
        {"uri": "pkg:pypi/numpy@2.0"},
        {"name": "models.py", "digest": {"sha256": "0" * 64}},
    ]
    attestation = read_attestation(staged.version_dir)
    assert attestation is not None
    assert (attestation.run.builder, attestation.run.started) == ("urn:repogen:local", "2026-01-02T03:04:05+00:00")
    assert publish(staged, publisher.repository, breaking=True).version == 1
    assert repogen.verify(publisher.repository).findings == ()


def test_statement_of_other_files_is_a_finding(publisher: Publisher, tmp_path: Path) -> None:
    """As after a file and its manifest were replaced together."""
    publish(attested(publisher, tmp_path), publisher.repository, breaking=True)
    publisher.publish(weights=b"2")
    model = publisher.repository / "m"
    (model / "2" / "attestation.json").write_bytes((model / "1" / "attestation.json").read_bytes())
    (finding,) = repogen.verify(publisher.repository).findings
    assert (finding.version, finding.message) == (
        2,
        "attestation.json is not that of this version: model.onnx has another digest",
    )
    (model / "2" / "attestation.json").write_text('{"_type": 7}')
    (finding,) = repogen.verify(publisher.repository).findings
    assert finding.message.startswith("attestation.json: m/2/attestation.json: _type: ")


def test_bill_of_materials_is_valid_and_reproducible(publisher: Publisher, tmp_path: Path) -> None:
    """CycloneDX 1.6, with licenses, and without times."""
    manifest = attested(publisher, tmp_path).manifest
    text = bill_of_materials(manifest, tmp_path)
    assert text == bill_of_materials(manifest, tmp_path)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    components = {component["name"]: component for component in json.loads(text)["components"]}
    assert set(components) == {"numpy", "triton-repogen"}
    assert components["triton-repogen"]["licenses"] == [{"license": {"id": "Apache-2.0"}}]


def test_builder_on_github() -> None:
    """The workflow, and the URL of the attempt."""
    variables = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": "team/models",
        "GITHUB_WORKFLOW_REF": "team/models/.github/workflows/build.yml@refs/heads/main",
        "GITHUB_RUN_ID": "7",
        "GITHUB_RUN_ATTEMPT": "2",
    }
    assert builder(variables) == (
        "https://github.com/team/models/.github/workflows/build.yml@refs/heads/main",
        "https://github.com/team/models/actions/runs/7/attempts/2",
    )


@pytest.mark.parametrize(
    ("remote", "url"),
    [
        ("https://user:secret@git.example:8443/a.git?token=secret", "https://git.example:8443/a.git"),
        ("ssh://git@git.example/a.git", "ssh://git.example/a.git"),
        ("git@git.example:a/b.git", "ssh://git.example/a/b.git"),
        ("user:secret@git.example:a/b.git", "ssh://git.example/a/b.git"),
        ("file:///home/me/a", ""),
        ("../a", ""),
        ("https://git.example:99999/a.git", ""),
        ("https://git.example:port/a.git", ""),
        ("https://[git.example/a.git", ""),
        ("https://user:secret@[::1]:8443/a.git", "https://[::1]:8443/a.git"),
        (r"https:\\user:secret@git.example/a.git", ""),
        ("https://git.example/user:secret@other/a.git", ""),
        ("https://git.example/a.git;token=secret", ""),
        ("git@git.example:a/b.git?token=secret", ""),
    ],
)
def test_urls_have_no_credentials(remote: str, url: str) -> None:
    """Nor paths of this machine."""
    assert public_url(remote) == url


def test_remote_that_is_not_text(tmp_path: Path) -> None:
    """A URL may have any bytes."""
    config = tmp_path / ".git" / "config"
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)  # noqa: S607 - the git of PATH
    with config.open("ab") as stream:
        stream.write(b'[remote "origin"]\n\turl = https://git.example/\xff\n')
    assert source_url(tmp_path) == ""

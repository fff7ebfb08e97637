"""``attestation.json``: how a version was built, as an in-toto statement with SLSA provenance.

Sources of the formats: https://in-toto.io/Statement/v1 and https://slsa.dev/provenance/v1.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field, StringConstraints, TypeAdapter

from repogen.artifacts.attestation import Attestation, BuildRun
from repogen.artifacts.file_names import ATTESTATION_FILE, SBOM_FILE
from repogen.errors import RepogenError
from repogen.files import raise_if_exhausted
from repogen.files.git import git
from repogen.repository.decode import Part, read_record
from repogen.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from repogen.artifacts.versions import Manifest

LOCAL_BUILDER = "urn:repogen:local"
"""The builder of a version that was not built by a CI system."""
_STATEMENT: Literal["https://in-toto.io/Statement/v1"] = "https://in-toto.io/Statement/v1"
_PREDICATE: Literal["https://slsa.dev/provenance/v1"] = "https://slsa.dev/provenance/v1"
_BUILD_TYPE = "https://triton-repogen.github.io/repogen/build/v1"
_FILE, _DISTRIBUTION = "file:", "dist:"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PLAIN_PATH = re.compile(r"[\w.~/+% -]*")


class _Digest(Part):
    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]


class _Subject(Part):
    name: str
    digest: _Digest


class _Builder(Part):
    id: str


class _Metadata(Part):
    invocation: str = Field(default="", alias="invocationId")
    started: str = Field(alias="startedOn")
    finished: str = Field(alias="finishedOn")


class _RunDetails(Part):
    builder: _Builder
    metadata: _Metadata


class _Predicate(Part):
    run: _RunDetails = Field(alias="runDetails")


class _Statement(Part):
    """The part of a statement that repogen reads."""

    kind: Literal["https://in-toto.io/Statement/v1"] = Field(alias="_type")
    predicate_type: Literal["https://slsa.dev/provenance/v1"] = Field(alias="predicateType")
    subject: tuple[_Subject, ...]
    predicate: _Predicate


_ADAPTER = TypeAdapter(_Statement)


def statement(manifest: Manifest, run: BuildRun, sbom_sha256: str) -> str:
    """Return the statement of a version as JSON.

    Args:
        manifest: The version's manifest; its files are the subjects of the statement.
        run: The run that built it.
        sbom_sha256: Digest of its bill of materials.
    """
    origin = manifest.provenance
    metadata = {"startedOn": run.started, "finishedOn": run.finished}
    document = {
        "_type": _STATEMENT,
        "subject": [{"name": file.path, "digest": {"sha256": file.sha256}} for file in manifest.files],
        "predicateType": _PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD_TYPE,
                "externalParameters": {
                    "model": manifest.model,
                    "target": origin.target,
                    "spec": {"digest": {"sha256": origin.spec_sha256}},
                },
                "internalParameters": {"exporter": origin.exporter, "opset": origin.opset},
                "resolvedDependencies": list(_dependencies(origin.git_commit, run.source, origin.fingerprint)),
            },
            "runDetails": {
                "builder": {"id": run.builder, "version": {"repogen": __version__}},
                "metadata": metadata | ({"invocationId": run.invocation} if run.invocation else {}),
                "byproducts": [{"name": SBOM_FILE, "digest": {"sha256": sbom_sha256}}],
            },
        },
    }
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def read_attestation(version_dir: Path) -> Attestation | None:
    """Return the statement of a version; None if it has none, as for a version that an older repogen built.

    Raises:
        MalformedRecordError: The file is not such a statement.
        OSError: It can't be read.
    """
    path = version_dir / ATTESTATION_FILE
    if not os.path.lexists(path):
        return None
    document = read_record(_ADAPTER, path, "/".join(path.parts[-3:]))
    details = document.predicate.run
    times = details.metadata
    run = BuildRun(details.builder.id, times.invocation, times.started, times.finished)
    return Attestation(run, {subject.name: subject.digest.sha256 for subject in document.subject})


def differences(attestation: Attestation, manifest: Manifest) -> tuple[str, ...]:
    """Return one line for each file whose digest in the statement is not that in the manifest."""
    expected = {file.path: file.sha256 for file in manifest.files}
    paths = sorted(expected.keys() | attestation.digests.keys())
    different = [path for path in paths if expected.get(path) != attestation.digests.get(path)]
    return tuple(f"{ATTESTATION_FILE} is not that of this version: {path} has another digest" for path in different)


def attestation_problems(version_dir: Path, manifest: Manifest) -> tuple[str, ...]:
    """Return why a version's attestation cannot be that of its files; empty if it can be, or if there is none."""
    try:
        attestation = read_attestation(version_dir)
    except (RepogenError, OSError) as error:
        if isinstance(error, OSError):
            raise_if_exhausted(error)
        return (f"{ATTESTATION_FILE}: {error}",)
    return () if attestation is None else differences(attestation, manifest)


def builder(environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the URIs of the builder and of its run, from the variables that GitHub Actions sets.

    >>> builder({})
    ('urn:repogen:local', '')
    """
    server, repository = environment.get("GITHUB_SERVER_URL", ""), environment.get("GITHUB_REPOSITORY", "")
    workflow, run = environment.get("GITHUB_WORKFLOW_REF", ""), environment.get("GITHUB_RUN_ID", "")
    if environment.get("GITHUB_ACTIONS") != "true" or not (server and repository and workflow and run):
        return LOCAL_BUILDER, ""
    attempt = environment.get("GITHUB_RUN_ATTEMPT", "1")
    return f"{server}/{workflow}", f"{server}/{repository}/actions/runs/{run}/attempts/{attempt}"


def source_url(directory: Path) -> str:
    """Return the URL of the git remote ``origin``, without a user name or password; empty if it has none."""
    return public_url(git(directory, "remote", "get-url", "origin") or "")


def public_url(remote: str) -> str:
    """Return the URL of a git remote without a user name or password; empty for a path on this machine.

    It is also empty if the path has characters that could separate a password or a token.

    >>> public_url("https://user:secret@git.example/team/models.git")
    'https://git.example/team/models.git'
    >>> public_url("git@git.example:team/models.git")
    'ssh://git.example/team/models.git'
    >>> public_url("/home/me/models")
    ''
    """
    short = re.fullmatch(r"(?:[^@/]+@)?(?P<host>[A-Za-z0-9.-]+):(?P<path>[^/:].*)", remote)
    if short is not None and _PLAIN_PATH.fullmatch(short["path"]):
        return f"ssh://{short['host']}/{short['path']}"
    try:
        parts = urlsplit(remote)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:  # an address or a port that is not valid
        return ""
    if (
        parts.scheme not in {"https", "http", "ssh", "git"}
        or not parts.hostname
        or not _PLAIN_PATH.fullmatch(parts.path)
    ):
        return ""
    host = f"[{parts.hostname}]{port}" if ":" in parts.hostname else f"{parts.hostname}{port}"
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def _dependencies(commit: str, source: str, fingerprint: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the inputs of the build: the git commit, the user's files, and the Python packages."""
    if commit:
        digest = {"gitCommit": commit.removesuffix("-dirty")}
        changed = {"annotations": {"uncommittedChanges": True}} if commit.endswith("-dirty") else {}
        yield {**({"uri": f"git+{source}"} if source else {"name": "git"}), "digest": digest, **changed}
    for key, value in fingerprint.items():
        if key.startswith(_DISTRIBUTION):
            yield {"uri": f"pkg:pypi/{key.removeprefix(_DISTRIBUTION).lower().replace('_', '-')}@{value}"}
        elif _SHA256.fullmatch(value) and key not in {"spec", "repogen"}:
            yield {"name": key.removeprefix(_FILE), "digest": {"sha256": value}}

"""``repogen verify``: compares every file of a repository with what repogen recorded about it. Read-only."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE, MANIFEST_FILE
from repogen.artifacts.verification import Discrepancy, VerifyReport
from repogen.attestation.signature import missing_signature, unsigned_entries, verify_signature
from repogen.attestation.statement import attestation_problems
from repogen.errors import PublishError, RepogenError
from repogen.files import raise_if_exhausted, reason
from repogen.files.work_limit import COMMAND_SECONDS, WorkLimitError, raise_if_exceeded, shared, work_limit
from repogen.repository.inventory import read_model, require_any_model, require_models
from repogen.repository.layout import config_bytes, models_of, require_own_directories
from repogen.repository.manifest import damaged_files, damaged_named_files, may_be_imported, unlisted_files
from repogen.repository.written_config import origin_of_config

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from repogen.artifacts.attestation import TrustedSigner
    from repogen.artifacts.inventory import ModelRecord, VersionRecord
    from repogen.artifacts.versions import Manifest


_MAX_FINDINGS = 50_000
"""Of a repository; links of many models can lead to one manifest, which may list 160,000 files."""


def verify(repository: Path, names: Iterable[str] = (), signer: TrustedSigner | None = None) -> VerifyReport:
    """Compare the files of a repository with its manifests; every file is hashed.

    Args:
        repository: A repository.
        names: The models; all when empty.
        signer: Whose signatures are required; None to require none.

    Raises:
        SpecError: The repository, or a model, does not exist, it has no models, or ``signer`` cannot be used.
        PublishError: A directory can't be read.
        WorkLimitError: The models together need too much time or memory; a single one is a finding.
    """
    selection = tuple(names)
    with work_limit(str(repository), COMMAND_SECONDS):
        require_models(repository, selection)
        require_any_model(repository)
        models: list[_VerifiedModel] = []
        left = _MAX_FINDINGS
        for name in selection or models_of(repository):
            models.append(_verify_model(repository, name, signer, left))
            left = max(0, left - len(models[-1].findings))
    return VerifyReport(
        repository,
        models=len(models),
        versions=sum(model.versions for model in models),
        files=sum(model.files for model in models),
        size=sum(model.size for model in models),
        findings=tuple(finding for model in models for finding in model.findings),
        signed=sum(model.signed for model in models),
    )


@dataclass(frozen=True)
class _VerifiedModel:
    """What was compared of a model, and what differs."""

    findings: tuple[Discrepancy, ...]
    versions: int = 0
    files: int = 0
    size: int = 0
    signed: int = 0


def _verify_model(repository: Path, name: str, signer: TrustedSigner | None, limit: int) -> _VerifiedModel:
    """Verify a model; that it needs too much time or memory, or has more than ``limit`` findings, is a finding."""
    try:
        with work_limit(f"model {name}"):
            model = read_model(repository, name)
            manifests = [version.manifest for version in model.versions if version.manifest is not None]
            findings = list(islice(_model_findings(model, signer), limit + 1))
            if len(findings) > limit:
                findings[limit:] = [Discrepancy(name, None, "more findings are not listed")]
            return _VerifiedModel(
                tuple(findings),
                versions=len(model.versions),
                files=sum(len(manifest.files) for manifest in manifests),
                size=sum(manifest.size for manifest in manifests),
                signed=sum(version.signed for version in model.versions),
            )
    except WorkLimitError as error:
        raise_if_exceeded()
        return _VerifiedModel((Discrepancy(name, None, error.message),))


def _model_findings(model: ModelRecord, signer: TrustedSigner | None) -> Iterator[Discrepancy]:
    for message in _config_findings(model):
        yield Discrepancy(model.name, None, message)
    for version in model.versions:
        for message in _version_findings(version, signer):
            yield Discrepancy(model.name, version.version, message)
    if signer is not None:
        for entry in unsigned_entries(model.path):
            yield Discrepancy(model.name, None, f"{entry} is not part of a signed version")
        try:
            require_own_directories(model.path)
        except PublishError as error:
            yield Discrepancy(model.name, None, error.message)


def _config_findings(model: ModelRecord) -> Iterator[str]:
    """Yield what differs in the model's directory: config.pbtxt, and the files that it names."""
    if model.problem:
        yield model.problem
    if not any(version.manifest is not None for version in model.versions):
        return
    try:
        config = config_bytes(model.path)
        origin = origin_of_config(model.path)
    except (RepogenError, OSError) as error:
        if isinstance(error, OSError):
            raise_if_exhausted(error)
        if not model.problem:  # the same file, which is one finding
            yield f"{CONFIG_FILE} of a version: {reason(error) if isinstance(error, OSError) else error}"
        return
    if origin is None:
        edited = f"{CONFIG_FILE} does not match any version: it was edited after repogen wrote it"
        yield f"{CONFIG_FILE} is missing" if config is None else edited
        return
    version = model.find(origin)
    if version is not None and version.manifest is not None:
        yield from damaged_named_files(model.path, version.manifest.files)


def _version_findings(version: VersionRecord, signer: TrustedSigner | None) -> Iterator[str]:
    """Yield what differs; a signature is verified only if nothing else does, but one that is missing is a finding."""
    if version.manifest is None:
        yield version.problem
        return
    findings = [*_file_findings(version, version.manifest), *attestation_problems(version.path, version.manifest)]
    yield from findings
    if signer is None:
        return
    if problem := missing_signature(version.path) if findings else verify_signature(version.path, signer):
        yield problem


def _file_findings(version: VersionRecord, manifest: Manifest) -> Iterator[str]:
    if manifest.model != version.model:
        yield f"{MANIFEST_FILE} is that of a version of {manifest.model}"
    status, findings = version.path.stat(), shared("findings")
    key = (status.st_dev, status.st_ino)
    if key not in findings:  # links of many models can lead to one version
        findings[key] = tuple(_differences(version, manifest))
    yield from findings[key]


def _differences(version: VersionRecord, manifest: Manifest) -> Iterator[str]:
    """Yield what differs between the files of a version and its manifest."""
    yield from damaged_files(version.path, manifest)
    try:
        unlisted = unlisted_files(version.path, manifest)
    except OSError as error:
        raise_if_exhausted(error)
        yield f"the directory cannot be read: {reason(error)}"
        return
    for name in unlisted:
        # what Python could import is in damaged_files, and Triton's Python backend writes the cache of bytecode
        is_cache = name == "__pycache__/" and manifest.provenance.exporter == "python"
        if not is_cache and not may_be_imported(name, manifest):
            yield f"{name} is not listed in the manifest"

"""Describes and signs a version that was just staged."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from repogen.artifacts.attestation import BuildRun
from repogen.artifacts.file_names import ATTESTATION_FILE, SBOM_FILE
from repogen.attestation.bill_of_materials import bill_of_materials
from repogen.attestation.signature import sign_version
from repogen.attestation.statement import builder, source_url, statement
from repogen.errors import PublishError
from repogen.files import reason
from repogen.files.content import write_new
from repogen.repository.digest import sha256_bytes
from repogen.repository.filesystem import make_readable

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.attestation import SigningKey
    from repogen.artifacts.versions import StagedVersion


def attest(staged: StagedVersion, root: Path, started: datetime, key: SigningKey | None) -> None:
    """Write the attestation and the bill of materials of a staged version, and sign it if there is a key.

    None of these files is part of the version's digest: two builds of the same inputs have different times.

    Args:
        staged: The version; no other file is written to its directory after this, except ``unconfirmed``.
        root: Directory of the spec.
        started: When the build started.
        key: What signs the version; None to leave it unsigned.

    Raises:
        PublishError: A file cannot be written, or the version cannot be signed.
        RepogenError: The key cannot be used.
    """
    identity, invocation = builder(os.environ)
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    run = BuildRun(identity, invocation, started.isoformat(timespec="seconds"), finished, source_url(root))
    sbom = bill_of_materials(staged.manifest, staged.version_dir)
    document = statement(staged.manifest, run, sha256_bytes(sbom.encode()))
    try:
        write_new(staged.version_dir / SBOM_FILE, sbom.encode())
        write_new(staged.version_dir / ATTESTATION_FILE, document.encode())
        make_readable(staged.version_dir)
    except OSError as error:
        raise PublishError(
            f"{staged.name}: the attestation cannot be written: {reason(error)}",
            "free disk space, and run the build again",
            code="stage.write",
        ) from error
    if key is not None:
        sign_version(staged.version_dir, key)

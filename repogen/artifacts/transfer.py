"""Options and report of `repogen publish`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.attestation import TrustedSigner


class PackageFormat(StrEnum):
    """How a version is packed: for a service that reads a Triton repository, or as an image of a registry."""

    SAGEMAKER = "sagemaker"
    AZUREML = "azureml"
    OCI = "oci"


@dataclass(frozen=True)
class TransferOptions:
    """Options of ``repogen publish``.

    Attributes:
        version: Version in the source; None for the newest one that is served there.
        allow_breaking: Whether inputs and outputs may differ from those of the target's version.
        dry_run: Whether to change nothing.
        stage_dir: Directory to stage in; None for the target's parent.
        signer: Whose signatures the versions must have; None to require none.
    """

    version: int | None = None
    allow_breaking: bool = False
    dry_run: bool = False
    stage_dir: Path | None = None
    signer: TrustedSigner | None = None


@dataclass(frozen=True)
class TransferredVersion:
    """What a publish did with one version.

    Attributes:
        model: The model.
        source: Number of the version in the source.
        number: Number of the version in the target; in a dry run, the number that it would have.
        published: Whether it was published; False if the target had it.
        size: Bytes of its files.
        held: The version that the target serves instead, because `repogen rollback` holds it; None without a hold.
    """

    model: str
    source: int
    number: int
    published: bool
    size: int
    held: int | None = None


@dataclass(frozen=True)
class TransferReport:
    """One run of ``repogen publish``.

    Attributes:
        source: The repository that was read.
        target: The repository or the package that was written.
        dry_run: Whether no change was made.
        versions: The steps of an ensemble first, the model last.
        format: What kind of package; None for a repository.
        digest: ``sha256:`` and the digest of the package: of an archive, or of an image's manifest. Empty for a
            directory, and in a dry run.
    """

    source: Path
    target: Path
    dry_run: bool
    versions: tuple[TransferredVersion, ...]
    format: PackageFormat | None = None
    digest: str = ""

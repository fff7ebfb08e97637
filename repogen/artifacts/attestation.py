"""How a version was built and signed: what `attestation.json` states, and the keys of signatures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class BuildRun:
    """The run of ``repogen build`` that built a version.

    Attributes:
        builder: URI of what ran the build: a GitHub workflow, or ``LOCAL_BUILDER``.
        invocation: URL of the run; empty if it has none.
        started: Start in UTC, ISO 8601.
        finished: End of the version's verification in UTC, ISO 8601.
        source: URL of the spec's git repository; empty if it has none.
    """

    builder: str
    invocation: str
    started: str
    finished: str
    source: str = ""


@dataclass(frozen=True)
class Attestation:
    """What ``attestation.json`` of a version states.

    Attributes:
        run: The run that built the version.
        digests: SHA-256 of each file of the version, by path.
    """

    run: BuildRun
    digests: dict[str, str]


@dataclass(frozen=True)
class SigningKey:
    """What signs a version: a private key, with or without a certificate, or an identity (keyless).

    Attributes:
        private_key: PEM file of an elliptic-curve private key; None to sign with the identity of the environment.
        certificate: PEM file of the key's certificate.
        chain: PEM files of the certificates between it and a root.
    """

    private_key: Path | None
    certificate: Path | None = None
    chain: tuple[Path, ...] = ()


@dataclass(frozen=True)
class TrustedSigner:
    """Whose signatures are accepted; exactly one of the three is set.

    Attributes:
        public_key: PEM file of an elliptic-curve public key.
        certificates: PEM files of root certificates.
        identity: Identity in the certificate of a keyless signature, such as the URL of a GitHub workflow.
        issuer: OpenID Connect issuer of ``identity``.
    """

    public_key: Path | None = None
    certificates: tuple[Path, ...] = ()
    identity: str = ""
    issuer: str = ""


@dataclass(frozen=True)
class SignReport:
    """The result of ``repogen sign``.

    Attributes:
        repository: The repository.
        model: The model.
        version: The version that was signed.
    """

    repository: Path
    model: str
    version: int

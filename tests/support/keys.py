"""Key pairs for signatures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from repogen.artifacts.attestation import SigningKey, TrustedSigner

if TYPE_CHECKING:
    from pathlib import Path


def write_keys(directory: Path, name: str = "key", password: bytes | None = None) -> tuple[SigningKey, TrustedSigner]:
    """Write a new key pair, and return both halves."""
    key = ec.generate_private_key(ec.SECP256R1())
    encryption = serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password)
    private, public = directory / f"{name}.pem", directory / f"{name}.pub"
    pem = serialization.Encoding.PEM
    private.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, encryption))
    public.write_bytes(key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    return SigningKey(private), TrustedSigner(public_key=public)

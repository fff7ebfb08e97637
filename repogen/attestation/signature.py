"""``model.sig``: the signature of a version, in the format of OpenSSF Model Signing.

It covers every file of the version's directory except itself, so `model_signing verify` of that project accepts it too.
"""

from __future__ import annotations

import io
import os
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from repogen.artifacts.file_names import SIGNATURE_FILE, UNCONFIRMED_FILE
from repogen.distribution import install_command
from repogen.errors import MissingExtraError, PublishError, SpecError
from repogen.files import read_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.attestation import SigningKey, TrustedSigner

PASSWORD_VARIABLE = "REPOGEN_SIGNING_PASSWORD"  # noqa: S105 - the name of a variable
_BYTECODE = "__pycache__"


def sign_version(version_dir: Path, key: SigningKey) -> None:
    """Write the signature of a version; it replaces an older one.

    Args:
        version_dir: A complete version directory.
        key: What signs it. The password of an encrypted key is read from REPOGEN_SIGNING_PASSWORD.

    Raises:
        MissingExtraError: The package model-signing is not installed.
        SpecError: The key cannot be read.
        PublishError: The signature cannot be created.
    """
    signing, _ = _library()
    config = signing.Config().set_hashing_config(_hashing(version_dir))
    try:
        config = _with_signer(config, key)
    except (ValueError, TypeError, OSError) as error:
        raise SpecError(
            f"the signing key cannot be used: {error}",
            f"use a PEM file of an elliptic-curve key, such as `openssl ecparam -name prime256v1 -genkey -noout` "
            f"writes; the password of an encrypted key is read from {PASSWORD_VARIABLE}",
            code="sign.key",
        ) from error
    new = version_dir / f"{SIGNATURE_FILE}.new"
    try:
        config.sign(version_dir, new)
        new.chmod(0o644)
        new.replace(version_dir / SIGNATURE_FILE)
    except Exception as error:  # the library raises errors of many packages
        new.unlink(missing_ok=True)
        raise PublishError(
            f"{version_dir.parent.name} version {version_dir.name} cannot be signed: {error}",
            "keyless signing needs a network, and the identity of a CI job or of a browser login; a key needs neither",
            code="sign.failed",
        ) from error


def verify_signature(version_dir: Path, signer: TrustedSigner) -> str:
    """Return why a version's signature is not that of ``signer``; empty if it is.

    The files must have been compared with the manifest before: this function reads every file in the directory.

    Args:
        version_dir: A version directory.
        signer: Whose signature is required.

    Raises:
        MissingExtraError: The package model-signing is not installed.
        SpecError: The key or certificate of ``signer`` cannot be read.
    """
    _, verifying = _library()
    try:
        config = _with_verifier(verifying.Config(), signer).set_hashing_config(_hashing(version_dir))
    except (ValueError, OSError) as error:
        raise SpecError(
            f"the key that signatures are verified with cannot be used: {error}",
            "pass a PEM file of a public key with --key, or of root certificates with --certificate",
            code="verify.key",
        ) from error
    path = version_dir / SIGNATURE_FILE
    if not os.path.lexists(path):
        return f"it is not signed: {SIGNATURE_FILE} is missing"
    try:
        read_bytes(path)  # a regular file of a limited size
        with redirect_stdout(io.StringIO()):  # the library prints warnings
            config.verify(version_dir, path)
    except Exception as error:  # noqa: BLE001 - the library raises errors of many packages, and the file is not trusted
        return f"{SIGNATURE_FILE} is not valid: {str(error) or type(error).__name__}"
    return ""


def _library() -> tuple[Any, Any]:
    try:
        from model_signing import signing, verifying  # noqa: PLC0415 - imports sigstore, which few commands need
    except ImportError as error:
        raise MissingExtraError("model-signing is not installed", install_command("sign")) from error
    return signing, verifying


def _hashing(version_dir: Path) -> Any:  # noqa: ANN401 - an optional package
    from model_signing import hashing  # noqa: PLC0415 - as above

    names = (SIGNATURE_FILE, f"{SIGNATURE_FILE}.new", UNCONFIRMED_FILE, _BYTECODE)
    paths = [version_dir / name for name in names]
    config: Any = hashing
    return config.Config().use_file_serialization().set_ignored_paths(paths=paths, ignore_git_paths=False)


def _with_signer(config: Any, key: SigningKey) -> Any:  # noqa: ANN401 - an optional package
    if key.private_key is None:
        return config.use_sigstore_signer(use_ambient_credentials=True)
    if key.certificate is not None:
        return config.use_certificate_signer(
            private_key=key.private_key, signing_certificate=key.certificate, certificate_chain=key.chain
        )
    password = os.environ.get(PASSWORD_VARIABLE)
    secret = None if password is None else password.encode()
    return config.use_elliptic_key_signer(private_key=key.private_key, password=secret)


def _with_verifier(config: Any, signer: TrustedSigner) -> Any:  # noqa: ANN401 - an optional package
    if signer.public_key is not None:
        return config.use_elliptic_key_verifier(public_key=signer.public_key)
    if signer.certificates:
        return config.use_certificate_verifier(certificate_chain=signer.certificates)
    return config.use_sigstore_verifier(identity=signer.identity, oidc_issuer=signer.issuer)


def require_signature(version_dir: Path, name: str, signer: TrustedSigner | None) -> None:
    """Require the signature of a version whose files match its manifest, if there is a ``signer``.

    Raises:
        PublishError: The version is not signed, or not by ``signer``.
        RepogenError: The signature cannot be verified on this machine.
    """
    if signer is None:
        return
    if problem := verify_signature(version_dir, signer):
        raise PublishError(
            f"{name} version {version_dir.name} is rejected: {problem}",
            "sign it with `repogen build --sign-key` or `repogen sign`, or require the key that signed it",
            code="verify.signature",
        )

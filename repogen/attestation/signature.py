"""``model.sig``: the signature of a version, in the format of OpenSSF Model Signing.

It covers every file of the version's directory except itself, so `model_signing verify` of that project accepts it too.
"""

from __future__ import annotations

import errno
import io
import os
import re
from contextlib import redirect_stdout, suppress
from typing import TYPE_CHECKING, Any

from repogen.artifacts.file_names import (
    ADOPTED_CONFIG,
    ATTESTATION_FILES,
    CONFIG_FILE,
    MANIFEST_FILE,
    SIGNATURE_FILE,
    UNCONFIRMED_FILE,
)
from repogen.artifacts.named_file import DATA_DIRECTORIES, is_named_file
from repogen.distribution import install_command
from repogen.errors import MissingExtraError, PublishError, RepogenError, SpecError, first_line
from repogen.files import is_directory, raise_if_exhausted, read_bytes, reason
from repogen.files.temporary import temporary_directory
from repogen.repository.digest import sha256_file
from repogen.repository.filesystem import Disk
from repogen.repository.layout import config_bytes, overflows, require_own_directories
from repogen.repository.manifest import damaged_named_files, read_manifest, repeated_files, unlisted_files
from repogen.repository.written_config import origin_of_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from repogen.artifacts.attestation import SigningKey, TrustedSigner
    from repogen.artifacts.versions import Manifest

_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM})
_MISMATCH = re.compile(r"Hash mismatch for '([^']+)'")
SIGNATURE_CODE = "verify.signature"
"""The code of the error for a version or model without the required signature."""
_SIGN_HINT = (
    "sign it with `repogen sign`, or a registered version with `repogen build --force --sign-key`, and promote it; "
    "or require the key that signed it; `repogen verify` shows all differences"
)
PASSWORD_VARIABLE = "REPOGEN_SIGNING_PASSWORD"  # noqa: S105 - the name of a variable
_BYTECODE = "__pycache__"
_NEW_FILE = f"{SIGNATURE_FILE}.new"


def require_key(key: SigningKey) -> None:
    """Require a key that can sign, before there is anything to sign; an identity is not requested yet.

    Raises:
        MissingExtraError: The package model-signing is not installed.
        SpecError: The key or its certificate cannot be read.
    """
    signing, _ = _library()
    if key.private_key is not None:
        _with_signer(signing.Config(), key)


def sign_version(version_dir: Path, key: SigningKey, opened: Path | None = None) -> None:
    """Write the signature of a version; it replaces an older one.

    Args:
        version_dir: A complete version directory.
        key: What signs it. The password of an encrypted key is read from REPOGEN_SIGNING_PASSWORD.
        opened: The directory as ``opened_directory`` yields it, if another user may replace it. What is in another
            directory is not signed, and nothing is written there.

    Raises:
        MissingExtraError: The package model-signing is not installed.
        SpecError: The key cannot be read.
        PublishError: The signature cannot be created, the directory has a file that its manifest does not list, or
            it was replaced or changed in the meantime.
    """
    signing, _ = _library()
    opened = opened or version_dir
    try:
        _require_bounded(opened)
        digests = _digests(opened)
    except (ValueError, OSError) as error:
        if isinstance(error, OSError):
            raise_if_exhausted(error)
        raise PublishError(
            f"{version_dir.parent.name} version {version_dir.name} was not signed: "
            f"{reason(error) if isinstance(error, OSError) else error}",
            "delete files that are not part of the version, or build it again",
            code="sign.damaged",
        ) from error
    config = signing.Config().set_hashing_config(_with_digests(_hashing(version_dir), version_dir, digests))
    try:
        config = _with_signer(config, key)
    except SpecError:
        raise
    except Exception as error:  # of sigstore, whose root of trust is downloaded
        raise _not_signed(version_dir, error) from error
    try:
        # the library writes through a link, which other users could plant in the version's directory
        with temporary_directory() as private:
            config.sign(version_dir, private / SIGNATURE_FILE)
            text = (private / SIGNATURE_FILE).read_text(encoding="utf-8")
        _write(opened, text)
    except RepogenError:
        raise
    except Exception as error:  # the library raises errors of many packages
        raise _not_signed(version_dir, error, opened) from error


def _not_signed(version_dir: Path, error: Exception, opened: Path | None = None) -> PublishError:
    problem = str(error).replace(str(opened or version_dir), str(version_dir))
    what = f"{version_dir.parent.name} version {version_dir.name} cannot be signed: {problem}"
    if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
        return PublishError(what, "free disk space, or correct the permissions of the repository", code="sign.failed")
    hint = "keyless signing needs a network, and the identity of a CI job or of a browser login; a key needs neither"
    return PublishError(what, hint, code="sign.failed")


def _write(version_dir: Path, text: str) -> None:
    """Replace the signature of a version atomically."""
    disk, new = Disk(), version_dir / _NEW_FILE
    try:
        disk.write(new, text)
        disk.rename(new, version_dir / SIGNATURE_FILE)
    except BaseException:
        with suppress(OSError):
            disk.remove(new)
        raise


def unsignable(version_dir: Path, manifest: Manifest) -> str:
    """Return why a version must not be signed, nor its signature verified; empty if it may be.

    The library reads every file of the directory, and each link to a file again, in threads that cannot be interrupted.

    Args:
        version_dir: A version directory whose files match its manifest.
        manifest: The manifest.

    Raises:
        OSError: A directory cannot be read.
    """
    ignored = {f"{_BYTECODE}/", _NEW_FILE}
    if unlisted := [name for name in unlisted_files(version_dir, manifest) if name not in ignored]:
        return f"{MANIFEST_FILE} does not list {', '.join(unlisted)}"
    return repeated_files(version_dir, manifest)


def verify_signature(version_dir: Path, signer: TrustedSigner) -> str:
    """Return why a version's signature is not that of ``signer``; empty if it is.

    The files must have been compared with the manifest before: this function reads every file in the directory.

    Args:
        version_dir: A version directory.
        signer: Whose signature is required.

    Raises:
        MissingExtraError: The package model-signing is not installed.
        SpecError: The key or certificate of ``signer`` cannot be read, or Sigstore does not respond.
        OSError: Too many files are open, for example.
    """
    _, verifying = _library()
    try:
        config = _with_verifier(verifying.Config(), signer).set_hashing_config(_hashing(version_dir))
    except Exception as error:  # the library raises errors of many packages
        if signer.public_key is not None or signer.certificates:
            problem = reason(error) if isinstance(error, OSError) else _key_problem(error)
            raise SpecError(
                f"the key that signatures are verified with cannot be used: {problem}",
                "with --key, pass a PEM file of an elliptic-curve public key; with --certificate, of root certificates",
                code="verify.key",
            ) from error
        raise SpecError(  # of sigstore, whose root of trust is downloaded
            f"keyless signatures cannot be verified: {first_line(error)}",
            "check the network: Sigstore's root of trust is downloaded; or require a key or a certificate",
            code="verify.key",
        ) from error
    path = version_dir / SIGNATURE_FILE
    if missing := missing_signature(version_dir):
        return missing
    try:
        _require_bounded(version_dir)
        with redirect_stdout(io.StringIO()):  # the library prints warnings
            config.verify(version_dir, path)
        return _not_covered(version_dir)
    except Exception as error:  # noqa: BLE001 - the library raises errors of many packages, and the file is not trusted
        if isinstance(error, OSError):
            raise_if_exhausted(error)
        if isinstance(error, AttributeError | TypeError | LookupError):  # the library expects other fields
            required = "key" if signer.public_key else "certificate" if signer.certificates else "identity"
            return f"{SIGNATURE_FILE} is not valid: it is damaged, or was not made with a {required}"
        if changed := _MISMATCH.findall(str(error)):
            return f"{SIGNATURE_FILE} is not valid: it was made for other content of {', '.join(sorted(changed))}"
        return f"{SIGNATURE_FILE} is not valid: {str(error) or type(error).__name__}"


def missing_signature(version_dir: Path) -> str:
    """Return that a version is not signed; empty if it has a signature, valid or not."""
    return "" if os.path.lexists(version_dir / SIGNATURE_FILE) else f"it is not signed: {SIGNATURE_FILE} is missing"


def unsigned_entries(model: Path) -> tuple[str, ...]:
    """Return the names in a model's directory that do not belong to its versions, sorted.

    Triton's Python backend imports modules from this directory, and runs a ``triton_python_backend_stub`` in it; other
    backends load libraries from it. Hidden files cannot be either.

    Raises:
        OSError: The directory cannot be read.
    """
    return tuple(sorted(entry.name for entry in model.iterdir() if not _is_of_a_version(entry)))


def _is_of_a_version(entry: Path) -> bool:
    if entry.is_symlink():  # its target is not in the signed directory
        return False
    if is_directory(entry):
        if entry.name in DATA_DIRECTORIES:
            return all(is_named_file(file.name) and not file.is_symlink() for file in entry.iterdir())
        # Triton also reads "1x" as version 1
        return entry.name.startswith(".") or _is_number(entry.name)
    return entry.name in {CONFIG_FILE, ADOPTED_CONFIG} or entry.name.startswith(".") or is_named_file(entry.name)


def _is_number(name: str) -> bool:
    """Return whether a directory's name is the number of a version; one that is too large crashes Triton."""
    is_decimal = name.isascii() and name.isdecimal() and not (name.startswith("0") and name != "0")
    return is_decimal and not overflows(int(name))


def _require_bounded(version_dir: Path) -> None:
    """Require that a version has only files whose size is known or limited: the library reads all of them."""
    if problem := unsignable(version_dir, read_manifest(version_dir)):
        raise ValueError(problem)
    for name in (name for name in ATTESTATION_FILES if os.path.lexists(version_dir / name)):
        read_bytes(version_dir / name)


def _not_covered(version_dir: Path) -> str:
    """Return the name of a file with content that a signature does not cover; empty if there is none."""
    for name in (_BYTECODE, _NEW_FILE):
        if os.path.lexists(version_dir / name):
            return f"{SIGNATURE_FILE} does not cover {name}: delete it"
    unconfirmed = version_dir / UNCONFIRMED_FILE
    if os.path.lexists(unconfirmed) and read_bytes(unconfirmed):
        return f"{SIGNATURE_FILE} does not cover {UNCONFIRMED_FILE}, which is not empty: delete it"
    return ""


def _library() -> tuple[Any, Any]:
    try:
        from model_signing import signing, verifying  # noqa: PLC0415 - imports sigstore, which few commands need
    except ImportError as error:
        raise MissingExtraError("model-signing is not installed", install_command("sign")) from error
    return signing, verifying


def _hashing(version_dir: Path) -> Any:  # noqa: ANN401 - an optional package
    from model_signing import hashing  # noqa: PLC0415 - as above

    names = (SIGNATURE_FILE, _NEW_FILE, UNCONFIRMED_FILE, _BYTECODE)
    paths = [version_dir / name for name in names]
    config: Any = hashing
    return config.Config().use_file_serialization().set_ignored_paths(paths=paths, ignore_git_paths=False)


def _digests(version_dir: Path) -> dict[str, str]:
    """Return the sha256 of each file that a signature covers: as the manifest states it, where it lists the file."""
    others = (name for name in (MANIFEST_FILE, *ATTESTATION_FILES) if name != SIGNATURE_FILE)
    present = {name: sha256_file(version_dir / name) for name in others if os.path.lexists(version_dir / name)}
    return present | {record.path: record.sha256 for record in read_manifest(version_dir).files}


def _with_digests(hashing: Any, version_dir: Path, digests: Mapping[str, str]) -> Any:  # noqa: ANN401 - as above
    """Return a hashing config that requires digests: the library reads files by their paths."""
    hash_files = hashing.hash

    def required(path: Path) -> Any:  # noqa: ANN401 - as above
        hashed = hash_files(path)
        if {each.identifier: each.digest.digest_hex for each in hashed.resource_descriptors()} != digests:
            raise PublishError(
                f"{version_dir.parent.name} version {version_dir.name} was not signed: its files differ from the "
                "manifest, or another process replaced them in the meantime",
                "run `repogen verify`, and then the command again",
                code="sign.damaged",
            )
        return hashed

    hashing.hash = required
    return hashing


def _with_signer(config: Any, key: SigningKey) -> Any:  # noqa: ANN401 - an optional package
    """Return a config that signs with a key.

    Raises:
        SpecError: The key or its certificate cannot be read.
    """
    try:
        return _signer_config(config, key)
    except Exception as error:  # the library raises errors of many packages
        if key.private_key is None:  # of sigstore, whose root of trust is downloaded
            raise
        names = " with ".join(str(path) for path in (key.private_key, key.certificate) if path is not None)
        problem = reason(error) if isinstance(error, OSError) else f"{names}: {_key_problem(error)}"
        password = f"the password of an encrypted key is read from {PASSWORD_VARIABLE}"
        encryption = password if key.certificate is None else "a key with a certificate cannot be encrypted"
        raise SpecError(
            f"the signing key cannot be used: {problem}",
            f"use a PEM file of an elliptic-curve key, such as `openssl ecparam -name prime256v1 -genkey -noout` "
            f"writes; {encryption}",
            code="sign.key",
        ) from error


def _key_problem(error: Exception) -> str:
    """Return why a key cannot be used: the library reads the curve of keys that have none, such as RSA keys."""
    return "it is not an elliptic-curve key" if isinstance(error, AttributeError) else first_line(error)


def _signer_config(config: Any, key: SigningKey) -> Any:  # noqa: ANN401 - an optional package
    if key.private_key is None:
        return config.use_sigstore_signer(use_ambient_credentials=True)
    _require_small_files(key.private_key, *(() if key.certificate is None else (key.certificate,)), *key.chain)
    if key.certificate is not None:
        return config.use_certificate_signer(
            private_key=key.private_key,
            signing_certificate=key.certificate,
            certificate_chain=key.chain or (key.certificate,),  # the library does not accept an empty chain
        )
    password = os.environ.get(PASSWORD_VARIABLE)
    secret = None if password is None else password.encode()
    return config.use_elliptic_key_signer(private_key=key.private_key, password=secret)


def _with_verifier(config: Any, signer: TrustedSigner) -> Any:  # noqa: ANN401 - an optional package
    _require_small_files(*(() if signer.public_key is None else (signer.public_key,)), *signer.certificates)
    if signer.public_key is not None:
        return config.use_elliptic_key_verifier(public_key=signer.public_key)
    if signer.certificates:
        return config.use_certificate_verifier(certificate_chain=signer.certificates)
    return config.use_sigstore_verifier(identity=signer.identity, oidc_issuer=signer.issuer)


def _require_small_files(*paths: Path) -> None:
    """Require regular files of at most 16 MiB: the library would wait for a FIFO, and read a device without an end.

    Raises:
        OSError: One is another file, is larger, or cannot be read.
    """
    for path in paths:
        read_bytes(path)


def require_signature(version_dir: Path, name: str, signer: TrustedSigner | None, number: int | None = None) -> None:
    """Require the signature of a version whose files match its manifest, if there is a ``signer``.

    Args:
        version_dir: A version directory.
        name: The model that it must be a version of: a signature is also valid in the directory of another model.
        signer: Whose signature is required; None to require none.
        number: The version for messages, if the directory is a copy with another number.

    Raises:
        PublishError: The version is not signed, or not by ``signer``; or it is one of another model.
        RepogenError: The signature cannot be verified on this machine.
    """
    if signer is None:
        return
    problem = verify_signature(version_dir, signer)
    if not problem and (model := read_manifest(version_dir).model) != name:
        problem = f"its manifest is that of a version of {model}"
    if problem:
        raise _rejected(f"{name} version {number or version_dir.name}", problem)


def require_signed_model(model: Path, versions: Sequence[int], signer: TrustedSigner | None) -> None:
    """Require that all files that Triton reads in a model's directory are in signed versions, if there is a ``signer``.

    Args:
        model: The model's directory.
        versions: The versions that Triton serves; their files match their manifests.
        signer: Whose signatures are required; None to require none.

    Raises:
        PublishError: A version is not signed by ``signer``, the model's config.pbtxt or a file that it names is not
            that of a signed version, or the directory contains something else. Or another user created the directory,
            or a version in it, and could replace files after this check.
        RepogenError: A signature cannot be verified on this machine.
    """
    if signer is None:
        return
    require_own_directories(model)
    for version in versions:
        require_signature(model / str(version), model.name, signer)
    try:
        origin = origin_of_config(model)
        if origin is None:
            raise _rejected(model.name, f"{CONFIG_FILE} is not a copy of any version's")
        own = config_bytes(model / str(origin))
        origin = next((version for version in versions if config_bytes(model / str(version)) == own), origin)
        if origin not in versions:
            require_signature(model / str(origin), model.name, signer)
        if damage := damaged_named_files(model, read_manifest(model / str(origin)).files):
            raise _rejected(model.name, "; ".join(damage))
        _require_signed_entries(model)
    except OSError as error:
        raise _unreadable(model, error) from error


def require_signed_directory(model: Path | None, signer: TrustedSigner | None) -> None:
    """Require that a model's directory has no files that do not belong to its versions, if there is a ``signer``.

    Args:
        model: The directory that gets a version, if there is one; its config.pbtxt is replaced.
        signer: Whose signatures are required; None to require none.

    Raises:
        PublishError: There is such a file, or the directory cannot be read.
    """
    if signer is None or model is None:
        return
    try:
        if is_directory(model):
            _require_signed_entries(model)
    except OSError as error:
        raise _unreadable(model, error) from error


def _require_signed_entries(model: Path) -> None:
    if names := unsigned_entries(model):
        problem = f"its directory has files that are not signed: {', '.join(names)}"
        raise _rejected(model.name, problem, "delete these files; `repogen verify` shows all differences")


def _unreadable(model: Path, error: OSError) -> PublishError:
    return _rejected(model.name, f"its directory cannot be read: {reason(error)}")


def _rejected(name: str, problem: str, hint: str = _SIGN_HINT) -> PublishError:
    return PublishError(f"{name} is rejected: {problem}", hint, code=SIGNATURE_CODE)

"""Versions are signed, their signatures are verified, and every change after signing is found."""

from __future__ import annotations

import base64
import datetime as dt
import errno
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from model_signing._signing import sign_sigstore_pb

import repogen
from repogen.artifacts.attestation import BuildRun, SigningKey, TrustedSigner
from repogen.artifacts.deployment import DeployOptions
from repogen.artifacts.progress import Silent
from repogen.artifacts.sync import SyncAction, SyncOptions
from repogen.attestation import signature
from repogen.attestation.signature import (
    PASSWORD_VARIABLE,
    require_key,
    require_signature,
    require_signed_model,
    sign_version,
    verify_signature,
)
from repogen.attestation.statement import statement
from repogen.cli.group import main
from repogen.deploy.deploy import deploy
from repogen.errors import PublishError, RepogenError, SpecError
from repogen.registry.sync.sync import sync
from repogen.repository.filesystem import opened_directory
from repogen.repository.inventory import read_model
from repogen.repository.layout import archive_dir
from repogen.repository.manifest import manifest_to_json, read_manifest
from repogen.serving.environment import without_secrets
from tests.support.keys import write_keys
from tests.support.published import Publisher
from tests.support.scaled_models import Scaled, publish_scaled
from tests.support.simulated_registry import SimulatedRegistry
from tests.support.swapping import swap_when_opened

if TYPE_CHECKING:
    from collections.abc import Callable

    from repogen.artifacts.registry import RegistryEntry


RUN = BuildRun("urn:repogen:local", "", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z")


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    """Return what publishes into a repository that does not exist yet."""
    return Publisher(tmp_path / "place" / "repo")


CHANGES: dict[str, Callable[[Path], object]] = {
    "a file": lambda version: (version / "model.onnx").write_bytes(b"x"),
    "another file": lambda version: (version / "more").touch(),
    "a removed file": lambda version: (version / "golden.npz").unlink(),
    "the manifest": lambda version: (version / "manifest.json").write_bytes(
        (version / "manifest.json").read_bytes() + b" "
    ),
    "the attestation": lambda version: (version / "attestation.json").write_text("{}"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_after_signing_are_found(publisher: Publisher, tmp_path: Path, change: str) -> None:
    """The signature covers every file of the version."""
    publisher.publish()
    version = publisher.repository / "m" / "1"
    key, signer = write_keys(tmp_path)
    assert repogen.sign("m", key=key, repository=publisher.repository).version == 1
    assert repogen.verify(publisher.repository, signer=signer).findings == ()
    CHANGES[change](version)
    with pytest.raises(PublishError, match="is not valid") as caught:
        require_signature(version, "m", signer)
    assert caught.value.code == "verify.signature"


def test_version_that_would_be_read_without_end_is_not_signed(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library reads all files of a directory, and each of thousands of links to a large file again."""
    publisher.publish()
    version = publisher.repository / "m" / "1"
    key, signer = write_keys(tmp_path)
    _sparse(version / "more")
    with pytest.raises(PublishError, match=r"^m version 1 .* not signed: manifest.json does not list more$") as caught:
        repogen.sign("m", key=key, repository=publisher.repository)
    assert caught.value.code == "sign.damaged"
    (version / "more").unlink()
    (version / "model.sig.new").touch()  # of a command that was killed; it is replaced
    repogen.sign("m", key=key, repository=publisher.repository)
    assert verify_signature(version, signer) == ""
    manifest = read_manifest(version)
    record = next(record for record in manifest.files if record.path == "model.onnx")
    links = tuple(replace(record, path=f"link{number}") for number in range(8))
    for link in links:
        (version / link.path).hardlink_to(version / "model.onnx")
    text = manifest_to_json(replace(manifest, files=(*manifest.files, *links)))
    (version / "manifest.json").write_text(text)
    repogen.sign("m", key=key, repository=publisher.repository)
    assert verify_signature(version, signer) == ""
    monkeypatch.setattr("repogen.repository.manifest._MAX_REPEATED_BYTES", 7 * record.size - manifest.size)
    message = "several links lead to the same files: "
    assert message in verify_signature(version, signer)
    with pytest.raises(PublishError, match=message):
        repogen.sign("m", key=key, repository=publisher.repository)


def _write(path: Path, text: str = "import os\n") -> None:
    """Append to a file."""
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        stream.write(text)


def _sparse(path: Path) -> None:
    """Write a file that takes hours to read, and no space."""
    with path.open("wb") as stream:
        stream.truncate(2**43)


@pytest.mark.parametrize("name", ["planted", "attestation.json"])
def test_file_that_is_not_part_of_a_version_is_not_signed(publisher: Publisher, tmp_path: Path, name: str) -> None:
    """It is not read either: it could have any size."""
    publisher.publish()
    version = publisher.repository / "m" / "1"
    key, _ = write_keys(tmp_path)
    _sparse(version / name)
    with pytest.raises(PublishError) as caught:
        repogen.sign("m", key=key, repository=publisher.repository)
    assert caught.value.code == "sign.damaged"
    assert not (version / "model.sig").exists()


def _unsigned_version(model: Path) -> None:
    """Add a version that is not served, and whose config.pbtxt is used."""
    shutil.copytree(model / "1", model / "2")
    config = (model / "config.pbtxt").read_text(encoding="utf-8")
    config += 'parameters { key: "a" value { string_value: "b" } }\nversion_policy { specific { versions: 1 } }\n'
    for path in (model / "config.pbtxt", model / "2" / "config.pbtxt"):
        path.write_text(config, encoding="utf-8")


UNCOVERED: dict[str, Callable[[Path], object]] = {
    "bytecode": lambda version: _write(version / "__pycache__" / "model.cpython-312.pyc"),
    "unconfirmed": lambda version: _write(version / "unconfirmed"),
    "a signature that was not completed": lambda version: _write(version / "model.sig.new"),
    "a file without end": lambda version: _sparse(version / "more"),
    "a bill of materials without end": lambda version: _sparse(version / "sbom.cdx.json"),
}


@pytest.mark.parametrize("change", UNCOVERED)
def test_files_that_a_signature_does_not_cover_are_not_accepted(
    publisher: Publisher, tmp_path: Path, change: str
) -> None:
    """Python runs bytecode instead of model.py, and a config.pbtxt may name any file as the model."""
    publisher.publish()
    key, signer = write_keys(tmp_path)
    repogen.sign("m", key=key, repository=publisher.repository)
    version = publisher.repository / "m" / "1"
    (version / "unconfirmed").touch()
    require_signature(version, "m", signer)
    UNCOVERED[change](version)
    with pytest.raises(PublishError, match=r"(does not cover|is not valid)"):
        require_signature(version, "m", signer)


def test_version_of_another_model_is_not_accepted(publisher: Publisher, tmp_path: Path) -> None:
    """A signature does not contain the name of the directory."""
    publisher.publish()
    key, signer = write_keys(tmp_path)
    repogen.sign("m", key=key, repository=publisher.repository)
    other = shutil.copytree(publisher.repository / "m", publisher.repository / "other")
    with pytest.raises(PublishError, match="its manifest is that of a version of m"):
        require_signature(other / "1", "other", signer)


MODEL_CHANGES: dict[str, Callable[[Path], object]] = {
    "an edited config": lambda model: _write(model / "config.pbtxt", 'parameters { key: "a" }\n'),
    "the config of an unsigned version": _unsigned_version,
    "a module": lambda model: _write(model / "1.py"),
    "a stub": lambda model: _write(model / "triton_python_backend_stub"),
    "a module next to warmup data": lambda model: _write(model / "warmup" / "more.py"),
    "a version whose number crashes Triton": lambda model: (model / str(2**63)).mkdir(),
    "another directory of version 1": lambda model: _write(model / "1x" / "model.onnx"),
}


@pytest.mark.parametrize("change", MODEL_CHANGES)
def test_deploy_accepts_nothing_unsigned_next_to_signed_versions(tmp_path: Path, change: str) -> None:
    """Triton reads config.pbtxt and modules from the model's directory, which no signature covers."""
    repository = tmp_path / "repository"
    publish_scaled(repository, "m", Scaled(1.0))
    key, signer = write_keys(tmp_path)
    repogen.sign("m", key=key, repository=repository)
    options = DeployOptions((f"unix:{tmp_path}/absent",), signer=signer, timeout=0.1)
    (server,) = deploy(repository, options, Silent()).servers
    assert server.error is not None
    assert server.error.code != "verify.signature"
    MODEL_CHANGES[change](repository / "m")
    with pytest.raises(RepogenError) as caught:
        deploy(repository, options, Silent())
    assert caught.value.code in {"verify.signature", "deploy.not-admitted"}
    assert repogen.verify(repository, signer=signer).findings


def test_other_and_missing_signatures_are_findings(publisher: Publisher, tmp_path: Path) -> None:
    """`verify` reports them only if a signature is required."""
    publisher.publish()
    publisher.publish(weights=b"2")
    key, signer = write_keys(tmp_path)
    _, other = write_keys(tmp_path, "other")
    repogen.sign("m", 2, key=key, repository=publisher.repository)
    assert repogen.verify(publisher.repository).findings == ()
    assert repogen.verify(publisher.repository).signed == 1
    (unsigned,) = repogen.verify(publisher.repository, signer=signer).findings
    assert (unsigned.version, unsigned.message) == (1, "it is not signed: model.sig is missing")
    wrong, missing = repogen.verify(publisher.repository, signer=other).findings
    assert (wrong.version, missing.version) == (2, 1)
    assert wrong.message.startswith("model.sig is not valid: Key mismatch")
    for number in "12":
        (publisher.repository / "m" / number / "x.txt").touch()
    messages = [(each.version, each.message) for each in repogen.verify(publisher.repository, signer=signer).findings]
    assert messages == [
        (2, "x.txt is not listed in the manifest"),
        (1, "x.txt is not listed in the manifest"),
        (1, "it is not signed: model.sig is missing"),
    ]
    (model,) = repogen.versions("m", repository=publisher.repository).models
    assert [version.signed for version in model.versions] == [True, False]


def test_signature_of_another_version_names_the_files_that_differ(publisher: Publisher, tmp_path: Path) -> None:
    """It is short: no digests."""
    publisher.publish()
    publisher.publish(weights=b"2")
    key, signer = write_keys(tmp_path)
    repogen.sign("m", 1, key=key, repository=publisher.repository)
    model = publisher.repository / "m"
    shutil.copy(model / "1" / "model.sig", model / "2")
    (finding,) = repogen.verify(publisher.repository, signer=signer).findings
    assert finding.version == 2
    assert re.fullmatch(r"model\.sig is not valid: it was made for other content of [\w., ]+", finding.message)


@pytest.mark.parametrize("hostile", ["fifo", "directory", "link", "garbage", "empty"])
def test_hostile_signatures_are_findings(publisher: Publisher, tmp_path: Path, hostile: str) -> None:
    """None is waited for, followed out of memory limits, or a bug of repogen."""
    publisher.publish()
    path = publisher.repository / "m" / "1" / "model.sig"
    if hostile == "fifo":
        os.mkfifo(path)
    elif hostile == "directory":
        path.mkdir()
    elif hostile == "link":
        path.symlink_to("/dev/zero")
    else:
        path.write_text("{" if hostile == "garbage" else "")
    _, signer = write_keys(tmp_path)
    (finding,) = repogen.verify(publisher.repository, signer=signer).findings
    assert finding.message.startswith("model.sig is not valid")


def test_encrypted_key_needs_its_password(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read from the environment, and a wrong one is a clear error."""
    publisher.publish()
    key, signer = write_keys(tmp_path, password=b"5ecret")
    with pytest.raises(SpecError, match="signing key cannot be used"):
        repogen.sign("m", key=key, repository=publisher.repository)
    monkeypatch.setenv(PASSWORD_VARIABLE, "wrong")
    with pytest.raises(SpecError) as caught:
        repogen.sign("m", key=key, repository=publisher.repository)
    assert (caught.value.code, "wrong" in caught.value.message) == ("sign.key", False)
    monkeypatch.setenv(PASSWORD_VARIABLE, "5ecret")
    repogen.sign("m", key=key, repository=publisher.repository)
    assert repogen.verify(publisher.repository, signer=signer).findings == ()


@pytest.mark.parametrize("name", ["m", "m/1"])
def test_directory_of_another_user_is_not_accepted(publisher: Publisher, tmp_path: Path, name: str) -> None:
    """Its files could be replaced after the signature was verified, if all users can create files next to it."""
    publisher.publish()
    repository = publisher.repository
    key, signer = write_keys(tmp_path)
    repogen.sign("m", key=key, repository=repository)
    (repository / name).parent.chmod(0o1777)
    require_signed_model(repository / "m", (1,), signer)
    assert repogen.verify(repository, signer=signer).findings == ()
    os.chown(repository / name, 65534, -1)
    message = f"{repository / name} belongs to another user, who could replace the files in it"
    with pytest.raises(PublishError) as caught:
        require_signed_model(repository / "m", (1,), signer)
    assert (caught.value.code, caught.value.message) == ("publish.foreign-model", message)
    assert [finding.message for finding in repogen.verify(repository, signer=signer).findings] == [message]
    assert repogen.verify(repository).findings == ()
    with pytest.raises(PublishError, match=re.escape(message)):
        repogen.sign("m", key=key, repository=repository)


def test_attestation_of_other_files_is_not_signed(publisher: Publisher, tmp_path: Path) -> None:
    """`verify` reports it as well."""
    publisher.publish()
    manifest = read_manifest(publisher.repository / "m" / "1")
    other = replace(manifest, files=tuple(replace(file, sha256="0" * 64) for file in manifest.files))
    attestation = publisher.repository / "m" / "1" / "attestation.json"
    attestation.write_text(statement(other, RUN, "0" * 64))
    key, _ = write_keys(tmp_path)
    (message, *_) = (finding.message for finding in repogen.verify(publisher.repository).findings)
    with pytest.raises(PublishError, match=re.escape(message)) as caught:
        repogen.sign("m", key=key, repository=publisher.repository)
    assert caught.value.code == "sign.damaged"
    attestation.write_text(statement(manifest, RUN, "0" * 64))
    repogen.sign("m", key=key, repository=publisher.repository)


def test_version_that_is_not_served_need_not_be_signed(publisher: Publisher, tmp_path: Path) -> None:
    """Also if it has the same config.pbtxt as the one that is served."""
    publisher.publish()
    model = publisher.repository / "m"
    shutil.copytree(model / "1", model / "2")
    key, signer = write_keys(tmp_path)
    repogen.sign("m", 1, key=key, repository=publisher.repository)
    require_signed_model(model, (1,), signer)
    with pytest.raises(PublishError, match="version 2 is rejected: it is not signed"):
        require_signed_model(model, (1, 2), signer)


def test_password_is_not_inherited() -> None:
    """Code of the spec and of models has no use for it."""
    assert without_secrets({PASSWORD_VARIABLE: "5ecret", "HOME": "/"}) == {"HOME": "/"}


@pytest.mark.parametrize(
    "name", ["ACTIONS_ID_TOKEN_REQUEST_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_URL", "SIGSTORE_ID_TOKEN"]
)
def test_identity_of_a_job_is_not_inherited(name: str) -> None:
    """Code of a model could sign other files as the CI job."""
    assert without_secrets({name: "5ecret", "HOME": "/"}) == {"HOME": "/"}


@pytest.mark.parametrize("path", ["missing.pub", ".", "fifo", "/dev/zero"])
def test_key_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """The message says why, without the number of the error."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    for signer in (TrustedSigner(Path(path)), TrustedSigner(certificates=(Path(path),))):
        with pytest.raises(SpecError) as caught:
            verify_signature(tmp_path, signer)
        assert "Errno" not in caught.value.message
        assert path in caught.value.message
    with pytest.raises(SpecError, match=path) as caught:
        require_key(SigningKey(Path(path)))
    assert caught.value.code == "sign.key"


@pytest.mark.parametrize("algorithm", ["rsa", "ed25519"])
def test_key_of_another_algorithm(tmp_path: Path, algorithm: str) -> None:
    """The library expects the curve of a key, which other keys do not have."""
    private = ed25519.Ed25519PrivateKey.generate() if algorithm == "ed25519" else rsa.generate_private_key(65537, 2048)
    pem, encoding = tmp_path / "key.pem", serialization.Encoding.PEM
    pkcs8, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem.write_bytes(private.private_bytes(encoding, pkcs8, plain))
    with pytest.raises(SpecError, match="it is not an elliptic-curve key") as caught:
        require_key(SigningKey(pem))
    assert caught.value.code == "sign.key"
    pem.write_bytes(private.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(SpecError, match="it is not an elliptic-curve key") as caught:
        verify_signature(tmp_path, TrustedSigner(pem))
    assert caught.value.code == "verify.key"


@pytest.mark.parametrize("has_chain", [True, False])
def test_certificates(publisher: Publisher, tmp_path: Path, *, has_chain: bool) -> None:
    """A key with a certificate is accepted through the root that issued it, and through no other."""
    publisher.publish()
    roots = [_certificate(tmp_path, f"root{number}", None) for number in (1, 2)]
    leaf = _certificate(tmp_path, "leaf", roots[0])
    key = SigningKey(leaf[1], leaf[0], (roots[0][0],) if has_chain else ())
    repogen.sign("m", key=key, repository=publisher.repository)
    report = [repogen.verify(publisher.repository, signer=TrustedSigner(certificates=(root[0],))) for root in roots]
    assert [len(each.findings) for each in report] == [0, 1]
    only_key, public = write_keys(tmp_path)
    (finding,) = repogen.verify(publisher.repository, signer=public).findings
    assert finding.message == "model.sig is not valid: it is damaged, or was not made with a key"
    repogen.sign("m", key=only_key, repository=publisher.repository)
    (finding,) = repogen.verify(publisher.repository, signer=TrustedSigner(certificates=(roots[0][0],))).findings
    assert finding.message == "model.sig is not valid: it is damaged, or was not made with a certificate"


def test_key_with_a_certificate_must_not_be_encrypted(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password would have no effect, so the hint does not mention it."""
    publisher.publish()
    certificate, _ = _certificate(tmp_path, "leaf", _certificate(tmp_path, "root", None))
    key, _ = write_keys(tmp_path, password=b"5ecret")
    monkeypatch.setenv(PASSWORD_VARIABLE, "5ecret")
    with pytest.raises(SpecError, match="signing key cannot be used") as caught:
        repogen.sign("m", key=replace(key, certificate=certificate, chain=()), repository=publisher.repository)
    assert "a key with a certificate cannot be encrypted" in caught.value.hint


def test_full_disk_while_a_version_is_signed(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint is not about keyless signing."""
    publisher.publish()
    key, _ = write_keys(tmp_path)

    def write(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(signature, "_write", write)
    with pytest.raises(PublishError) as caught:
        repogen.sign("m", key=key, repository=publisher.repository)
    assert (caught.value.code, caught.value.hint.partition(",")[0]) == ("sign.failed", "free disk space")


def test_version_is_not_signed_in_a_directory_of_another_user(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is about the directory of temporary files, as for other commands."""
    publisher.publish()
    key, _ = write_keys(tmp_path)
    foreign = tmp_path / "temporary"
    foreign.mkdir()
    os.chown(foreign, 65534, -1)
    monkeypatch.setattr("tempfile.tempdir", str(foreign))
    with pytest.raises(SpecError) as caught:
        repogen.sign("m", key=key, repository=publisher.repository)
    assert caught.value.code == "temporary-directory.foreign"


def test_copies_keep_their_signature(publisher: Publisher, tmp_path: Path) -> None:
    """`publish` copies it, and rejects a version without one before the target is changed."""
    publisher.publish()
    key, signer = write_keys(tmp_path)
    target = tmp_path / "target"
    with pytest.raises(PublishError, match="is not signed"):
        repogen.publish("m", source=publisher.repository, target=target, signer=signer)
    assert not (target / "m").exists()
    repogen.sign("m", key=key, repository=publisher.repository)
    repogen.publish("m", source=publisher.repository, target=target, signer=signer)
    assert repogen.verify(target, signer=signer).findings == ()


def test_rejected_version_has_the_number_of_the_source(publisher: Publisher, tmp_path: Path) -> None:
    """The copy that is checked has the next number of the target."""
    publisher.publish()
    publisher.publish(weights=b"2")
    _, signer = write_keys(tmp_path)
    with pytest.raises(PublishError, match="m version 2 is rejected: it is not signed"):
        repogen.publish("m", source=publisher.repository, target=tmp_path / "target", signer=signer)


def test_publish_rejects_unsigned_files_next_to_the_version(publisher: Publisher, tmp_path: Path) -> None:
    """A Python model imports modules from the model's directory, which `publish` does not replace."""
    publisher.publish()
    key, signer = write_keys(tmp_path)
    repogen.sign("m", key=key, repository=publisher.repository)
    target = Publisher(tmp_path / "target").repository
    repogen.publish("m", source=publisher.repository, target=target, signer=signer)
    publisher.publish(weights=b"2")
    repogen.sign("m", key=key, repository=publisher.repository)
    _write(target / "m" / "numpy.py")
    with pytest.raises(PublishError, match=r"its directory has files that are not signed: numpy\.py") as caught:
        repogen.publish("m", source=publisher.repository, target=target, signer=signer)
    assert caught.value.hint.startswith("delete these files")
    assert not (target / "m" / "2").exists()
    repogen.publish("m", source=publisher.repository, target=target)
    assert (target / "m" / "2").is_dir()


def _zero(model: Path) -> None:
    path = model / "1" / "model.onnx"
    path.write_bytes(bytes(path.stat().st_size))


def _sign_with_other_key(model: Path) -> None:
    key, _ = write_keys(model.parent.parent, "other")
    repogen.sign("m", key=key, repository=model.parent)


@pytest.mark.parametrize(
    "change",
    [
        _zero,
        _sign_with_other_key,
        lambda model: (model / "1" / "model.sig").unlink(),
        lambda model: _write(model / "1" / "evil.so"),
    ],
)
def test_publish_does_not_accept_a_changed_version_of_the_target(
    publisher: Publisher, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """Its manifest is equal, but the version is not that of the signer: another one is published."""
    publisher.publish()
    key, signer = write_keys(tmp_path)
    repogen.sign("m", key=key, repository=publisher.repository)
    target = Publisher(tmp_path / "target").repository
    first, again = (
        repogen.publish("m", source=publisher.repository, target=target, signer=signer).versions[0] for _ in range(2)
    )
    assert [(each.number, each.published) for each in (first, again)] == [(1, True), (1, False)]
    change(target / "m")
    repaired = repogen.publish("m", source=publisher.repository, target=target, signer=signer).versions[0]
    assert (repaired.number, repaired.published) == (2, True)
    assert verify_signature(target / "m" / "2", signer) == ""
    assert read_model(target, "m").newest_served == 2


def test_publish_does_not_accept_a_changed_config_of_the_target(publisher: Publisher, tmp_path: Path) -> None:
    """No version is signed with it."""
    publisher.publish()
    key, signer = write_keys(tmp_path)
    repogen.sign("m", key=key, repository=publisher.repository)
    target = Publisher(tmp_path / "target").repository
    repogen.publish("m", source=publisher.repository, target=target, signer=signer)
    with (target / "m" / "config.pbtxt").open("a") as config:
        config.write('parameters { key: "a" value { string_value: "b" } }\n')
    with pytest.raises(PublishError) as caught:
        repogen.publish("m", source=publisher.repository, target=target, signer=signer)
    assert caught.value.code == "publish.edited-config"


def test_publish_does_not_accept_a_damaged_version_of_the_target(publisher: Publisher, tmp_path: Path) -> None:
    """Also without a required signature."""
    publisher.publish()
    target = Publisher(tmp_path / "target").repository
    repogen.publish("m", source=publisher.repository, target=target)
    _zero(target / "m")
    assert repogen.publish("m", source=publisher.repository, target=target).versions[0].number == 2


@pytest.mark.parametrize("place", ["repository", "archive"])
def test_sync_rejects_unsigned_files_next_to_the_version(publisher: Publisher, tmp_path: Path, place: str) -> None:
    """They are in the model's directory, which is served, or in the archive, from which it is served again."""
    registry = SimulatedRegistry(tmp_path / "registry")
    built = Publisher(tmp_path / "built" / "repo")
    key, signer = write_keys(tmp_path)
    entries: list[RegistryEntry] = []
    for weights in (b"1", b"2"):
        built.publish(weights=weights)
        entries.append(registry.register(built.repository / "m" / str(len(entries) + 1), "champion"))
        sign_version(registry.artifacts(entries[-1]), key)
    options = SyncOptions("champion", signer=signer)
    (synced,) = sync(registry, publisher.repository, options, Silent()).versions
    assert synced.action is SyncAction.PUBLISHED
    if place == "archive":
        registry.point("m", "champion", None)
        (removed,) = sync(registry, publisher.repository, options, Silent()).versions
        assert removed.action is SyncAction.UNSERVED
    model = publisher.repository if place == "repository" else archive_dir(publisher.repository)
    _write(model / "m" / "numpy.py")
    registry.point("m", "champion", 1)
    (failed,) = sync(registry, publisher.repository, options, Silent()).versions
    assert failed.error is not None
    assert (failed.action, failed.error.code) == (SyncAction.FAILED, "verify.signature")
    assert "numpy.py" in failed.error.message
    (model / "m" / "numpy.py").unlink()
    (synced,) = sync(registry, publisher.repository, options, Silent()).versions
    assert synced.action is SyncAction.PUBLISHED
    assert repogen.verify(publisher.repository, signer=signer).findings == ()


def test_sync_rejects_an_unsigned_version(publisher: Publisher, tmp_path: Path) -> None:
    """The model fails, and the repository is unchanged; a signed one is published with its signature."""
    registry = SimulatedRegistry(tmp_path / "registry")
    built = Publisher(tmp_path / "built" / "repo")
    built.publish()
    entry = registry.register(built.repository / "m" / "1", "champion")
    key, signer = write_keys(tmp_path)
    options = SyncOptions("champion", signer=signer)
    (failed,) = sync(registry, publisher.repository, options, Silent()).versions
    assert failed.error is not None
    assert (failed.action, failed.error.code) == (SyncAction.FAILED, "verify.signature")
    assert not (publisher.repository / "m").exists()
    sign_version(registry.artifacts(entry), key)
    (synced,) = sync(registry, publisher.repository, options, Silent()).versions
    assert synced.action is SyncAction.PUBLISHED
    assert repogen.verify(publisher.repository, signer=signer).findings == ()


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["sign", "m"], "sign.options"),
        (["sign", "m", "--sign-keyless", "--sign-key", "key"], "sign.options"),
        (["sign", "m", "--sign-certificate", "c"], "sign.options"),
        (["sign", "m", "--sign-key", "absent.pem"], "sign.key"),
        (["sign", "m@7", "--sign-key", "absent.pem"], "repository.no-such-version"),
        (["verify", "--require-signature"], "verify.signer"),
        (["verify", "--key", ""], "verify.signer"),
        (["verify", "--require-signature", "--certificate", ""], "verify.signer"),
        (["verify", "--identity", "", "--issuer", ""], "verify.signer"),
        (["verify", "--identity", "me", "--issuer", ""], "verify.signer"),
        (["verify", "--identity", "me"], "verify.signer"),
        (["verify", "--key", "a", "--certificate", "b"], "verify.signer"),
        (["verify", "--key", "absent.pub"], "verify.key"),
    ],
)
def test_wrong_options(publisher: Publisher, monkeypatch: pytest.MonkeyPatch, command: list[str], code: str) -> None:
    """Exit code 2, and nothing is written."""
    publisher.publish()
    publisher.repository.rename(publisher.repository.with_name("model_repository"))
    monkeypatch.chdir(publisher.repository.parent)
    result = CliRunner().invoke(main, [*command, "--json"])
    assert (result.exit_code, json.loads(result.stdout)["error"]["code"]) == (2, code), result.output
    assert not list(publisher.repository.parent.rglob("model.sig*"))


def _certificate(directory: Path, name: str, issuer: tuple[Path, Path] | None) -> tuple[Path, Path]:
    """Write a certificate and its key; without an issuer, a root."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer_key, issuer_name = key, subject
    if issuer is not None:
        loaded = serialization.load_pem_private_key(issuer[1].read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        issuer_key, issuer_name = loaded, x509.load_pem_x509_certificate(issuer[0].read_bytes()).subject
    now = dt.datetime.now(dt.UTC)
    is_root = issuer is None
    usage = x509.KeyUsage(
        digital_signature=not is_root,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_root,
        crl_sign=is_root,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_root, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if not is_root:
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
    certificate = builder.sign(issuer_key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    paths = directory / f"{name}.crt", directory / f"{name}.key"
    paths[0].write_bytes(certificate.public_bytes(pem))
    paths[1].write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return paths


@pytest.mark.parametrize("name", ["config.pbtxt", ".hidden", "warmup"])
def test_link_in_the_directory_of_a_model_is_not_signed(publisher: Publisher, tmp_path: Path, name: str) -> None:
    """Its target is elsewhere, and may change."""
    publisher.publish()
    key, signer = write_keys(tmp_path)
    repogen.sign("m", key=key, repository=publisher.repository)
    model, target = publisher.repository / "m", tmp_path / "target"
    if (model / name).exists():
        (model / name).rename(target)
    (model / name).symlink_to(target)
    findings = repogen.verify(publisher.repository, signer=signer).findings
    assert f"{name} is not part of a signed version" in [finding.message for finding in findings]


@pytest.mark.parametrize("link", ["m", "m/1"])
def test_version_of_another_repository_is_not_signed(publisher: Publisher, tmp_path: Path, link: str) -> None:
    """A link in a foreign repository would replace a signature elsewhere."""
    publisher.publish()
    key, _ = write_keys(tmp_path)
    repogen.sign("m", key=key, repository=publisher.repository)
    signature = publisher.repository / "m" / "1" / "model.sig"
    content = signature.read_bytes()
    foreign = tmp_path / "foreign"
    shutil.copytree(publisher.repository, foreign)
    shutil.rmtree(foreign / link)
    (foreign / link).symlink_to(publisher.repository / link)
    with pytest.raises(PublishError, match="is a symlink") as raised:
        repogen.sign("m", key=write_keys(tmp_path, "other")[0], repository=foreign)
    assert raised.value.code == "publish.symlink"
    assert signature.read_bytes() == content


def _replace(path: Path, target: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to(target)


@pytest.mark.parametrize("link", ["m", "m/1"])
@pytest.mark.parametrize("content", ["same", "other"])
@pytest.mark.parametrize("moment", ["before it is opened", "before it is hashed", "before it is written"])
def test_version_that_is_replaced_by_a_link_is_not_signed(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str, content: str, moment: str
) -> None:
    """Another user who can write to the repository has no signature written elsewhere, or for other files."""
    publisher.publish()
    private, replaced = tmp_path / "private", publisher.repository / link
    shutil.copytree(publisher.repository, private)
    (private / "m" / "1" / "model.sig").write_text("old")
    if content == "other":
        (private / "m" / "1" / "golden.npz").write_bytes(b"other")
    key, signer = write_keys(tmp_path)
    write, hashing = sign_sigstore_pb.Signature.write, signature._hashing  # noqa: SLF001 - called between two steps

    def writing(self: Any, path: Path) -> None:
        _replace(replaced, private / link)
        write(self, path)

    def configuring(version_dir: Path) -> object:
        _replace(replaced, private / link)
        return hashing(version_dir)

    if moment == "before it is opened":
        swap_when_opened(monkeypatch, publisher.repository / "m", replaced, private / link)
    elif moment == "before it is hashed":
        monkeypatch.setattr(signature, "_hashing", configuring)
    else:
        monkeypatch.setattr(sign_sigstore_pb.Signature, "write", writing)
    with pytest.raises(PublishError) as raised:
        repogen.sign("m", repository=publisher.repository, key=key)
    monkeypatch.undo()
    is_hashed = moment == "before it is hashed"
    codes = {(True, "m", "other"): "sign.damaged", (True, "m/1", "same"): "sign.failed"}
    codes[True, "m/1", "other"] = "sign.failed"  # of the library, which does not follow a link
    assert raised.value.code == codes.get((is_hashed, link, content), "publish.symlink")
    for file in publisher.repository.rglob("model.sig"):  # in the directory that was compared
        assert verify_signature(file.parent, signer) == ""
    assert (private / "m" / "1" / "model.sig").read_text() == "old"


def test_signature_states_the_same_with_and_without_a_descriptor(publisher: Publisher, tmp_path: Path) -> None:
    """The names of the version and of its files, and the digests, whatever path the directory was read by."""
    publisher.publish()
    version, (key, signer) = publisher.repository / "m" / "1", write_keys(tmp_path)
    statements = []
    with opened_directory(version) as opened:
        for path in (None, opened):
            sign_version(version, key, path)
            assert verify_signature(version, signer) == ""
            envelope = json.loads((version / "model.sig").read_text())["dsseEnvelope"]
            statements.append(json.loads(base64.b64decode(envelope["payload"])))
    assert statements[0] == statements[1]
    assert statements[0]["subject"][0]["name"] == "1"
    assert "model.onnx" in [each["name"] for each in statements[0]["predicate"]["resources"]]


def test_link_is_not_written_through(publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user who can write to the version's directory plants it while the library hashes the files."""
    publisher.publish()
    version, victim = publisher.repository / "m" / "1", tmp_path / "victim"
    victim.write_text("own")
    victim.chmod(0o600)
    key, signer = write_keys(tmp_path)
    write = sign_sigstore_pb.Signature.write

    def planting(self: Any, path: Path) -> None:
        (version / "model.sig.new").symlink_to(victim)
        write(self, path)

    monkeypatch.setattr(sign_sigstore_pb.Signature, "write", planting)
    sign_version(version, key)
    assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("own", 0o600)
    assert not (version / "model.sig").is_symlink()
    assert not os.path.lexists(version / "model.sig.new")
    assert verify_signature(version, signer) == ""


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_interrupted_signature_leaves_nothing(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Neither the new file nor a part of it; the old signature stays."""
    publisher.publish()
    version = publisher.repository / "m" / "1"
    key, signer = write_keys(tmp_path)
    sign_version(version, key)
    before = sorted(path.name for path in version.iterdir())

    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr("repogen.repository.filesystem.Disk.rename", failing)
    with pytest.raises((KeyboardInterrupt, PublishError)):
        sign_version(version, key)
    assert sorted(path.name for path in version.iterdir()) == before
    assert verify_signature(version, signer) == ""


def test_repository_that_cannot_be_locked(publisher: Publisher, tmp_path: Path) -> None:
    """As for another user, who cannot open the file of the lock."""
    publisher.publish()
    lock = publisher.repository / ".repogen.lock"
    lock.unlink()
    lock.symlink_to(tmp_path / "missing")
    with pytest.raises(PublishError) as caught:
        repogen.sign("m", repository=publisher.repository, key=write_keys(tmp_path)[0])
    assert caught.value.code == "sign.failed"


def test_few_open_files_are_not_an_invalid_signature(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version may be intact."""
    publisher.publish()
    version = publisher.repository / "m" / "1"
    key, signer = write_keys(tmp_path)
    sign_version(version, key)

    def exhausted(_version: Path) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(signature, "_require_bounded", exhausted)
    with pytest.raises(OSError, match="Too many"):
        verify_signature(version, signer)


def test_sigstore_that_does_not_respond(publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its root of trust is downloaded before a keyless signature is made or verified; it ended with exit code 70."""
    publisher.publish()
    version = publisher.repository / "m" / "1"
    sign_version(version, write_keys(tmp_path)[0])

    class TUFError(Exception):
        """As that of sigstore."""

    def failing(*_: object, **__: object) -> None:
        raise TUFError("Failed to refresh TUF metadata")

    monkeypatch.setattr("model_signing.signing.Config.use_sigstore_signer", failing)
    monkeypatch.setattr("model_signing.verifying.Config.use_sigstore_verifier", failing)
    with pytest.raises(PublishError, match="TUF") as signing:
        sign_version(version, SigningKey(None))
    assert signing.value.code == "sign.failed"
    with pytest.raises(SpecError, match="TUF") as verifying:
        verify_signature(version, TrustedSigner(identity="a", issuer="b"))
    assert verifying.value.code == "verify.key"

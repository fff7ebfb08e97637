"""A version that `repogen build` signs: in the repository, in MLflow, after a sync, and for OpenSSF's own tool."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Project

DESCRIPTIONS = {"attestation.json", "sbom.cdx.json", "model.sig"}


def write_keys(directory: Path, name: str) -> tuple[str, str]:
    """Write a key pair, and return the paths of the private and the public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    private, public = directory / f"{name}.pem", directory / f"{name}.pub"
    private.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    public.write_bytes(key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    return str(private), str(public)


def test_signed_version_in_repository_registry_and_sync(tmp_path: Path, new_project: Callable[[Path], Project]) -> None:
    """Required signatures are accepted with the right key only; nothing is published or deployed with another."""
    project = new_project(tmp_path)
    private, public = write_keys(tmp_path, "key")
    _, other = write_keys(tmp_path, "other")
    tracking = ("--tracking-uri", f"sqlite:///{tmp_path}/mlflow.db")
    built = project.invoke("build", "--no-smoke", "--sign-key", private, *tracking)
    assert built.returncode == 0, built.stdout + built.stderr
    version = project.repository / "tiny" / "1"
    assert {path.name for path in version.iterdir()} >= DESCRIPTIONS
    packages = {each["name"] for each in json.loads((version / "sbom.cdx.json").read_text())["components"]}
    assert {"torch", "onnx", "numpy", "triton-repogen"} <= packages

    command = ["verify", "key", str(version), "--signature", str(version / "model.sig"), "--public_key", public]
    ossf = subprocess.run(
        [sys.executable, "-m", "model_signing", *command], capture_output=True, text=True, check=False
    )
    assert ossf.returncode == 0, ossf.stdout + ossf.stderr

    client = f"mlflow.MlflowClient({tracking[1]!r}, {tracking[1]!r})"
    code = f"import mlflow; {client}.set_registered_model_alias('tiny', 'champion', '1')"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True)
    follow = ("sync", "--alias", "champion", "--repository", "production", *tracking)
    rejected = project.invoke(*follow, "--key", other)
    assert rejected.returncode == 7
    assert "model.sig is not valid" in rejected.stdout + rejected.stderr
    assert not (tmp_path / "production" / "tiny").exists()
    assert project.invoke(*follow, "--key", public).returncode == 0
    verified = project.invoke("verify", "production", "--key", public)
    assert (verified.returncode, "1 of 1 version signed" in verified.stdout) == (0, True)
    deployed = project.invoke("deploy", "--server", "127.0.0.1:9", "--key", other)
    assert deployed.returncode == 7, deployed.stdout + deployed.stderr

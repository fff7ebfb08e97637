"""``deploy/`` without a Docker engine: the real `docker compose config`, and the scripts."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from repogen.targets import DEFAULT_RELEASE

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SECRETS = ("postgres_password", "mlflow_admin_password", "mlflow_secret_key")
CONTENT = "5ecre7"


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the output of `docker compose config`, with secrets as in README.md."""
    folder = tmp_path_factory.mktemp("compose") / "deploy"
    shutil.copytree(DEPLOY, folder, ignore=shutil.ignore_patterns("secrets", "sync.env"))
    (folder / "secrets").mkdir()
    for name in SECRETS:
        (folder / "secrets" / name).write_text(CONTENT, encoding="utf-8")
    shutil.copy(folder / "sync.env.example", folder / "sync.env")
    spec = importlib.util.find_spec("compose")
    assert spec is not None
    assert spec.origin is not None
    binary = str(Path(spec.origin).parent / "docker-compose")
    command = [binary, "--file", str(folder / "compose.yaml"), "config", "--format", "json"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")
    assert CONTENT not in run.stdout
    document: dict[str, Any] = json.loads(run.stdout)
    return document


def test_triton_polls_a_read_only_repository(composed: dict[str, Any]) -> None:
    """The sync job writes the volume that Triton reads."""
    triton, sync = composed["services"]["triton"], composed["services"]["sync"]
    (mount,) = triton["volumes"]
    assert (mount["source"], mount["target"], mount["read_only"]) == ("models", "/models", True)
    assert {"--model-control-mode=poll", "--model-repository=/models"} <= set(triton["command"])
    (output,) = sync["volumes"]
    assert (output["source"], output["target"], "read_only" in output) == ("models", "/models", False)
    assert triton["image"] == f"nvcr.io/nvidia/tritonserver:{DEFAULT_RELEASE}-py3"


def test_ports_are_published_on_loopback_only(composed: dict[str, Any]) -> None:
    """The database's network is internal."""
    ports = [port for service in composed["services"].values() for port in service.get("ports", ())]
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}
    assert composed["networks"]["storage"]["internal"]
    assert list(composed["services"]["postgres"]["networks"]) == ["storage"]


def test_secrets_come_from_files(composed: dict[str, Any]) -> None:
    """No variable in the file contains a secret, and git ignores the files."""
    assert {Path(secret["file"]).parent.name for secret in composed["secrets"].values()} == {"secrets"}
    assert set(composed["secrets"]) == set(SECRETS)
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    assert re.findall(r"(?im)^\s*\S*(?:password|secret_key|token):\s*[^{\s]", text) == []
    assert (DEPLOY / ".gitignore").read_text(encoding="utf-8").split() == ["secrets/", "sync.env"]


def test_images_are_built_from_existing_files() -> None:
    """Every COPY names an existing path that the ignore file allows."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    sources = re.findall(r"(?m)^COPY (\S+) ", text)
    assert sources
    assert [source for source in sources if not (ROOT / source).exists()] == []
    allowed = re.findall(r"(?m)^!(\S+)", (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8"))
    assert [name for name in allowed if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("script", sorted(DEPLOY.glob("*.sh")), ids=lambda path: path.name)
def test_scripts_are_valid_shell(script: Path) -> None:
    """They are executable, and the shell can parse them."""
    assert script.stat().st_mode & 0o111 == 0o111
    run = subprocess.run(["/bin/sh", "-n", str(script)], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")

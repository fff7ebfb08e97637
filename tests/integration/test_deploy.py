"""``deploy/`` without a Docker engine: the real `docker compose config`, and the scripts."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import repogen
from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlMode
from repogen.serving import embedded
from repogen.serving.control import VARIABLE
from repogen.serving.servers import find_server
from repogen.targets import DEFAULT_RELEASE, targets
from tests.support.scaled_models import Scaled, publish_scaled

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SECRETS = ("control_header", "postgres_password", "mlflow_admin_password", "mlflow_secret_key")
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


def test_triton_reads_the_repository_that_sync_deploys(composed: dict[str, Any]) -> None:
    """The sync job writes the volume that Triton reads, and reaches Triton; both have the control header."""
    triton, sync = composed["services"]["triton"], composed["services"]["sync"]
    models, script = triton["volumes"]
    assert (models["source"], models["target"], models["read_only"]) == ("models", "/models", True)
    assert (Path(script["source"]).name, script["target"], script["read_only"]) == (
        "triton.sh",
        triton["command"][1],
        True,
    )
    (output,) = sync["volumes"]
    assert (output["source"], output["target"], "read_only" in output) == ("models", "/models", False)
    assert sync["environment"]["SYNC_REPOSITORY"] == "/models/prod"  # staging directories are next to it
    assert sync["environment"]["SYNC_SERVERS"] == "triton:8001"
    assert "serving" in sync["networks"]
    assert "/models/prod" in (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    for service in (triton, sync):
        assert "control_header" in {secret["source"] for secret in service["secrets"]}
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


def test_triton_script_starts_a_server_for_deploys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an empty repository; its control API requires the header of the secret."""
    repository = tmp_path / "models" / "prod"
    repository.mkdir(parents=True)
    (tmp_path / "control_header").write_text(f"repogen-control={CONTENT}\n", encoding="utf-8")
    monkeypatch.setenv("SECRETS", str(tmp_path))
    monkeypatch.setenv("REPOSITORY", str(repository))
    command = embedded.server_command

    def scripted(*arguments: Any) -> list[str]:
        """Run the script in place of tritonserver, with the options of the embedded server."""
        server, *options = command(*arguments)
        replaced = ("--model-", "--grpc-restricted", "--http-restricted", "--exit-on-error")
        own = [option for option in options if not option.startswith(replaced)]
        path = f"PATH={Path(server).parent}:{arguments[1].run_dir / 'bin'}:{os.environ['PATH']}"
        return ["env", path, "/bin/sh", str(DEPLOY / "triton.sh"), *own]

    monkeypatch.setattr(embedded, "server_command", scripted)
    with find_server("embedded", targets()[DEFAULT_RELEASE], Silent()).running(
        repository, ControlMode.EXPLICIT
    ) as triton:
        publish_scaled(repository, "scale", Scaled(1.0))
        deploy = partial(repogen.deploy, servers=[triton.endpoint.grpc], repository=repository)
        (error,) = deploy().servers[0].errors
        assert error.code == "smoke.control-header"
        monkeypatch.setenv(VARIABLE, f"repogen-control={CONTENT}")
        assert deploy().exit_code == 0


def test_triton_script_rejects_a_header_without_a_key(tmp_path: Path) -> None:
    """It would restrict nothing."""
    (tmp_path / "control_header").write_text(CONTENT, encoding="utf-8")
    run = subprocess.run(
        ["/bin/sh", str(DEPLOY / "triton.sh")],
        env={"SECRETS": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (1, "control_header: write KEY=VALUE, with a KEY of a-z, 0-9 and -\n")


def test_sync_script_deploys_to_each_server(tmp_path: Path) -> None:
    """With the header in its environment; without servers, it only syncs."""
    (tmp_path / "control_header").write_text(f"repogen-control={CONTENT}", encoding="utf-8")
    program = tmp_path / "repogen"
    program.write_text('#!/bin/sh\necho "$* $REPOGEN_CONTROL_HEADER"\nkill $PPID\n', encoding="utf-8")
    program.chmod(0o755)
    expected = "sync --alias champion --repository /models/prod"
    for servers, options in (("a:8001 b:8001", " --deploy a:8001 --deploy b:8001"), ("", "")):
        run = subprocess.run(
            ["/bin/sh", str(DEPLOY / "sync.sh")],
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "SECRETS": str(tmp_path), "SYNC_SERVERS": servers},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (run.returncode, run.stdout) == (0, f"{expected}{options} repogen-control={CONTENT}\n")

"""What commands print when something simple is missing: a server, a package, or the spec."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import repogen
from repogen.artifacts.serving import Endpoint
from repogen.artifacts.tracking import Tracking
from repogen.attestation import signature
from repogen.cli.group import main
from repogen.cli.serving import serve
from repogen.distribution import install_command
from repogen.errors import MissingExtraError
from repogen.registry.mlflow.preflight import preflight
from repogen.serving import commands
from repogen.spec.models import ModelSpec
from repogen.stores.azure import Azure
from repogen.stores.gcs import Gcs
from repogen.stores.s3 import S3
from repogen.worker.requirements import require_installed
from tests.support.scaled_models import Scaled, publish_scaled
from tests.unit.check.conftest import CONFIG, add_model

if TYPE_CHECKING:
    from collections.abc import Callable

HUGGINGFACE = ModelSpec.model_validate({"source": {"kind": "huggingface", "model": "team/model"}})
EXTRAS: dict[str, tuple[str, Callable[[], object]]] = {
    "build": ("onnxscript", lambda: require_installed([])),
    "build,huggingface": ("transformers", lambda: require_installed([HUGGINGFACE])),
    "track": ("mlflow", lambda: preflight(Tracking("sqlite:///m.db", "m", register=True, root=Path()))),
    "tune": ("optuna", lambda: repogen.tune("m")),
    "sign": ("model_signing", signature._library),  # noqa: SLF001 - every use of the package
    "s3": ("s3fs", lambda: S3().open("bucket")),
    "gcs": ("gcsfs", lambda: Gcs().open("bucket")),
    "azure": ("adlfs", lambda: Azure().open("account/container")),
}


@pytest.mark.parametrize("extra", EXTRAS)
def test_missing_package_has_the_command_for_this_installation(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It works from a checkout, a wheel or an index: a fixed `pip install` would name a package that is not there."""
    package, call = EXTRAS[extra]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError) as caught:
        call()
    assert caught.value.hint.startswith(install_command(*extra.split(",")))
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("option", [[], ["--ensemble"]])
def test_init_from_a_url(option: list[str], tmp_path: Path) -> None:
    """The message does not state that the repository does not exist."""
    result = CliRunner().invoke(main, ["init", str(tmp_path), "--from", "s3://acme-models/production", *option])
    assert result.exit_code == 2
    assert "--from needs a directory or file on this machine, not a URL" in result.stderr
    assert "hint: copy it to a directory first, for example with the tools of the store" in result.stderr


@pytest.mark.parametrize("name", ["my model", "", "-m", "m\n", "n" * 129])
@pytest.mark.parametrize("option", [[], ["--ensemble"]])
def test_init_with_a_name_that_a_spec_rejects(option: list[str], name: str, tmp_path: Path) -> None:
    """Nothing is written: the spec could not be built."""
    code = tmp_path / "net.py"
    code.write_text("def build(): ...", encoding="utf-8")
    result = CliRunner().invoke(main, ["init", str(tmp_path), "--from", f"{code}:build", f"--name={name}", *option])
    assert result.exit_code == 2
    assert "is not a valid model name\n  hint: letters, digits, _ and -" in result.stderr
    assert list(tmp_path.iterdir()) == [code]


@pytest.mark.parametrize("version", ["x", "", "1.5", "-1"])
@pytest.mark.parametrize(
    "arguments", [["view"], ["publish", "--from", "a", "--to", "b"], ["sign", "--sign-key", __file__]], ids=" ".join
)
def test_version_that_is_not_a_number(arguments: list[str], version: str) -> None:
    """The model may exist, so the message does not state that it does not."""
    result = CliRunner().invoke(main, [*arguments, f"digits@{version}"])
    assert result.exit_code == 2
    assert f"error: {version!r} is not a version number" in result.output
    assert "digits@3" in result.output


@pytest.mark.parametrize("arguments", [["history", "m"], ["sync", "--alias", "champion"], ["promote", "m"]])
def test_registry_that_is_down(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint does not suggest an option that the command does not have."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, [*arguments, "--tracking-uri", "http://127.0.0.1:1"])
    assert result.exit_code == 8
    assert "http://127.0.0.1:1" in result.stderr
    assert "no-track" not in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["versions"],
        ["prune", "--keep", "1"],
        ["prune", "--keep", "1", "--ignore-registry"],
        ["history", "m"],
        ["sync", "--alias", "champion", "--repository", "synced"],
        ["promote", "m", "--rollback"],
        ["diff", "m", "--against", "models:/m@champion"],
    ],
    ids=" ".join,
)
def test_spec_that_is_not_complete(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """These commands need only the MLflow server of the spec."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    add_model(tmp_path / "model_repository", "m", CONFIG)
    spec = 'models: {m: {source: {factory: "gone.py:build"}}}\n'
    (tmp_path / "repogen.yaml").write_text(spec, encoding="utf-8")
    result = CliRunner().invoke(main, arguments)
    needs_server = arguments[0] not in {"versions", "prune"}
    assert (result.exit_code, "no MLflow tracking server" in result.stderr) == (2 if needs_server else 0, needs_server)
    (tmp_path / "repogen.yaml").write_text(f"mlflow: {{tracking_uri: 3}}\n{spec}", encoding="utf-8")
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "repogen.yaml:1:10 mlflow.tracking_uri: must be a string, not 3" in result.stderr


def test_server_from_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    """Also if the server is installed, which needs no wheels."""
    result = CliRunner().invoke(main, ["server", "install", "--from", str(tmp_path / "no")])
    assert (result.exit_code, result.stderr.count("does not exist")) == (2, 1)


@pytest.mark.parametrize(
    ("command", "argument"),
    [
        ("smoke", "--model digits"),
        ("serve", "--model digits"),
        ("verify", "--model digits"),
        ("report", "model_repository"),
        ("check", "model_repository/digits"),
    ],
)
def test_name_of_a_model_in_place_of_a_repository(
    command: str, argument: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint says what to pass; a directory with this name is used."""
    monkeypatch.chdir(tmp_path)
    add_model(tmp_path / "model_repository", "digits", CONFIG)
    result = CliRunner().invoke(main, [command, "digits"])
    assert result.exit_code == 2
    expected = f"digits does not exist, but model_repository has a model with this name\n  hint: pass {argument}\n"
    assert expected in result.stderr
    for other in ("other", "no/digits"):
        result = CliRunner().invoke(main, [command, other])
        assert (result.exit_code, "has a model" in result.stderr) == (2, False)
    (tmp_path / "digits").mkdir()
    assert "has a model" not in CliRunner().invoke(main, [command, "digits"]).stderr


@pytest.mark.parametrize(
    "arguments", [["smoke"], ["serve"], ["verify"], ["report"], ["versions", "--repository"]], ids=" ".join
)
def test_file_in_place_of_a_repository(arguments: list[str], tmp_path: Path) -> None:
    """The message does not contain the placeholder of the argument."""
    (tmp_path / "repogen.yaml").touch()
    result = CliRunner().invoke(main, [*arguments, f"{tmp_path}/repogen.yaml"])
    assert result.exit_code == 2
    assert f"Error: {tmp_path}/repogen.yaml is a file; pass the directory or the URL of a repository" in result.stderr


def test_missing_spec_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that writes one."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["build"])
    assert (result.exit_code, result.stderr.count("repogen.yaml")) == (2, 1)
    assert "create one with `repogen init`" in result.stderr


def test_serve_without_models(tmp_path: Path) -> None:
    """It fails at once, unless models may be added later; the server is checked after that."""
    arguments = [str(tmp_path), "--server", "foo"]
    result = CliRunner().invoke(serve, arguments)
    assert (result.exit_code, f"{tmp_path} has no models" in result.stderr) == (2, True)
    result = CliRunner().invoke(serve, [*arguments, "--poll"])
    assert (result.exit_code, "--server 'foo" in result.stderr) == (2, True)


def test_deploy_with_a_certificate_that_does_not_exist(tmp_path: Path) -> None:
    """A wrong option is exit code 2; no server is contacted."""
    publish_scaled(tmp_path, "m", Scaled(1.0))
    file = str(tmp_path / "absent.pem")
    arguments = ["deploy", "--repository", str(tmp_path), "--server", "localhost:1", "--tls-root", file, "--json"]
    result = CliRunner().invoke(main, arguments)
    (server,) = json.loads(result.stdout)["servers"]
    assert (result.exit_code, server["error"]["code"]) == (2, "server.tls")


class Triton:
    """A server that does not load one of its models, reloads another, and is then stopped with Ctrl-C."""

    endpoint = Endpoint("h:1", "", "h:3", "embedded", "2.51.0", "", sees_files=True, has_gpu=False)
    _logs = iter(
        [
            "",
            "",
            "",
            "successfully unloaded 'm' version 1\nsuccessfully loaded 'm'",
        ]
    )
    _log = ""

    def log_tail(self, _lines: int = 40) -> str:
        """Return the log so far."""
        return self._log

    def alive(self) -> bool:
        """Return True; the log grows with each call."""
        try:
            self._log = next(self._logs)
        except StopIteration:
            raise KeyboardInterrupt from None
        return True


def test_serve_explains_failures_and_reports_reloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The finding of `repogen check` for a model that is not served, and a line for each reload."""
    add_model(tmp_path / "repository", "m", CONFIG.replace("dims: [ 3 ]", "dims: [ 5 ]"))

    class Running:
        def __enter__(self) -> Triton:
            return Triton()

        def __exit__(self, *_: object) -> None:
            """Stop nothing."""

    monkeypatch.setattr(commands, "serve", lambda *_arguments, **_options: Running())
    monkeypatch.setattr(commands, "_POLL_SECONDS", 0.01)
    result = CliRunner().invoke(serve, [str(tmp_path / "repository"), "--poll"])
    assert result.exit_code == 0, result.output
    assert "m: RG207 output 'y' has dim 5 at axis 0, but the graph has 3" in result.stdout
    reports = [line.partition("] ")[2] for line in result.stderr.splitlines()]
    assert reports == ["m: note: unloaded version 1", "m: note: loaded"]
    monkeypatch.setattr(Triton, "_log", "the reason in Triton's log")
    assert "in Triton's log" not in CliRunner().invoke(serve, [str(tmp_path / "repository")]).output
    assert "in Triton's log" in CliRunner().invoke(serve, [str(tmp_path / "repository"), "--debug"]).stderr

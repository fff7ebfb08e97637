"""The text of `repogen deploy`, its exit code, and options that are rejected without a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from repogen.artifacts.deployment import DeployAction, DeployReport, ModelDeployment, ServerDeployment
from repogen.artifacts.serving import ControlMode, SmokeCheck, SmokeReport
from repogen.cli.deploy import HEADER_VARIABLE, Connection
from repogen.cli.group import main
from repogen.errors import SmokeError
from repogen.reporting.deploy_text import deploy_text
from tests.support.scaled_models import Scaled, publish_scaled

if TYPE_CHECKING:
    from collections.abc import Sequence

FAILURE = SmokeError("m version 3 failed", "look", code="smoke.failed").record
SMOKE = SmokeReport(
    "m", 3, "remote", "2.51.0", "unknown", (SmokeCheck("a", passed=True), SmokeCheck("b", passed=False))
)
DONE = ServerDeployment(
    "a:8001",
    ControlMode.EXPLICIT,
    (ModelDeployment("m", DeployAction.DEPLOYED, expected=(3,), before=(), serving=(3,)),),
)
RESTORED = ServerDeployment(
    "b:8001",
    ControlMode.EXPLICIT,
    (
        ModelDeployment(
            *("m", DeployAction.RESTORED, (3,), (2, 1), (2, 1), "serves versions 2, 1 as before", (SMOKE,), FAILURE)
        ),
    ),
    note="not ready",
)
LEFT = ServerDeployment(
    "c:8001", models=(ModelDeployment("m", DeployAction.SKIPPED, expected=(3,), before=(1,), serving=None),)
)
TEXT = """\
server  model  action    before  serves   repository  smoke
------  -----  --------  ------  -------  ----------  -----
a:8001  m      deployed  -       3        3           -
b:8001  m      restored  2, 1    2, 1     3           1/2
c:8001  m      skipped   1       unknown  3           -

notes:
  b:8001: not ready
  b:8001: m: serves versions 2, 1 as before

prod: failed; deployed to 1 of 3 servers

error: m version 3 failed
  hint: look
  more: repogen explain smoke.failed"""


def report(*servers: ServerDeployment, interrupted: bool = False) -> DeployReport:
    """Return a report of a deploy of ``prod``."""
    return DeployReport(Path("prod").resolve(), servers, interrupted)


def test_text_names_what_each_server_serves() -> None:
    """One row per server and model; failures come last."""
    assert deploy_text(report(DONE, RESTORED, LEFT), debug=False) == TEXT


@pytest.mark.parametrize(
    ("servers", "interrupted", "expected"),
    [((DONE,), False, 0), ((DONE, RESTORED, LEFT), False, 6), ((DONE, LEFT), True, 130)],
)
def test_exit_code(servers: Sequence[ServerDeployment], expected: int, *, interrupted: bool) -> None:
    """130 after Ctrl-C, else the error's."""
    assert report(*servers, interrupted=interrupted).exit_code == expected


def test_text_after_an_interruption() -> None:
    """Its last line says how many servers are complete."""
    text = deploy_text(report(DONE, LEFT, interrupted=True), debug=False)
    assert text.endswith("prod: interrupted; deployed to 1 of 2 servers")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], "deploy.servers"),
        (["--server", "nowhere"], "deploy.servers"),
        (["--server", "a:8001", "--tls-key", "key.pem"], "deploy.tls"),
        (["--server", "a:8001", "--header", "secret"], "deploy.header"),
        (["--server", "a:8001", "--header", "authorization=secret\n"], "deploy.header"),
        (["--server", "a:8001", "--repository", "missing"], "repository.missing"),
        (["m", "--server", "a:8001", "--unload", "m"], "deploy.unload"),
    ],
)
def test_wrong_options_are_rejected(arguments: list[str], code: str) -> None:
    """With exit code 2, and without the value of a header."""
    result = CliRunner().invoke(main, ["deploy", *arguments, "--json"])
    assert (result.exit_code, json.loads(result.stdout)["error"]["code"]) == (2, code)
    assert "secret" not in result.output


def test_sync_does_not_delete_what_a_deploy_goes_back_to(tmp_path: Path) -> None:
    """Pruning is a second command."""
    command = ["sync", "--alias", "a", "--repository", str(tmp_path / "r"), "--prune", "--deploy", "a:8001", "--json"]
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, json.loads(result.stdout)["error"]["code"]) == (2, "sync.prune")


def test_dry_run_names_what_would_be_deployed() -> None:
    """Nothing is pending where the server serves the repository's versions."""
    pending = DeployReport(Path("prod").resolve(), (DONE, LEFT), dry_run=True)
    assert deploy_text(pending, debug=False).endswith("prod: nothing was done (--dry-run); to deploy: m")
    complete = DeployReport(Path("prod").resolve(), (DONE,), dry_run=True)
    assert deploy_text(complete, debug=False).endswith("prod: nothing to deploy (--dry-run)")


def test_result_without_a_change() -> None:
    """As of `repogen sync --deploy` after a sync that changed nothing."""
    model = ModelDeployment("m", DeployAction.SKIPPED, expected=(3,), before=(3,), serving=(3,))
    assert deploy_text(report(ServerDeployment("a:8001", models=(model,))), debug=False).endswith(
        "prod: nothing to deploy"
    )


def test_result_if_the_servers_served_the_versions_before() -> None:
    """The smoke test ran; nothing was deployed, unless a server needed it."""
    model = ModelDeployment("m", DeployAction.UNCHANGED, expected=(3,), before=(3,), serving=(3,))
    unchanged = ServerDeployment("a:8001", models=(model,))
    assert deploy_text(report(unchanged), debug=False).endswith("prod: up to date on 1 server")
    assert deploy_text(report(unchanged, DONE), debug=False).endswith("prod: deployed to 2 servers")


def test_result_of_an_unload_on_a_polling_server() -> None:
    """It names what was not unloaded, also after a deploy of other models."""
    skipped = ModelDeployment("old", DeployAction.SKIPPED, before=(1,), serving=(1,))
    polling = ServerDeployment("c:8001", ControlMode.POLL, (skipped,))
    reason = "because the server polls or is in mode none: old on c:8001"
    assert deploy_text(report(polling), debug=False).endswith(f"prod: nothing was unloaded, {reason}")
    assert deploy_text(report(DONE, polling), debug=False).endswith(
        f"prod: deployed to 1 of 2 servers; not unloaded, {reason}"
    )


def test_credentials_are_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The header of the environment is added; a certificate implies TLS."""
    monkeypatch.setenv(HEADER_VARIABLE, "Authorization=Bearer secret")
    credentials = Connection(False, None, None, None, ("X-Key=other",)).credentials()  # noqa: FBT003 - as the options
    assert credentials.headers == {"authorization": "Bearer secret", "x-key": "other"}
    assert not credentials.tls
    assert "secret" not in repr(credentials)
    assert Connection(False, Path("root.pem"), None, None, ()).credentials().tls  # noqa: FBT003 - the same


def test_unreadable_certificate_is_an_error(tmp_path: Path) -> None:
    """The message names the file."""
    publish_scaled(tmp_path / "repository", "m", Scaled(1.0))
    command = [
        "deploy",
        "--repository",
        str(tmp_path / "repository"),
        "--server",
        "localhost:1",
        "--tls-root",
        "no.pem",
    ]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert "error: no.pem cannot be used for TLS: No such file or directory" in result.output

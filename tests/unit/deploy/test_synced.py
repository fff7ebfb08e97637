"""What `repogen sync --deploy` reports about models that the sync did not change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from repogen.api import deploy as api
from repogen.api import registry as registry_api
from repogen.artifacts.deployment import DeployAction, DeployReport, ModelDeployment, ServerDeployment
from repogen.artifacts.sync import SyncAction, SyncedVersion, SyncReport
from repogen.cli import registry
from repogen.cli.group import main
from repogen.errors import PublishError, ServerError

if TYPE_CHECKING:
    from pathlib import Path

_SERVER = "triton:8001"


@pytest.mark.parametrize(
    ("served", "codes"), [((1,), ["deploy.pending"]), ((2,), []), (None, [])], ids=["older", "selected", "error"]
)
def test_pending_model_is_reported_after_another_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: tuple[int, ...] | None, codes: list[str]
) -> None:
    """A deploy of `failed` failed before, and now the sync changed `other`; an error of the check hides nothing."""
    (tmp_path / "other").mkdir()
    runs = []

    def deploy(*names: str, **options: Any) -> DeployReport:
        runs.append((names, options.get("dry_run", False)))
        (name,) = names
        if name == "other":
            model = ModelDeployment(name, DeployAction.DEPLOYED, (4,), (3,), (4,))
        elif served is None:
            raise PublishError("the version is damaged")
        else:
            model = ModelDeployment(name, DeployAction.SKIPPED, (2,), served, served)
        return DeployReport(tmp_path, (ServerDeployment(_SERVER, models=(model,)),))

    monkeypatch.setattr(api, "deploy", deploy)
    versions = (SyncedVersion("failed", SyncAction.KEPT, 2), SyncedVersion("other", SyncAction.PUBLISHED, 4))
    report = api.deploy_synced(SyncReport(tmp_path, "champion", dry_run=False, versions=versions), [_SERVER])
    assert runs == [(("other",), False), (("failed",), True)]
    (server,) = report.servers
    assert [error.code for error in server.errors] == codes
    assert report.exit_code == (6 if codes else 0)
    assert [model.action for model in server.models] == [DeployAction.DEPLOYED]


@pytest.mark.parametrize(
    ("sync_error", "deploy_error", "code"),
    [("publish.write", "server.remote", 6), ("publish.write", "", 7), ("", "server.remote", 6), ("", "", 0)],
)
def test_exit_code_is_the_lowest_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync_error: str, deploy_error: str, code: int
) -> None:
    """A sync that failed for one model deploys the others, which can fail as well."""
    failed = PublishError("the disk is full", code=sync_error).record if sync_error else None
    synced = SyncedVersion("m", SyncAction.KEPT if failed else SyncAction.PUBLISHED, 2, error=failed)
    unreachable = ServerError("no server", code=deploy_error).record if deploy_error else None
    server = ServerDeployment(_SERVER, error=unreachable)
    report = SyncReport(tmp_path, "champion", dry_run=False, versions=(synced,))
    monkeypatch.setattr(registry, "require_servers", lambda *_servers, **_options: None)
    monkeypatch.setattr(registry_api, "sync", lambda *_names, **_options: report)
    monkeypatch.setattr(registry, "deploy_synced", lambda *_names, **_options: DeployReport(tmp_path, (server,)))
    run = CliRunner().invoke(main, ["sync", "--alias", "champion", "--repository", str(tmp_path), "--deploy", _SERVER])
    assert run.exit_code == code


def test_check_of_unchanged_models_is_not_a_dry_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user did not pass --dry-run."""
    model = ModelDeployment("m", DeployAction.SKIPPED, (2,), (2,), (2,))
    inspected = DeployReport(tmp_path, (ServerDeployment(_SERVER, models=(model,)),), dry_run=True)
    monkeypatch.setattr(api, "deploy", lambda *_names, **_options: inspected)
    versions = (SyncedVersion("m", SyncAction.KEPT, 2),)
    report = api.deploy_synced(SyncReport(tmp_path, "champion", dry_run=False, versions=versions), [_SERVER])
    assert (report.dry_run, report.exit_code) == (False, 0)

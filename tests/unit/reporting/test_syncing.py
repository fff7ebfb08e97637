"""The text and JSON of `repogen sync`, and preconditions that need no registry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import repogen
from repogen.artifacts.sync import SyncAction, SyncedVersion, SyncReport
from repogen.cli.group import main
from repogen.errors import SpecError, TrackingError
from repogen.reporting.json import as_dict
from repogen.reporting.registry_text import sync_text

FAILURE = TrackingError("n: its artifacts are gone", "build it again", code="tracking.gone").record
HELD = SyncedVersion("h", SyncAction.IGNORED, None, "not changed: version 1 is held", held=True)
MIXED = (
    SyncedVersion("m", SyncAction.PUBLISHED, 12, "instead of 3"),
    SyncedVersion("m", SyncAction.PRUNED, 3),
    SyncedVersion("n", SyncAction.FAILED, 1, error=FAILURE),
    SyncedVersion("o", SyncAction.UNSERVED, 2, "lost champion; kept in prod.unserved"),
    SyncedVersion("p", SyncAction.KEPT, 4),
)
TEXT = """\
model  action     version  alias
-----  ---------  -------  --------
m      published  12       champion
m      pruned     3        -
n      failed     1        champion
o      unserved   2        -
p      kept       4        champion

notes:
  m: instead of 3
  o: lost champion; kept in prod.unserved

prod: updated to champion

error: n: its artifacts are gone
  hint: build it again
  more: repogen explain tracking.gone"""


def report(*versions: SyncedVersion, dry_run: bool = False) -> SyncReport:
    """Return a report of a sync of alias `prod`."""
    return SyncReport(Path("prod").resolve(), "champion", dry_run, versions)


def test_text() -> None:
    """The table has one row per version, followed by notes, the outcome, and failures."""
    assert sync_text(report(*MIXED), debug=False) == TEXT


def test_actions_of_a_dry_run() -> None:
    """Only what changes the repository was not done."""
    lines = sync_text(report(*MIXED, dry_run=True), debug=False).splitlines()[2:7]
    assert [line.split("  ")[3].strip() for line in lines] == [
        "would be published", "would be pruned", "failed", "would be unserved", "kept",
    ]  # fmt: skip
    assert as_dict(report(MIXED[0], dry_run=True))["models"] == as_dict(report(MIXED[0]))["models"]


@pytest.mark.parametrize(
    ("sync_report", "expected"),
    [
        (report(), "prod: no model has the alias champion, and none is served"),
        (report(MIXED[4]), "prod: up to date with the registry"),
        (report(MIXED[0], dry_run=True), "prod: nothing was done (--dry-run)"),
        (report(MIXED[2]), "prod: unchanged"),
        (report(SyncedVersion("q", SyncAction.IGNORED, None, "foreign")), "prod: up to date with the registry"),
        (report(SyncedVersion("q", SyncAction.IGNORED, 5, "pending")), "prod: nothing changed; 1 model is pending"),
        (report(HELD, MIXED[4]), "prod: nothing changed; 1 model is held"),
        (report(HELD, HELD), "prod: nothing changed; 2 models are held"),
    ],
)
def test_outcome(sync_report: SyncReport, expected: str) -> None:
    """The last line reports the outcome for the repository."""
    assert expected in sync_text(sync_report, debug=False).splitlines()


def test_json() -> None:
    """The JSON has the documented keys."""
    document = json.loads(json.dumps(as_dict(report(*MIXED[1:3]))))
    assert document == {
        "repository": str(Path("prod").resolve()),
        "alias": "champion",
        "dry_run": False,
        "changed": True,
        "models": [
            {"name": "m", "action": "pruned", "version": 3, "note": None, "error": None},
            {
                "name": "n",
                "action": "failed",
                "version": 1,
                "note": None,
                "error": {
                    "code": "tracking.gone",
                    "message": "n: its artifacts are gone",
                    "hint": "build it again",
                    "where": "",
                    "exit_code": 8,
                },
            },
        ],
    }


def test_repository_of_builds_is_rejected_without_a_registry(tmp_path: Path) -> None:
    """A repository of builds is rejected without a registry."""
    (tmp_path / "repogen.json").write_text('{"schema": 1, "kind": "built"}')
    result = CliRunner().invoke(main, ["sync", "--alias", "champion", "--repository", str(tmp_path), "--json"])
    assert result.exit_code == 7
    assert json.loads(result.stdout)["error"]["code"] == "sync.built-repository"


@pytest.mark.parametrize("alias", ["a b", "latest", "v3", ""])
def test_alias_that_cannot_exist(alias: str, tmp_path: Path) -> None:
    """It would be followed forever; the error is that of `repogen promote`."""
    arguments = ["sync", "--alias", alias, "--repository", str(tmp_path / "prod"), "--json"]
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, json.loads(result.stdout)["error"]["code"]) == (2, "promotion.alias")
    with pytest.raises(SpecError) as caught:
        next(repogen.follow(tmp_path / "prod", alias=alias, listen="127.0.0.1:0"))
    assert caught.value.code == "promotion.alias"
    assert list(tmp_path.iterdir()) == []


def test_build_rejects_a_synced_repository(tmp_path: Path) -> None:
    """`repogen build` rejects a synced repository before it loads a model."""
    (tmp_path / "models.py").write_text("def f(): ...\nraise SystemExit('looked at')\n")
    spec = tmp_path / "repogen.yaml"
    spec.write_text(
        'models: {m: {source: {factory: "models.py:f"}, inputs: {x: {dtype: float32, shape: [4]}}, outputs: [y]}}\n'
    )
    prod = tmp_path / "prod"
    prod.mkdir()
    (prod / "repogen.json").write_text('{"schema": 1, "kind": "synced", "aliases": ["champion"]}')
    result = CliRunner().invoke(main, ["build", str(spec), "--repository", str(prod), "--json"])
    assert json.loads(result.stdout)["error"]["code"] == "publish.synced-repository"
    assert result.exit_code == 7
    assert [path.name for path in prod.iterdir()] == ["repogen.json"]
    assert "preflight" not in result.stderr

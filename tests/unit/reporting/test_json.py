"""Every JSON document has exactly the keys of its documented type."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from repogen.artifacts.built_model import ExportAttempt, PassOutcome
from repogen.artifacts.deployment import DeployAction, DeployReport, ModelDeployment, ServerDeployment
from repogen.artifacts.environment import Check
from repogen.artifacts.promotion import GateResult, History, Outcome, Period, PromotionReport, Verdict
from repogen.artifacts.registry import AliasMove
from repogen.artifacts.report import BuildReport, ModelReport, Status
from repogen.artifacts.serving import ControlMode, Latency, SmokeCheck, SmokeReport
from repogen.artifacts.sync import SyncAction, SyncedVersion, SyncReport
from repogen.errors import ErrorRecord, PublishError
from repogen.reporting.json import as_dict, doctor_document, findings_document, smoke_document
from repogen.reporting.json_types import DOCUMENTS
from repogen.spec.problems import Problem, SpecProblemsError
from repogen.triton_config.rules.findings import Finding

ERROR = ErrorRecord("source.random", "x", "y", "models.py:3", 3)
SMOKE = SmokeReport(
    model="m",
    version=3,
    server="embedded",
    server_version="2.51.0",
    runtime="ONNX Runtime",
    checks=(
        SmokeCheck("golden", passed=False, detail="off", max_abs_diff=float("nan")),
        SmokeCheck("ready", passed=True),
    ),
    overrides=("kind",),
    latency=Latency(1.0, 2.0, 3.0, 30),
)
MODEL = ModelReport(
    "m",
    Status.FAILED,
    attempts=(ExportAttempt("dynamo", ok=False, reason="why", seconds=1.5),),
    passes=(PassOutcome("onnxsim", applied=True, nodes_before=3, nodes_after=2),),
    smoke=SMOKE,
    seconds={"export": 1.23456},
    error=ERROR,
)
GATE = GateResult("latency.max_ratio", "n/a", "", Verdict.RECORDED, value=float("inf"))
MOVE = AliasMove("champion", None, 2, "me", "2026-01-01T00:00:00Z", "promote", {"size": "1"})
SYNCED = (SyncedVersion("m", SyncAction.FAILED, 1, "", ERROR),)
DEPLOYED = ModelDeployment("m", DeployAction.RESTORED, (2,), (1,), None, "", (SMOKE,), ERROR)
SERVER = ServerDeployment("a:1", ControlMode.POLL, (DEPLOYED,), error=ERROR)
EXAMPLES = {
    "build": [as_dict(BuildReport(Path("r"), (MODEL, ModelReport("n", Status.UNCHANGED, version=1)), ERROR))],
    "check": [findings_document([Finding("RG101", "error", "m", "h", path="a/config.pbtxt")], 1)],
    "smoke": [smoke_document("r", [SMOKE])],
    "promote": [as_dict(PromotionReport("m", "champion", None, 2, Outcome.REFUSED, (GATE,), move=MOVE))],
    "history": [as_dict(History("m", (Period("champion", None, "", "", present=True, by="", why="outside"),)))],
    "sync": [
        as_dict(SyncReport(Path("r"), "a", dry_run=True, versions=SYNCED)),
        as_dict(SyncReport(Path("r"), "a", dry_run=False, versions=SYNCED))
        | {"deploy": as_dict(DeployReport(Path("r"), (SERVER,)))},
    ],
    "deploy": [
        as_dict(DeployReport(Path("r"), (ServerDeployment("a:1", ControlMode.POLL, (DEPLOYED,), error=ERROR),)))
    ],
    "doctor": [doctor_document([Check("python", "3.11", ok=True)])],
    "a command that failed": [
        as_dict(PublishError("x")),
        as_dict(SpecProblemsError([Problem("repogen.yaml", 1, 1, "models", "is wrong", "fix it")])),
    ],
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_document_matches_its_type(name: str) -> None:
    """A document matches its type, also after JSON encoding, which has no NaN or infinity."""
    adapter: TypeAdapter[object] = TypeAdapter(DOCUMENTS[name])
    for document in EXAMPLES[name]:
        text = json.dumps(document, allow_nan=False)
        assert adapter.validate_json(text) == json.loads(text)


def test_unknown_key_is_rejected() -> None:
    """The type check rejects an unknown key."""
    with pytest.raises(ValidationError):
        TypeAdapter(DOCUMENTS["doctor"]).validate_python({"ok": True, "checks": [], "more": 1})


@pytest.mark.parametrize("command", DOCUMENTS)
def test_every_key_has_a_description(command: str) -> None:
    """The docs show it."""
    schema = TypeAdapter(DOCUMENTS[command]).json_schema()
    mappings = [schema, *schema.get("$defs", {}).values()]
    keys = [(key, value) for mapping in mappings for key, value in mapping["properties"].items()]
    assert [key for key, value in keys if not value.get("description")] == []

"""Every JSON document has exactly the keys of its documented type."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import TypeAdapter, ValidationError

from repogen.artifacts.attestation import SignReport
from repogen.artifacts.bench import BenchReport, BenchRow, Estimate, Machine, ModelBench, Unmeasured
from repogen.artifacts.built_model import (
    ErrorDistribution,
    ExportAttempt,
    FileRecord,
    Lossy,
    OutputDifference,
    ParityCase,
    ParityReport,
    PassOutcome,
    Quality,
)
from repogen.artifacts.deployment import DeployAction, DeployReport, ModelDeployment, ServerDeployment
from repogen.artifacts.difference import (
    Change,
    DiffReport,
    FileChange,
    Metric,
    OperatorCount,
    VersionRef,
    WeightsDiff,
)
from repogen.artifacts.environment import Check
from repogen.artifacts.inventory import ModelRecord, VersionRecord, VersionsReport
from repogen.artifacts.page import RenderedReport
from repogen.artifacts.plan import Cost, ModelPlan, PlanReport
from repogen.artifacts.promotion import GateResult, History, Outcome, Period, PromotionReport, Verdict
from repogen.artifacts.prune import PrunedVersion, PruneReport
from repogen.artifacts.registry import AliasMove
from repogen.artifacts.report import BuildReport, ModelReport, Status
from repogen.artifacts.rollback import RollbackOutcome, RollbackReport
from repogen.artifacts.serving import ControlMode, Latency, SmokeCheck, SmokeReport
from repogen.artifacts.sync import SyncAction, SyncedVersion, SyncReport
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.artifacts.transfer import PackageFormat, TransferredVersion, TransferReport
from repogen.artifacts.tune import ComparisonRow, Figures, PassCandidate, Trial, TrialState, TuneReport
from repogen.artifacts.verification import Discrepancy, VerifyReport
from repogen.artifacts.versions import Manifest, Provenance
from repogen.errors import ErrorRecord, PublishError
from repogen.reporting.json import as_dict, doctor_document, findings_document, smoke_document
from repogen.reporting.json_types import DOCUMENTS
from repogen.spec.problems import Problem, SpecProblemsError
from repogen.triton_config.rules.findings import Finding

if TYPE_CHECKING:
    from enum import Enum

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
    parity=ParityReport(
        (ParityCase("batch=2 seed=0", 0.1, 0.2, 0.9, True, "", {"batch": 2}, (OutputDifference("y", 0.1, 0.2),)),),  # noqa: FBT003
        outputs=(ErrorDistribution("y", 1e-3, None, 1, {-4: 2}),),
    ),
    operators={"Relu": 1},
    config="name: 'm'",
    manifest=Manifest(
        "m",
        8,
        Signature((TensorSpec("x", "float32", ("batch", 4)),), ()),
        (FileRecord("model.onnx", "0" * 64, 1),),
        Provenance({"torch": "2.13"}, "", "", {"spec": "ab"}, "24.10", "dynamo", 20, 10, 1, 1, 1, 0.0, 0.0),
    ),
)
BENCH = BenchReport(
    Path("r"),
    Machine("CPU", 2, 2**30, 0.5, "Linux 6", {"torch": "2.13"}),
    rounds=1,
    seconds=0.5,
    models=(
        ModelBench(
            *("m", 3),
            rows=(BenchRow("grpc", 8, 4, *(Estimate(1.0, 0.5, 2.0),) * 4, ratio=None, requests=9),),
            unmeasured=(Unmeasured("shm", "why"),),
            baseline="grpc",
            memory_bytes={"triton": 5},
            server="Triton",
            notes=("n",),
        ),
        ModelBench("n", 0, error=ERROR),
    ),
)
GATE = GateResult("latency.max_ratio", "n/a", "", Verdict.RECORDED, value=float("inf"))
MOVE = AliasMove("champion", None, 2, "me", "2026-01-01T00:00:00Z", "promote", {"size": "1"})
SYNCED = (SyncedVersion("m", SyncAction.FAILED, 1, "", ERROR),)
PROVENANCE = Provenance({}, "", "", {}, "24.10", "dynamo", 20, 10, 1, 1, 1, float("inf"), 0.0)
SIGNATURE = Signature((), ())
MANIFEST = Manifest("m", 8, SIGNATURE, (FileRecord("model.onnx", "0" * 64, 1),), PROVENANCE)
VERSION = VersionRecord("m", 2, Path("m/2"), served=True, manifest=MANIFEST, problem="", size=1, created="")
FOREIGN = VersionRecord("m", 1, Path("m/1"), served=False, manifest=None, problem="no manifest", size=1, created="")
MODEL_RECORD = ModelRecord("m", Path("m"), (VERSION, FOREIGN), served=(2,), held=None, problem="")
ROLLBACK = RollbackReport(Path("r"), "m", RollbackOutcome.HELD, (2,), (1,), 1, dry_run=False, notes=("x",))
TRANSFERRED = TransferredVersion("m", 1, 2, published=True, size=10)
TRANSFER = TransferReport(Path("r"), Path("s"), dry_run=True, versions=(TRANSFERRED,))
DIFF = DiffReport(
    VersionRef(Path("r"), "m", 1),
    VersionRef(Path("s"), "m", 2),
    identical=False,
    signature=("input 'x' was removed",),
    weights=WeightsDiff(1, ("w",), (), ("b",), 2),
    facts=(Change("opset ai.onnx", "17", "20"),),
    nodes=(3, 4),
    operators=(OperatorCount("Relu", 0, 1),),
    metrics=(Metric("parity max abs diff", None, float("inf")),),
    sizes=(10, 20),
    files=(FileChange("model.onnx", None, 10),),
    config=("+x",),
    inputs=("spec",),
    notes=("x",),
)
DEPLOYED = ModelDeployment("m", DeployAction.RESTORED, (2,), (1,), None, "", (SMOKE,), ERROR)
SERVER = ServerDeployment("a:1", ControlMode.POLL, (DEPLOYED,), error=ERROR)
ONE = Estimate(1.0, 1.0, 1.0)
PLANNED = ModelPlan("m", ("x is new",), None, ("n",), {"spec": "ab"}, Cost(1.5, 10**9, measured=True))
TUNED = TuneReport(
    *("m", 1, Path("r"), "Triton", BENCH.machine, "throughput", ("p99 < 20ms",)),
    batch=1,
    concurrency=16,
    space={"instance_count": (1, 2)},
    passes=(
        PassCandidate("spec", (), "", "ab", 3, 2, math.inf, Lossy(("fp16",), "float16", Quality(1.0, 0.5, 0.6))),
        PassCandidate("onnxsim", ("onnxsim",), "it changed nothing", seconds=1.5),
    ),
    trials=(
        Trial(1, "spec", {"instance_count": 1}, TrialState.MEASURED, Figures(1.0, 2.0, 3.0, 10.0, 5), ("p99 < 1ms",)),
        Trial(2, "search", {"instance_count": 2}, TrialState.FAILED, reason="x", seconds=1.0),
    ),
    pareto=(1,),
    chosen=1,
    comparison=(ComparisonRow("auto", ONE, ONE, ONE, ONE, ratio=ONE),),
    files=(Path("tune.json"),),
)
EXAMPLES = {
    "build": [as_dict(BuildReport(Path("r"), (MODEL, ModelReport("n", Status.UNCHANGED, version=1)), ERROR))],
    "plan": [
        as_dict(
            PlanReport(
                Path("r"),
                "24.10",
                (PLANNED, replace(PLANNED, shard=1, reasons=()), replace(PLANNED, error=ERROR)),
                2,
                ("x",),
            )
        )
    ],
    "check": [findings_document([Finding("RG101", "error", "m", "h", path="a/config.pbtxt")], 1)],
    "smoke": [smoke_document("r", [SMOKE])],
    "promote": [as_dict(PromotionReport("m", "champion", None, 2, Outcome.REFUSED, (GATE,), move=MOVE))],
    "report": [as_dict(RenderedReport(Path("r.html"), 10, Path("r"), 1, 2, ("m",), ("x",)))],
    "history": [as_dict(History("m", (Period("champion", None, "", "", present=True, by="", why="outside"),)))],
    "sync": [
        as_dict(SyncReport(Path("r"), "a", dry_run=True, versions=SYNCED)),
        as_dict(SyncReport(Path("r"), "a", dry_run=False, versions=SYNCED))
        | {"deploy": as_dict(DeployReport(Path("r"), (SERVER,)))},
    ],
    "versions": [
        as_dict(VersionsReport(Path("r"), "", (ModelRecord("m", Path("m"), (VERSION, FOREIGN), (2,), None, ""),)))
    ],
    "verify": [as_dict(VerifyReport(Path("r"), 1, 1, 5, 100, (Discrepancy("m", None, "config.pbtxt is missing"),)))],
    "sign": [as_dict(SignReport(Path("r"), "m", 1))],
    "rollback": [as_dict(ROLLBACK)],
    "prune": [as_dict(PruneReport(Path("r"), dry_run=True, versions=(PrunedVersion("m", 1, 10, ""),)))],
    "bench": [as_dict(BENCH)],
    "tune": [as_dict(TUNED), as_dict(replace(TUNED, chosen=None, error=ERROR))],
    "publish": [as_dict(TRANSFER), as_dict(replace(TRANSFER, format=PackageFormat.SAGEMAKER, digest="sha256:0"))],
    "diff": [as_dict(DIFF)],
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


@pytest.mark.parametrize(
    ("command", "definition", "key", "values"),
    [
        ("build", "ModelDocument", "status", Status),
        ("promote", "GateDocument", "verdict", Verdict),
        ("deploy", "DeployedDocument", "action", DeployAction),
        ("rollback", "", "outcome", RollbackOutcome),
        ("tune", "TrialDocument", "state", TrialState),
    ],
)
def test_documented_values_are_complete(command: str, definition: str, key: str, values: type[Enum]) -> None:
    """The type lists every value that a document can have."""
    schema = TypeAdapter(DOCUMENTS[command]).json_schema()
    properties = (schema["$defs"][definition] if definition else schema)["properties"]
    assert set(properties[key]["enum"]) == {value.value for value in values}


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

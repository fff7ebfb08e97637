"""Gates that cannot be measured, and gates of plug-ins."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

import pytest

from repogen import plugins
from repogen.artifacts.progress import Silent
from repogen.artifacts.promotion import Outcome, PromotionReport
from repogen.errors import GateError, SpecError
from repogen.registry.gates.flags import usage, with_flags
from repogen.registry.gates.interface import (
    Candidate,
    Champion,
    Gate,
    NotMeasuredError,
    Requires,
    Section,
    Versions,
    judge_figure,
)
from repogen.registry.promotion.promote import promote
from repogen.registry.promotion.request import PromotionRequest
from repogen.registry.promotion.run_gates import _active, _download
from repogen.repository.manifest import damaged_named_files, read_manifest
from repogen.spec.gates import GatesSpec
from repogen.spec.load import load_spec
from repogen.spec.problems import SpecProblemsError
from tests.support.simulated_registry import SimulatedRegistry, version_of_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from repogen.artifacts.promotion import GateResult

MODEL = """\
models:
  m:
    source: {factory: "models.py:build"}
    inputs: {x: {dtype: float32, shape: [batch, 4]}}
    dims: {batch: {max: 8}}
    promotion: {gates: {opset: {max: 21}, PLACEHOLDER}}
"""


class OpsetOptions(Section):
    """Options of the gate."""

    max: int | None = None


class OpsetGate(Gate[OpsetOptions, int]):
    """Limits the version of ONNX's operator set."""

    options = OpsetOptions
    requires = Requires.MANIFEST

    def measure(self, options: OpsetOptions, versions: Versions) -> int:
        """Fail in two ways for two special limits."""
        if options.max == 1:
            raise RuntimeError("not implemented")
        if options.max == 2:
            raise NotMeasuredError("no opset is recorded")
        return versions.candidate.manifest.provenance.opset

    def judge(self, options: OpsetOptions, measurement: int) -> Iterable[GateResult]:
        """Compare with the limit."""
        yield judge_figure("opset.max", measurement, str(measurement), at_most=options.max)


@pytest.fixture(autouse=True)
def _plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register the gate as a plug-in does."""
    entry = EntryPoint("opset", f"{__name__}:OpsetGate", "repogen.gates")
    monkeypatch.setattr(EntryPoint, "load", _load)
    added = {"repogen.gates": (entry,)}
    monkeypatch.setattr(plugins, "entry_points", lambda group: (*entry_points(group=group), *added.get(group, ())))
    plugins.plugins.cache_clear()
    yield
    plugins.plugins.cache_clear()


_real_load = EntryPoint.load


def _load(entry: EntryPoint) -> object:
    return OpsetGate if entry.name == "opset" else _real_load(entry)


def run(tmp_path: Path, *flags: str) -> PromotionReport:
    """Promote a version with opset 20."""
    registry = SimulatedRegistry(tmp_path / "registry")
    registry.register(version_of_bytes(tmp_path / "stage"))
    gates = with_flags(GatesSpec(), ("smoke=off", *flags))
    return promote(registry, PromotionRequest("m", 1, "champion", gates, tmp_path), Silent())


@pytest.mark.parametrize(
    ("flags", "outcome", "result"),
    [
        (("opset=20",), Outcome.PROMOTED, ("opset.max", "20", "<= 20", "passed", "")),
        (("opset.max=19",), Outcome.REFUSED, ("opset.max", "20", "<= 19", "failed", "")),
        (("opset",), Outcome.PROMOTED, ("opset.max", "20", "", "recorded", "")),
        (("opset=2",), Outcome.REFUSED, ("opset.max", "-", "<= 2", "failed", "no opset is recorded")),
    ],
)
def test_gate_of_a_plugin_decides(
    tmp_path: Path, flags: tuple[str, ...], outcome: Outcome, result: tuple[str, ...]
) -> None:
    """As a built-in gate does; its results come last."""
    report = run(tmp_path, *flags)
    gate = report.gates[-1]
    assert (report.outcome, (gate.gate, gate.measured, gate.limit, gate.verdict.value, gate.note)) == (outcome, result)


def test_exception_of_a_plugin_is_an_error_and_moves_nothing(tmp_path: Path) -> None:
    """The error names the gate."""
    with pytest.raises(GateError, match="gate 'opset' failed: RuntimeError: not implemented") as caught:
        run(tmp_path, "opset=1")
    assert "Traceback" in caught.value.details


def test_options_of_a_plugin_are_validated_in_flags() -> None:
    """With the plug-in's own model, and the usual message."""
    with pytest.raises(SpecError) as caught:
        with_flags(GatesSpec(), ["opset.min=1", "opset=high"])
    assert [line.partition(": ")[0] for line in caught.value.message.splitlines()] == [
        "--gate opset.min=1",
        "--gate opset.max",
    ]
    assert usage().endswith("opset       (plug-in)")


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            "opset: {max: high}",
            "6:33 models.m.promotion.gates.opset.max: must be a valid integer",
        ),
        ("opset: {limit: 3}", "6:33 models.m.promotion.gates.opset.limit: unknown key (use one of max)"),
        ("opset: 3", "6:25 models.m.promotion.gates.opset: must be a mapping, not 3"),
        ("opsets: {max: 3}", '6:25 models.m.promotion.gates.opsets: unknown key (did you mean "opset"?)'),
    ],
)
def test_options_of_a_plugin_are_validated_in_a_spec(tmp_path: Path, section: str, message: str) -> None:
    """With line and column; problems of other gates are reported as well."""
    (tmp_path / "models.py").touch()
    text = MODEL.replace("opset: {max: 21}, PLACEHOLDER", f"{section}, smoke: 1")
    (tmp_path / "repogen.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(SpecProblemsError) as caught:
        load_spec(tmp_path / "repogen.yaml")
    lines = [str(problem).removeprefix(f"{tmp_path}/repogen.yaml:") for problem in caught.value.problems]
    assert lines[0].startswith(message)
    assert [line.split()[1] for line in lines[1:]] == ["models.m.promotion.gates.smoke:"]


def test_spec_with_the_gate_of_a_plugin(tmp_path: Path) -> None:
    """Its options are an attribute of the gates, like those of a built-in gate."""
    (tmp_path / "models.py").touch()
    (tmp_path / "repogen.yaml").write_text(MODEL.replace(", PLACEHOLDER", ""), encoding="utf-8")
    gates = load_spec(tmp_path / "repogen.yaml").models["m"].promotion.gates
    assert gates.active()["opset"] == OpsetOptions(max=21)


def test_json_schema_has_the_gates_of_plugins() -> None:
    """So that editors complete them."""
    schema = GatesSpec.model_json_schema()
    assert list(schema["properties"]["opset"]["properties"]) == ["max"]
    assert schema["additionalProperties"] is False


def test_plugin_without_a_gate_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it does not define."""
    monkeypatch.delattr(OpsetGate, "requires")
    with pytest.raises(SpecError, match=r"plug-in 'opset' of repogen\.gates does not define requires"):
        run(tmp_path, "opset=20")
    monkeypatch.delattr(OpsetGate, "options")
    with pytest.raises(SpecError, match=r"plug-in 'opset' of repogen\.gates has no `options`, a pydantic model"):
        with_flags(GatesSpec(), ["opset=20"])


@pytest.mark.parametrize(
    ("gates", "results"),
    [
        ({"latency": {"max_ratio": 1}}, ["latency.max_ratio"]),
        ({"latency": {}}, ["latency"]),
        ({"throughput": {"min_ratio": 1}}, ["throughput.min_ratio"]),
        ({"evaluation": {"callable": "g.py:f", "min": 0, "max_drop": 0}}, ["evaluation.min", "evaluation.max_drop"]),
    ],
)
def test_every_limit_fails_if_the_candidate_is_not_served(
    tmp_path: Path, gates: dict[str, object], results: list[str]
) -> None:
    """With the reason."""
    manifest = read_manifest(version_of_bytes(tmp_path / "stage"))
    request = PromotionRequest("m", 1, "champion", GatesSpec.model_validate(gates), tmp_path)
    versions = Versions(Candidate(manifest, obstacle="no"), Champion(), tmp_path, request.schedule)
    (name,) = gates
    gate_results = _active(name, request.gates.active()[name]).results(versions)
    assert [(result.gate, result.verdict.value, result.note) for result in gate_results] == [
        (result, "failed", "no") for result in results
    ]


def test_files_that_the_config_names_are_where_triton_reads_them(tmp_path: Path) -> None:
    """Class names next to config.pbtxt, and warmup data in its directory."""
    registry = SimulatedRegistry(tmp_path / "registry")
    entry = registry.register(version_of_bytes(tmp_path / "stage", labels=("a", "b")))
    (tmp_path / "repository").mkdir()
    staged, steps = _download(registry, entry, tmp_path / "repository")
    assert steps == ()
    model = tmp_path / "repository" / "m"
    assert damaged_named_files(model, staged.manifest.files) == ()
    assert [path.parent.name for path in model.rglob("warmup-*") if path.parent.name != "1"] == ["warmup"]

"""Verified models in the cache: found for the same inputs only, with all their files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pydantic import TypeAdapter

from repogen.artifacts.built_model import (
    BatchReport,
    BuildDiagnostics,
    BuiltModel,
    ImportedCode,
    OnnxArtifact,
    ParityReport,
)
from repogen.build.cache import Cache
from repogen.build.fingerprint import build_inputs, changes
from repogen.build.verified import NOTE, export_reasons, load_verified, store_verified, worker_model
from repogen.repository.digest import sha256_file
from repogen.spec.models import ModelSpec
from repogen.spec.sources import PythonSource
from repogen.targets import DEFAULT_RELEASE, targets
from repogen.triton_config.sections.model import TritonSpec

from .conftest import PLAIN, SIGNATURE, write_spec

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.spec.models import Spec


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """Return a spec of one model."""
    return write_spec(tmp_path, a=PLAIN)


@pytest.fixture
def cache(tmp_path: Path, spec: Spec) -> Cache:
    """Return a cache with the verified model of the spec."""
    work = tmp_path / "work"
    (work / "golden").mkdir(parents=True)
    for name in ("model.onnx", "model.onnx.data", "golden/golden.json", "golden/golden.npz", "vocab.txt"):
        (work / name).write_bytes(name.encode())
    artifact = OnnxArtifact(
        work / "model.onnx",
        external_data=True,
        signature=SIGNATURE,
        opset=20,
        ir_version=10,
        nodes=3,
        exporter="dynamo",
    )
    code = ImportedCode({"models.py": sha256_file(spec.root / "models.py")}, {"pytest": pytest.__version__})
    batch = BatchReport(batchable=True, max_batch_size=8)
    built = BuiltModel(artifact, work / "golden", 4, ParityReport(()), batch, code, {"tokens.txt": work / "vocab.txt"})
    stored = Cache(tmp_path / "cache", 10**6)
    diagnostics = BuildDiagnostics(notes=("note",), seconds={"export": 9.0})
    store_verified(stored, spec, "a", build_inputs(spec, "a"), built, diagnostics)
    return stored


def test_round_trip(spec: Spec, cache: Cache, tmp_path: Path) -> None:
    """Every file, and every measurement except the times."""
    outcome = load_verified(cache, spec, "a", build_inputs(spec, "a"), tmp_path / "loaded")
    assert outcome is not None
    built = outcome.model()
    assert isinstance(built.artifact, OnnxArtifact)
    files = (built.artifact.path, built.artifact.path.with_name("model.onnx.data"), built.golden_dir / "golden.npz")
    assert [file.read_bytes() for file in files] == [b"model.onnx", b"model.onnx.data", b"golden/golden.npz"]
    assert {name: path.read_bytes() for name, path in built.companions.items()} == {"tokens.txt": b"vocab.txt"}
    assert (built.batch.max_batch_size, built.nodes_exported, built.artifact.signature) == (8, 4, SIGNATURE)
    assert (outcome.diagnostics.notes, outcome.diagnostics.seconds) == (("note", NOTE), {})
    assert str(tmp_path) not in "".join(
        path.read_text(errors="replace") for path in (tmp_path / "cache").rglob("*.json")
    )


JOB_MODEL = TypeAdapter(ModelSpec)
RUNTIME = targets()[DEFAULT_RELEASE].onnxruntime
TRITON = {
    "instance_group": [{"count": 2, "kind": "KIND_CPU"}],
    "max_batch_size": 4,
    "dynamic_batching": {"max_queue_delay_microseconds": 500},
    "parameters": {"key": "value"},
}


def edited(spec: Spec, **triton: object) -> Spec:
    """Return a spec with other keys of ``triton:``, and another description."""
    changed = {"triton": TritonSpec.model_validate({**TRITON, **triton}), "description": "new"}
    return replace(spec, models={"a": spec.models["a"].model_copy(update=changed)})


def test_edit_of_triton_needs_no_export(spec: Spec, cache: Cache, tmp_path: Path) -> None:
    """Nor does a template: the worker receives neither. A larger batch than was verified does."""
    (tmp_path / "overrides").mkdir()
    (tmp_path / "overrides" / "config.pbtxt.j2").write_text("changed")
    changed = replace(edited(spec), templates=tmp_path / "overrides")
    inputs = build_inputs(changed, "a")
    assert inputs["spec"] != build_inputs(spec, "a")["spec"]
    assert "template:config.pbtxt.j2" in inputs
    outcome = load_verified(cache, changed, "a", inputs, tmp_path / "loaded")
    assert outcome is not None
    assert outcome.model().batch == BatchReport(batchable=True, max_batch_size=4)
    for size in (9, 0):  # the golden tensors of a model that is not batched differ
        other = edited(spec, max_batch_size=size)
        assert load_verified(cache, other, "a", build_inputs(other, "a"), tmp_path / f"loaded-{size}") is None


def test_worker_receives_no_part_of_the_spec_that_is_not_in_the_key(spec: Spec) -> None:
    """Then nothing else can change what it returns. Python code and plug-ins read more."""
    model = edited(spec).models["a"]
    received = worker_model(model)
    assert received.triton.model_dump(exclude_defaults=True) == {"max_batch_size": 4}
    assert received.description == ""
    assert received.model_copy(update={"triton": model.triton, "description": "new"}) == model
    assert JOB_MODEL.validate_json(JOB_MODEL.dump_json(received, by_alias=True)) == received
    code = model.model_copy(update={"source": PythonSource(kind="python", path="code.py")})
    assert set(worker_model(code).triton.model_dump(exclude_defaults=True)) == {"max_batch_size", "parameters"}


def test_reasons_of_an_export_are_those_that_its_key_contains(spec: Spec, tmp_path: Path) -> None:
    """An edit of the instances changes only the config; everything that a plug-in receives counts."""
    (tmp_path / "overrides").mkdir()
    (tmp_path / "overrides" / "config.pbtxt.j2").write_text("changed")
    changed = replace(edited(spec), templates=tmp_path / "overrides")
    model = changed.models["a"]
    reasons = changes(build_inputs(spec, "a"), changed, "a")
    config = [f"triton.{key} in the spec is now set" for key in sorted(TRITON)]
    assert reasons == [*config, "the template config.pbtxt.j2 changed"]
    assert export_reasons(model, reasons) == ("triton.max_batch_size in the spec is now set",)
    code = model.model_copy(update={"source": PythonSource(kind="python", path="code.py")})
    needed = [reason for reason in config if "max_batch_size" in reason or "parameters" in reason]
    assert list(export_reasons(code, reasons)) == needed


def test_graph_for_another_target(spec: Spec, cache: Cache, tmp_path: Path) -> None:
    """Releases with the same ONNX Runtime and limits share an entry; the report says for which it was exported."""
    same = next(t for t in targets().values() if t.release != spec.release and t.onnxruntime == RUNTIME)
    other = replace(spec, release=same.release)
    outcome = load_verified(cache, other, "a", build_inputs(other, "a"), tmp_path / "loaded")
    assert outcome is not None
    assert outcome.diagnostics.notes[-1] == f"exported for Triton {spec.release}, and checked again for {same.release}"


@pytest.mark.parametrize("change", ["code", "distribution", "spec", "target"])
def test_other_inputs_are_not_found(spec: Spec, cache: Cache, tmp_path: Path, change: str) -> None:
    """Code and distributions are known only from the entry."""
    match change:
        case "code":
            (spec.root / "models.py").write_text("# changed")
        case "distribution":
            (entry,) = (tmp_path / "cache").rglob("entry.json")
            entry.write_text(entry.read_text().replace(pytest.__version__, "0.1"))
        case "spec":
            spec = write_spec(tmp_path, a=PLAIN.replace("[2]", "[3]"))
        case _:
            spec = replace(spec, release="25.06")
    assert load_verified(cache, spec, "a", build_inputs(spec, "a"), tmp_path / "loaded") is None

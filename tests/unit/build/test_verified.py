"""Verified models in the cache: found for the same inputs only, with all their files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.built_model import (
    BatchReport,
    BuildDiagnostics,
    BuiltModel,
    ImportedCode,
    OnnxArtifact,
    ParityReport,
)
from repogen.build.cache import Cache
from repogen.build.fingerprint import build_inputs
from repogen.build.verified import NOTE, load_verified, store_verified
from repogen.repository.digest import sha256_file

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
    store_verified(stored, build_inputs(spec, "a"), built, diagnostics)
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

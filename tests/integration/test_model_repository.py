"""The committed model_repository/ is what the digits example builds today, and a real Triton serves it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from repogen.fingerprint import changes, files_intact
from repogen.spec import load_spec
from repogen.values.layout import CONFIG_FILE, latest_version
from repogen.values.manifest import read_manifest

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "model_repository" / "digits_cnn"


def another_build_of_torch(reason: str) -> bool:
    """Tell whether only torch's local label differs: `torch 2.13.0+cpu -> 2.13.0` (CPU and CUDA builds)."""
    name, old, _, new = (reason.split() * 4)[:4]
    return name == "torch" and old.partition("+")[0] == new.partition("+")[0]


def test_the_committed_repository_is_up_to_date() -> None:
    """By fingerprint, byte for byte; when this fails, `make model_repository` builds it anew."""
    spec = load_spec(ROOT / "examples" / "digits" / "repogen.yaml")
    assert latest_version(MODEL) == 1
    manifest = read_manifest(MODEL / "1")
    reasons = changes(manifest.provenance.fingerprint, spec, "digits_cnn")
    none: list[str] = []
    assert none == [reason for reason in reasons if not another_build_of_torch(reason)]
    assert none == files_intact(MODEL / "1", manifest.files)
    assert (MODEL / CONFIG_FILE).read_bytes() == (MODEL / "1" / CONFIG_FILE).read_bytes()


def test_the_committed_repository_passes_its_smoke_test() -> None:
    """`repogen smoke model_repository`, as the README says it."""
    command = [sys.executable, "-m", "repogen", "smoke", "model_repository"]
    smoke = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (smoke.returncode, smoke.stdout.partition(" on Triton")[0]) == (0, "digits_cnn version 1: passed")

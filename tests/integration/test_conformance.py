"""Conformance suite: a sample in every run; in the full run all of it, and a sample served by a real Triton."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from repogen.targets import DEFAULT_RELEASE, newest_target, targets
from tests.conformance.build import ENVIRONMENT, Outcome, build, prepare
from tests.conformance.cases import BY_NAME, CASES

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
# Fast cases: every kind of verdict, most sources, and files whose code must not run.
SLICE = (
    "dict_answer",
    "onnx",
    "onnx_mixing",
    "onnx_data_passwd",
    "onnx_empty",
    "returns_int",
    "integers_without_range",
    "bomb_in_weights",
    "script_bomb",
)
# Every source and modality, and what matters to Triton: dtypes, ranks, several outputs, external data, no batch.
SERVED = (
    "bert",
    "vit",
    "wav2vec2",
    "hf_token_classification",
    "hf_clip",
    "nested_answers",
    "one_number_each",
    "integer_answers",
    "unused_input",
    "half",
    "uint8_image",
    "external_data",
    "scalar_input",
    "pt2_two_dims",
    "script_loop",
    "onnx_newer_opset",
    "bytes",
    "inverse_fft",
    "gru_with_state",
)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Outcome]:
    """Build the sample as one spec."""
    directory = tmp_path_factory.mktemp("conformance")
    cases = [BY_NAME[name] for name in SLICE]
    prepare(cases, directory)
    return build(cases, directory, jobs=2)


@pytest.mark.parametrize("name", SLICE)
def test_a_verdict_of_the_sample_is_correct(outcomes: Mapping[str, Outcome], name: str) -> None:
    """Published with a batch, without one, or rejected with a correct error code."""
    assert BY_NAME[name].is_correct(outcomes[name].verdict), outcomes[name]


def test_the_suite_covers_every_kind_of_verdict() -> None:
    """At least 70 cases, and at least 20 of each verdict."""
    kinds = [case.expected.partition(":")[0] for case in CASES]
    assert set(kinds) == {"batch", "single", "rejected"}
    assert len(kinds) >= 70
    assert min(kinds.count(kind) for kind in set(kinds)) >= 20


@pytest.mark.full
@pytest.mark.first
def test_every_verdict_is_correct() -> None:
    """`make conformance`, without the plain script, exits with 0."""
    process = _python("-m", "tests.conformance.run", "--no-naive", directory=ROOT)
    assert process.returncode == 0, process.stdout + process.stderr


@pytest.mark.full
@pytest.mark.first
@pytest.mark.parametrize("release", [DEFAULT_RELEASE, newest_target().release])
def test_a_sample_is_served_by_a_real_triton(tmp_path: Path, release: str) -> None:
    """The published models return their golden tensors over gRPC, with the ONNX Runtime of each target."""
    cases = [BY_NAME[name] for name in SERVED]
    prepare(cases, tmp_path)
    built = build(cases, tmp_path, jobs=2, release=release)
    assert {name: BY_NAME[name].is_correct(outcome.verdict) for name, outcome in built.items()} == dict.fromkeys(
        SERVED, True
    ), built
    process = _python("-m", "repogen", "smoke", "--json", directory=tmp_path)
    reports = json.loads(process.stdout)["models"]
    assert {report["name"]: report["passed"] for report in reports} == dict.fromkeys(SERVED, True), process.stdout
    runtime = f"ONNX Runtime {targets()[release].onnxruntime} "
    assert [report["runtime"] for report in reports if not report["runtime"].startswith(runtime)] == []
    assert process.returncode == 0


def _python(*arguments: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env=os.environ | ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

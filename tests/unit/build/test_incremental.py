"""Which published versions are up to date."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.file_names import UNCONFIRMED_FILE
from repogen.artifacts.report import ModelReport, Status
from repogen.build.incremental import (
    compare_models,
    recover_interrupted_publishes,
    remove_leftovers,
    unconfirmed_versions,
)
from repogen.build.pipeline import BuildOptions, build
from repogen.repository import remembered
from repogen.repository.digest import sha256_bytes
from repogen.repository.hold import hold_text
from repogen.repository.layout import journal_path

from .conftest import PLAIN, RecordedProgress, ensemble_of, write_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from repogen.spec.models import Spec


def current(spec: Spec, names: Iterable[str], repository: Path, *, registered: bool = False) -> dict[str, ModelReport]:
    """Return the reports of the models that are up to date."""
    compared = compare_models(spec, names, repository, registered=registered)
    return {name: report for name, report in compared.items() if isinstance(report, ModelReport)}


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """Return a spec with two models."""
    return write_spec(tmp_path, a=PLAIN, b=PLAIN)


def test_published_version_is_up_to_date(spec: Spec, publish_version: Callable[..., Path]) -> None:
    """Its report has what the manifest says; a model without a version must be built."""
    publish_version(spec, "a", 1)
    publish_version(spec, "a", 2)
    reports = current(spec, spec.models, spec.repository)
    assert list(reports) == ["a"]
    report = reports["a"]
    assert (report.status, report.version, report.sha256) == (Status.UNCHANGED, 2, sha256_bytes(b"graph"))
    assert (report.exporter, report.max_batch_size, report.parity_cases) == ("dynamo", 8, 2)
    assert list(report.seconds) == ["fingerprint"]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("1/model.onnx", b"grapH"),
        ("1/model.onnx", b"graph of another size"),
        ("1/config.pbtxt", b"name: 'other'"),
        ("config.pbtxt", b"name: 'edited by hand'"),
        ("1/manifest.json", b"{}"),
        ("../models.py", b""),
    ],
)
def test_changed_file_must_be_built_again(
    spec: Spec, publish_version: Callable[..., Path], file: str, content: bytes
) -> None:
    """Any file of the version, and the config.pbtxt that Triton reads; but not an unrelated file."""
    publish_version(spec, "a")
    (spec.repository / "a" / file).write_bytes(content)
    assert ("a" in current(spec, ["a"], spec.repository)) == (file == "../models.py")


@pytest.mark.parametrize("path", ["a", "a/1"])
def test_version_of_another_user_is_not_up_to_date(spec: Spec, publish_version: Callable[..., Path], path: str) -> None:
    """In a directory such as /tmp, another user can create a model with the manifest of a build of the same spec."""
    publish_version(spec, "a")
    assert "a" in current(spec, ["a"], spec.repository)
    (spec.repository / path).parent.chmod(0o1777)
    os.chown(spec.repository / path, 65534, -1)
    (reasons,) = compare_models(spec, ["a"], spec.repository).values()
    assert isinstance(reasons, tuple)
    assert "belongs to another user" in reasons[0]


def test_changed_spec_must_be_built_again(tmp_path: Path, publish_version: Callable[..., Path]) -> None:
    """The other model of the spec is still up to date."""
    spec = write_spec(tmp_path, a=PLAIN, b=PLAIN)
    for name in ("a", "b"):
        publish_version(spec, name)
    changed = write_spec(tmp_path, a=PLAIN.replace("[2]", "[3]"), b=PLAIN)
    assert list(current(changed, ["a", "b"], spec.repository)) == ["b"]


def test_ensemble_of_a_new_step_must_be_built_again(tmp_path: Path, publish_version: Callable[..., Path]) -> None:
    """Its fingerprint names the content of the newest version of each step."""
    spec = write_spec(tmp_path, a=PLAIN, e=ensemble_of("a"))
    publish_version(spec, "a")
    version = publish_version(spec, "e")
    assert current(spec, ["e"], spec.repository) == {}  # its fingerprint has no step
    manifest = json.loads((version / "manifest.json").read_text())
    files = json.loads((spec.repository / "a" / "1" / "manifest.json").read_text())["files"]
    content = sha256_bytes("".join(sorted(f"{file['path']} {file['sha256']}\n" for file in files)).encode())
    manifest["provenance"]["fingerprint"]["step:a"] = content
    (version / "manifest.json").write_text(json.dumps(manifest))
    assert list(current(spec, ["e"], spec.repository)) == ["e"]


def test_version_outside_the_model_registry_must_be_built_again(
    spec: Spec, publish_version: Callable[..., Path]
) -> None:
    """If the build registers versions; otherwise, a registered version is as good as any other."""
    publish_version(spec, "a")
    publish_version(spec, "b", in_registry=True)
    assert list(current(spec, ["a", "b"], spec.repository, registered=True)) == ["b"]
    assert list(current(spec, ["a", "b"], spec.repository)) == ["a", "b"]


def test_unconfirmed_versions_are_found_by_their_mark(spec: Spec, publish_version: Callable[..., Path]) -> None:
    """Of the given models only."""
    publish_version(spec, "a", 1)
    (publish_version(spec, "a", 2) / UNCONFIRMED_FILE).touch()
    (publish_version(spec, "b") / UNCONFIRMED_FILE).touch()
    assert unconfirmed_versions(["a"], spec.repository) == (("a", 2),)


def test_interrupted_publish_is_completed(spec: Spec, publish_version: Callable[..., Path]) -> None:
    """A journal says that config.pbtxt was about to be replaced by that of the new version."""
    version = publish_version(spec, "a")
    before, after = b"name: 'a'\n", (version / "config.pbtxt").read_bytes()
    (spec.repository / "a" / "config.pbtxt").write_bytes(before)
    journal = journal_path(spec.repository / "a")
    journal.write_text(json.dumps({"before": sha256_bytes(before), "after": sha256_bytes(after)}))
    recover_interrupted_publishes(["a", "b"], spec.repository)
    assert (spec.repository / "a" / "config.pbtxt").read_bytes() == after
    assert not journal.exists()


def test_stage_of_a_killed_build_is_removed_by_an_unchanged_one(
    spec: Spec, publish_version: Callable[..., Path]
) -> None:
    """Also the files of its preflight; a dry run changes nothing."""
    publish_version(spec, "a")
    container = spec.repository.with_name(f".{spec.repository.name}.repogen-stage")
    (container / "build-killed" / "work").mkdir(parents=True)
    (container / "build-killed" / "build.lock").touch()
    (spec.repository / ".repogen-probe-1").touch()
    build(spec, BuildOptions(models=("a",), dry_run=True), RecordedProgress())
    assert container.is_dir()
    report = build(spec, BuildOptions(models=("a",)), RecordedProgress())
    assert [model.status for model in report.models] == [Status.UNCHANGED]
    assert not container.exists()
    assert sorted(path.name for path in spec.repository.iterdir()) == ["a"]
    remove_leftovers(spec.repository / "missing", None)


def test_directory_without_a_lock_is_removed_only_if_it_is_empty(spec: Spec) -> None:
    """It may be a directory of the user that another user has renamed."""
    container = spec.repository.with_name(f".{spec.repository.name}.repogen-stage")
    (container / "build-other" / "work").mkdir(parents=True)
    (container / "build-empty").mkdir()
    remove_leftovers(spec.repository, None)
    assert [path.name for path in container.iterdir()] == ["build-other"]


@pytest.mark.parametrize("file", ["1/manifest.json", "1/config.pbtxt", "config.pbtxt", "1/model.onnx"])
def test_fifo_in_a_version(spec: Spec, publish_version: Callable[..., Path], file: str) -> None:
    """The model is built again; nothing waits for a writer."""
    publish_version(spec, "a")
    (spec.repository / "a" / file).unlink()
    os.mkfifo(spec.repository / "a" / file)
    assert current(spec, ["a"], spec.repository) == {}


def test_reasons_to_build_name_every_changed_input(spec: Spec, publish_version: Callable[..., Path]) -> None:
    """Or why the published version can't be compared."""
    reasons = compare_models(spec, ["a", "b"], spec.repository)
    assert reasons == {"a": ("no version is published",), "b": ("no version is published",)}
    directory = publish_version(spec, "a", 3)
    (directory / "model.onnx").write_bytes(b"grapH")
    assert compare_models(spec, ["a"], spec.repository)["a"] == ("version 3: model.onnx has a different sha256",)
    changed = write_spec(spec.root, a=PLAIN.replace("[2]", "[3]"), b=PLAIN)
    assert compare_models(changed, ["a"], spec.repository)["a"] == ("inputs.x in the spec changed",)
    reasons = compare_models(replace(changed, release="26.03"), ["a"], spec.repository, registered=True)
    assert reasons["a"] == (
        "inputs.x in the spec changed",
        "target Triton 24.10 -> 26.03",
        "version 3 is not in the model registry",
    )
    (directory / "manifest.json").unlink()
    assert compare_models(spec, ["a"], spec.repository)["a"] == ("version 3 was not built by repogen",)


def test_newest_version_is_up_to_date_while_another_is_held(spec: Spec, publish_version: Callable[..., Path]) -> None:
    """A hold is not a change of the model; the report has a note, and a changed file still counts."""
    for version in (1, 2):
        publish_version(spec, "a", version)
    config = spec.repository / "a" / "config.pbtxt"
    config.write_text(hold_text(config.read_text(), 1))
    report = current(spec, ["a"], spec.repository)["a"]
    note = "version 1 is held and served; `--release` of `repogen rollback` ends the hold"
    assert (report.version, report.notes) == (2, (note,))
    (spec.repository / "a" / "2" / "model.onnx").write_bytes(b"grapH")
    assert current(spec, ["a"], spec.repository) == {}


def test_large_weights_are_not_read_twice(
    tmp_path: Path, publish_version: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unchanged build compares what identifies a file; a file with the same size and time that changed is read."""
    monkeypatch.setenv("REPOGEN_CACHE_GB", "1")
    monkeypatch.setenv("REPOGEN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(remembered, "RACY_SECONDS", -1.0)
    weights = tmp_path / "w.pt"
    weights.write_bytes(bytes(2**21))
    spec = write_spec(tmp_path, a=PLAIN.replace("models.py:build", "models.py:build, weights: w.pt"))
    publish_version(spec, "a")
    assert list(current(spec, ["a"], spec.repository)) == ["a"]
    assert (tmp_path / "cache" / "digests.json").is_file()
    times = weights.stat()
    weights.write_bytes(bytes(2**21 - 1) + b"x")
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert compare_models(spec, ["a"], spec.repository)["a"] == ("the weights file changed",)

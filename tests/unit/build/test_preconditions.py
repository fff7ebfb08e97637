"""What a build rejects before it exports anything."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.report import Status
from repogen.build.pipeline import BuildOptions, build, plan_build
from repogen.build.preconditions import check_preconditions
from repogen.errors import MissingExtraError, PublishError, SpecError
from repogen.files.url import relative_text
from repogen.repository.hold import hold_text

from .conftest import PLAIN, RecordedProgress, ensemble_of, write_spec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from repogen.spec.models import Spec

FOREIGN = "repogen did not build it"
BUILD = """
import json, sys
from pathlib import Path
from repogen.artifacts.progress import Silent
from repogen.build.pipeline import BuildOptions, build
from repogen.spec.load import load_spec

report = build(load_spec(Path(sys.argv[1])), BuildOptions(), Silent())
heavy = sorted({"torch", "onnxruntime", "mlflow"} & set(sys.modules))
print(json.dumps([[(model.name, model.error.code) for model in report.models], report.exit_code, heavy]))
"""


def foreign(spec: Spec, name: str) -> Path:
    """Write a model that repogen did not build."""
    version = spec.repository / name / "1"
    version.mkdir(parents=True)
    (version / "model.onnx").write_bytes(b"theirs")
    return version


def errors(spec: Spec, **options: object) -> dict[str, tuple[str, str]]:
    """Return code and message of each rejected model's error."""
    plan = check_preconditions(plan_build(spec, BuildOptions(**options)))  # type: ignore[arg-type] # the test's own
    assert not set(plan.pending) & set(plan.rejected)
    return {name: (r.error.code, r.error.message) for name, r in plan.rejected.items() if r.error is not None}


def test_foreign_model_is_refused_before_anything_is_imported(tmp_path: Path) -> None:
    """The build fails immediately, with the exit code of publishing; the files stay."""
    spec = write_spec(tmp_path, a=PLAIN)
    version = foreign(spec, "a")
    command = [sys.executable, "-c", BUILD, str(spec.path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == [[["a", "publish.foreign-model"]], 7, []]
    assert (version / "model.onnx").read_bytes() == b"theirs"


def test_other_models_are_built(tmp_path: Path) -> None:
    """One foreign model does not stop the others; its error has the model's line in the spec."""
    spec = write_spec(tmp_path, a=PLAIN, b=PLAIN)
    foreign(spec, "a")
    plan = check_preconditions(plan_build(spec, BuildOptions()))
    assert plan.pending == ("b",)
    report = plan.rejected["a"]
    assert report.status is Status.FAILED
    assert report.error is not None
    assert FOREIGN in report.error.message
    assert report.error.where == f"{spec.path}:2:3"


def test_dry_run_publishes_nothing_and_may_verify_a_foreign_model(tmp_path: Path) -> None:
    """As `repogen diagnose` does."""
    spec = write_spec(tmp_path, a=PLAIN)
    foreign(spec, "a")
    assert errors(spec, dry_run=True) == {}


@pytest.mark.parametrize("broken", ["link", "file", "damaged"])
def test_model_directory_that_cannot_be_written(
    tmp_path: Path, publish_version: Callable[..., Path], broken: str
) -> None:
    """A link, a file, and a version with a damaged manifest."""
    spec = write_spec(tmp_path, a=PLAIN)
    version = publish_version(spec, "a")
    if broken == "damaged":
        (version / "manifest.json").write_text("{")
    else:
        (spec.repository / "a").rename(tmp_path / "elsewhere")
        if broken == "link":
            (spec.repository / "a").symlink_to(tmp_path / "elsewhere")
        else:
            (spec.repository / "a").touch()
    codes = {"link": "publish.symlink", "file": "publish.foreign-model", "damaged": "publish.damaged-version"}
    assert [code for code, _ in errors(spec, force=True).values()] == [codes[broken]]


def test_step_that_is_not_published(tmp_path: Path) -> None:
    """An ensemble is rejected if a step is neither built nor in the repository."""
    spec = write_spec(tmp_path, a=PLAIN, e=ensemble_of("a"))
    assert errors(spec, models=("e",))["e"][0] == "stage.no-step"
    assert errors(spec) == {}


@pytest.mark.parametrize("planted", ["a", "a/1"])
def test_step_of_another_user(tmp_path: Path, publish_version: Callable[..., Path], planted: str) -> None:
    """Another user created it in a repository like /tmp, and the build would run its code."""
    spec = write_spec(tmp_path, a=PLAIN, e=ensemble_of("a"))
    publish_version(spec, "a")
    os.chown(spec.repository / planted, 65534, -1)
    assert errors(spec, models=("e",)) == {}
    (spec.repository / planted).parent.chmod(0o1777)
    assert errors(spec, models=("e",))["e"][0] == "publish.foreign-model"


@pytest.mark.parametrize(("version", "code"), [(1, None), (2, "config.step-version")])
def test_version_of_a_step(tmp_path: Path, version: int, code: str | None) -> None:
    """A step that is built in the same build has the next version."""
    pinned = f"{{source: {{kind: ensemble, steps: [{{model: a, version: {version}}}]}}}}"
    spec = write_spec(tmp_path, a=PLAIN, e=pinned)
    rejected = errors(spec)
    assert rejected.get("e", (None,))[0] == code
    assert rejected.get("a", (None,))[0] == ("ensemble.held-back" if code else None)


def test_rejection_spreads_to_ensembles_and_their_steps(tmp_path: Path) -> None:
    """`b` would be verified and held back, because its ensemble cannot be built."""
    spec = write_spec(tmp_path, a=PLAIN, b=PLAIN, c=PLAIN, e=ensemble_of("a", "b"))
    foreign(spec, "a")
    rejected = errors(spec)
    assert {name: code for name, (code, _) in rejected.items()} == {
        "a": "publish.foreign-model",
        "e": "ensemble.step",
        "b": "ensemble.held-back",
    }
    assert FOREIGN in rejected["b"][1]


def test_requirements_that_are_not_installed(tmp_path: Path) -> None:
    """Python code is verified with the versions that are installed here."""
    (tmp_path / "step.py").touch()
    source = "{kind: python, path: step.py, requirements: [no-such-distribution==1.0]}"
    spec = write_spec(
        tmp_path,
        a=f"{{source: {source}, inputs: {{x: {{dtype: float32, shape: [2]}}}}, "
        "outputs: {y: {dtype: float32, shape: [2]}}}",
    )
    assert errors(spec)["a"] == (
        "source.requirements",
        "no-such-distribution is not installed here, but requirements: pins 1.0",
    )


@pytest.mark.parametrize(("where", "error"), [("extra", MissingExtraError), ("repository", PublishError)])
def test_build_that_cannot_succeed_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, error: type[Exception]
) -> None:
    """A missing extra or a repository that cannot be written stops the build before its first step."""
    spec = write_spec(tmp_path, a=PLAIN)
    if where == "extra":
        monkeypatch.setattr("repogen.worker.requirements.REQUIREMENTS", ("no_such_package",))
    else:
        (tmp_path / "model_repository").touch()
    progress = RecordedProgress()
    with pytest.raises(error):
        build(spec, BuildOptions(), progress)
    assert progress.steps == []


def test_adoption_is_a_request(tmp_path: Path) -> None:
    """Only the named model is taken over; a name that the spec does not have is an error."""
    spec = write_spec(tmp_path, a=PLAIN, b=PLAIN)
    foreign(spec, "a")
    foreign(spec, "b")
    assert list(errors(spec, adopt=("a",))) == ["b"]
    with pytest.raises(SpecError, match="has no model 'c'"):
        errors(spec, adopt=("c",))


@pytest.mark.parametrize(("pinned", "code"), [(None, "ensemble.held-step"), (1, None)])
def test_step_that_is_held(
    tmp_path: Path, publish_version: Callable[..., Path], pinned: int | None, code: str | None
) -> None:
    """An ensemble is verified with the newest version of a step, so that must be the one that is served."""
    ensemble = "{source: {kind: ensemble, steps: [{model: a%s}]}}" % (f", version: {pinned}" if pinned else "")
    spec = write_spec(tmp_path, a=PLAIN, e=ensemble)
    for version in (1, 2):
        publish_version(spec, "a", version)
    config = spec.repository / "a" / "config.pbtxt"
    config.write_text(hold_text(config.read_text(), 1))
    plan = check_preconditions(plan_build(spec, BuildOptions(dry_run=True)))
    rejected = [report.error for report in plan.rejected.values() if report.error is not None]
    place = shlex.quote(relative_text(spec.repository))
    hint = f"end the hold with `repogen rollback a --release --repository {place}`"
    assert [(error.code, error.hint) for error in rejected] == ([(code, hint)] if code else [])

"""What a build decides to do, before anything heavy is imported."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from repogen.artifacts.attestation import SigningKey
from repogen.artifacts.file_names import UNCONFIRMED_FILE
from repogen.artifacts.progress import Silent
from repogen.artifacts.report import Status
from repogen.build.pipeline import BuildOptions, build, plan_build
from repogen.errors import PublishError, RepogenError, SpecError
from repogen.spec.load import load_spec

from .conftest import PLAIN, ensemble_of, write_spec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from repogen.spec.models import Spec

TRACKED = BuildOptions(tracking_uri="sqlite:///mlflow.db")


@pytest.fixture(autouse=True)
def _no_tracking_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """Return a spec with an ensemble."""
    return write_spec(tmp_path, a=PLAIN, b=PLAIN, e=ensemble_of("b"))


def test_models_without_a_current_version_are_pending(spec: Spec, publish_version: Callable[..., Path]) -> None:
    """And the ensembles that use them; the reports of the others are ready."""
    publish_version(spec, "a")
    plan = plan_build(spec, BuildOptions())
    assert (plan.names, plan.pending, list(plan.up_to_date)) == (("a", "b", "e"), ("b", "e"), ["a"])


def test_selected_models_keep_the_order_of_the_spec(spec: Spec) -> None:
    """Whatever the order of the options."""
    assert plan_build(spec, BuildOptions(models=("e", "a"))).names == ("a", "e")


def test_force_builds_what_is_up_to_date(spec: Spec, publish_version: Callable[..., Path]) -> None:
    """Without looking at the published versions."""
    publish_version(spec, "a")
    assert plan_build(spec, BuildOptions(models=("a",), force=True)).pending == ("a",)


def test_tracked_build_registers_what_was_not_registered(spec: Spec, publish_version: Callable[..., Path]) -> None:
    """And confirms what an earlier build could not."""
    publish_version(spec, "a")
    (publish_version(spec, "b", in_registry=True) / UNCONFIRMED_FILE).touch()
    plan = plan_build(spec, TRACKED)
    assert plan.tracking is not None
    assert plan.tracking.uri == f"sqlite:///{spec.root}/mlflow.db"
    assert (plan.pending, plan.unconfirmed) == (("a", "e"), (("b", 1),))


def test_environment_alone_turns_tracking_on(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with MLflow's own tools; --no-track still turns it off."""
    assert plan_build(spec, BuildOptions()).tracking is None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    tracking = plan_build(spec, BuildOptions()).tracking
    assert tracking is not None
    assert tracking.uri == "http://127.0.0.1:1"
    assert plan_build(spec, BuildOptions(track=False)).tracking is None


def test_server_of_a_source_in_mlflow_is_an_input(tmp_path: Path) -> None:
    """Without credentials, which may change; a database in the spec's directory by its relative path."""
    (tmp_path / "repogen.yaml").write_text("models: {m: {source: {kind: mlflow, uri: models:/m/1}}}\n")
    spec = load_spec(tmp_path / "repogen.yaml")
    uris = ("https://trusted/x", "https://user:secret@trusted/x", "https://other/x", "sqlite:///mlflow.db")
    plans = [plan_build(spec, BuildOptions(tracking_uri=uri, dry_run=True, track=False)) for uri in uris]
    registries = [plan.spec.registry.strip() for plan in plans]
    assert registries == ["https://trusted/x", "https://trusted/x", "https://other/x", "sqlite:///mlflow.db"]


@pytest.mark.parametrize("flag", ["track", "dry_run"])
def test_build_without_tracking_confirms_nothing(spec: Spec, publish_version: Callable[..., Path], flag: str) -> None:
    """With --no-track and --dry-run."""
    (publish_version(spec, "b") / UNCONFIRMED_FILE).touch()
    options = BuildOptions(tracking_uri="sqlite:///m.db", **{flag: flag == "dry_run"})  # type: ignore[arg-type]
    plan = plan_build(spec, options)
    assert (plan.tracking, plan.unconfirmed) == (None, ())


def test_unknown_model_is_rejected(spec: Spec) -> None:
    """With the names of the spec's models."""
    with pytest.raises(SpecError, match="has no model 'x'") as caught:
        plan_build(spec, BuildOptions(models=("a", "x")))
    assert (caught.value.code, caught.value.hint) == ("spec.no-such-model", "its models are a, b, e")


@pytest.mark.parametrize("options", [BuildOptions(models=("digitz",)), BuildOptions(adopt=("digitz",))])
def test_misspelled_model_has_a_suggestion(tmp_path: Path, options: BuildOptions) -> None:
    """The most similar name."""
    spec = write_spec(tmp_path, digits=PLAIN, text=PLAIN)
    with pytest.raises(SpecError) as caught:
        plan_build(spec, options)
    assert caught.value.hint == 'did you mean "digits"?'


def test_repository_option_is_checked_like_the_spec_s(spec: Spec) -> None:
    """The directory of the spec cannot be a model repository."""
    with pytest.raises(SpecError, match="--repository") as caught:
        plan_build(spec, BuildOptions(repository=spec.root))
    assert caught.value.code == "spec.repository"


def test_repository_of_sync_is_rejected(spec: Spec) -> None:
    """Its versions are numbered by the model registry."""
    spec.repository.mkdir()
    (spec.repository / "repogen.json").write_text('{"schema": 1, "kind": "synced", "aliases": ["champion"]}')
    with pytest.raises(PublishError):
        plan_build(spec, BuildOptions())


UNCHANGED = """
import sys
from pathlib import Path
from repogen.artifacts.progress import Silent
from repogen.build.pipeline import BuildOptions, build
from repogen.spec.load import load_spec

report = build(load_spec(Path(sys.argv[1])), BuildOptions(), Silent())
assert [model.status.value for model in report.models] == ["unchanged"], report
heavy = {"torch", "onnx", "onnxruntime", "mlflow", "grpc", "tritonclient", "jinja2", "numpy"}
print(sorted(heavy & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("options", "code"),
    [(BuildOptions(executor="rey"), "executor.unknown"), (BuildOptions(server="tritan"), "server.kind")],
)
def test_unchanged_build_rejects_unknown_names(
    tmp_path: Path, publish_version: Callable[..., Path], options: BuildOptions, code: str
) -> None:
    """As a build that needs the executor or the server does; a known server is not started."""
    spec = write_spec(tmp_path, a=PLAIN)
    publish_version(spec, "a")
    with pytest.raises(RepogenError) as caught:
        build(spec, options, Silent())
    assert caught.value.code == code
    assert build(spec, BuildOptions(server="localhost:1"), Silent()).exit_code == 0


def test_signing_key_is_read_first(tmp_path: Path, publish_version: Callable[..., Path]) -> None:
    """Also if nothing is built; a version that is not signed has a note with the command that signs it."""
    spec = write_spec(tmp_path, a=PLAIN)
    for _ in range(2):
        for name in ("absent.pem", "models.py"):
            with pytest.raises(SpecError, match=re.escape(name)) as caught:
                build(spec, BuildOptions(signing_key=SigningKey(tmp_path / name)), Silent())
            assert (caught.value.code, caught.value.exit_code) == ("sign.key", 2)
        if not spec.repository.exists():
            version = publish_version(spec, "a")
    key = tmp_path / "key.pem"
    pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    key.write_bytes(ec.generate_private_key(ec.SECP256R1()).private_bytes(*pem))
    with pytest.raises(SpecError, match=r"absent\.crt"):
        build(spec, BuildOptions(signing_key=SigningKey(key, tmp_path / "absent.crt")), Silent())
    for option, signing_key in {"--sign-key FILE": SigningKey(key), "--sign-keyless": SigningKey(None)}.items():
        (report,) = build(spec, BuildOptions(signing_key=signing_key), Silent()).models
        command = f"repogen sign a@1 {option} --repository {os.path.relpath(spec.repository)}"
        assert report.notes == (f"version 1 is not signed: `{command}` signs it",)
    (version / "model.sig").touch()
    for options in (BuildOptions(signing_key=SigningKey(key)), BuildOptions()):
        assert build(spec, options, Silent()).models[0].notes == ()


def test_unchanged_build_imports_nothing_heavy(tmp_path: Path, publish_version: Callable[..., Path]) -> None:
    """It takes a fraction of a second; importing torch alone takes several."""
    spec = write_spec(tmp_path, a=PLAIN)
    publish_version(spec, "a")
    command = [sys.executable, "-c", UNCHANGED, str(spec.path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("[]\n", "")


def test_unchanged_build_reports_in_the_order_of_the_spec(tmp_path: Path, publish_version: Callable[..., Path]) -> None:
    """And exits with 0."""
    spec = write_spec(tmp_path, b=PLAIN, a=PLAIN)
    for name in spec.models:
        publish_version(spec, name)
    report = build(spec, BuildOptions(), Silent())
    assert [(model.name, model.status) for model in report.models] == [
        ("b", Status.UNCHANGED),
        ("a", Status.UNCHANGED),
    ]
    assert report.exit_code == 0

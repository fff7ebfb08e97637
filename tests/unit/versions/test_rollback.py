"""`repogen rollback`: an older version serves again with its own config, and is held until the hold ends."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import repogen
from repogen.artifacts.progress import Silent
from repogen.artifacts.rollback import RollbackOptions, RollbackOutcome
from repogen.artifacts.sync import SyncAction, SyncOptions
from repogen.cli.group import main
from repogen.errors import PublishError, RepogenError
from repogen.registry.sync.sync import sync
from repogen.repository.manifest import manifest_to_json, read_manifest
from repogen.repository.own_config import stage_config
from repogen.repository.publish import publish
from repogen.versions import rollback as module
from repogen.versions.rollback import roll_back
from tests.support.published import contents
from tests.support.scaled_models import Scaled, publish_ensemble, publish_scaled
from tests.support.simulated_registry import SimulatedRegistry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.published import Publisher


@pytest.fixture
def three(publisher: Publisher) -> Publisher:
    """Return a repository with three versions of `m`; the first neither batches nor has the others' shape."""
    publisher.publish(weights=b"1", batch=0, shape=(1, 3), labels=("a", "b"))
    publisher.publish(weights=b"2", labels=("c", "d"))
    publisher.publish(weights=b"3", policy="latest { num_versions: 1 }")
    return publisher


def served(publisher: Publisher) -> tuple[tuple[int, ...], int | None]:
    """Return which versions of `m` are served, and which is held."""
    (model,) = repogen.versions("m", repository=publisher.repository).models
    assert model.problem == ""
    return model.served, model.held


def error_of(function: Callable[[], object]) -> RepogenError:
    """Return the error that a call raises."""
    with pytest.raises(RepogenError) as caught:
        function()
    return caught.value


def test_back_by_one_and_to_a_version(three: Publisher) -> None:
    """Without --to, each rollback goes back by one version; the config is the version's own except for the policy."""
    model = three.repository / "m"
    before = {name for name in contents(three.repository) if name.startswith("repo/m/")}
    reports = [repogen.rollback("m", repository=three.repository) for _ in range(2)]
    assert [(report.before, report.after, report.held) for report in reports] == [((3,), (2,), 2), ((2,), (1,), 1)]
    assert reports[1].notes == (
        "changed for clients: input 'x' was float32 [-1, 4], is float32 [1, 3]",
        "changed for clients: output 'y' was float32 [-1, 4], is float32 [1, 3]",
    )
    own = (model / "1" / "config.pbtxt").read_text()
    lines = (model / "config.pbtxt").read_text().splitlines()
    assert [line for line in lines if line not in own.splitlines()] == [
        "# repogen: held at version 1",
        "# `repogen rollback` wrote this file; `repogen rollback NAME --release` ends the hold.",
        "version_policy: { specific: { versions: [ 1 ] } }",
    ]
    assert before <= set(contents(three.repository))  # nothing is deleted
    assert repogen.verify(three.repository).findings == ()
    assert repogen.rollback("m", 3, repository=three.repository).after == (3,)
    assert served(three) == ((3,), 3)


def test_missing_named_files_are_restored(three: Publisher) -> None:
    """The files that the version's config names come from the version's directory."""
    model = three.repository / "m"
    for path in (*model.glob("labels-*"), *model.glob("warmup/*")):
        path.unlink()
    assert repogen.rollback("m", 2, repository=three.repository).held == 2
    assert repogen.verify(three.repository).findings == ()


def test_release(three: Publisher) -> None:
    """The newest version's own config is in place again; a rerun changes nothing."""
    config = three.repository / "m" / "config.pbtxt"
    before = config.read_bytes()
    repogen.rollback("m", repository=three.repository)
    report = repogen.rollback("m", repository=three.repository, release=True)
    assert (report.outcome, report.before, report.after, report.held) == (RollbackOutcome.RELEASED, (2,), (3,), None)
    assert config.read_bytes() == before
    state = contents(three.repository)
    again = repogen.rollback("m", repository=three.repository, release=True)
    assert (again.outcome, again.after) == (RollbackOutcome.UNCHANGED, (3,))
    assert contents(three.repository) == state


def test_same_version_again(three: Publisher) -> None:
    """Holding the version that is held changes nothing."""
    repogen.rollback("m", 1, repository=three.repository)
    state = contents(three.repository)
    assert repogen.rollback("m", 1, repository=three.repository).outcome is RollbackOutcome.UNCHANGED
    assert contents(three.repository) == state


def test_dry_run(three: Publisher) -> None:
    """The report is the same, and nothing is changed."""
    state = contents(three.repository)
    planned = repogen.rollback("m", repository=three.repository, dry_run=True)
    assert contents(three.repository) == state
    assert replace(planned, dry_run=False) == repogen.rollback("m", repository=three.repository)


def test_publish_under_a_hold(three: Publisher) -> None:
    """A new version, also one with another signature, is added and not served; the release serves it."""
    repogen.rollback("m", 1, repository=three.repository)
    config = (three.repository / "m" / "config.pbtxt").read_bytes()
    for number, parts in ((4, {"weights": b"4"}), (5, {"weights": b"5", "shape": ("batch", 9), "labels": ("e", "f")})):
        published = publish(three.stage(**parts), three.repository, breaking=True)
        assert (published.version, published.held) == (number, 1)
    assert (three.repository / "m" / "config.pbtxt").read_bytes() == config
    assert served(three) == ((1,), 1)
    repogen.rollback("m", repository=three.repository, release=True)
    assert served(three) == ((5,), None)
    assert repogen.verify(three.repository).findings == ()


def test_interrupted_publish_is_completed_before(three: Publisher) -> None:
    """A journal of a killed publish is settled, and does not undo the hold later."""
    model = three.repository / "m"
    journal = model.parent / ".repogen.m.pending.json"
    journal.write_text(json.dumps({"before": "", "after": ""}))
    repogen.rollback("m", repository=three.repository)
    assert (journal.exists(), served(three)) == (False, ((2,), 2))


def test_sync_keeps_a_hold(publisher: Publisher, tmp_path: Path) -> None:
    """A sync ignores the model, with and without the alias and --prune; after the release it follows the alias."""
    publisher.publish(weights=b"1")
    publisher.publish(weights=b"2", batch=0)
    registry, target = SimulatedRegistry(tmp_path / "registry"), tmp_path / "synced"
    for number in ("1", "2"):
        registry.register(publisher.repository / "m" / number)
    for version in (1, 2):
        registry.point("m", "champion", version)
        sync(registry, target, SyncOptions("champion"), Silent())
    assert repogen.rollback("m", repository=target).after == (1,)
    for alias in (2, None):
        registry.point("m", "champion", alias)
        (row,) = sync(registry, target, SyncOptions("champion", prune=True), Silent()).versions
        assert row.action is SyncAction.IGNORED
        assert "version 1 is held" in row.note
    registry.point("m", "champion", 2)
    assert repogen.rollback("m", repository=target, release=True).after == (1,)
    assert sync(registry, target, SyncOptions("champion"), Silent()).changed
    assert repogen.versions(repository=target).models[0].served == (2,)


def test_ensemble_that_would_not_load(three: Publisher) -> None:
    """A rollback that breaks an ensemble is rejected, and allowed with --allow-breaking."""
    ensemble = three.repository / "e"
    (ensemble / "1").mkdir(parents=True)
    tensors = "".join(
        f'{kind} [ {{ name: "{kind[0]}" data_type: TYPE_FP32 dims: 4 }} ]' for kind in ("input", "output")
    )
    maps = 'input_map { key: "x" value: "i" } output_map { key: "y" value: "o" }'
    step = f'step [ {{ model_name: "m" model_version: -1 {maps} }} ]'
    (ensemble / "config.pbtxt").write_text(
        f'name: "e" platform: "ensemble" max_batch_size: 8 {tensors} ensemble_scheduling {{ {step} }}'
    )
    assert repogen.rollback("m", 2, repository=three.repository).notes == ()
    error = error_of(lambda: repogen.rollback("m", 1, repository=three.repository))
    assert (error.code, served(three)) == ("rollback.ensemble", ((2,), 2))
    report = repogen.rollback("m", 1, repository=three.repository, allow_breaking=True)
    assert report.notes[-1].startswith("e no longer loads: ")


def test_ensemble_that_was_verified_with_another_version(tmp_path: Path) -> None:
    """The note has the command that tests it."""
    repository = tmp_path / "repo"
    for factor in (2.0, 3.0):
        publish_scaled(repository, "m", Scaled(factor))
    publish_ensemble(repository, "e", "m", Scaled(3.0))
    version = repository / "e" / "1"
    manifest = read_manifest(version)
    fingerprint = {"step:m": read_manifest(repository / "m" / "2").content_sha256}
    provenance = replace(manifest.provenance, fingerprint=fingerprint)
    (version / "manifest.json").write_text(manifest_to_json(replace(manifest, provenance=provenance)))
    (note,) = repogen.rollback("m", repository=repository).notes
    assert note == (
        "ensemble e was verified with another version of m; to test it with the version that is served, run `repogen "
        "smoke REPOSITORY --model e`"
    )


def _edit(path: Path) -> None:
    path.write_text(path.read_text() + "# mine\n")


def _link(path: Path) -> None:
    path.rename(path.parent.parent / "x")
    path.symlink_to("../x")


def _other_model(path: Path) -> None:
    path.write_text(manifest_to_json(replace(read_manifest(path.parent), model="n")))


REJECTED: list[tuple[str, Callable[[Path], object], dict[str, object], str]] = [
    ("edited", lambda model: _edit(model / "config.pbtxt"), {}, "rollback.edited-config"),
    ("damaged", lambda model: (model / "2" / "model.onnx").write_bytes(b"x"), {}, "rollback.damaged-version"),
    ("module", lambda model: (model / "2" / "manifest.json").write_text("{"), {"to": 2}, "rollback.unusable-version"),
    ("other model", lambda model: _other_model(model / "2" / "manifest.json"), {}, "rollback.unusable-version"),
    ("no manifest", lambda model: (model / "1" / "manifest.json").unlink(), {"to": 1}, "rollback.unusable-version"),
    ("no version", lambda _: None, {"to": 7}, "repository.no-such-version"),
    ("no model", lambda _: None, {"name": "n"}, "repository.no-such-model"),
    ("outside", lambda _: None, {"name": "../repo/m"}, "repository.no-such-model"),
    ("no repository", lambda _: None, {"repository": "none"}, "repository.missing"),
    ("link", _link, {}, "publish.symlink"),
]


@pytest.mark.parametrize(("spoil", "arguments", "code"), [case[1:] for case in REJECTED], ids=[c[0] for c in REJECTED])
def test_rejected(three: Publisher, spoil: Callable[[Path], object], arguments: dict[str, object], code: str) -> None:
    """Each is an error with its own code, and changes nothing."""
    spoil(three.repository / "m")
    before = contents(three.repository)
    error = error_of(lambda: repogen.rollback(**{"name": "m", "repository": three.repository, **arguments}))  # type: ignore[arg-type]
    assert (error.code, int(error.exit_code)) == (code, 2 if code.startswith("repository.") else 7)
    assert contents(three.repository) == before


def test_first_version_has_no_earlier_one(publisher: Publisher) -> None:
    """The only version can be held, and there is nothing to go back to."""
    publisher.publish()
    error = error_of(lambda: repogen.rollback("m", repository=publisher.repository))
    assert (error.code, error.hint) == ("rollback.no-earlier", "repogen built no other version of it")
    assert repogen.rollback("m", 1, repository=publisher.repository).held == 1


def test_hint_lists_only_versions_that_can_be_chosen(three: Publisher) -> None:
    """Versions that existed before ``build --adopt`` have no manifest, and ``--to`` rejects them."""
    (three.repository / "m" / "1" / "manifest.json").unlink()
    assert repogen.rollback("m", repository=three.repository).held == 2
    error = error_of(lambda: repogen.rollback("m", repository=three.repository))
    assert (error.code, error.hint) == ("rollback.no-earlier", "choose one with --to: 3")
    assert error_of(lambda: repogen.rollback("m", 9, repository=three.repository)).hint.endswith("built: 3, 2")


def test_foreign_model(tmp_path: Path) -> None:
    """A model that repogen did not build has no version to go back to."""
    for number in ("1", "2"):
        (tmp_path / "r" / "m" / number).mkdir(parents=True)
    (tmp_path / "r" / "m" / "config.pbtxt").write_text('name: "m" backend: "onnxruntime"', encoding="utf-8")
    assert error_of(lambda: repogen.rollback("m", repository=tmp_path / "r")).code == "rollback.no-earlier"
    assert error_of(lambda: repogen.rollback("m", 1, repository=tmp_path / "r")).code == "rollback.unusable-version"
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


def test_model_that_changes_meanwhile(three: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """A publish between the preparation and the lock makes the rollback fail, and it is not undone."""
    staged = three.stage(weights=b"4")

    def publish_meanwhile(*arguments: object) -> None:
        stage_config(*arguments)  # type: ignore[arg-type]
        publish(staged, three.repository, breaking=True)

    monkeypatch.setattr(module, "stage_config", publish_meanwhile)
    error = error_of(lambda: roll_back(three.repository, "m", RollbackOptions()))
    assert (error.code, served(three)) == ("rollback.changed-meanwhile", ((4,), None))


def test_served_version_is_held_and_released(three: Publisher) -> None:
    """The text does not state that a version is served instead of itself."""
    arguments = ["rollback", "m", "--repository", str(three.repository)]
    result = CliRunner().invoke(main, [*arguments, "--to", "3"])
    assert "m: holds version 3, which is served\n" in result.output
    result = CliRunner().invoke(main, [*arguments, "--release"])
    assert result.output == "m: the hold ended; serves version 3\n"


def test_command(three: Publisher) -> None:
    """The command prints what is served, and its JSON has the same."""
    arguments = ["rollback", "m", "--repository", str(three.repository)]
    result = CliRunner().invoke(main, [*arguments, "--dry-run"])
    assert (result.exit_code, "m: would serve version 2 instead of 3" in result.output) == (0, True)
    result = CliRunner().invoke(main, arguments)
    assert result.output.endswith(
        "m: serves version 2 instead of 3\n\nbuild and sync keep it until `repogen rollback m --release --repository "
        f"{three.repository}`\n"
    )
    document = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).output)
    assert (document["outcome"], document["after"], document["held"]) == ("held", [1], 1)
    result = CliRunner().invoke(main, [*arguments, "--release"])
    assert result.output.endswith("\n\nm: serves version 3 instead of 1\n")
    result = CliRunner().invoke(main, [*arguments, "--release", "--to", "1"])
    assert (result.exit_code, "Error: --release and --to are mutually exclusive" in result.output) == (2, True)
    assert PublishError.exit_code == 7

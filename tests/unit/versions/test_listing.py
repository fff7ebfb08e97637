"""`repogen versions` on repositories that repogen built, that it did not build, damaged ones, and none."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

import repogen
from repogen.artifacts.progress import Silent
from repogen.artifacts.sync import SyncOptions
from repogen.cli.group import main
from repogen.errors import SpecError, TrackingError
from repogen.registry.sync.sync import sync
from repogen.repository import manifest
from repogen.repository.decode import read_record
from repogen.repository.inventory import read_models
from repogen.versions.listing import list_versions, with_entries
from tests.support.published import contents
from tests.support.simulated_registry import SimulatedRegistry

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.published import Publisher


def run(*arguments: str) -> tuple[int, str]:
    """Return exit code and output of ``repogen versions``."""
    result = CliRunner().invoke(main, ["versions", *arguments])
    return result.exit_code, result.output


def test_built_repository(publisher: Publisher) -> None:
    """Every version is listed, newest first, and the policy decides which are served; nothing is changed."""
    for weights in (b"1", b"22", b"333"):
        publisher.publish(weights=weights, policy="latest { num_versions: 2 }")
    before = contents(publisher.repository)
    (model,) = repogen.versions(repository=publisher.repository).models
    assert [(version.version, version.served) for version in model.versions] == [(3, True), (2, True), (1, False)]
    assert (model.served, model.newest_served, model.held, model.problem) == ((3, 2), 3, None, "")
    first = model.find(1)
    assert first is not None
    assert first.manifest is not None
    listed = sum(path.stat().st_size for path in first.path.iterdir() if path.name != "manifest.json")
    assert (first.size, first.created[:2], first.created[-1:], first.confirmed) == (listed, "20", "Z", True)
    assert contents(publisher.repository) == before
    code, output = run("m", "--repository", str(publisher.repository))
    assert code == 0
    assert [line.split()[:3] for line in output.splitlines()[2:5]] == [
        ["m", "3", "yes"],
        ["m", "2", "yes"],
        ["m", "1", "-"],
    ]


def test_foreign_model(tmp_path: Path) -> None:
    """What Triton serves, the size and the time are known of a model that repogen did not build."""
    version = tmp_path / "foreign" / "7"
    version.mkdir(parents=True)
    (version / "model.onnx").write_bytes(bytes(1000))
    (version / "link").symlink_to(version / "model.onnx")
    os.mkfifo(version / "fifo")
    (tmp_path / "foreign" / "5x").mkdir()
    (model,) = repogen.versions(repository=tmp_path).models
    (record,) = model.versions
    assert (record.served, record.size, record.manifest, record.created != "") == (True, 1000, None, True)
    assert record.problem == "repogen did not build it: it has no manifest.json"
    assert "repogen did not build it" in run("--repository", str(tmp_path))[1]


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda model: (model / "config.pbtxt").write_text("no_such_field: 1"), "no field named"),
        (lambda model: (model / "config.pbtxt").write_bytes(b"\xff"), "config.pbtxt is not UTF-8"),
        (lambda model: (model / "config.pbtxt").write_bytes(b"#" * 2**21), "is larger than 1 MiB"),
        (lambda model: (model / "config.pbtxt").write_text("version_policy { specific {} }"), "serves none"),
        (lambda model: (model / "9x").mkdir(), "version 9, whose directory does not exist"),
    ],
)  # fmt: skip
def test_damaged_model(publisher: Publisher, spoil: object, problem: str) -> None:
    """The model's problem is a note, and the others are listed."""
    publisher.publish()
    publisher.publish("other")
    assert callable(spoil)
    spoil(publisher.repository / "m")
    model, other = repogen.versions(repository=publisher.repository).models
    assert problem in model.problem
    assert (len(model.versions), other.problem) == (1, "")
    assert run("--repository", str(publisher.repository))[0] == 0


@pytest.mark.parametrize("text", ["{", "[]", ""])
def test_damaged_manifest(publisher: Publisher, text: str) -> None:
    """A version with a damaged manifest is listed with the reason."""
    publisher.publish()
    (publisher.repository / "m" / "1" / "manifest.json").write_text(text)
    (publisher.repository / "repogen.json").write_text(text)
    report = repogen.versions(repository=publisher.repository)
    (record,) = report.models[0].versions
    assert record.problem.startswith("m/1/manifest.json: ")
    assert "repogen.json" in report.notes[0]
    assert run("--repository", str(publisher.repository), "--json")[0] == 0


def test_empty_and_missing_repository(tmp_path: Path) -> None:
    """An empty repository has no versions; one that does not exist is an error, as is a name that leads out of it."""
    repository = tmp_path / "empty"
    repository.mkdir()
    (tmp_path / "m").mkdir()
    code, output = run("--repository", str(repository))
    assert (code, output.endswith("has no models\n")) == (0, True)
    for arguments in (["--repository", str(tmp_path / "none")], ["../m", "--repository", str(repository)]):
        code, output = run(*arguments)
        assert (code, "error: " in output) == (2, True)
    assert list(repository.iterdir()) == []


def test_numbers_and_aliases_of_the_registry(publisher: Publisher, tmp_path: Path) -> None:
    """A version is found in the registry by its content; the registry is queried only if a version was registered."""
    for weights in (b"1", b"2"):
        publisher.publish(weights=weights)
    registry = SimulatedRegistry(tmp_path / "registry")
    registry.register(publisher.repository / "m" / "2")
    registry.register(publisher.repository / "m" / "1", "champion", "stable")

    def unexpected() -> SimulatedRegistry:
        raise AssertionError

    assert list_versions(publisher.repository, (), unexpected).notes == ()
    target = tmp_path / "synced"
    sync(registry, target, SyncOptions("champion"), Silent())
    report = list_versions(target, (), lambda: registry)
    assert report.owner == "synced"
    (record,) = report.models[0].versions
    assert (record.version, record.registry_version, record.aliases) == (2, 2, ("champion", "stable"))


def test_alias_of_one_of_two_versions_with_the_same_files(publisher: Publisher, tmp_path: Path) -> None:
    """As after a build with --force; where the aliased version was deleted, the other one is what the alias needs."""
    registry = SimulatedRegistry(tmp_path / "registry")
    for aliases in ((), ("champion",)):
        number = publisher.publish()
        registry.register(publisher.repository / "m" / str(number), *aliases)
    (model,), entries = read_models(publisher.repository, ()), registry.entries("m")
    second, first = with_entries(model, "", entries).versions
    assert [(v.version, v.registry_version, v.aliases) for v in (second, first)] == [(2, 2, ("champion",)), (1, 1, ())]
    (alone,) = with_entries(replace(model, versions=model.versions[1:]), "", entries).versions
    assert (alone.version, alone.aliases) == (1, ("champion",))


def test_version_that_was_not_registered(publisher: Publisher, tmp_path: Path) -> None:
    """Of several versions with the same files, only the registered one has a number: `prune` keeps no other one."""
    registry = SimulatedRegistry(tmp_path / "registry")
    for _ in range(2):
        publisher.publish()
    registry.register(publisher.repository / "m" / "2", "champion")
    (model,), entries = read_models(publisher.repository, ()), registry.entries("m")
    second, first = with_entries(model, "", entries).versions
    assert (second.registry_version, second.aliases) == (1, ("champion",))
    assert (first.registry_version, first.aliases) == (None, ())


def test_number_of_an_entry_with_other_files(publisher: Publisher, tmp_path: Path) -> None:
    """A copy from another repository keeps its alias, although its number there is that of other files here."""
    registry = SimulatedRegistry(tmp_path / "registry")
    for weights in (b"1", b"2"):
        publisher.publish(weights=weights)
    registry.register(publisher.repository / "m" / "1", "champion")
    (model,) = read_models(publisher.repository, ())
    (entry,) = (replace(entry, triton_version=2) for entry in registry.entries("m"))
    second, first = with_entries(model, "", [entry]).versions
    assert (first.registry_version, first.aliases) == (1, ("champion",))
    assert (second.registry_version, second.aliases) == (None, ())


def test_unreachable_registry_is_a_note(publisher: Publisher, tmp_path: Path) -> None:
    """The versions are listed nevertheless."""
    publisher.publish()
    registry = SimulatedRegistry(tmp_path / "registry")
    registry.register(publisher.repository / "m" / "1", "champion")
    target = tmp_path / "synced"
    sync(registry, target, SyncOptions("champion"), Silent())
    registry.calls_left = 0
    report = list_versions(target, (), lambda: registry)
    assert len(report.models) == 1
    assert report.notes == ("the model registry was not read: the registry does not respond",)


def test_unknown_model(publisher: Publisher) -> None:
    """The hint lists the models."""
    publisher.publish()
    with pytest.raises(SpecError, match="has no model n") as caught:
        repogen.versions("n", repository=publisher.repository)
    assert caught.value.hint == "models of the repository: m"
    assert TrackingError.exit_code == 8


def test_hidden_directory_is_a_model(publisher: Publisher) -> None:
    """Triton loads it; the name does not end the command."""
    publisher.publish()
    (publisher.repository / "..x").mkdir()
    models = read_models(publisher.repository)
    assert [(model.name, len(model.versions)) for model in models] == [("..x", 0), ("m", 1)]


def test_manifest_of_links_is_read_once(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links of many versions to one directory read a manifest of 16 MiB for each of them."""
    publisher.publish()
    model = publisher.repository / "m"
    for number in range(2, 6):
        (model / str(number)).symlink_to("1")
    read = Mock(wraps=read_record)
    monkeypatch.setattr(manifest, "read_record", read)
    (record,) = read_models(publisher.repository)
    assert read.call_count == 1
    assert len({id(version.manifest) for version in record.versions}) == 1
    assert [version.version for version in record.versions] == [5, 4, 3, 2, 1]

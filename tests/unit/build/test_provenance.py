"""The git commit and the tools in a version's provenance."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from repogen.build.fingerprint import build_inputs
from repogen.build.provenance import git_commit, provenance
from repogen.files.git import git
from repogen.version import __version__

from .conftest import PLAIN, built_model, write_spec

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository with one commit."""
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "models.py").write_text("x = 1\n")
    identity = ("-c", "user.name=n", "-c", "user.email=e@x.org", "-c", "commit.gpgsign=false")
    for command in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "first")):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)  # noqa: S607 - git from PATH
    return tmp_path


def test_clean_checkout_is_its_commit(checkout: Path) -> None:
    """Forty hex digits."""
    assert len(git_commit(checkout)) == 40


def test_output_of_the_build_does_not_make_it_dirty(checkout: Path) -> None:
    """The staging directory and the repository are untracked files next to the spec."""
    (checkout / "model_repository").mkdir()
    (checkout / "model_repository" / "config.pbtxt").touch()
    assert len(git_commit(checkout)) == 40


def test_edited_file_makes_it_dirty(checkout: Path) -> None:
    """The suffix is that of ``git describe``."""
    (checkout / "models.py").write_text("x = 2\n")
    assert git_commit(checkout).endswith("-dirty")


def test_commit_is_empty_outside_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is not an error."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_commit(tmp_path) == ""


def test_provenance_has_inputs_tools_and_measurements(tmp_path: Path) -> None:
    """The inputs are those from before the worker ran."""
    spec = write_spec(tmp_path, m=PLAIN)
    inputs = build_inputs(spec, "m")
    origin = provenance(spec, inputs, built_model(tmp_path))
    assert (origin.spec_sha256, origin.target, origin.fingerprint) == (
        inputs["spec"],
        "24.10",
        dict(sorted(inputs.items())),
    )
    assert (origin.tools["repogen"], "torch" in origin.tools) == (__version__, True)
    assert (origin.exporter, origin.opset, origin.nodes_exported, origin.nodes_optimized) == ("dynamo", 20, 4, 3)


@pytest.mark.parametrize(
    "settings",
    [
        '[core]\n\tfsmonitor = "touch {marker}; false"\n',
        '[filter "a=b"]\n\tclean = "touch {marker}; cat"\n\trequired = true\n',
        '[filter "x"]\n\tprocess = "touch {marker}; false"\n',
        "[core]\n\thooksPath = {hooks}\n",
    ],
    ids=["monitor", "filter", "process", "hooks"],
)
def test_programs_of_the_repository_are_not_run(checkout: Path, settings: str) -> None:
    """An archive with a spec can contain a directory .git, whose settings are then the user's own files."""
    hooks, marker = checkout / "hooks", checkout / "marker"
    hooks.mkdir()
    (hooks / "post-index-change").write_text(f"#!/bin/sh\ntouch {marker}\n")
    (hooks / "post-index-change").chmod(0o755)
    with (checkout / ".git" / "config").open("a") as stream:
        stream.write(settings.format(marker=marker, hooks=hooks))
    (checkout / ".git" / "info" / "attributes").write_text(f"* filter={'a=b' if 'a=b' in settings else 'x'}\n")
    (checkout / "models.py").write_text("x = 2\n")
    assert git_commit(checkout).endswith("-dirty")
    assert not marker.exists()


def test_settings_that_change_later_are_not_used(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user could write them, and change them between two commands of git."""
    marker, run = checkout / "marker", subprocess.run

    def change_before(command: list[str], **options: Any) -> Any:
        if "status" in command:
            settings = f'[filter "x"]\n\tclean = "touch {marker}; cat"\n\trequired = true\n'
            (checkout / ".git" / "config").write_text(f"[core]\n\trepositoryformatversion = 0\n{settings}")
        return run(command, **options)

    (checkout / ".gitattributes").write_text("* filter=x\n")
    (checkout / "models.py").write_text("x = 2\n")
    monkeypatch.setattr(subprocess, "run", change_before)
    assert git_commit(checkout).endswith("-dirty")
    assert not marker.exists()


def test_bare_repository_in_a_directory_above_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user can create its files in a directory such as /tmp, and git checks only the owner of the directory."""
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path)], check=True)  # noqa: S607 - git from PATH
    subprocess.run(["git", "-C", str(tmp_path), "config", "core.bare", "false"], check=True)  # noqa: S607 - the same
    subprocess.run(["git", "-C", str(tmp_path), "config", "core.worktree", str(tmp_path)], check=True)  # noqa: S607
    (tmp_path / "project").mkdir()
    assert git(tmp_path / "project", "rev-parse", "--git-dir") is None


@pytest.mark.parametrize("change", [("core.fileMode", "false"), ("core.splitIndex", "true")])
def test_settings_that_decide_what_is_changed(checkout: Path, change: tuple[str, str]) -> None:
    """They are those of the repository; and so is a split index."""
    for command in (("config", *change), ("update-index", "--split-index")):
        subprocess.run(["git", "-C", str(checkout), *command], check=True)  # noqa: S607 - git from PATH
    if change[0] == "core.fileMode":
        (checkout / "models.py").chmod(0o755)
    assert len(git_commit(checkout)) == 40


def test_worktree_of_a_repository_with_sha256(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A linked work tree has its own index, and the objects of the repository."""
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    first, second = tmp_path / "first", tmp_path / "second"
    identity = ("-c", "user.name=n", "-c", "user.email=e@x.org", "-c", "commit.gpgsign=false")
    first.mkdir()
    (first / "models.py").write_text("x = 1\n")
    for command in (
        ("init", "-q", "--object-format=sha256"), ("add", "."), (*identity, "commit", "-qm", "first"),
        ("worktree", "add", "-q", str(second)),
    ):  # fmt: skip
        subprocess.run(["git", "-C", str(first), *command], check=True)  # noqa: S607 - git from PATH
    assert len(git_commit(second)) == 64
    (second / "models.py").write_text("x = 22\n")
    assert git_commit(second).endswith("-dirty")


def test_settings_of_the_environment_are_kept(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example ``safe.directory``, which containers of a CI system set."""
    for name, value in (("COUNT", "1"), ("KEY_0", "status.branch"), ("VALUE_0", "true")):
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    assert git(checkout, "config", "status.branch") == "true"


def test_status_that_fails_is_not_a_clean_checkout(checkout: Path) -> None:
    """The commit is then not known."""
    (checkout / ".git" / "index").write_bytes(b"damaged")
    assert git_commit(checkout) == ""

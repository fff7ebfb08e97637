"""What a release does: notes from the changelog, and the tag of the major version."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tools.release_notes import release_notes

ROOT = Path(__file__).parents[2]
GIT = shutil.which("git") or "git"
CHANGELOG = """\
# Changelog

## [Unreleased]

## [0.2.0] - 2026-12-01

### Added

- Two.

## [0.1.0] - 2026-11-01

- One.
"""
GH = """\
#!/bin/sh
echo "$@" >> "$LOG"
case "$*" in *"/git/ref/tags/"*) exit "$MISSING" ;; esac
"""


def test_notes_are_the_section_of_the_version() -> None:
    """A version without a section, or with an empty one, has no notes."""
    assert release_notes(CHANGELOG, "0.2.0") == "### Added\n\n- Two.\n"
    assert release_notes(CHANGELOG, "0.1.0") == "- One.\n"
    for version in ("0.3.0", "Unreleased", "0.1"):
        with pytest.raises(ValueError, match="has no section"):
            release_notes(CHANGELOG, version)


@pytest.mark.parametrize(
    ("tag", "missing", "expected"),
    [
        ("v1.3.0", "0", "--method PATCH repos/team/x/git/refs/tags/v1 -f sha=c0ffee -F force=true"),
        ("v1.3.0", "1", "--method POST repos/team/x/git/refs -f ref=refs/tags/v1 -f sha=c0ffee"),
        ("v1.2.9", "0", ""),
        ("v2.0.0", "1", "--method POST repos/team/x/git/refs -f ref=refs/tags/v2 -f sha=c0ffee"),
    ],
)
def test_tag_of_the_major_version_moves_forward(tag: str, missing: str, expected: str, tmp_path: Path) -> None:
    """The newest release of a major version moves its tag or creates it; a fix of an older one does not move it."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    steps = workflow["jobs"]["release"]["steps"]
    (script,) = (step["run"] for step in steps if step.get("name") == "Move the tag of the major version")
    command = tmp_path / "gh"
    command.write_text(GH, encoding="utf-8")
    command.chmod(0o755)
    author = ("-c", "user.name=n", "-c", "user.email=n@example.com")
    commands: list[tuple[str, ...]] = [("init", "-q"), (*author, "commit", "-qm", "x", "--allow-empty")]
    commands += [("tag", name) for name in ("v1.2.9", "v1.3.0", "v2.0.0", "v1")]
    for words in commands:
        subprocess.run([GIT, *words], cwd=tmp_path, check=True, capture_output=True)
    log = tmp_path / "log"
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(log), "MISSING": missing}
    variables |= {"GITHUB_REF_NAME": tag, "GITHUB_SHA": "c0ffee", "GITHUB_REPOSITORY": "team/x"}
    bash = ["/bin/bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    run = subprocess.run(bash, env=variables, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    calls = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    assert [call for call in calls if "--method" in call] == ([f"api --silent {expected}"] if expected else [])

"""Tests for ``repogen doctor`` and for the command that installs an extra."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.environment import Check
from repogen.distribution import dependencies, install_command
from repogen.doctor import diagnose
from repogen.reporting.text import doctor_text

if TYPE_CHECKING:
    from collections.abc import Iterable


def hide(monkeypatch: pytest.MonkeyPatch, names: Iterable[str]) -> None:
    """Make distributions look like they are not installed."""
    version = importlib.metadata.version

    def installed_version(name: str) -> str:
        if name in names:
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(importlib.metadata, "version", installed_version)


def install(monkeypatch: pytest.MonkeyPatch, direct_url: str) -> None:
    """Make repogen look like it was installed from the place in a ``direct_url.json``."""
    distribution = SimpleNamespace(read_text=lambda _name: direct_url)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _name: distribution)


PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


@pytest.mark.parametrize("extra", EXTRAS)
def test_missing_extra_is_optional(monkeypatch: pytest.MonkeyPatch, extra: str) -> None:
    """An installation without an extra is complete; one command installs the extra."""
    hide(monkeypatch, {requirement.name for requirement in dependencies()[extra]})
    checks = diagnose()
    members = [check for check in checks if check.group == extra]
    assert [(check.ok, check.optional, check.remedy) for check in members] == [(True, True, install_command(extra))]
    assert doctor_text(checks).count(install_command(extra)) == 1


def test_package_of_another_extra_does_not_make_an_extra_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow requires SQLAlchemy, which `tune` uses as well: without the rest of `tune`, nothing is missing."""
    hide(monkeypatch, {"optuna", "ruamel.yaml", "vl-convert-python"})
    members = [check for check in diagnose() if check.group == "tune"]
    assert [(check.name, check.ok, check.optional) for check in members] == [("tune", True, True)]


def test_incomplete_extra_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """An extra with some of its packages does not work."""
    hide(monkeypatch, {"onnxscript"})
    checks = diagnose()
    assert [check.name for check in checks if not check.ok] == ["onnxscript"]
    assert f"to fix:\n  {install_command('build')}" in doctor_text(checks)


def test_details_are_wrapped_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, below the first line of the details."""
    check = Check("gpu", "none; models are smoke-tested on the CPU", ok=True, group="servers")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda: True))
    text = doctor_text([check])
    assert text.splitlines()[:3] == [
        "servers",
        "  ok       gpu  none; models are",
        "                smoke-tested on the CPU",
    ]


def test_machine_without_embedded_triton_gets_the_alternatives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Building on macOS works, with another server or without a smoke test."""
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    checks = [check for check in diagnose() if "embedded" in check.name]
    assert [(check.ok, check.optional) for check in checks] == [(True, True)]
    assert "Darwin on arm64" in checks[0].found
    assert "HOST:PORT of a running Triton server; or `repogen build --no-smoke`" in checks[0].remedy


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ({}, "pip install 'triton-repogen[build]'"),
        ({"url": "file://{root}", "dir_info": {"editable": True}}, "pip install -e '{root}[build]'"),
        ({"url": "file://{root}", "dir_info": {}}, "pip install '{root}[build]'"),
        (
            {"url": "https://example.com/repogen", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip install 'triton-repogen[build] @ git+https://example.com/repogen@abc'",
        ),
    ],
    ids=["index", "checkout", "directory", "git"],
)
def test_command_fits_the_installation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, origin: dict[str, object], command: str
) -> None:
    """The command works whether repogen came from an index, a checkout, a wheel or git."""
    text = json.dumps(origin).replace("{root}", str(tmp_path))
    install(monkeypatch, text)
    assert install_command("build") == command.replace("{root}", str(tmp_path))


def test_command_without_the_wheel_names_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel that was deleted after its installation cannot be installed again."""
    required = {"track": dependencies()["track"]}
    text = json.dumps({"url": "file:///gone/triton_repogen-1-py3-none-any.whl", "archive_info": {}})
    monkeypatch.setattr("repogen.distribution.dependencies", lambda: required)
    install(monkeypatch, text)
    assert install_command("track") == "pip install 'mlflow<4,>=3.10'"

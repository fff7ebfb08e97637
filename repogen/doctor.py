"""``repogen doctor``: checks the environment without importing the packages that it checks."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from repogen.artifacts.environment import Check
from repogen.artifacts.progress import Silent
from repogen.serving.embedded import EmbeddedTriton
from repogen.serving.host_requirements import check_host
from repogen.targets import DEFAULT_RELEASE, targets
from repogen.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

_DISTRIBUTION = "triton-repogen"
_BUILD = ("torch", "onnxscript", "onnxruntime", "onnxsim", "safetensors")
_BASE = ("onnx", "numpy", "tritonclient", "jinja2", "pydantic", "pyyaml")
_INSTALL_BUILD = "pip install 'triton-repogen[build]'"
_INSTALL_BASE = "pip install triton-repogen"


def diagnose() -> list[Check]:
    """Return every check, in the order in which a build needs them."""
    target = targets()[DEFAULT_RELEASE]
    checks = [Check("repogen", __version__, ok=True), _python()]
    checks += _distributions(_BASE, _INSTALL_BASE)
    checks += _distributions(_BUILD, _INSTALL_BUILD)
    checks += [replace(check, name=f"embedded: {check.name}") for check in check_host(target)]
    return [*checks, _embedded(EmbeddedTriton(target, Silent())), _docker(), _gpu()]


def _embedded(server: EmbeddedTriton) -> Check:
    path = server.installed_path()
    state = f"{server.versions()}, {'not installed' if path is None else f'in {path}'}"
    remedy = "repogen server install (the first build also installs it)" if path is None else ""
    return Check("embedded Triton", state, ok=True, optional=True, remedy=remedy)


def _python() -> Check:
    return Check("python", platform.python_version(), ok=True)


def _distributions(names: Iterable[str], remedy: str) -> list[Check]:
    requirements = _requirements()
    checks = []
    for name in names:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            checks.append(Check(name, "not installed", ok=False, remedy=remedy))
            continue
        required = requirements.get(name)
        ok = required is None or required.specifier.contains(version, prereleases=True)
        requirement = "" if ok or required is None else f", needs {required.specifier}"
        checks.append(Check(name, f"{version}{requirement}", ok, remedy="" if ok else remedy))
    return checks


def _requirements() -> dict[str, Requirement]:
    """Return the dependencies in repogen's own metadata, by name."""
    try:
        lines = importlib.metadata.requires(_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:  # a checkout that is not installed
        document = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))
        project = document["project"]
        lines = [*project["dependencies"], *project["optional-dependencies"]["build"]]
    return {dependency.name.lower(): dependency for dependency in map(Requirement, lines)}


def _docker() -> Check:
    path, remedy = shutil.which("docker"), "only needed for --server docker"
    if path is None:
        return Check("docker", "not installed", ok=True, optional=True, remedy=remedy)
    try:
        command = [path, "version", "--format", "{{.Server.Version}}"]
        version = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return Check("docker", "the daemon does not respond", ok=True, optional=True, remedy=remedy)
    return Check("docker", f"engine {version}", ok=True, optional=True)


def _gpu() -> Check:
    path = shutil.which("nvidia-smi")
    if path is None:
        state = "none; KIND_GPU models are smoke-tested on the CPU, and `repogen serve` cannot serve them here"
        return Check("gpu", state, ok=True, optional=True)
    try:
        command = [path, "--query-gpu=name,driver_version", "--format=csv,noheader"]
        output = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return Check("gpu", "nvidia-smi fails", ok=True, optional=True)
    return Check("gpu", "; ".join(output.splitlines()), ok=True, optional=True)

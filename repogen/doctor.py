"""``repogen doctor``: what is there, what is missing, and the command that mends it; imports none of it."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement as Dependency

from repogen.artifacts.environment import Check
from repogen.targets import DEFAULT_RELEASE, targets
from repogen.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

_DISTRIBUTION = "triton-repogen"
_BUILD = ("torch", "onnxscript", "onnxruntime", "onnxsim", "safetensors")
_BASE = ("onnx", "numpy", "tritonclient", "jinja2", "pydantic", "pyyaml")
_MEND_BUILD = "pip install 'triton-repogen[build]'"
_MEND_BASE = "pip install triton-repogen"


def diagnose() -> list[Check]:
    """Return every check, in the order in which a build would need them."""
    target = targets()[DEFAULT_RELEASE]
    from repogen.serving.servers import embedded_requirements, embedded_version, installed_path  # noqa: PLC0415 - heavy

    checks = [Check("repogen", __version__, ok=True), _python()]
    checks += _distributions(_BASE, _MEND_BASE)
    checks += _distributions(_BUILD, _MEND_BUILD)
    checks += [
        Check(f"embedded: {r.name}", r.found, r.met, remedy="" if r.met else r.remedy)
        for r in embedded_requirements(target)
    ]
    place = installed_path(target)
    state = f"{embedded_version(target)}, {'in ' + str(place) if place else 'not installed yet'}"
    remedy = "" if place else "repogen server install (or the first build does it)"
    checks.append(Check("embedded Triton", state, ok=True, optional=True, remedy=remedy))
    return [*checks, _docker(), _gpu()]


def _python() -> Check:
    return Check("python", platform.python_version(), ok=True)


def _distributions(names: Iterable[str], remedy: str) -> list[Check]:
    wanted = _wanted()
    checks = []
    for name in names:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            checks.append(Check(name, "not installed", ok=False, remedy=remedy))
            continue
        allowed = wanted.get(name)
        ok = allowed is None or allowed.specifier.contains(version, prereleases=True)
        needed = "" if ok or allowed is None else f", needs {allowed.specifier}"
        checks.append(Check(name, f"{version}{needed}", ok, remedy="" if ok else remedy))
    return checks


def _wanted() -> dict[str, Dependency]:
    """Return what repogen's own metadata asks for, by name."""
    try:
        lines = importlib.metadata.requires(_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:  # run from a checkout that is not installed
        project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))[
            "project"
        ]
        lines = [*project["dependencies"], *project["optional-dependencies"]["build"]]
    return {dependency.name.lower(): dependency for dependency in map(Dependency, lines)}


def _docker() -> Check:
    path = shutil.which("docker")
    if path is None:
        return Check("docker", "not installed", ok=True, optional=True, remedy="only for --server docker")
    try:
        command = [path, "version", "--format", "{{.Server.Version}}"]
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return Check("docker", "no engine answers", ok=True, optional=True, remedy="only for --server docker")
    return Check("docker", f"engine {found}", ok=True, optional=True)


def _gpu() -> Check:
    path = shutil.which("nvidia-smi")
    if path is None:
        found = "none; KIND_GPU models are smoke-tested on the CPU, and `repogen serve` cannot serve them here"
        return Check("gpu", found, ok=True, optional=True)
    try:
        command = [path, "--query-gpu=name,driver_version", "--format=csv,noheader"]
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return Check("gpu", "nvidia-smi fails", ok=True, optional=True)
    return Check("gpu", "; ".join(found.splitlines()), ok=True, optional=True)

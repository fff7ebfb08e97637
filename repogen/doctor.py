"""``repogen doctor``: checks the environment without importing the packages that it checks."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

from repogen.artifacts.environment import Check
from repogen.artifacts.progress import Silent
from repogen.distribution import dependencies, install_command
from repogen.serving.embedded import EmbeddedTriton
from repogen.serving.host_requirements import check_host
from repogen.serving.install import locate
from repogen.serving.perf_analyzer import installed_perf_analyzer
from repogen.targets import DEFAULT_RELEASE, targets
from repogen.version import __version__

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_SECONDS = 10
_EXTRAS = {
    "build": ("onnxsim", "to build models"),
    "huggingface": ("transformers", "for `kind: huggingface`"),
    "track": ("mlflow", "to track builds, promote and sync with MLflow"),
    "s3": ("s3fs", "for repositories in Amazon S3 and compatible services"),
    "gcs": ("gcsfs", "for repositories in Google Cloud Storage"),
    "azure": ("adlfs", "for repositories in Azure Blob Storage"),
    "oci": ("oras", "for images in OCI registries"),
    "ray": ("ray", "for `repogen build --executor ray`"),
    "tune": ("optuna", "for `repogen tune`"),
    "view": ("netron", "for `repogen view`"),
    "sign": ("model-signing", "to sign versions and to verify signatures"),
}
"""For each extra, the package that shows that it is installed, and what it is for.

Other packages of an extra can be installed for another reason: MLflow requires SQLAlchemy, which `tune` uses as well.
"""


def diagnose() -> list[Check]:
    """Return every check, by group: repogen itself, each extra, and the servers for smoke tests."""
    target = targets()[DEFAULT_RELEASE]
    base = [Check("repogen", __version__, ok=True), Check("python", platform.python_version(), ok=True)]
    base += [_distribution(each, install_command("build")) for each in dependencies()[""]]
    groups = {"repogen": base}
    groups |= {extra: _extra(extra) for extra in _EXTRAS}
    groups["servers"] = [*_embedded(EmbeddedTriton(target, Silent())), _docker(), _gpu()]
    return [replace(check, group=group) for group, checks in groups.items() for check in checks]


def _extra(extra: str) -> list[Check]:
    """Return the checks of an extra; one that is not installed is optional."""
    package, purpose = _EXTRAS[extra]
    if _is_installed(package):
        return [_distribution(each, install_command(extra)) for each in dependencies()[extra]]
    return [Check(extra, f"not installed; needed {purpose}", ok=True, optional=True, remedy=install_command(extra))]


def _embedded(server: EmbeddedTriton) -> list[Check]:
    """Return one check of the embedded Triton, and the requirements that this machine does not meet."""
    host_checks = check_host(server.target)
    if not host_checks[0].ok:
        state = f"not available on {host_checks[0].found}"
        remedy = f"{host_checks[0].remedy}; or `repogen build --no-smoke`"
        return [Check("embedded Triton", state, ok=True, optional=True, remedy=remedy)]
    path = server.installed_path()
    state = f"{server.versions()}, {'not installed' if path is None else f'in {path}'}"
    remedy = "repogen server install (the first build also installs it)" if path is None else ""
    checks = [replace(check, name=f"embedded: {check.name}") for check in host_checks]
    return [*checks, Check("embedded Triton", state, ok=True, optional=True, remedy=remedy), _perf_analyzer(server)]


def _perf_analyzer(server: EmbeddedTriton) -> Check:
    """Return the check of NVIDIA's load generator, which `repogen bench` and `repogen tune` need."""
    installation = locate(server.target.onnxruntime)
    path, version = installed_perf_analyzer(installation), installation.lock.perf_analyzer.version
    if path is None:
        remedy = "the first `repogen bench` or `repogen tune` installs it"
        return Check("perf_analyzer", f"{version}, not installed", ok=True, optional=True, remedy=remedy)
    command = ["env", f"LD_LIBRARY_PATH={path / 'lib'}", str(path / "bin" / "perf_analyzer"), "--version"]
    try:
        _output(command)
    except (OSError, subprocess.SubprocessError) as error:
        lines = str(getattr(error, "stderr", "") or error).strip().splitlines()
        reason = lines[-1] if lines else "it printed no error"
        remedy = "install the missing library, or delete the directory to install it again"
        return Check("perf_analyzer", f"{version} in {path} does not run: {reason}", ok=False, remedy=remedy)
    return Check("perf_analyzer", f"{version}, in {path}", ok=True, optional=True)


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _distribution(requirement: Requirement, remedy: str) -> Check:
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return Check(requirement.name, "not installed", ok=False, remedy=remedy)
    ok = requirement.specifier.contains(version, prereleases=True)
    state = version if ok else f"{version}, needs {requirement.specifier}"
    return Check(requirement.name, state, ok, remedy="" if ok else remedy)


def _output(command: list[str]) -> str:
    """Return what a command prints, without white space at its ends.

    Raises:
        OSError: It cannot be started.
        subprocess.SubprocessError: It failed, or did not end in time.
    """
    run = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=True)
    return run.stdout.strip()


def _docker() -> Check:
    path, remedy = shutil.which("docker"), "only needed for --server docker"
    if path is None:
        return Check("docker", "not installed", ok=True, optional=True, remedy=remedy)
    try:
        version = _output([path, "version", "--format", "{{.Server.Version}}"])
    except (OSError, subprocess.SubprocessError):
        return Check("docker", "the daemon does not respond", ok=True, optional=True, remedy=remedy)
    return Check("docker", f"engine {version}", ok=True, optional=True)


def _gpu() -> Check:
    path = shutil.which("nvidia-smi")
    if path is None:
        state = "none; KIND_GPU models are smoke-tested on the CPU, and `repogen serve` cannot serve them here"
        return Check("gpu", state, ok=True, optional=True)
    try:
        output = _output([path, "--query-gpu=name,driver_version", "--format=csv,noheader"])
    except (OSError, subprocess.SubprocessError):
        return Check("gpu", "nvidia-smi fails", ok=True, optional=True)
    return Check("gpu", "; ".join(output.splitlines()), ok=True, optional=True)

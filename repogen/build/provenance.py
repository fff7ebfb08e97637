"""How a version came to be, for its manifest: tools, git commit, fingerprint, figures."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from typing import TYPE_CHECKING

from repogen.version import __version__
from repogen.build.fingerprint import fingerprint
from repogen.artifacts.versions import Provenance

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.spec.models import Spec
    from repogen.artifacts.built_model import BuiltModel

_TOOLS = ("torch", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "onnxsim", "tritonclient", "numpy")


def provenance(spec: Spec, before: Mapping[str, str], built: BuiltModel) -> Provenance:
    """Return what the manifest of a freshly built model says of its origin.

    Args:
        spec: The spec.
        before: The model's ``known_inputs``, taken before the worker ran.
        built: What the worker made.
    """
    return Provenance(
        tools=_tools(),
        git_commit=git_commit(spec.root),
        spec_sha256=before["spec"],
        fingerprint=fingerprint(before, built.imported),
        target=spec.release,
        exporter=built.artifact.exporter,
        opset=built.artifact.opset,
        ir_version=built.artifact.ir_version,
        nodes_exported=built.nodes_exported,
        nodes_optimized=built.artifact.nodes,
        parity_cases=len(built.parity.cases),
        parity_max_abs_diff=built.parity.max_abs_diff,
        parity_max_rel_diff=built.parity.max_rel_diff,
    )


def _tools() -> dict[str, str]:
    found = {"repogen": __version__, "python": platform.python_version()}
    for name in _TOOLS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_commit(directory: Path) -> str:
    """Return the commit that ``directory`` is at, with ``-dirty`` when it has changes; empty outside git."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(directory), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        commit = git("rev-parse", "HEAD")
        # Without untracked files: the build's own staging directory and output are among them.
        changed = git("--no-optional-locks", "status", "--porcelain", "--untracked-files=no", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{commit}-dirty" if changed else commit

"""How a version was built, for its manifest: tools, git commit, fingerprint, measurements."""

from __future__ import annotations

import importlib.metadata
import platform
from typing import TYPE_CHECKING

from repogen.artifacts.versions import Provenance
from repogen.build.fingerprint import fingerprint
from repogen.files.git import git, is_changed
from repogen.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.artifacts.built_model import BuiltModel
    from repogen.spec.models import Spec

_TOOLS = ("torch", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "onnxsim", "tritonclient", "numpy")


def provenance(spec: Spec, inputs: Mapping[str, str], built: BuiltModel) -> Provenance:
    """Return the provenance of a model that was just built.

    Args:
        spec: The spec.
        inputs: The model's ``build_inputs``, computed before the worker ran.
        built: The worker's result.
    """
    return Provenance(
        tools=tool_versions(),
        git_commit=git_commit(spec.root),
        spec_sha256=inputs["spec"],
        fingerprint=fingerprint(inputs, built.imported),
        target=spec.release,
        exporter=built.artifact.exporter,
        opset=built.artifact.opset,
        ir_version=built.artifact.ir_version,
        nodes_exported=built.nodes_exported,
        nodes_optimized=built.artifact.nodes,
        parity_cases=len(built.parity.cases),
        parity_max_abs_diff=built.parity.max_abs_diff,
        parity_max_rel_diff=built.parity.max_rel_diff,
        lossy=built.lossy,
    )


def tool_versions() -> dict[str, str]:
    """Return the versions of repogen, Python, and the installed tools."""
    versions = {"repogen": __version__, "python": platform.python_version()}
    for name in _TOOLS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def git_commit(directory: Path) -> str:
    """Return the commit that ``directory`` is at, with ``-dirty`` if it has changes; empty outside a git repository."""
    commit = git(directory, "rev-parse", "HEAD")
    # Untracked files do not count: they include the build's own staging directory and output.
    is_dirty = None if commit is None else is_changed(directory, commit)
    if commit is None or is_dirty is None:
        return ""
    return f"{commit}-dirty" if is_dirty else commit

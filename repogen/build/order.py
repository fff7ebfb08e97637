"""What a build sends to the machine of a task, and what comes back; ``repogen.executors`` moves the files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003 - pydantic decodes by these annotations

from pydantic import TypeAdapter

from repogen.artifacts.built_model import BuildDiagnostics, BuiltModel
from repogen.artifacts.serving import SmokeReport  # noqa: TC001 - the same
from repogen.build.code_digest import code_digest
from repogen.build.provenance import tool_versions
from repogen.errors import ErrorRecord  # noqa: TC001 - the same
from repogen.spec.models import ModelSpec  # noqa: TC001 - the same

ORDER_FILE = "order.json"
REPOSITORY = "repository"
"""Directory of the input files with the models that an ensemble uses."""
FETCHED = "fetched"
"""Directory of the input files that were downloaded for a source of kind ``mlflow``."""


@dataclass(frozen=True)
class Order:
    """One model to build.

    Attributes:
        name: The model.
        models: Its spec entry, and those of the models that it uses, by name.
        file: Name of the spec file.
        release: Target Triton release.
        gpu: Whether models without instance_group run on GPUs.
        registry: MLflow server and registry of sources in MLflow; empty if not known.
        templates: Directory of template overrides, relative to the spec; None if the spec does not set it.
        server: Triton server for the smoke test; None for no test.
        try_all_exporters: Whether to try the remaining exporters after the first one that succeeds.
        threads: Number of compute threads.
        use_cache: Whether a result in the cache of the machine may be used.
        environment: Versions of what builds; the machine must have the same.
    """

    name: str
    models: dict[str, ModelSpec]
    file: str
    release: str
    gpu: bool
    registry: str
    templates: Path | None
    server: str | None
    try_all_exporters: bool
    threads: int
    use_cache: bool
    environment: dict[str, str]


@dataclass(frozen=True)
class Result:
    """What a task returns.

    Attributes:
        diagnostics: Diagnostics of the build until its end.
        built: The model; its paths are names of output files. None if it was not built.
        smoke: The smoke test; None without one.
        content: ``Manifest.content_sha256`` of the version that was tested.
        seconds: Wall time of the steps after the worker.
        error: Why the task failed; None if it did not.
    """

    diagnostics: BuildDiagnostics = field(default_factory=BuildDiagnostics)
    built: BuiltModel | None = None
    smoke: SmokeReport | None = None
    content: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    error: ErrorRecord | None = None


ORDER = TypeAdapter(Order)
RESULT = TypeAdapter(Result)


def build_environment() -> dict[str, str]:
    """Return the versions of repogen, its code, Python and the build tools, which the manifest records."""
    return {**tool_versions(), "repogen's code": code_digest()}

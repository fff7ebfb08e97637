"""Renders reports: of a build, and of a repository."""

from __future__ import annotations

import base64
import hashlib
import os
from functools import cache
from typing import TYPE_CHECKING

from repogen.reporting.html.build_sections import CONFIG, GRAPH, PARITY, SMOKE, build_sections, error_section
from repogen.reporting.html.parts import Facts, ModelView, Notes, PageView, Section
from repogen.reporting.html.repository_sections import current_version, error_text, parity_error, repository_sections
from repogen.reporting.html.speed_sections import speed_section
from repogen.reporting.html.tune_section import tune_section
from repogen.reporting.notes import size_text
from repogen.resources import templates_dir
from repogen.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from jinja2 import Environment

    from repogen.artifacts.inventory import ModelRecord, VersionsReport
    from repogen.reporting.json_types import BuildDocument, ModelDocument
    from repogen.reporting.results import Results

MAX_MODELS = 100
_MAX_TEXT = 2_000
_MAX_CODE = 20_000
_NONE = "-"
_KEPT = frozenset("\n\t")


def build_page(document: BuildDocument, results: Mapping[str, Results]) -> str:
    """Return the report of a build as one HTML file.

    Args:
        document: The build, as ``--json`` prints it.
        results: Earlier results by model: what was measured of a model that this build did not change, its benchmark,
            and its tuning.
    """
    models = [_with_measurements(model, results.get(model["name"])) for model in document["models"]]
    models.sort(key=lambda model: model["status"] != "failed")
    counts = {
        status: sum(model["status"] == status for model in models)
        for status in ("failed", "published", "verified", "unchanged")
    }
    commits = {model["provenance"]["git_commit"] for model in models if model["provenance"]}
    targets = {model["provenance"]["target"] for model in models if model["provenance"]}
    page = PageView(
        f"repogen build: {', '.join(f'{n} {status}' for status, n in counts.items() if n) or 'no models'}",
        Facts(
            (
                ("Repository", os.path.normpath(document["repository"])),
                ("Target", ", ".join(f"Triton {target}" for target in sorted(targets)) or _NONE),
                ("Git commit", ", ".join(sorted(commit for commit in commits if commit)) or _NONE),
                ("Built with", f"repogen {__version__}"),
            )
        ),
        Notes(tuple(document["notes"])),
        None if document["error"] is None else error_section(document["error"]),
        ("Exporter", "Parity error", "Nodes", "Size", "Smoke test", "p50 ms"),
        tuple(_build_view(model, results.get(model["name"])) for model in models[:MAX_MODELS]),
    )
    return _render(page, len(models))


def repository_page(report: VersionsReport, configs: Mapping[str, str], results: Mapping[str, Results]) -> str:
    """Return the report of a repository as one HTML file.

    Args:
        report: What the repository contains.
        configs: Text of config.pbtxt by model.
        results: Results by model; those of other versions than the repository's newest served one are left out.
    """
    contents = {
        version.manifest.content_sha256: (model.name, version.version)
        for model in report.models
        for version in model.versions
        if version.manifest is not None
    }
    count = len(report.models)
    page = PageView(
        f"Model repository: {count} model{'' if count == 1 else 's'}",
        Facts(
            (
                ("Repository", str(report.repository)),
                ("Written by", {"built": "repogen build", "synced": "repogen sync"}.get(report.owner, "not repogen")),
                ("Versions", str(sum(len(model.versions) for model in report.models))),
                ("Report written with", f"repogen {__version__}"),
            )
        ),
        Notes(report.notes),
        None,
        ("Versions", "Target", "Parity error", "Size"),
        tuple(
            _repository_view(model, configs.get(model.name, ""), contents, results.get(model.name))
            for model in report.models[:MAX_MODELS]
        ),
    )
    return _render(page, count)


def _with_measurements(model: ModelDocument, results: Results | None) -> ModelDocument:
    """Return a model that this build did not change with what the build measured that published its version."""
    earlier = None if results is None else results.build
    if earlier is None or model["status"] != "unchanged" or earlier["sha256"] != model["sha256"]:
        return model
    if earlier["provenance"] != model["provenance"]:
        return model
    merged = model.copy()
    merged["parity"], merged["smoke"] = earlier["parity"], earlier["smoke"]
    merged["exporters"], merged["passes"] = earlier["exporters"], earlier["passes"]
    merged["operators"], merged["config"] = earlier["operators"], earlier["config"]
    return merged


def _build_view(model: ModelDocument, results: Results | None) -> ModelView:
    nodes = model["nodes"]
    exported, optimized = nodes["exported"], nodes["optimized"]
    node_text = f"{exported:,} → {optimized:,}" if exported and optimized and exported != optimized else (
        f"{optimized:,}" if optimized else _NONE
    )  # fmt: skip
    smoke = model["smoke"]
    latency = None if smoke is None else smoke["latency_ms"]
    passed = _NONE if smoke is None else f"{sum(c['passed'] for c in smoke['checks'])} of {len(smoke['checks'])}"
    error = model["parity"]["max_abs_diff"]
    overview = (
        model["exporter"] or _NONE,
        _NONE if error is None else f"{'' if model['parity']['passed'] else 'lossy, '}{error_text(error)}",
        node_text,
        size_text(model["size"] or 0),
        passed,
        _NONE if latency is None else f"{latency['p50']:.2f}",
    )
    notes = (_notes_section(model["notes"]),) if model["notes"] else ()
    sections = _with_measured(build_sections(model), _measured_sections(results, model["version"]))
    status = model["status"] if model["version"] is None else f"{model['status']}, version {model['version']}"
    return ModelView(model["name"], status, model["status"] == "failed", overview, (*sections, *notes))


def _with_measured(sections: Iterable[Section], measured: Iterable[Section]) -> list[Section]:
    """Return sections with what was measured before the config."""
    result = [*sections]
    position = next((i for i, section in enumerate(result) if section.title == CONFIG), len(result))
    result[position:position] = measured
    return result


def _notes_section(notes: Sequence[str]) -> Section:
    return Section("Notes", (Notes(tuple(notes)),))


def _measured_sections(results: Results | None, version: int | None) -> Iterator[Section]:
    """Yield benchmark and tuning of a model; each names the version that was measured."""
    if results is None or version is None:
        return
    if results.bench is not None:
        yield speed_section(results.bench, results.bench["models"][0])
    if results.tuning is not None:
        yield tune_section(results.tuning)


def _repository_view(
    model: ModelRecord, config: str, contents: Mapping[str, tuple[str, int]], results: Results | None
) -> ModelView:
    current = current_version(model)
    manifest = None if current is None else current.manifest
    error = None if manifest is None else parity_error(manifest)
    served = ", ".join(map(str, model.served)) or "none"
    overview = (
        str(len(model.versions)),
        _NONE if manifest is None else manifest.provenance.target,
        _NONE if error is None else error_text(error),
        _NONE if current is None else size_text(current.size),
    )
    build = None if results is None else results.build
    measured = [*_measured_sections(results, None if current is None else current.version)]
    if build is not None and manifest is not None and build["sha256"] == manifest.sha256:
        parts = [section for section in build_sections(build) if section.title in {PARITY, GRAPH, SMOKE}]
        measured = [*parts, *measured]
    sections = _with_measured(repository_sections(model, config, contents), measured)
    status = f"serves {'version' if len(model.served) == 1 else 'versions'} {served}" if model.served else "not served"
    return ModelView(model.name, status, bool(model.problem), overview, tuple(sections))


def _render(page: PageView, count: int) -> str:
    style = (templates_dir() / "html" / "report.css").read_text(encoding="utf-8").strip()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    template = _environment().get_template("html/report.html.j2")
    omitted = count - len(page.models)
    return template.render(page=page, style=style, style_digest=digest, omitted=omitted).strip() + "\n"


@cache
def _environment() -> Environment:
    from jinja2 import FileSystemLoader, StrictUndefined  # noqa: PLC0415 - takes 30 ms, and few commands need it
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415 - the same
    from markupsafe import escape  # noqa: PLC0415 - the same

    environment = ImmutableSandboxedEnvironment(
        loader=FileSystemLoader(templates_dir()),
        undefined=StrictUndefined,
        autoescape=True,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = lambda text: escape(_visible(text, _MAX_CODE))
    return environment


def _printable(value: object) -> object:
    r"""Return text of a limited length in which every character is visible; jinja2 then escapes it.

    >>> _printable("a\x1b\u202e<")
    'a\\x1b\\u202e<'
    """
    return _visible(value, _MAX_TEXT) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _visible(text: str, limit: int) -> str:
    short = text if len(text) <= limit else f"{text[:limit]}…"
    if short.isprintable():
        return short
    return "".join(c if c.isprintable() or c in _KEPT else c.encode("unicode_escape").decode("ascii") for c in short)

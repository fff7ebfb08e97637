"""The optimization passes that are searched: the model is built and verified with each list of passes.

A list without lossy passes needs parity, as in a build. Lossy passes are considered only if the spec has a budget for
quality, or lossy passes of its own. The gain of a pass is not measured in the build: the trials measure it on Triton.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import DATA_FILE
from repogen.artifacts.tune import PassCandidate
from repogen.optimize.passes import load_pass, select_passes
from repogen.repository.compatibility import differences
from repogen.spec.models import AUTO, PassSpec
from repogen.tune.space import SPEC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.report import ModelReport
    from repogen.artifacts.versions import Manifest
    from repogen.spec.models import ModelSpec
    from repogen.tune.interface import PassBuilder
    from repogen.tune.triton import TritonTestBed

NONE = "none"
_LOSSY = (("int8-dynamic",), ("int8-dynamic", "ort-fusions"))
_LOSSY_ON_GPU = (("fp16",),)
_LOSSLESS = (("ort-fusions",), ("onnxruntime-offline",), ("ir-cleanup",), ("onnxsim",), ())
"""The most promising lists first: there may not be time for all."""


@dataclass(frozen=True)
class PassList:
    """A list of passes to build.

    Attributes:
        name: Value of the parameter ``passes``.
        passes: Entries of ``optimize:``.
        complete: Whether every pass must be applied. Otherwise, the same graph has a shorter list.
    """

    name: str
    passes: tuple[PassSpec, ...]
    complete: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the passes, in order."""
        return tuple(each.name for each in self.passes)


def pass_lists(model: ModelSpec, *, has_gpu: bool) -> tuple[PassList, ...]:
    """Return the lists of passes to build, without the list of the spec.

    Passes that the spec has keep their options.

    Raises:
        SpecError: A pass of the spec cannot be imported.
    """
    selected = select_passes(model.passes)
    options = {each.spec.name: each.spec.options for each in selected}
    names: list[tuple[str, ...]] = []
    if model.quality is not None or any(each.lossy for each in selected):
        names += [(each.spec.name,) for each in selected if each.lossy]
        names += [*_LOSSY, *(_LOSSY_ON_GPU if has_gpu else ())]
    names += _LOSSLESS
    lists = []
    if model.optimize != AUTO and any(each.gated for each in selected):
        own = tuple(_not_measured(each.spec) for each in selected)
        lists.append(PassList(_joined(each.name for each in own), own, complete=False))
    for each in names:
        passes = tuple(_not_measured(PassSpec(name=name, options=options.get(name, {}))) for name in each)
        lists.append(PassList(_joined(each), passes))
    by_name = {each.name: each for each in reversed(lists)}  # the first one of a name
    return tuple(each for each in reversed(by_name.values()) if each.passes != model.passes)


def _joined(names: Iterable[str]) -> str:
    return "+".join(names) or NONE


def _not_measured(entry: PassSpec) -> PassSpec:
    """Return an entry whose result does not depend on a measurement of time, so that a build gives the same graph."""
    return entry.model_copy(update={"gain": False if load_pass(entry.name).gated else None})


def obstacle(bed: TritonTestBed, builder: PassBuilder) -> str:
    """Return why no other passes can be built for a published model; empty if they can.

    Raises:
        RepogenError: The published version cannot be compared with the spec.
    """
    if not bed.model.is_graph:
        return f"{bed.name} has no ONNX graph of its own"
    if (bed.version_dir / DATA_FILE).is_file():
        return "the weights are in a separate file, and a copy of them for each list of passes would be needed"
    if reason := builder.outdated(bed.directory.parent, bed.version):
        return f"version {bed.version} no longer matches the spec ({reason}); run `repogen build` first"
    return ""


@dataclass
class PassBuilds:
    """The builds of one model with other passes.

    Attributes:
        bed: The test bed of the published version; it receives each graph that can be chosen.
        builder: Builds the model.
        directory: Existing directory for the graphs.
        progress: Receives the steps of each build.
        clock: Returns seconds.
        candidates: Each list and its result, that of the spec first.
        passes: The passes of each candidate that can be chosen.
    """

    bed: TritonTestBed
    builder: PassBuilder
    directory: Path
    progress: Progress
    clock: Callable[[], float] = time.monotonic
    candidates: list[PassCandidate] = field(default_factory=list)
    passes: dict[str, tuple[PassSpec, ...]] = field(default_factory=dict)
    _dropped: dict[tuple[str, ...], str] = field(default_factory=dict)

    def run(self, lists: tuple[PassList, ...], own: Iterable[str], seconds: float) -> None:
        """Build the lists one after another.

        Args:
            lists: The lists.
            own: Names of the passes of the spec, which gave the published graph.
            seconds: Time; a build that has begun is completed.

        Raises:
            RepogenError: No model can be built here.
        """
        deadline = self.clock() + seconds
        self.candidates.append(_measured(SPEC, tuple(own), self.bed.manifest))
        for number, each in enumerate(lists, 1):
            reason = next((why for names, why in self._dropped.items() if each.names[: len(names)] == names), "")
            if not reason and self.clock() >= deadline:
                reason = "there was no time to build it: builds may use half of --budget"
            if reason:
                self.candidates.append(PassCandidate(each.name, each.names, reason))
            else:
                self._build(each, f"passes {number} of {len(lists)} ({each.name})", self.directory / str(number))

    def _build(self, each: PassList, label: str, repository: Path) -> None:
        began = self.clock()
        self.progress.step(self.bed.name, label)
        report = self.builder.build(each.passes, repository, _Labeled(self.progress, label))
        seconds = round(self.clock() - began, 3)
        reason = self._reason(each, report)
        if reason or report.manifest is None or report.version is None:
            shutil.rmtree(repository, ignore_errors=True)
            self.candidates.append(PassCandidate(each.name, each.names, reason, seconds=seconds))
            return
        self.candidates.append(_measured(each.name, each.names, report.manifest, seconds))
        self.passes[each.name] = each.passes
        self.bed.add_graph(each.name, repository / self.bed.name, report.version)

    def _reason(self, each: PassList, report: ModelReport) -> str:
        """Return why the result of a build cannot be chosen; empty if it can."""
        if report.error is not None:
            return report.error.summary
        for outcome in report.passes if each.complete else ():
            if not outcome.applied:
                reason = f"{outcome.name} was not applied: {outcome.reason}"
                self._dropped[each.names] = reason  # nor would it be with further passes after it
                return reason
        published, manifest = self.bed.manifest, report.manifest
        if manifest is None or report.version is None:
            return "it was not built"
        if manifest.max_batch_size != published.max_batch_size:
            return f"max_batch_size would be {manifest.max_batch_size} instead of {published.max_batch_size}"
        if lines := differences(published.signature, manifest.signature):
            return lines[0]
        same = next((other.name for other in self.candidates if other.sha256 == manifest.sha256), None)
        return "" if same is None else f"same graph as {same}"


def _measured(name: str, passes: tuple[str, ...], manifest: Manifest, seconds: float = 0.0) -> PassCandidate:
    origin = manifest.provenance
    return PassCandidate(
        name,
        passes,
        sha256=manifest.sha256,
        nodes=origin.nodes_optimized,
        parity_cases=origin.parity_cases,
        max_abs_diff=origin.parity_max_abs_diff,
        lossy=origin.lossy,
        seconds=seconds,
    )


@dataclass(frozen=True)
class _Labeled:
    """The progress of a build with a label before each step; its notes are left out."""

    progress: Progress
    label: str

    def step(self, model: str, step: str) -> None:
        """Report the step; the private repository that a build publishes to is not worth one."""
        if model and step != "publish":
            self.progress.step(model, f"{self.label}: {step}")

    def note(self, model: str, text: str) -> None:
        """Ignore a note: the reason of a list that cannot be chosen is in the report."""

    def download(self, what: str, done: int, total: int) -> None:
        """Report the download."""
        self.progress.download(what, done, total)

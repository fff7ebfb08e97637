"""A gate that limits the version of ONNX's operator set: ``opset: {max: 20}`` in ``promotion.gates``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.registry.gates.interface import Gate, Requires, Section, Versions, judge_figure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.artifacts.promotion import GateResult


class OpsetOptions(Section):
    """Options of the gate."""

    max: int | None = None


class OpsetGate(Gate[OpsetOptions, int]):
    """The candidate's opset is not newer than the limit."""

    options = OpsetOptions
    requires = Requires.MANIFEST

    def measure(self, options: OpsetOptions, versions: Versions) -> int:  # noqa: ARG002 - the Protocol fixes it
        """Return the opset from the manifest."""
        return versions.candidate.manifest.provenance.opset

    def judge(self, options: OpsetOptions, measurement: int) -> Iterator[GateResult]:
        """Compare it with the limit."""
        yield judge_figure("opset.max", measurement, f"opset {measurement}", at_most=options.max)

"""The measured gain: its rule, on latencies that are given, and the real measurement without an assertion on time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from repogen.optimize.gain import REQUIRED, ROUNDS, gain_of, measure_gain

if TYPE_CHECKING:
    from pathlib import Path


def latencies(*ratios: float) -> tuple[list[float], list[float]]:
    """Return latencies before and after with these ratios, and 1 in the remaining rounds."""
    after = [0.001 * (index + 1) for index in range(ROUNDS)]
    all_ratios = [*ratios, *[1.0] * (ROUNDS - len(ratios))]
    return [second * ratio for second, ratio in zip(after, all_ratios, strict=True)], after


@pytest.mark.parametrize(
    ("ratios", "pays"),
    [
        ([2.0] * ROUNDS, True),
        ([2.0] * 12, True),  # three slow rounds are noise
        ([2.0] * 11, False),  # four are not
        ([1.01] * ROUNDS, False),  # reproducible, but too small
        ([1.03] * ROUNDS, True),
        ([0.5] * ROUNDS, False),
        ([3.0, 0.4] * 7, False),  # the median is large, and the noise larger
    ],
)
def test_gain_counts_if_its_interval_is_above_the_threshold(ratios: list[float], pays: bool) -> None:  # noqa: FBT001
    """Slow rounds of the machine change both latencies, and not their ratio."""
    gain = gain_of(*latencies(*ratios))
    assert gain.pays is pays
    assert gain.low <= gain.ratio <= gain.high
    assert gain.required == REQUIRED


def test_figures_are_in_the_message() -> None:
    """The ratio, both latencies in milliseconds, and the interval."""
    gain = gain_of([0.0121] * ROUNDS, [0.0066] * ROUNDS)
    assert str(gain) == "1.83x as fast (12.1 -> 6.6 ms; interval 1.83 to 1.83)"


def test_both_graphs_run_on_every_case(tmp_path: Path) -> None:
    """In ONNX Runtime; how fast they are is not asserted."""
    for name, kinds in (("before", ["Sin", "Cos"]), ("after", ["Sin"])):
        values = ["x", *(f"v{index}" for index in range(1, len(kinds))), "y"]
        nodes = [helper.make_node(kind, [values[i]], [values[i + 1]]) for i, kind in enumerate(kinds)]
        ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, ["n"]) for end in "xy"]
        model = helper.make_model(
            helper.make_graph(nodes, "g", ends[:1], ends[1:]),
            opset_imports=[helper.make_opsetid("", 17)],
            ir_version=8,
        )
        onnx.save(model, tmp_path / f"{name}.onnx")
    cases = [{"x": np.ones(size, np.float32)} for size in (2, 5)]
    gain = measure_gain(tmp_path / "before.onnx", tmp_path / "after.onnx", cases, 1)
    assert min(gain.before_ms, gain.after_ms, gain.low) > 0

"""A typical hand-written export script: the baseline of build_overhead.py.

``python plain_export.py resnet18|distilbert dynamo|torchscript OUTPUT``: import, load, export, onnx.checker, and
parity with ONNX Runtime at two shapes. Prints the seconds of export and of verification as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
# The same two shapes that repogen always checks: the example and the minimum of the example specs.
SHAPES = {
    "resnet18": [{"batch": 2, "height": 224, "width": 224}, {"batch": 1, "height": 64, "width": 64}],
    "distilbert": [{"batch": 2, "sequence": 16}, {"batch": 1, "sequence": 1}],
}
INPUTS = {
    "resnet18": {"pixel_values": {0: "batch", 2: "height", 3: "width"}},
    "distilbert": {"input_ids": {0: "batch", 1: "sequence"}, "attention_mask": {0: "batch", 1: "sequence"}},
}


class Logits(torch.nn.Module):
    """Returns the logits of a ModelOutput, as such scripts usually do."""

    def __init__(self, model: torch.nn.Module) -> None:
        """Store the model."""
        super().__init__()
        self.model = model

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        logits: torch.Tensor = self.model(*inputs).logits
        return logits


def make_inputs(name: str, sizes: dict[str, int]) -> tuple[torch.Tensor, ...]:
    """Return random inputs of the given sizes, in forward's order."""
    rng = np.random.default_rng(0)
    if name == "resnet18":
        shape = (sizes["batch"], 3, sizes["height"], sizes["width"])
        return (torch.from_numpy(rng.standard_normal(shape).astype(np.float32)),)
    shape2 = (sizes["batch"], sizes["sequence"])
    return torch.from_numpy(rng.integers(0, 30522, shape2)), torch.ones(shape2, dtype=torch.int64)


def main() -> None:
    """Export the model, check the file, and compare its outputs."""
    name, exporter, output = sys.argv[1:]
    sys.path.insert(0, str(EXAMPLES / name))
    import models  # type: ignore[import-not-found] # noqa: PLC0415 - on the path since the line above

    model = Logits(models.build()).eval()
    start = time.monotonic()
    inputs = make_inputs(name, SHAPES[name][0])
    if exporter == "dynamo":
        torch.onnx.export(
            model,
            inputs,
            output,
            dynamo=True,
            external_data=False,
            dynamic_shapes=(tuple(INPUTS[name].values()),),
            input_names=list(INPUTS[name]),
            output_names=["logits"],
            verbose=False,
        )
    else:
        torch.onnx.export(
            model,
            inputs,
            output,
            dynamo=False,
            dynamic_axes=INPUTS[name],
            input_names=list(INPUTS[name]),
            output_names=["logits"],
        )
    exported = time.monotonic()
    onnx.checker.check_model(output, full_check=True)
    session = onnxruntime.InferenceSession(output, providers=["CPUExecutionProvider"])
    for sizes in SHAPES[name]:
        tensors = make_inputs(name, sizes)
        with torch.no_grad():
            expected = model(*tensors).numpy()
        feed = {key: tensor.numpy() for key, tensor in zip(INPUTS[name], tensors, strict=True)}
        np.testing.assert_allclose(session.run(None, feed)[0], expected, rtol=1e-3, atol=1e-5)
    print(json.dumps({"export": exported - start, "verify": time.monotonic() - exported}))


if __name__ == "__main__":
    main()

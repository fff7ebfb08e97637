"""Times `repogen check` on repositories of 10 to 1,000 small models, next to a program that only reads them.

The baseline parses each config.pbtxt with tritonclient's classes and each model.onnx with onnx, and checks nothing. The
program also prints which large modules `check` imported; there should be none.

    python benchmarks/check_speed.py
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import onnx
from measure import measure
from onnx import TensorProto, helper

SIZES = (10, 100, 1000)
HEAVY = ("torch", "mlflow", "onnxruntime", "transformers")
CONFIG = """\
name: "{name}"
backend: "onnxruntime"
max_batch_size: 16
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ 3, -1, -1 ] }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: [ 3, -1, -1 ] }} ]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
dynamic_batching {{ preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 500 }}
version_policy {{ latest {{ num_versions: 1 }} }}
"""
BASELINE = """\
import sys
from pathlib import Path
import onnx
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig
for directory in Path(sys.argv[1]).iterdir():
    text_format.Parse((directory / "config.pbtxt").read_text(), ModelConfig())
    onnx.load(directory / "1" / "model.onnx")
"""
OURS = """\
import sys
import repogen
findings = repogen.check(sys.argv[1])
assert not findings, findings[0]
print(*(name for name in sys.argv[2:] if name in sys.modules))
"""


def main() -> None:
    """Print one line per size: both times in seconds, their ratio, and the memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    print(f"{'models':>6} {'reading only':>13} {'repogen check':>14} {'ratio':>6} {'MB':>5}  heavy imports")
    with tempfile.TemporaryDirectory() as folder:
        for models in SIZES:
            repository = _repository(Path(folder) / str(models), models)
            plain, ours = [], []
            for _ in range(rounds):
                plain.append(measure([sys.executable, "-c", BASELINE, str(repository)]))
                ours.append(measure([sys.executable, "-c", OURS, str(repository), *HEAVY]))
            # The minimum of several runs: other load on the machine only increases the time.
            one, two = min(run.wall for run in plain), min(run.wall for run in ours)
            heavy = ours[0].stdout.strip() or "none"
            print(
                f"{models:>6} {one:>12.2f}s {two:>13.2f}s {two / one:>5.2f}x {ours[0].rss:>5.0f}  {heavy}", flush=True
            )


def _repository(root: Path, models: int) -> Path:
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3, "H", "W"]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", tensors[:1], tensors[1:])
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    for number in range(models):
        directory = root / f"model_{number}"
        (directory / "1").mkdir(parents=True)
        onnx.save_model(proto, directory / "1" / "model.onnx")
        (directory / "config.pbtxt").write_text(CONFIG.format(name=directory.name), encoding="utf-8")
    return root


if __name__ == "__main__":
    main()

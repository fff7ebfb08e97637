"""The inputs of a benchmark: the first golden case, at any batch size, in process and for perf_analyzer.

The first golden case has the example sizes of the spec. A model that repogen did not build has no golden tensors; zeros
are sent to it, where its dims are fixed.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from math import prod
from operator import mul
from typing import TYPE_CHECKING

import numpy as np

from repogen.artifacts.tensors import DTYPES
from repogen.errors import BenchError
from repogen.repository.golden import first_golden_inputs
from repogen.repository.manifest import read_manifest
from repogen.smoke.deployed_model import read_deployed_model
from repogen.smoke.inference import WireTensor
from repogen.triton_config.text.view import tensor_views

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tritonclient.grpc.model_config_pb2 import ModelConfig

    from repogen.artifacts.tensors import Array, Arrays
    from repogen.bench.server import ServedModel
    from repogen.triton_config.text.view import TensorView

_MAX_ZEROS_BYTES = 2**26
"""perf_analyzer reads the inputs as JSON, of which several copies are in memory; a request may have 2 GiB."""
_DTYPES = {dtype.triton: dtype for dtype in DTYPES.values()}


@dataclass(frozen=True)
class BenchInputs:
    """The inputs of one model.

    Attributes:
        batched: Whether axis 0 of every array is the batch.
        graph: Arrays as the graph and the PyTorch model receive them.
        wire: The inputs that a client sends; strings are objects that are ``bytes``.
        output_row_bytes: Bytes of the outputs of one row, or of a request without a batch; 0 if unknown.
    """

    batched: bool
    graph: Arrays
    wire: tuple[WireTensor, ...]
    output_row_bytes: int = 0

    def save(self, path: Path, batch: int) -> None:
        """Write the graph's inputs with ``batch`` rows as ``.npz``; the key of each array is its index."""
        arrays = [_decoded(self._tile(array, batch)) for array in self.graph.values()]
        np.savez(path, **{str(index): array for index, array in enumerate(arrays)})  # type: ignore[arg-type] # no key is allow_pickle

    def load_data(self) -> str:
        """Return perf_analyzer's ``--input-data``: one entry per row, or one for a request without a batch.

        Source: https://github.com/triton-inference-server/perf_analyzer, docs/input_data.md.

        Raises:
            BenchError: A string is not UTF-8.
        """
        return json.dumps({"data": [self._entry(row) for row in range(self.entries)]})

    @property
    def entries(self) -> int:
        """Number of entries of ``load_data``."""
        return min(len(tensor.array) for tensor in self.wire) if self.batched else 1

    def _entry(self, row: int) -> dict[str, object]:
        return {tensor.name: _content(tensor.array[row] if self.batched else tensor.array) for tensor in self.wire}

    def _tile(self, array: Array, batch: int) -> Array:
        if not self.batched:
            return array
        return np.tile(array, (-(-batch // len(array)), *[1] * (array.ndim - 1)))[:batch]


def golden_inputs(served: ServedModel) -> BenchInputs:
    """Return the inputs of a served model, whose outputs for them are those of the original.

    Raises:
        BenchError: The server's outputs differ, no valid input is known, or the model cannot be measured.
        SmokeError: The golden tensors cannot be read.
    """
    model, version_dir = served.model, served.model.directory / str(served.version)
    _check_measurable(model.config)
    try:
        manifest = read_manifest(version_dir)
        deployed = read_deployed_model(served.client, model, version_dir, manifest)
    except FileNotFoundError:  # repogen did not build it
        return zero_inputs(model.config)
    case = deployed.cases[0]
    comparison = deployed.compare(case, deployed.infer(deployed.wire(case.inputs)))
    if not comparison.equal:
        raise BenchError(
            f"{model.name}: the server's outputs differ from those of the original model: {comparison.detail}",
            "`repogen smoke` tests the model; only a correct model is measured",
            code="bench.wrong-outputs",
        )
    batched = deployed.max_batch_size > 0
    graph = first_golden_inputs(version_dir, batched) or {}
    return BenchInputs(batched, graph, tuple(deployed.wire(case.inputs)), case.output_row_bytes)


def _check_measurable(config: ModelConfig) -> None:
    """Reject a model whose requests depend on each other, or whose rows cannot be repeated.

    Raises:
        BenchError: It is such a model.
    """
    reason = ""
    if config.HasField("sequence_batching"):
        reason = "its requests are parts of sequences"
    elif any(tensor.allow_ragged_batch for tensor in config.input) or config.batch_input:
        reason = "its rows differ in length (ragged batching)"
    if reason:
        raise BenchError(
            f"{config.name} cannot be measured: {reason}",
            "run perf_analyzer yourself, with the options for such models",
            code="bench.unsupported",
        )


def zero_inputs(config: ModelConfig) -> BenchInputs:
    """Return zeros for a model without golden tensors.

    Raises:
        BenchError: A dim is dynamic, or the inputs have more than 64 MiB.
    """
    batched = config.max_batch_size > 0
    views = tensor_views(config.input)
    if dynamic := [view.name for view in views if any(dim < 0 for dim in (*view.dims, *view.model_dims))]:
        raise BenchError(
            f"the model has no golden tensors, and {', '.join(dynamic)} has dynamic dims, so no valid input is known",
            "build the model with repogen, which records golden tensors",
            code="bench.no-inputs",
        )
    itemsizes = (np.dtype(_DTYPES[view.dtype].numpy).itemsize for view in views)
    counts = (max(prod(view.dims), prod(view.model_dims)) for view in views)
    if sum(map(mul, itemsizes, counts)) > _MAX_ZEROS_BYTES:
        raise BenchError(
            "the model has no golden tensors, and its inputs are larger than "
            f"{_MAX_ZEROS_BYTES >> 20} MiB, the limit for inputs of zeros",
            "build the model with repogen, which records golden tensors; or correct the dims of the inputs",
            code="bench.no-inputs",
        )
    wire = tuple(_zeros(view, view.dims, batched=batched) for view in views)
    graph = {view.name: _zeros(view, view.model_dims, batched=batched).array for view in views}
    return BenchInputs(batched, graph, wire)


def _zeros(view: TensorView, dims: Sequence[int], *, batched: bool) -> WireTensor:
    dtype = _DTYPES[view.dtype]
    shape = (1, *dims) if batched else tuple(dims)
    array = np.full(shape, b"", object) if dtype.name == "string" else np.zeros(shape, dtype.numpy)
    return WireTensor(view.name, dtype.wire, array)


def _content(array: Array) -> Mapping[str, object]:
    if array.dtype.kind == "O":
        items: list[bytes] = array.ravel().tolist()
        try:
            return {"content": [item.decode() for item in items], "shape": list(array.shape)}
        except UnicodeDecodeError as error:
            raise BenchError(
                "a golden string is not UTF-8, which perf_analyzer cannot send", code="bench.no-inputs"
            ) from error
    return {"b64": base64.b64encode(array.tobytes()).decode("ascii"), "shape": list(array.shape)}


def _decoded(array: Array) -> Array:
    """Return strings in NumPy's own type, which ONNX Runtime accepts and a file can contain without pickle."""
    if array.dtype.kind != "O":
        return array
    texts = [item.decode(errors="replace") if isinstance(item, bytes) else str(item) for item in array.ravel()]
    return np.array(texts, np.str_).reshape(array.shape)

"""One version of a model on a server: its golden cases, its config, and requests to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from repogen.artifacts.tensors import DTYPES, Signature, TensorSpec
from repogen.errors import SmokeError
from repogen.files import reason
from repogen.files.content import ContentError
from repogen.repository.golden import GOLDEN_JSON, GOLDEN_NPZ, golden_arrays, read_golden, unpacked
from repogen.smoke.compare import Comparison, compare
from repogen.smoke.inference import WireTensor, single_request
from repogen.triton_config.text.dims import client_dims, wire_array
from repogen.triton_config.text.ragged import PER_REQUEST
from repogen.triton_config.text.view import tensor_views

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tritonclient.grpc.model_config_pb2 import ModelConfig

    from repogen.artifacts.built_model import GoldenCase, GoldenTensor
    from repogen.artifacts.tensors import Array, Arrays
    from repogen.artifacts.versions import Manifest
    from repogen.smoke.inference import InferenceClient, SequencePosition
    from repogen.smoke.preparation import PreparedModel
    from repogen.triton_config.text.view import TensorView

_MIN_RESPONSE_BYTES = 2**20


@dataclass(frozen=True)
class WireCase:
    """A golden case whose arrays have their shapes on the wire.

    Attributes:
        name: Name of the case in the parity report.
        batch: Number of rows; 0 when the model does not batch.
        inputs: Inputs by name, in the config's order.
        outputs: PyTorch's outputs by name.
    """

    name: str
    batch: int
    inputs: Arrays
    outputs: Arrays

    def rows(self, indices: Sequence[int]) -> WireCase:
        """Return a case of these rows; the build verified that rows are independent."""
        return WireCase(
            name=self.name,
            batch=len(indices),
            inputs={name: array.take(indices, axis=0) for name, array in self.inputs.items()},
            outputs={name: array.take(indices, axis=0) for name, array in self.outputs.items()},
        )

    def first(self, size: int) -> WireCase:
        """Return a case of the first ``size`` rows; the arrays are not copied."""
        inputs, outputs = (
            {name: array[:size] for name, array in arrays.items()} for arrays in (self.inputs, self.outputs)
        )
        return WireCase(self.name, size, inputs, outputs)

    def tiled(self, size: int) -> WireCase:
        """Return a case of ``size`` rows that repeats the rows of this one."""
        inputs, outputs = (
            {name: self._tile(array, size) for name, array in arrays.items()} for arrays in (self.inputs, self.outputs)
        )
        return WireCase(self.name, size, inputs, outputs)

    def _tile(self, array: Array, size: int) -> Array:
        times = -(-size // self.batch)
        return np.tile(array, (times, *[1] * (array.ndim - 1)))[:size]

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of one row's inputs, or of the whole inputs when the model does not batch."""
        return sum(map(wire_bytes, self.inputs.values())) // max(self.batch, 1)

    @cached_property
    def output_row_bytes(self) -> int:
        """Bytes of one row's outputs, or of the whole outputs when the model does not batch."""
        return sum(map(wire_bytes, self.outputs.values())) // max(self.batch, 1)


@dataclass(frozen=True)
class DeployedModel:
    """One version on a server.

    Attributes:
        client: A connection to the server.
        name: Model name on the server.
        version: Version number on the server.
        config: The config that the server loaded, overrides included.
        dtypes: Wire dtype of each input by name.
        cases: Golden cases; at least one.
        tolerances: ``(rtol, atol)`` by output name.
    """

    client: InferenceClient
    name: str
    version: int
    config: ModelConfig
    dtypes: Mapping[str, str]
    cases: tuple[WireCase, ...]
    tolerances: Mapping[str, tuple[float, float]]

    @property
    def max_batch_size(self) -> int:
        """Largest batch; 0 when the model does not batch."""
        return int(self.config.max_batch_size)

    @property
    def in_sequences(self) -> bool:
        """Whether every request must be part of a sequence."""
        return bool(self.config.HasField("sequence_batching"))

    @property
    def golden_bytes(self) -> tuple[int, int]:
        """Bytes of the inputs of one row in the smallest golden case, and of the outputs in the largest one.

        A model that does not batch has one row.
        """
        return self.smallest.row_bytes, max(case.output_row_bytes for case in self.cases)

    @property
    def is_ragged(self) -> bool:
        """Whether the rows of a batch may differ in length; each golden case is then one row."""
        return self.max_batch_size > 0 and any(tensor.allow_ragged_batch for tensor in self.config.input)

    @property
    def takes_one_row(self) -> bool:
        """Whether each request must have one row, because Triton feeds one value for each request."""
        return any(type(entry).Kind.Name(entry.kind) in PER_REQUEST for entry in self.config.batch_input)

    @property
    def smallest(self) -> WireCase:
        """The case with the fewest bytes per row."""
        return min(self.cases, key=lambda case: case.row_bytes)

    @property
    def single_row(self) -> list[WireTensor]:
        """Inputs of one golden row, or of a whole golden case when the model does not batch."""
        return self.wire((self.smallest.rows([0]) if self.max_batch_size > 0 else self.smallest).inputs)

    def wire(self, inputs: Arrays) -> list[WireTensor]:
        """Return the inputs that a client sends; inputs that Triton's scheduler feeds are omitted."""
        declared = {tensor.name for tensor in self.config.input}
        return [WireTensor(name, self.dtypes[name], array) for name, array in inputs.items() if name in declared]

    def response_limit(self, inputs: Sequence[WireTensor]) -> int:
        """Return how many bytes the response to a request may have: twice the expected outputs, and room for names.

        Strings, and dims that depend on values, may be larger than in the golden cases.
        """
        rows = max((len(tensor.array) for tensor in inputs), default=1) if self.max_batch_size > 0 else 1
        return 2 * max(rows, 1) * self.golden_bytes[1] + _MIN_RESPONSE_BYTES

    def infer(self, inputs: Sequence[WireTensor], position: SequencePosition | None = None) -> Arrays:
        """Send one request and return the outputs by name, in their shapes on the wire."""
        return self.client.infer(self.name, self.version, inputs, position, self.response_limit(inputs))

    def infer_row(self, inputs: Sequence[WireTensor]) -> Arrays:
        """Send one request, as a sequence by itself where the model requires sequences."""
        return self.infer(inputs, single_request() if self.in_sequences else None)

    def burst(self, requests: Sequence[Sequence[WireTensor]]) -> list[Arrays]:
        """Send requests at once, each as a sequence by itself where the model requires sequences."""
        positions = [single_request() for _ in requests] if self.in_sequences else []
        limit = max(map(self.response_limit, requests), default=0)
        return self.client.burst(self.name, self.version, requests, positions, limit)

    def compare(self, case: WireCase, outputs: Arrays) -> Comparison:
        """Compare outputs with a case's, and their shapes with the config's dims.

        A backend may return a 0-d output as such or as ``[1]``.
        """
        received = {name: wire_array(array, batched=False) for name, array in outputs.items()}
        comparison = compare(case.outputs, received, self.tolerances)
        problems = "; ".join(self._wrong_dims(received)) if comparison.equal else ""
        return replace(comparison, equal=False, detail=problems) if problems else comparison

    def _wrong_dims(self, outputs: Arrays) -> Iterator[str]:
        """Yield one line for each output whose shape does not match the dims that clients read in the metadata."""
        for view in tensor_views(self.config.output):
            dims = (-1, *view.dims) if self.max_batch_size > 0 else view.dims
            shape = outputs[view.name].shape if view.name in outputs else dims
            if len(shape) != len(dims) or any(dim not in {-1, size} for dim, size in zip(dims, shape, strict=True)):
                yield f"{view.name!r} has shape {list(shape)}, but the dims in config.pbtxt allow only {list(dims)}"


def read_deployed_model(
    client: InferenceClient, model: PreparedModel, version_dir: Path, manifest: Manifest
) -> DeployedModel:
    """Return one version of a prepared model, with its golden cases.

    Raises:
        SmokeError: ``golden.npz`` lacks an array, one of the two files cannot be read, or there is no case.
        MalformedRecordError: ``golden.json`` is damaged.
        FileNotFoundError: One of the two does not exist.
    """
    try:
        golden = read_golden(version_dir, f"{version_dir.name}/{GOLDEN_JSON}")
        arrays = _load_arrays(version_dir)
    except FileNotFoundError:
        raise
    except OSError as error:  # a FIFO or a sparse file, for example
        raise _damaged_error(f"the golden tensors cannot be read: {reason(error)}") from error
    largest = int(model.config.max_batch_size)
    wire_cases = (_wire_case(case, arrays, model.config) for case in golden.cases if case.batch > 0 or largest == 0)
    # parity tests every size that the spec's dims allow, and max_batch_size may be smaller
    cases = tuple(case.first(largest) if 0 < largest < case.batch else case for case in wire_cases)
    if not cases:
        raise SmokeError(
            f"{model.name}: {GOLDEN_JSON} contains no usable case", "build the model again", code="smoke.no-golden"
        )
    dtypes = {tensor.name: DTYPES[tensor.dtype].wire for tensor in manifest.signature.inputs}
    if unknown_names := sorted({name for case in cases for name in case.inputs} - dtypes.keys()):
        raise _damaged_error(f"the manifest does not list {', '.join(unknown_names)}, an input in {GOLDEN_JSON}")
    return DeployedModel(client, model.served_as, int(version_dir.name), model.config, dtypes, cases, golden.tolerances)


def client_signature(signature: Signature, config: ModelConfig) -> Signature:
    """Return the signature that clients see: without scheduler inputs and states, and with the config's dims."""
    views = {view.name: view for view in tensor_views((*config.input, *config.output))}
    flat = flat_tensors(config)
    inputs, outputs = (
        [replace(spec, shape=("row", *spec.shape)) if spec.name in flat else spec for spec in specs]
        for specs in (signature.inputs, signature.outputs)
    )
    return Signature(
        tuple(_client_spec(spec, views[spec.name], config) for spec in inputs if spec.name in views),
        tuple(_client_spec(spec, views[spec.name], config) for spec in outputs if spec.name in views),
    )


def flat_tensors(config: ModelConfig) -> frozenset[str]:
    """Return the tensors that have a batch axis for clients but not in the graph: ragged inputs, scattered outputs."""
    if not config.max_batch_size:
        return frozenset()
    ragged = {tensor.name for tensor in config.input if tensor.allow_ragged_batch}
    targets = (entry.target_name for entry in config.batch_output if set(entry.source_input) <= ragged)
    return frozenset((*ragged, *(name for names in targets for name in names)))


def _client_spec(spec: TensorSpec, view: TensorView, config: ModelConfig) -> TensorSpec:
    if not view.reshape:
        return spec
    rows = spec.shape[:1] if config.max_batch_size > 0 else ()
    return replace(spec, shape=(*rows, *("?" if dim == -1 else dim for dim in view.dims)))


def _load_arrays(version_dir: Path) -> dict[str, Array]:
    try:
        return golden_arrays(version_dir)
    except ContentError as error:
        raise _damaged_error(f"{GOLDEN_NPZ} cannot be read: it {error}") from error


def _wire_case(case: GoldenCase, arrays: Mapping[str, Array], config: ModelConfig) -> WireCase:
    output_views = {view.name: view for view in tensor_views(config.output)}
    # the states of a sequence are not returned to clients
    outputs = [tensor for tensor in case.outputs if tensor.name in output_views]
    wire_case = WireCase(
        name=case.name,
        batch=case.batch,
        inputs=_wire_arrays(case.inputs, arrays, tensor_views(config.input), config),
        outputs=_wire_arrays(outputs, arrays, output_views.values(), config),
    )
    every_array = (*wire_case.inputs.values(), *wire_case.outputs.values())
    if config.max_batch_size > 0 and any(array.shape[:1] != (case.batch,) for array in every_array):
        raise _damaged_error(f"{GOLDEN_NPZ} is damaged: case {case.name!r} does not have {case.batch} rows")
    return wire_case


def _wire_arrays(
    tensors: Iterable[GoldenTensor], arrays: Mapping[str, Array], views: Iterable[TensorView], config: ModelConfig
) -> dict[str, Array]:
    tensors, view_of = tuple(tensors), {view.name: view for view in views}
    if missing_keys := sorted(tensor.key for tensor in tensors if tensor.key not in arrays):
        raise _damaged_error(f"{GOLDEN_NPZ} lacks {', '.join(missing_keys)}")
    try:
        golden = {tensor.name: _encode_strings(unpacked(arrays, tensor.key)) for tensor in tensors}
        # a golden case of a ragged model is one row
        flat = flat_tensors(config)
        rows = {name: array[np.newaxis] if name in flat else array for name, array in golden.items()}
        return {name: _wire_array(a, view_of.get(name), batched=config.max_batch_size > 0) for name, a in rows.items()}
    except ValueError as error:
        raise _damaged_error(f"{GOLDEN_NPZ} is damaged: {error}") from error


def _damaged_error(message: str) -> SmokeError:
    return SmokeError(message, "build the model again", code="smoke.golden")


def _wire_array(array: Array, view: TensorView | None, *, batched: bool) -> Array:
    """Return an array in the dims that clients see; a scheduler's input keeps its own."""
    if view is None or not view.reshape:
        return wire_array(array, batched=batched)
    rows = array.shape[:1] if batched else ()
    return array.reshape((*rows, *client_dims(view, array.shape[len(rows) :])))


def wire_bytes(array: Array) -> int:
    """Return the size of an array on the wire, where a string is preceded by its length in four bytes."""
    if array.dtype.kind != "O":
        return array.nbytes
    items: list[bytes] = array.ravel().tolist()
    return sum(4 + len(item) for item in items)


def _encode_strings(array: Array) -> Array:
    """Return strings as objects that are UTF-8 bytes, as the protocol requires; other dtypes unchanged."""
    if array.dtype.kind == "U":
        return np.char.encode(array.astype(np.str_), "utf-8").astype(object)
    return array.astype(object) if array.dtype.kind == "S" else array

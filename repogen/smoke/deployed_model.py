"""What is put to the server: a version's golden cases, and what its config promises."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from zipfile import BadZipFile

from repogen.artifacts.tensors import DTYPES, Signature, TensorSpec
from repogen.errors import SmokeError
from repogen.repository.golden import GOLDEN_JSON, GOLDEN_NPZ, golden_from_json, unpacked
from repogen.smoke.inference import WireTensor
from repogen.triton_config.text.dims import client_dims, wire_array
from repogen.triton_config.text.view import tensor_views

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from tritonclient.grpc.model_config_pb2 import ModelConfig

    from repogen.artifacts.built_model import GoldenCase, GoldenTensor
    from repogen.artifacts.tensors import Array, Arrays
    from repogen.artifacts.versions import Manifest
    from repogen.triton_config.text.view import TensorView


@dataclass(frozen=True)
class Case:
    """A golden case with its arrays in the shapes of the wire.

    Attributes:
        name: As the parity report names it.
        batch: Rows; 0 when the model does not batch.
        inputs: By name, in the config's order.
        outputs: PyTorch's, by name.
    """

    name: str
    batch: int
    inputs: Arrays
    outputs: Arrays

    def rows(self, indices: Sequence[int]) -> Case:
        """Return a case made of these rows; right because the build proved that rows don't influence each other."""
        return Case(
            name=self.name,
            batch=len(indices),
            inputs={name: array.take(indices, axis=0) for name, array in self.inputs.items()},
            outputs={name: array.take(indices, axis=0) for name, array in self.outputs.items()},
        )

    def tiled(self, size: int) -> Case:
        """Return ``size`` rows, those of this case over and over, in little more memory than they take themselves."""
        return Case(
            self.name,
            size,
            *(
                {name: self._tiled(array, size) for name, array in arrays.items()}
                for arrays in (self.inputs, self.outputs)
            ),
        )

    def _tiled(self, array: Array, size: int) -> Array:
        import numpy as np  # noqa: PLC0415 - the room's import stays light

        times = -(-size // self.batch)
        return np.tile(array, (times, *[1] * (array.ndim - 1)))[:size]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row's inputs, or of the whole input when the model does not batch."""
        return sum(map(_wire_bytes, self.inputs.values())) // max(self.batch, 1)

    @property
    def answer_row_bytes(self) -> int:
        """The same of the outputs."""
        return sum(map(_wire_bytes, self.outputs.values())) // max(self.batch, 1)


@dataclass(frozen=True)
class Subject:
    """One version on a server.

    Attributes:
        model: The model's name.
        served_as: Its name on the server; another one where a private copy is tested.
        version: Version number on the server.
        config: The config that the server was given, overrides included.
        dtypes: Wire dtype of each input by name.
        cases: Golden cases; at least one.
        tolerances: ``(rtol, atol)`` by output name.
    """

    model: str
    served_as: str
    version: int
    config: ModelConfig
    dtypes: Mapping[str, str]
    cases: tuple[Case, ...]
    tolerances: Mapping[str, tuple[float, float]]

    @property
    def max_batch_size(self) -> int:
        """As in the config; 0 when the model does not batch."""
        return int(self.config.max_batch_size)

    @property
    def smallest(self) -> Case:
        """The case with the fewest bytes a row."""
        return min(self.cases, key=lambda case: case.row_bytes)

    def wire(self, inputs: Arrays) -> list[WireTensor]:
        """Return ``inputs`` as they are sent; what Triton's scheduler feeds is left out."""
        declared = {tensor.name for tensor in self.config.input}
        return [WireTensor(name, self.dtypes[name], array) for name, array in inputs.items() if name in declared]


def read_subject(
    version_dir: Path, manifest: Manifest, config: ModelConfig, *, model: str, served_as: str, version: int
) -> Subject:
    """Read a version's golden cases.

    Raises:
        SmokeError: ``golden.npz`` lacks an array, cannot be read, or there is no case.
        MalformedRecordError: ``golden.json`` is damaged.
        OSError: One of the two cannot be read.
    """
    text = (version_dir / GOLDEN_JSON).read_text(encoding="utf-8")
    golden = golden_from_json(text, f"{version_dir.name}/{GOLDEN_JSON}")
    arrays = _arrays(version_dir / GOLDEN_NPZ)
    batched = config.max_batch_size > 0
    read = (_case(case, arrays, config) for case in golden.cases if case.batch > 0 or not batched)
    largest = int(config.max_batch_size)
    # parity went as far as dims do, and the spec may serve smaller batches
    cases = tuple(case.rows(range(largest)) if batched and case.batch > largest else case for case in read)
    if not cases:
        raise SmokeError(
            f"{model}: {GOLDEN_JSON} holds no case to test with", "build the model again", code="smoke.no-golden"
        )
    dtypes = {tensor.name: DTYPES[tensor.dtype].wire for tensor in manifest.signature.inputs}
    return Subject(model, served_as, version, config, dtypes, cases, golden.tolerances)


def seen_by_clients(signature: Signature, config: ModelConfig) -> Signature:
    """Return a signature as clients see it: without what the scheduler feeds and keeps, in the dims of the config."""
    views = {view.name: view for view in tensor_views((*config.input, *config.output))}
    return Signature(
        tuple(_seen(spec, views[spec.name], config) for spec in signature.inputs if spec.name in views),
        tuple(_seen(spec, views[spec.name], config) for spec in signature.outputs if spec.name in views),
    )


def _seen(spec: TensorSpec, view: TensorView, config: ModelConfig) -> TensorSpec:
    if not view.reshape:
        return spec
    rows = spec.shape[:1] if config.max_batch_size > 0 else ()
    return replace(spec, shape=(*rows, *("?" if dim == -1 else dim for dim in view.dims)))


def _arrays(path: Path) -> dict[str, Array]:
    import numpy as np  # noqa: PLC0415 - the room's import stays light

    try:
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except (ValueError, EOFError, BadZipFile) as error:
        raise SmokeError(f"{path.name} can't be read: {error}", "build the model again", code="smoke.golden") from error


def _case(case: GoldenCase, arrays: Mapping[str, Array], config: ModelConfig) -> Case:
    batched = config.max_batch_size > 0
    answered = {view.name: view for view in tensor_views(config.output)}
    # the states that a sequence keeps are no answer to a client
    outputs = [tensor for tensor in case.outputs if tensor.name in answered]
    return Case(
        name=case.name,
        batch=case.batch,
        inputs=_named(case.inputs, arrays, tensor_views(config.input), batched=batched),
        outputs=_named(outputs, arrays, answered.values(), batched=batched),
    )


def _named(
    tensors: Iterable[GoldenTensor], arrays: Mapping[str, Array], views: Iterable[TensorView], *, batched: bool
) -> dict[str, Array]:
    tensors, seen = tuple(tensors), {view.name: view for view in views}
    if missing := sorted(tensor.key for tensor in tensors if tensor.key not in arrays):
        raise SmokeError(f"{GOLDEN_NPZ} lacks {', '.join(missing)}", "build the model again", code="smoke.golden")
    try:
        named = {tensor.name: _bytes(unpacked(arrays, tensor.key)) for tensor in tensors}
    except ValueError as error:
        raise SmokeError(f"{GOLDEN_NPZ} is damaged: {error}", "build the model again", code="smoke.golden") from error
    return {name: _as_sent(array, seen.get(name), batched=batched) for name, array in named.items()}


def _as_sent(array: Array, view: TensorView | None, *, batched: bool) -> Array:
    """Return an array in the dims that clients see; what no client sees, in its own."""
    if view is None or not view.reshape:
        return wire_array(array, batched=batched)
    rows = array.shape[:1] if batched else ()
    return array.reshape((*rows, *client_dims(view, array.shape[len(rows) :])))


def _wire_bytes(array: Array) -> int:
    """Return the bytes that ``array`` has on the wire: a string is its length in four bytes, and itself."""
    if array.dtype.kind != "O":
        return array.nbytes
    items: list[bytes] = array.ravel().tolist()
    return sum(4 + len(item) for item in items)


def _bytes(array: Array) -> Array:
    """Return strings as the protocol carries them: objects that are UTF-8 bytes."""
    import numpy as np  # noqa: PLC0415 - as above

    if array.dtype.kind == "U":
        return np.char.encode(array.astype(np.str_), "utf-8").astype(object)
    return array.astype(object) if array.dtype.kind == "S" else array

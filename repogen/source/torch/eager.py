"""Determines the signature of a module by running it, and returns its SourceModel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from repogen.artifacts.source import Eager, SourceModel
from repogen.artifacts.tensors import DTYPES, Array, Arrays, Signature, TensorSpec
from repogen.errors import RepogenError, SourceError
from repogen.source.common.callables import RAISED, user_error
from repogen.source.common.dim_names import BATCH
from repogen.source.torch.flat import FlatModule, choose_outputs, dtype_name, tensors_among
from repogen.source.torch.probe import probe

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.artifacts.source import DimRange, Origin
    from repogen.source.common.inputs import Inputs
    from repogen.spec.models import ModelSpec

_SIZE_STEPS = (32, 8, 64)
"""Many image models accept only multiples of one of these."""

_COMPUTES_IN_BFLOAT16 = (
    "forward computes in bfloat16, and the graph in float32: outputs are compared with the tolerance of bfloat16"
)


@dataclass(frozen=True)
class Examined:
    """The result of running a module on its example inputs.

    Attributes:
        inputs: The inputs.
        flat: Takes flat tensors and returns the chosen outputs.
        select: Indices of the chosen outputs among all tensors that the module returns.
        signature: Inputs, and outputs with their shapes at the example size.
        attention: Whether it calls ``scaled_dot_product_attention``.
        precision: ``float16``, ``bfloat16`` or ``qint8`` if it computes anything in that dtype, otherwise empty.
        complex: ``complex64`` or ``complex128`` if it computes anything in that dtype, otherwise empty.
        notes: Messages for the report.
        root: Directory of the spec.
    """

    inputs: Inputs
    flat: FlatModule
    select: tuple[int, ...]
    signature: Signature
    attention: bool
    precision: str
    complex: str
    notes: tuple[str, ...]
    root: Path

    @property
    def reference(self) -> TorchReference:
        """Runs the module."""
        return TorchReference(self.flat, self.signature, self.root)

    def source_model(self, origin: Origin | None = None) -> SourceModel:
        """Return the source model; without an origin, the exporters get the module itself."""
        return SourceModel(
            origin=Eager(self.flat, self.attention) if origin is None else origin,
            signature=self.signature,
            dims=self.inputs.dims,
            examples=self.inputs.examples,
            reference=self.reference,
            notes=self.notes,
            precision=self.precision,
            complex=self.complex,
        )


def examine(module: torch.nn.Module, inputs: Inputs, model: ModelSpec, root: Path) -> Examined:
    """Run a module on its example inputs and determine its signature.

    Raises:
        SourceError: It fails, keeps state, draws random numbers, or Triton cannot serve its outputs.
        ParityError: It is not deterministic.
    """
    inputs = _with_rounded_examples(inputs)
    names = tuple(spec.name for spec in inputs.specs)
    sizes = {name: dim.example for name, dim in inputs.dims.items()}
    tensors = _tensors(inputs.specs, inputs.examples(sizes, model.parity.seed))
    alike = _tensors(inputs.specs, inputs.examples(sizes, model.parity.seed + 1))
    other_sizes = {name: dim.other for name, dim in inputs.dims.items()}
    others = _tensors(inputs.specs, inputs.examples(other_sizes, model.parity.seed + 1))
    flat = FlatModule(module, inputs.call)
    try:
        observed = probe(flat, tensors, others, alike, root, model.parity.seed)
    except SourceError as error:
        if error.code == "source.user-code" and (hint := _fixed_batch_hint(flat, inputs, sizes, model.parity.seed)):
            error.hint = hint
        raise
    candidates, left_out = tensors_among(observed.leaves, model.output_names)
    select, output_names = choose_outputs(candidates, model.output_names)
    check_tensor_names(names, output_names)
    outputs = tuple(_output_spec(name, candidates[i][1]) for name, i in zip(output_names, select, strict=True))
    return Examined(
        inputs=inputs,
        flat=FlatModule(module, inputs.call, select, tuple(name for name, _ in candidates), observed.caches).eval(),
        select=select,
        signature=Signature(inputs.specs, outputs),
        attention=observed.attention,
        precision=observed.precision,
        complex=observed.complex,
        notes=(*inputs.notes, *left_out, *_bfloat16_notes(inputs.specs, outputs, observed.precision)),
        root=root,
    )


def _fixed_batch_hint(flat: FlatModule, inputs: Inputs, sizes: Mapping[str, int], seed: int) -> str:
    """Return a hint if a module that fails accepts the user's examples as they are; otherwise empty."""
    batch, rows = Signature(inputs.specs, ()).batch_dim, inputs.stored_rows
    if batch is None or rows is None or rows == sizes[batch]:
        return ""
    try:
        with torch.no_grad():
            flat(*_tensors(inputs.specs, inputs.examples({**sizes, batch: rows}, seed)).values())
    except RAISED:
        return ""
    return (
        f"forward works with {rows} rows, as in the examples, and fails with {sizes[batch]}: the batch size is "
        f"hard-coded; use x.shape[0] or x.flatten(1) instead of the number {rows}, or write {rows} instead of {batch} "
        "in inputs: to serve batches of this size only"
    )


def source_from_module(module: torch.nn.Module, inputs: Inputs, model: ModelSpec, root: Path) -> SourceModel:
    """Return the source model of a module; see ``examine``.

    If the forward fails, it is tried again with multiples of 32, 8 and 64 as example sizes of the dims for which the
    spec sets none. An error other than a failing forward then replaces the first one.

    Args:
        module: The module, as ``repogen.source.torch.module.prepare`` returned it.
        inputs: Inputs of its forward.
        model: The spec entry.
        root: Directory of the spec, for locations in messages.
    """
    try:
        return examine(module, inputs, model, root).source_model()
    except SourceError as error:
        if error.code != "source.user-code":
            raise
        for step in _SIZE_STEPS:
            multiples = replace(inputs, dims=_round_sizes(inputs.dims, model, step))
            if multiples.dims == inputs.dims:
                continue
            try:
                return examine(module, multiples, model, root).source_model()
            except SourceError as later:
                if later.code != error.code:  # forward accepts these sizes, so this is what remains to be fixed
                    raise later from error
        raise


def _round_sizes(dims: Mapping[str, DimRange], model: ModelSpec, step: int) -> dict[str, DimRange]:
    """Return the dims with a different multiple of ``step`` as each example size that the spec leaves open."""
    used_sizes = {dim.example for dim in dims.values()}
    rounded = dict(dims)
    for name, dim in dims.items():
        declared = name in model.dims and model.dims[name].example is not None
        sizes = (size for size in range(step, dim.max + 1, step) if size >= dim.min and size not in used_sizes)
        if name != BATCH and not declared and dim.example % step and (size := next(sizes, 0)):
            used_sizes.add(size)
            rounded[name] = replace(dim, example=size)
    return rounded


def check_tensor_names(inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
    """Reject names that a graph or config.pbtxt cannot have; the names in the spec are checked with the spec.

    Raises:
        SourceError: An output has the name of an input, or a name is not printable.
    """
    if shared := [name for name in outputs if name in inputs]:
        renamed = ", ".join(f"{name}_output" if name in inputs else name for name in outputs)
        raise SourceError(
            f"an output {shared[0]!r} has the name of an input, and names in a graph must be unique",
            f"rename the outputs: outputs: [{renamed}]",
            code="source.shared-name",
        )
    if invalid := [name for name in (*inputs, *outputs) if not (name and name.isprintable())]:
        raise SourceError(
            f"the tensor name {invalid[0]!r} is empty or contains unprintable characters",
            "rename outputs with outputs: [...], and inputs in inputs: or in the examples",
            code="source.name",
        )


def _output_spec(name: str, tensor: torch.Tensor) -> TensorSpec:
    dtype = dtype_name(tensor.dtype)
    if dtype not in DTYPES:
        remedy = "return torch.view_as_real(x)" if tensor.is_complex() else "return x.float()"
        raise SourceError(
            f"output {name!r} is {dtype}, which Triton's ONNX Runtime backend does not support",
            f"{remedy} in the model",
            code="source.output-dtype",
        )
    return TensorSpec(name, dtype, tuple(tensor.shape))


def _with_rounded_examples(inputs: Inputs) -> Inputs:
    """Return the inputs with the values that a client can send: those of BF16 inputs are rounded."""

    def rounded(sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        arrays = inputs.examples(sizes, seed)
        return {**arrays, **{name: _array(tensor) for name, tensor in _tensors(bfloat16, arrays).items()}}

    bfloat16 = tuple(spec for spec in inputs.specs if spec.dtype == "bfloat16")
    return replace(inputs, examples=rounded) if bfloat16 else inputs


def _tensors(specs: tuple[TensorSpec, ...], arrays: Arrays) -> dict[str, torch.Tensor]:
    """Return the tensors that forward receives; those of BF16 inputs are rounded, and float32 as the weights are."""
    tensors = {spec.name: torch.from_numpy(arrays[spec.name]) for spec in specs}
    rounded = {spec.name: tensors[spec.name].bfloat16().float() for spec in specs if spec.dtype == "bfloat16"}
    return tensors | rounded


def _array(tensor: torch.Tensor) -> Array:
    values = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    return cast("Array", np.array(values.numpy(), order="C"))


def _bfloat16_notes(inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], precision: str) -> tuple[str, ...]:
    names = ", ".join(spec.name for spec in inputs if spec.dtype == "bfloat16")
    computes = precision == "bfloat16" and all(spec.dtype != "bfloat16" for spec in outputs)
    return (
        *((f"BF16 inputs are cast to float32, because the model computes in float32: {names}",) if names else ()),
        *((_COMPUTES_IN_BFLOAT16,) if computes else ()),
    )


@dataclass(frozen=True)
class TorchReference:
    """Runs a flat module in PyTorch on the CPU."""

    module: torch.nn.Module
    signature: Signature
    root: Path

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs by name.

        Raises:
            SourceError: The model failed on these inputs, or an output has another number of axes than on the example,
                which config.pbtxt cannot express.
        """
        # Copies on both sides, because a forward may change its inputs, or earlier outputs, in place.
        copies = {name: np.array(array, order="C") for name, array in inputs.items()}
        tensors = _tensors(self.signature.inputs, copies).values()
        try:
            with torch.no_grad():
                outputs = self.module(*tensors)
        except RepogenError:
            raise
        except RAISED as error:
            raise user_error(error, "the PyTorch model failed", self.root, "source.forward") from error
        for spec, tensor in zip(self.signature.outputs, outputs, strict=True):
            if tensor.ndim != len(spec.shape):
                raise SourceError(
                    f"output {spec.name!r} has the shape {list(tensor.shape)} at this size, and {len(spec.shape)} "
                    f"{'axes' if len(spec.shape) != 1 else 'axis'} at the example size; x.squeeze() also removes a "
                    "batch of 1: use x.squeeze(-1)",
                    code="source.declared-size",
                )
        arrays = (_array(tensor.detach().cpu()) for tensor in outputs)
        return {spec.name: array for spec, array in zip(self.signature.outputs, arrays, strict=True)}

"""A module with its inputs -> SourceModel: run once, outputs named, signature found."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from repogen.artifacts.source import Eager, SourceModel
from repogen.artifacts.tensors import DTYPES, Array, Arrays, Signature, TensorSpec
from repogen.errors import SourceError
from repogen.source.common.callables import RAISED, user_error
from repogen.source.common.dims import BATCH
from repogen.source.torch.flat import FlatModule, choose_outputs, tensors_among
from repogen.source.torch.probe import probe

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.artifacts.source import DimRange
    from repogen.source.common.inputs import Inputs
    from repogen.spec.models import ModelSpec

_STEPS = (32, 8, 64)
"""What many models of images want sizes to be multiples of."""


@dataclass(frozen=True)
class Examined:
    """A module that was run on its example inputs.

    Attributes:
        flat: Flat tensors in, the chosen outputs out.
        select: Indices of the chosen outputs among all tensors of its answer.
        count: How many tensors there are in all.
        signature: Inputs, and outputs as they were at the example size.
        attention: Whether it calls ``scaled_dot_product_attention``.
        precision: ``float16`` or ``bfloat16`` when it computes anything in it.
        notes: What a person should know.
    """

    flat: FlatModule
    select: tuple[int, ...]
    count: int
    signature: Signature
    attention: bool
    precision: str
    notes: tuple[str, ...]


def examine(module: torch.nn.Module, inputs: Inputs, model: ModelSpec, root: Path) -> Examined:
    """Run a module on its example inputs and find its signature.

    Raises:
        SourceError: It fails, keeps state, draws random numbers, or its outputs can't be served.
        ParityError: It differs from itself.
    """
    names = tuple(spec.name for spec in inputs.specs)
    sample = inputs.examples({name: dim.example for name, dim in inputs.dims.items()}, model.parity.seed)
    tensors = {name: torch.from_numpy(sample[name]) for name in names}
    others = inputs.examples({name: dim.other for name, dim in inputs.dims.items()}, model.parity.seed + 1)
    elsewhere = {name: torch.from_numpy(others[name]) for name in names}
    observed = probe(FlatModule(module, inputs.call), tensors, elsewhere, root, model.parity.seed)
    found, left_out = tensors_among(observed.leaves, model.output_names)
    select, output_names = choose_outputs(found, model.output_names)
    refuse_names(names, output_names)
    outputs = tuple(_output_spec(name, found[i][1]) for name, i in zip(output_names, select, strict=True))
    return Examined(
        flat=FlatModule(module, inputs.call, select).eval(),
        select=select,
        count=len(found),
        signature=Signature(inputs.specs, outputs),
        attention=observed.attention,
        precision=observed.precision,
        notes=(*inputs.notes, *left_out),
    )


def of_module(module: torch.nn.Module, inputs: Inputs, model: ModelSpec, root: Path) -> SourceModel:
    """Make the source model of a module; see ``examine``.

    Args:
        module: As ``source.module.prepare`` returned it.
        inputs: What its forward is given.
        model: The spec entry.
        root: Directory of the spec, for places.
    """
    inputs, examined = _examined(module, inputs, model, root)
    return SourceModel(
        origin=Eager(examined.flat, examined.attention),
        signature=examined.signature,
        dims=inputs.dims,
        examples=inputs.examples,
        reference=TorchReference(examined.flat, examined.signature, root),
        notes=examined.notes,
        precision=examined.precision,
    )


def _examined(module: torch.nn.Module, inputs: Inputs, model: ModelSpec, root: Path) -> tuple[Inputs, Examined]:
    """Examine a module at example sizes that it takes: where the spec leaves them open, also at multiples of 32."""
    try:
        return inputs, examine(module, inputs, model, root)
    except SourceError as error:
        if error.code != "source.user-code":
            raise
        for step in _STEPS:
            others = replace(inputs, dims=_in_steps(inputs.dims, model, step))
            if others.dims == inputs.dims:
                continue
            with suppress(SourceError):
                return others, examine(module, others, model, root)
        raise


def _in_steps(dims: Mapping[str, DimRange], model: ModelSpec, step: int) -> dict[str, DimRange]:
    """Give each dim but the batch, where the spec leaves it open, an example that is a multiple: all different."""
    taken = {dim.example for dim in dims.values()}
    chosen = dict(dims)
    for name, dim in dims.items():
        said = name in model.dims and model.dims[name].example is not None
        sizes = (size for size in range(step, dim.max + 1, step) if size >= dim.min and size not in taken)
        if name != BATCH and not said and dim.example % step and (size := next(sizes, 0)):
            taken.add(size)
            chosen[name] = replace(dim, example=size)
    return chosen


def refuse_names(inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
    """Refuse names that a graph or config.pbtxt should not have; those of the spec are checked there.

    Raises:
        SourceError: An output is called like an input, or a name is not printable.
    """
    if shared := [name for name in outputs if name in inputs]:
        raise SourceError(
            f"the model calls an output {shared[0]!r}, as an input is called, and a graph needs one name for each",
            "give the outputs other names: outputs: [...]",
            code="source.shared-name",
        )
    if odd := [name for name in (*inputs, *outputs) if not (name and name.isprintable())]:
        raise SourceError(
            f"a tensor is called {odd[0]!r}, and names need printable characters",
            "give the outputs other names: outputs: [...]; inputs are called as in inputs: or the examples",
            code="source.name",
        )


def _output_spec(name: str, tensor: torch.Tensor) -> TensorSpec:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        remedy = "return torch.view_as_real(x)" if tensor.is_complex() else "return x.float()"
        raise SourceError(
            f"output {name!r} is {dtype}, which Triton's ONNX Runtime backend does not serve",
            f"{remedy} in the model",
            code="source.output-dtype",
        )
    return TensorSpec(name, dtype, tuple(tensor.shape))


@dataclass(frozen=True)
class TorchReference:
    """Runs a flat module in PyTorch on the CPU."""

    module: torch.nn.Module
    signature: Signature
    root: Path

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs by name.

        Raises:
            SourceError: The model refused these inputs.
        """
        # Copies on both sides: a forward that works in place must not reach our inputs, nor what it answered before.
        tensors = [torch.from_numpy(np.array(inputs[spec.name], order="C")) for spec in self.signature.inputs]
        try:
            with torch.no_grad():
                outputs = self.module(*tensors)
        except RAISED as error:
            raise user_error(error, "the PyTorch model failed", self.root, "source.forward") from error
        arrays = (cast("Array", np.array(tensor.detach().cpu().numpy(), order="C")) for tensor in outputs)
        return {spec.name: array for spec, array in zip(self.signature.outputs, arrays, strict=True)}

"""Makes the user's model: factory, weights, evaluation mode, signature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from repogen.errors import RepogenError, SourceError
from repogen.source.callables import RAISED, import_callable, user_error
from repogen.source.examples import CalledExamples, DrawnExamples, StoredExamples, call_examples, load_npz
from repogen.source.flat import FlatModule, bind_inputs, choose_outputs
from repogen.source.weights import load_weights
from repogen.values.source import DimRange, SourceModel
from repogen.values.tensors import DTYPES, Array, Arrays, Dim, Signature, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.source.callables import UserCallable
    from repogen.spec.models import DimSpec, ModelSpec
    from repogen.values.source import Examples

_BATCH = "batch"
_FOUND_BATCH = DimRange(min=1, max=32, example=2)
_EXAMPLE = 16
_MODE_DEPENDENT = ("Dropout", "BatchNorm", "InstanceNorm")


def load_source(model: ModelSpec, root: Path) -> SourceModel:
    """Make the module of a spec entry and find its signature by running it once.

    Args:
        model: The spec entry.
        root: Directory of the spec; its relative paths start there.

    Raises:
        SourceError: The factory, the weights, the inputs or the outputs are not usable; it says which and why.
    """
    # Nested tensors of the fast path disagree with any export at padding (triton-facts: 2.3 seen).
    torch.backends.mha.set_fastpath_enabled(False)
    torch.manual_seed(model.parity.seed)
    module = _make_module(model, root)
    notes = () if model.source.weights is None else load_weights(module, root / model.source.weights)
    notes = (*notes, *_enforce_eval(module))
    dims = _ranges(model.dims)
    inputs, examples, dims = _inputs(model, root, dims)
    names = tuple(spec.name for spec in inputs)
    keywords = bind_inputs(module, names)
    sample = examples({name: dim.example for name, dim in dims.items()}, model.parity.seed)
    tensors = tuple(torch.from_numpy(sample[name]) for name in names)
    with torch.no_grad():
        found = _first_run(
            FlatModule(module, keywords, None), dict(zip(names, tensors, strict=True)), model.outputs, root
        )
    select, output_names = choose_outputs(found, model.outputs)
    _refuse_names(names, output_names)
    outputs = tuple(_output_spec(name, found[i][1]) for name, i in zip(output_names, select, strict=True))
    flat = FlatModule(module, keywords, select).eval()
    signature = Signature(inputs, outputs)
    return SourceModel(flat, signature, dims, examples, TorchReference(flat, signature, root), notes)


def _refuse_names(inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
    """Refuse names that a graph or config.pbtxt should not have; those of the spec are checked there."""
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


def _ranges(specs: dict[str, DimSpec]) -> dict[str, DimRange]:
    """Choose every dim's example size, all different: equal sizes would let an exporter take two dims for one."""
    ranges: dict[str, DimRange] = {}
    for name, spec in sorted(specs.items(), key=lambda item: item[1].example is None):
        ranges[name] = example_range(name, spec, frozenset(chosen.example for chosen in ranges.values()))
    return {name: ranges[name] for name in specs}


def example_range(name: str, spec: DimSpec, taken: frozenset[int]) -> DimRange:
    """Choose the example size of a dim: the spec's, else 2 for a batch and 16 for others, never 1, not one taken.

    Raises:
        SourceError: The only size allowed is 1.
    """
    if spec.max == 1:
        raise SourceError(
            f"dim {name!r} may only be 1, so it is not dynamic", "write 1 in the shape instead", code="source.dim-one"
        )
    if spec.example is not None:
        return DimRange(spec.min, spec.max, spec.example)
    low = max(spec.min, 2)
    start = min(max(low, 2 if name == _BATCH else _EXAMPLE), spec.max)
    candidates = [*range(start, min(spec.max, start + 64) + 1), *range(start, low - 1, -1)]
    return DimRange(spec.min, spec.max, next((c for c in candidates if c not in taken), start))


def _make_module(model: ModelSpec, root: Path) -> torch.nn.Module:
    factory = import_callable(model.source.factory, root)
    try:
        made = factory(**model.source.kwargs)
    except RAISED as error:
        raise user_error(error, f"{model.source.factory!r} failed", root) from error
    if not isinstance(made, torch.nn.Module):
        raise SourceError(
            f"{model.source.factory!r} returned {type(made).__name__}, not a torch.nn.Module",
            "return the module itself",
            code="source.return-type",
            where=model.source.factory,
        )
    if isinstance(made, torch.jit.ScriptModule):
        raise SourceError(
            f"{model.source.factory!r} returned a TorchScript module ({type(made).__name__})",
            "return the eager module, before torch.jit.script or torch.jit.trace; "
            "TorchScript archives are a source kind to come",
            code="source.script-module",
            where=model.source.factory,
        )
    meta = [name for name, tensor in made.named_parameters() if tensor.is_meta]
    if meta:
        raise SourceError(
            f"parameter {meta[0]!r} is on the meta device: it has no values",
            "build the model on the CPU; the weights are loaded into what the factory returns",
            code="source.meta",
        )
    return made.cpu()


def _enforce_eval(module: torch.nn.Module) -> tuple[str, ...]:
    """Switch to evaluation mode and say so when the factory forgot it.

    Raises:
        SourceError: A submodule refuses (it overrides ``train``).
    """
    training = [name or type(module).__name__ for name, child in module.named_modules() if child.training]
    sensitive = [
        name
        for name, child in module.named_modules()
        if child.training and any(kind in type(child).__name__ for kind in _MODE_DEPENDENT)
    ]
    module.eval()
    stuck = [name or type(module).__name__ for name, child in module.named_modules() if child.training]
    if stuck:
        raise SourceError(
            f"model.eval() leaves {', '.join(stuck[:3])} in training mode",
            "its train() is overridden: call super().train(mode) there",
            code="source.training-mode",
        )
    if not training:
        return ()
    which = f"; it matters for {', '.join(sensitive[:3])}" if sensitive else ""
    return (f"the factory returned the model in training mode; model.eval() was called{which}",)


def _inputs(
    model: ModelSpec, root: Path, dims: dict[str, DimRange]
) -> tuple[tuple[TensorSpec, ...], Examples, dict[str, DimRange]]:
    """Return the inputs, the maker of examples, and the dims with those that were found."""
    declared = tuple(TensorSpec(name, spec.dtype, tuple(spec.shape)) for name, spec in model.inputs.items())
    if model.examples is None:
        return declared, DrawnExamples(model.inputs), dims
    reference = model.examples
    if reference.endswith(".npz"):
        stored = load_npz(root / reference)
        inputs = declared or _found_inputs(stored, {})
        return inputs, StoredExamples(stored, reference, inputs), dims
    function = import_callable(reference, root)
    if not declared:
        declared, dims = _vary(function, reference, root, dims)
    batch = Signature(declared, ()).batch_dim or _BATCH
    return declared, CalledExamples(function, reference, root, declared, batch), dims


def _vary(
    function: UserCallable, reference: str, root: Path, dims: dict[str, DimRange]
) -> tuple[tuple[TensorSpec, ...], dict[str, DimRange]]:
    """Find the inputs and their dims: each dim, and the batch, is given two sizes, and the axes that follow are it."""
    tried = dims if _BATCH in dims else {**dims, _BATCH: _FOUND_BATCH}
    sizes = {name: dim.example for name, dim in tried.items()}
    base = call_examples(function, reference, root, sizes, _BATCH, 0)
    others = {
        name: call_examples(function, reference, root, {**sizes, name: dim.other}, _BATCH, 0)
        for name, dim in tried.items()
    }
    inputs = _found_inputs(base, others)
    used = {dim for spec in inputs for dim in spec.shape}
    if idle := [name for name in dims if name not in used]:
        raise SourceError(
            f"no axis of what {reference!r} returns follows dim {idle[0]!r}",
            f"let it take {idle[0]} as an argument, or remove the dim",
            code="source.dim-unused",
            where=reference,
        )
    return inputs, {name: dim for name, dim in tried.items() if name in used}


def _found_inputs(first: Arrays, others: Mapping[str, Arrays]) -> tuple[TensorSpec, ...]:
    """Take the signature from example arrays; an axis that differs where one dim has another size is that dim."""
    specs = []
    for name, array in first.items():
        shape: list[Dim] = list(array.shape)
        for dim, arrays in others.items():
            other = arrays[name].shape if name in arrays else None
            if other is None or len(other) != array.ndim:
                raise SourceError(
                    f"example {name!r} is not there, or has another rank, when dim {dim!r} has another size",
                    "return the same names and ranks for every size",
                    code="source.examples-fit",
                )
            shape = [dim if size != now else was for size, now, was in zip(array.shape, other, shape, strict=True)]
        specs.append(TensorSpec(name, _dtype_name(name, array.dtype), tuple(shape)))
    return tuple(specs)


def _dtype_name(name: str, dtype: np.dtype[np.generic]) -> str:
    if dtype.name not in DTYPES:
        raise SourceError(
            f"example {name!r} has dtype {dtype.name}, which Triton's ONNX Runtime backend does not take",
            f"use one of {', '.join(DTYPES)}",
            code="source.dtype",
        )
    return dtype.name


def _first_run(
    flat: FlatModule, tensors: Mapping[str, torch.Tensor], wanted: tuple[str, ...], root: Path
) -> list[tuple[str, torch.Tensor]]:
    try:
        return flat.named_outputs(*tensors.values(), wanted=wanted)
    except RepogenError:
        raise
    except RAISED as error:
        shapes = (f"{name} {list(t.shape)} {str(t.dtype).removeprefix('torch.')}" for name, t in tensors.items())
        failure = user_error(error, f"the model's forward failed on the inputs {', '.join(shapes)}", root)
        failure.hint = "correct inputs: or dims: in the spec, or the model"
        raise failure from error


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

    module: FlatModule
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

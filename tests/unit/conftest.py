"""SourceModels of tiny modules, for tests of the packages that accept them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from repogen.artifacts.source import SourceModel


@pytest.fixture(scope="session")
def as_source() -> Callable[..., SourceModel]:
    """Return a function from a module and the spec's ``inputs`` and ``dims`` to its SourceModel."""

    def build(
        module: torch.nn.Module, inputs: dict[str, list[int | str]] | None = None, **dims: dict[str, int]
    ) -> SourceModel:
        # Imported here, because most unit tests do not need torch.
        import inspect  # noqa: PLC0415

        import torch  # noqa: PLC0415

        from repogen.artifacts.source import Eager, SourceModel  # noqa: PLC0415
        from repogen.artifacts.tensors import Signature, TensorSpec  # noqa: PLC0415
        from repogen.source.common.call import named_call  # noqa: PLC0415
        from repogen.source.common.examples import DrawnExamples  # noqa: PLC0415
        from repogen.source.common.inputs import dim_ranges  # noqa: PLC0415
        from repogen.source.torch.eager import TorchReference, _output_spec  # noqa: PLC0415
        from repogen.source.torch.flat import FlatModule, choose_outputs, tensors_among  # noqa: PLC0415
        from repogen.spec.models import DimSpec, InputSpec  # noqa: PLC0415

        inputs = {"x": ["batch", 4]} if inputs is None else inputs
        dim_names = {dim for shape in inputs.values() for dim in shape if isinstance(dim, str)}
        dim_specs: dict[str, Any] = {name: dims.get(name, {"max": 8}) for name in sorted(dim_names)}
        ranges = dim_ranges({name: DimSpec.model_validate(dim) for name, dim in dim_specs.items()})
        specs = tuple(TensorSpec(name, "float32", tuple(shape)) for name, shape in inputs.items())
        examples = DrawnExamples({s.name: InputSpec(dtype="float32", shape=s.shape) for s in specs})
        call = named_call(inspect.signature(module.eval().forward).parameters, tuple(inputs))
        sample = examples({name: dim.example for name, dim in ranges.items()}, 0)
        tensors, _ = tensors_among(
            FlatModule(module, call).leaves(*(torch.from_numpy(sample[s.name]) for s in specs)), ()
        )
        select, names = choose_outputs(tensors, ())
        signature = Signature(specs, tuple(_output_spec(n, tensors[i][1]) for n, i in zip(names, select, strict=True)))
        flat = FlatModule(module, call, select, tuple(name for name, _ in tensors)).eval()
        return SourceModel(Eager(flat), signature, ranges, examples, TorchReference(flat, signature, Path()))

    return build

"""``kind: torch_export``: a ``.pt2`` of ``torch.export.save``, with its own signature and dynamic dims."""

from __future__ import annotations

import inspect
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument

from repogen.artifacts.source import Eager, Program, SourceModel
from repogen.artifacts.tensors import DTYPES, Signature
from repogen.errors import SourceError
from repogen.source.common.call import Call, Placeholder
from repogen.source.common.examples import to_array
from repogen.source.common.formats import check_archive
from repogen.source.common.graph_inputs import GraphInput, Limits, find_graph_inputs
from repogen.source.common.inputs import Inputs
from repogen.source.torch.eager import TorchReference, examine
from repogen.source.torch.scan_program import scan_program
from repogen.triton_config.sections.base import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.artifacts.tensors import Array
    from repogen.source.common.graph_inputs import GraphDim
    from repogen.spec.models import ModelSpec
    from repogen.spec.sources import TorchExportSource

_OUTPUTS = "transformers.modeling_outputs"
# Operators whose named argument tells that the model was in training mode, and where it stands.
_MODES = {"aten.dropout.default": 2, "aten.batch_norm.default": 5, "aten._native_batch_norm_legit.default": 5}


def load_program(source: TorchExportSource, model: ModelSpec, root: Path) -> SourceModel:
    """Load a program, once it is known that loading it runs nothing, and read its signature.

    Raises:
        SourceError: It is no such file, wants to run code, or its inputs or outputs are not usable.
    """
    path = root / source.path
    check_archive(path, "torch_export")
    scan_program(path)
    program = _load(path)
    _refuse_training(program, source.path)
    graph_inputs, call = _user_inputs(program)
    found = find_graph_inputs(graph_inputs, model, root, _stored(program, graph_inputs))
    inputs = Inputs(found.specs, found.dims, found.examples, call, found.notes)
    examined = examine(_module(program), inputs, model, root)
    return SourceModel(
        # torch.onnx.export takes no program that also returns numbers or None: the module is exported once more.
        origin=Program(program, examined.select, examined.flat) if _tensors_only(program) else Eager(examined.flat),
        signature=examined.signature,
        dims=inputs.dims,
        examples=inputs.examples,
        reference=TorchReference(examined.flat, examined.signature, root),
        notes=(*_said_batch(inputs), *examined.notes),
        precision=examined.precision,
    )


def _said_batch(inputs: Inputs) -> tuple[str, ...]:
    """Say how a program comes to take batches of one row, which torch.export leaves out unless it is told."""
    batch = Signature(inputs.specs, ()).batch_dim
    if batch is None or inputs.dims[batch].min == 1:
        return ()
    said = (
        f"the program takes {batch} from {inputs.dims[batch].min} up, so Triton can't batch it: export it with "
        "torch.export.Dim('batch', min=1, max=…) on axis 0"
    )
    return (said,)


def _tensors_only(program: torch.export.ExportedProgram) -> bool:
    outputs = [spec.arg for spec in program.graph_signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
    return all(isinstance(argument, TensorArgument) for argument in outputs)


def _load(path: Path) -> torch.export.ExportedProgram:
    try:
        program: Any = _loaded(path)
        if hasattr(program, "_guards_code"):
            program._guards_code = []  # noqa: SLF001 - Python code, which ExportedProgram.module would execute
        return cast("torch.export.ExportedProgram", program)
    except Exception as error:
        raise SourceError(
            f"{path.name} cannot be loaded by torch {torch.__version__}: {_first_line(error)}",
            "programs are for the torch that saved them, or a newer one: save it again with this one; if it uses a "
            "custom operator, build it with kind: torch, whose factory imports that operator",
            code="source.archive",
            where=path.name,
            details=str(error),
        ) from error


def _loaded(path: Path) -> torch.export.ExportedProgram:
    try:
        return torch.export.load(str(path))
    except Exception:
        if find_spec("transformers") is None:
            raise
        import_module(_OUTPUTS)  # registers the structures that models of transformers return
        return torch.export.load(str(path))


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}".rstrip(": ")


def _module(program: torch.export.ExportedProgram) -> torch.nn.Module:
    """Return the program as a module, without its guards: they are Python code, and the sweep tests what they say."""
    takes = inspect.signature(program.module).parameters
    options: dict[str, Any] = {"check_guards": False} if "check_guards" in takes else {}
    module = program.module(**options)
    for name in ("train", "eval"):  # they raise: a program has no other mode
        module.__dict__.pop(name, None)
    return module


def _refuse_training(program: torch.export.ExportedProgram, shown: str) -> None:
    for node in program.graph.nodes:
        name = str(node.target)
        place = _MODES.get(name)
        if place is not None and len(node.args) > place and node.args[place] is True:
            raise SourceError(
                f"{shown} was exported in training mode: it calls {name} with training switched on",
                "call model.eval() before torch.export.export",
                code="source.training-mode",
                where=shown,
            )


def _user_inputs(program: torch.export.ExportedProgram) -> tuple[tuple[GraphInput, ...], Call]:
    """Return the program's tensors in order, and how they and its constants go into its arguments."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    leaves: list[object] = []
    inputs: list[GraphInput] = []
    for spec in program.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT:
            continue
        argument = spec.arg
        if isinstance(argument, ConstantArgument):
            leaves.append(argument.value)
        elif isinstance(argument, TensorArgument):
            leaves.append(Placeholder(len(inputs)))
            inputs.append(_graph_input(argument.name, values[argument.name], program))
        else:
            raise SourceError(
                f"the program takes {argument.name!r}, a Python number that may change, and a graph takes tensors only",
                "export it with that number as a tensor, or with one fixed value",
                code="source.input-type",
            )
    args, kwargs = torch.utils._pytree.tree_unflatten(leaves, program.call_spec.in_spec)  # noqa: SLF001 - no public way
    return tuple(inputs), Call(tuple(args), dict(kwargs))


def _graph_input(name: str, value: Any, program: torch.export.ExportedProgram) -> GraphInput:  # noqa: ANN401 - fake tensor
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise SourceError(
            f"input {name!r} is {dtype}, which Triton's ONNX Runtime backend does not take",
            "let the model take float32, and cast inside",
            code="source.dtype",
        )
    shape = tuple(_dim(name, axis, size, program) for axis, size in enumerate(value.shape))
    return GraphInput(name, dtype, shape)


def _dim(name: str, axis: int, size: Any, program: torch.export.ExportedProgram) -> GraphDim:  # noqa: ANN401 - int or SymInt
    if isinstance(size, int):
        return size
    expression = size.node.expr
    if expression.is_Integer:
        return int(expression)
    if not expression.is_Symbol:
        raise SourceError(
            f"axis {axis} of input {name!r} is {expression}: its size follows from another dim's",
            "export the program with that axis fixed, or the model itself with kind: torch, where each dim is free",
            code="source.derived-dim",
        )
    bounds = program.range_constraints.get(expression)
    return Limits(str(expression), *_bounds(bounds))


def _bounds(bounds: Any) -> tuple[int, int | None]:  # noqa: ANN401 - ValueRanges of sympy numbers
    """Return the least size, and the largest unless there is none."""
    if bounds is None:
        return 1, None
    least = max(int(bounds.lower), 1) if bounds.lower.is_Integer else 1
    # Without a bound of its own, torch writes infinity, or the largest 64-bit number.
    bounded = bounds.upper.is_Integer and int(bounds.upper) <= INT32_MAX
    return least, int(bounds.upper) if bounded else None


def _stored(program: torch.export.ExportedProgram, inputs: tuple[GraphInput, ...]) -> Mapping[str, Array] | None:
    """Return the example inputs that were saved with the program; None without any."""
    if program.example_inputs is None:
        return None
    leaves = torch.utils._pytree.tree_leaves(program.example_inputs)  # noqa: SLF001 - no public way
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if len(tensors) != len(inputs):
        return None
    return {graph_input.name: to_array(tensor) for graph_input, tensor in zip(inputs, tensors, strict=True)}

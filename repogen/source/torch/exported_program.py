"""``kind: torch_export``: a ``.pt2`` file of ``torch.export.save``, with its own signature and dynamic dims."""

from __future__ import annotations

import inspect
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument

from repogen.artifacts.source import Eager, Program, SourceModel
from repogen.artifacts.tensors import DTYPES, Signature
from repogen.errors import SourceError, first_line
from repogen.files import raise_if_exhausted
from repogen.files.private_file import private_file
from repogen.source.common.call import Call, Placeholder
from repogen.source.common.examples import to_array
from repogen.source.common.formats import check_archive
from repogen.source.common.graph_inputs import GraphInput, Limits, find_graph_inputs
from repogen.source.torch.eager import examine
from repogen.source.torch.flat import dtype_name
from repogen.source.torch.scan_program import scan_program
from repogen.triton_config.sections.base import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.artifacts.tensors import Array
    from repogen.source.common.graph_inputs import GraphDim
    from repogen.source.common.inputs import Inputs
    from repogen.source.interface import SourceRequest
    from repogen.spec.sources import TorchExportSource

_OUTPUTS = "transformers.modeling_outputs"
# Operator -> index of its argument that is true in training mode.
_MODES = {
    "aten.dropout.default": 2,
    "aten.batch_norm.default": 5,
    "aten._native_batch_norm_legit.default": 5,
}


def load_program(request: SourceRequest[TorchExportSource]) -> SourceModel:
    """Check that loading a program runs no code, load it, and read its signature.

    Raises:
        SourceError: The file is not such a program, could run code, or its inputs or outputs cannot be used.
    """
    model, root = request.model, request.root
    path = root / request.options.path
    try:
        with private_file(path) as own:
            check_archive(own, "torch_export")
            scan_program(own)
            program = _load(own)
    except OSError as error:
        raise_if_exhausted(error)
        raise SourceError(
            f"{path.name} cannot be read: {error.strerror}", code="source.archive", where=path.name
        ) from error
    _check_not_training(program, request.options.path)
    graph_inputs, call = _user_inputs(program)
    inputs = find_graph_inputs(graph_inputs, model, root, _stored_examples(program, graph_inputs)).with_call(call)
    examined = examine(_module(program), inputs, model, root)
    # torch.onnx.export rejects a program that also returns numbers or None: its module is exported instead.
    origin = Program(program, examined.select, examined.flat) if _tensors_only(program) else Eager(examined.flat)
    source = examined.source_model(origin)
    return replace(source, notes=(*_batch_note(inputs), *source.notes))


def _batch_note(inputs: Inputs) -> tuple[str, ...]:
    """Return how to allow batches of one row, which torch.export excludes by default."""
    batch = Signature(inputs.specs, ()).batch_dim
    if batch is None or inputs.dims[batch].min == 1:
        return ()
    note = (
        f"the program requires {batch} >= {inputs.dims[batch].min}, so Triton cannot batch it: export it with "
        "torch.export.Dim('batch', min=1, max=…) on axis 0"
    )
    return (note,)


def _tensors_only(program: torch.export.ExportedProgram) -> bool:
    outputs = [spec.arg for spec in program.graph_signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
    return all(isinstance(argument, TensorArgument) for argument in outputs)


def _load(path: Path) -> torch.export.ExportedProgram:
    try:
        program: Any = _load_archive(path)
        if hasattr(program, "_guards_code"):
            program._guards_code = []  # noqa: SLF001 - Python code that ExportedProgram.module would run
        _require_values(program)
        _rename_weights(program)
        return cast("torch.export.ExportedProgram", program)
    except Exception as error:
        raise SourceError(
            f"{path.name} cannot be loaded by torch {torch.__version__}: {_summary(error)}",
            "a program requires the torch version that saved it, or a newer one: save it again with this one; if it "
            "uses a custom operator, use kind: torch with a factory that imports the operator",
            code="source.archive",
            where=path.name,
            details=str(error),
        ) from error


def _require_values(program: torch.export.ExportedProgram) -> None:
    """Raise ValueError if an archive places weights on the meta device."""
    for name, value in program.state_dict.items():
        if value.is_meta:
            raise ValueError(f"{name!r} is on the meta device: it has no values")


def _load_archive(path: Path) -> torch.export.ExportedProgram:
    try:
        return torch.export.load(str(path))
    except Exception:
        if find_spec("transformers") is None:
            raise
        import_module(_OUTPUTS)  # registers the structures that transformers models return
        return torch.export.load(str(path))


def _rename_weights(program: torch.export.ExportedProgram) -> None:
    """Rename weights whose names the program's module cannot have: keywords, and attributes of a GraphModule.

    torch.export accepts a layer named ``meta``, but ``ExportedProgram.module`` fails.
    """
    reserved = {*dir(program.graph_module), "shape_env", "self"}
    tables = (program.state_dict, program.constants)
    suffix = "_"
    while any(suffix in name for table in tables for name in table):
        suffix += "_"

    def usable(name: str) -> str:
        first, *others = (f"{part}{suffix}" if iskeyword(part) else part for part in name.split("."))
        return ".".join((f"{first}{suffix}" if first in reserved else first, *others))

    for table in tables:
        renamed = {usable(name): value for name, value in table.items()}
        table.clear()
        table.update(renamed)
    for spec in (*program.graph_signature.input_specs, *program.graph_signature.output_specs):
        if spec.target is not None:
            spec.target = usable(spec.target)


def _summary(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(error)[:200]}".rstrip(": ")


def _module(program: torch.export.ExportedProgram) -> torch.nn.Module:
    """Return the program as a module without its guards, which are Python code; the size sweep tests the same.

    Raises:
        SourceError: torch cannot make a module of it.
    """
    parameters = inspect.signature(program.module).parameters
    options: dict[str, Any] = {"check_guards": False} if "check_guards" in parameters else {}
    try:
        module = program.module(**options)
    except Exception as error:
        raise SourceError(
            f"torch {torch.__version__} cannot convert the program to a module: {_summary(error)}",
            "export the program again with this version of torch, or use kind: torch with a factory",
            code="source.archive",
            details=str(error),
        ) from error
    for name in ("train", "eval"):  # they raise, because a program has a fixed mode
        module.__dict__.pop(name, None)
    return module


def _check_not_training(program: torch.export.ExportedProgram, path: str) -> None:
    for node in program.graph.nodes:
        name = str(node.target)
        index = _MODES.get(name)
        if index is not None and len(node.args) > index and node.args[index] is True:
            raise SourceError(
                f"{path} was exported in training mode: it calls {name} with training=True",
                "call model.eval() before torch.export.export",
                code="source.training-mode",
                where=path,
            )


def _user_inputs(program: torch.export.ExportedProgram) -> tuple[tuple[GraphInput, ...], Call]:
    """Return the program's input tensors in order, and the call that maps them to its arguments."""
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
                f"input {argument.name!r} of the program is a Python number, and a graph accepts only tensors",
                "export it with the number as a tensor, or with a fixed value",
                code="source.input-type",
            )
    args, kwargs = torch.utils._pytree.tree_unflatten(leaves, program.call_spec.in_spec)  # noqa: SLF001 - no public API
    return tuple(inputs), Call(tuple(args), dict(kwargs))


def _graph_input(name: str, value: Any, program: torch.export.ExportedProgram) -> GraphInput:  # noqa: ANN401 - fake tensor
    dtype = dtype_name(value.dtype)
    if dtype not in DTYPES or dtype == "bfloat16":
        supported = "repogen supports for PyTorch and TorchScript modules only"
        reason = supported if dtype in DTYPES else "Triton's ONNX Runtime backend does not support"
        raise SourceError(
            f"input {name!r} is {dtype}, which {reason}",
            "change the input to float32, and cast it inside the model",
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
            f"axis {axis} of input {name!r} is {expression}: its size is derived from another dim",
            "export the program with a fixed axis, or use kind: torch, where every dim is independent",
            code="source.derived-dim",
        )
    bounds = program.range_constraints.get(expression)
    return Limits(str(expression), *_bounds(bounds))


def _bounds(bounds: Any) -> tuple[int, int | None]:  # noqa: ANN401 - ValueRanges of sympy numbers
    """Return the smallest size, and the largest size or None if it is unbounded."""
    if bounds is None:
        return 1, None
    smallest = max(int(bounds.lower), 1) if bounds.lower.is_Integer else 1
    # torch writes "unbounded" as infinity, or as the largest 64-bit integer.
    bounded = bounds.upper.is_Integer and int(bounds.upper) <= INT32_MAX
    return smallest, int(bounds.upper) if bounded else None


def _stored_examples(
    program: torch.export.ExportedProgram, inputs: tuple[GraphInput, ...]
) -> Mapping[str, Array] | None:
    """Return the example inputs saved with the program; None if there are none."""
    if program.example_inputs is None:
        return None
    leaves = torch.utils._pytree.tree_leaves(program.example_inputs)  # noqa: SLF001 - no public API
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if len(tensors) != len(inputs):
        return None
    return {graph_input.name: to_array(tensor) for graph_input, tensor in zip(inputs, tensors, strict=True)}

"""Describes model files: ONNX graphs, and the ``.pt2`` and TorchScript archives, which are read without torch."""

from __future__ import annotations

import io
import pickletools
import re
from itertools import islice
from typing import IO, TYPE_CHECKING, Annotated, NamedTuple

from pydantic import AliasPath, BaseModel, FailFast, Field

from repogen.artifacts.tensors import DTYPES
from repogen.errors import SpecError
from repogen.files import open_regular
from repogen.files.archive import open_archive
from repogen.files.content import MAX_TEXT_BYTES, ContentError, require_few_values
from repogen.onnx_graph.facts import parse_model
from repogen.scaffold.description import ModelDescription, flow, input_placeholders, model_name, shape_text
from repogen.source.common.dim_names import dim_name, dim_symbol

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence
    from pathlib import Path

    from onnx import ModelProto, ValueInfoProto

_ONNX_DTYPES = {dtype.onnx: dtype.name for dtype in DTYPES.values()}
# Source: torch/_export/serde/schema.py, ScalarType.
_TORCH_DTYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64", 12: "bool",
}  # fmt: skip
_SYMBOL = re.compile(r"Symbol\('(\w+)'[^()]*\)")
_MAX_EXPRESSION_LENGTH = 40
_UNBOUNDED = 2**31
_MAX_PROGRAM_BYTES = 2**28
_MAX_PROGRAM_VALUES = 4_000_000
"""More than the description of a graph with 50,000 operators has."""
_MAX_PROGRAM_INPUTS = 100_000
"""Of parameters and buffers as well."""
_MODULES_OF_WEIGHTS = frozenset({
    "__builtin__", "_codecs", "builtins", "collections", "numpy", "numpy._core.multiarray", "numpy.core.multiarray",
    "numpy.dtypes", "torch", "torch._tensor", "torch._utils", "torch.nn.parameter", "torch.serialization",
    "torch.storage", "torch.torch_version",
})  # fmt: skip
"""What pickled tensors, and values such as the number of an epoch, are created with."""
_ZIP, _PICKLE = b"PK\3\4", b"\x80"
_MAX_PICKLES = 5
"""In a file without an archive: a number, a version, sizes of types, the value, and the names of storages."""
_DEFINITION = re.compile(r"def forward\(\w{1,100}: ")
"""Up to the type of the first parameter, which need not be named ``self``."""
# A limit on the length: the time to split parameters grows with its square. The type before them is matched as a whole:
# the time would also grow with its length times that limit.
_FORWARD = re.compile(r"[\w.]++,?+(?P<parameters>[^{]{0,5000}?)\)\s*->", re.DOTALL)


def describe_onnx(path: Path, relative: str) -> ModelDescription:
    """Describe an ONNX file by its graph's signature; the weights are not read.

    ``relative`` is the path relative to the spec.

    Raises:
        SpecError: The file cannot be read as ONNX.
    """
    try:
        model = parse_model(path)
    except (OSError, ContentError) as error:
        reason = f"it {error}" if isinstance(error, ContentError) else str(error)
        raise SpecError(
            f"{path} cannot be read as ONNX: {reason}", "export or download it again", code="init.from"
        ) from error
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    return ModelDescription(
        model_name(path.stem),
        {"kind": "onnx", "path": relative},
        (
            _onnx_versions(model),
            *(_onnx_tensor("in ", value) for value in inputs),
            *(_onnx_tensor("out", value) for value in model.graph.output),
        ),
        _onnx_keys(inputs),
    )


def _onnx_versions(model: ModelProto) -> str:
    opset = next((entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"}), 0)
    producer = str(model.producer_name)  # protobuf returns text that is not UTF-8 as bytes
    producer = producer if producer.isprintable() else ""
    return f"ONNX graph: opset {opset}, IR version {model.ir_version}{f', written by {producer}' if producer else ''}:"


def _onnx_tensor(side: str, value: ValueInfoProto) -> str:
    return f"  {side} {flow(value.name)}: {_onnx_dtype(value)} {shape_text(_onnx_shape(value))}"


def _onnx_dtype(value: ValueInfoProto) -> str:
    return _ONNX_DTYPES.get(value.type.tensor_type.elem_type, "a type that Triton does not serve")


def _onnx_shape(value: ValueInfoProto) -> list[int | str]:
    dims = value.type.tensor_type.shape.dim
    return [dim.dim_value if dim.dim_value > 0 else dim.dim_param or "?" for dim in dims]


def _named_shapes(inputs: Mapping[str, Sequence[int | str]], symbols: Container[str] | None = None) -> _Shapes:
    """Return the shapes of inputs with the names that a spec has for dynamic dims, and these names by their symbols.

    Args:
        inputs: Shapes with symbols, by the names of the inputs.
        symbols: What is a symbol, and not an expression; None for all.
    """
    names = dict[str, str]()
    for tensor, shape in inputs.items():
        for axis, dim in enumerate(shape):
            if isinstance(dim, str) and dim not in names and (symbols is None or dim in symbols):
                names[dim] = dim_name(tensor, axis, dim, names)
    return _Shapes({tensor: [names.get(str(dim), dim) for dim in shape] for tensor, shape in inputs.items()}, names)


def _onnx_symbols(value: ValueInfoProto) -> list[int | str]:
    dims = enumerate(value.type.tensor_type.shape.dim)
    return [dim.dim_value if dim.dim_value > 0 else dim_symbol(value.name, axis, dim.dim_param) for axis, dim in dims]


def _onnx_keys(inputs: list[ValueInfoProto]) -> tuple[str, ...]:
    """Return the optional keys: the file already declares its inputs and dims."""
    lines = ["# Inputs and dynamic dims come from the file. Optional keys:"]
    shapes, names = _named_shapes({value.name: _onnx_symbols(value) for value in inputs})
    integers = next((value for value in inputs if "int" in _onnx_dtype(value)), None)
    if integers is not None:
        entry = f"{{dtype: {_onnx_dtype(integers)}, shape: {shape_text(shapes[integers.name])}, range: [0, 1]}}"
        lines += [
            "# CHECK the range of integer inputs: without one, only 0 and 1 are used.",
            f"# inputs: {{{flow(integers.name)}: {entry}}}",
        ]
    if names:
        dims = f"{{{flow(next(iter(names.values())))}: {{min: 1, max: 32}}}}"
        lines += [f"# dims: {dims}   # the sizes that parity is tested at, by dim name"]
    lines += [
        "# examples: examples.npz             # real inputs",
        "# In source, reference: answers.npz or models.py:build compares the graph with the original model.",
    ]
    return tuple(lines)


class _Shapes(NamedTuple):
    """Shapes by the names of the inputs, and the names of dynamic dims by their symbols."""

    shapes: dict[str, list[int | str]]
    names: dict[str, str]


class _Size(BaseModel):
    """One dim of a tensor: a number, or an expression of symbols."""

    fixed: int | None = Field(default=None, validation_alias="as_int")
    expression: str = Field(default="?", validation_alias=AliasPath("as_expr", "expr_str"))

    def __str__(self) -> str:
        """Return it as it is written in a shape."""
        symbols = _SYMBOL.sub(r"\1", self.expression)[:_MAX_EXPRESSION_LENGTH]
        return symbols if self.fixed is None else str(self.fixed)


class _Tensor(BaseModel):
    dtype: int
    sizes: Annotated[list[_Size], FailFast()]


class _Input(BaseModel):
    """One input of a program; ``tensor`` is None for parameters, buffers and constants."""

    tensor: str | None = Field(default=None, validation_alias=AliasPath("user_input", "arg", "as_tensor", "name"))


class _Range(BaseModel):
    min: int | None = Field(default=None, validation_alias="min_val")
    max: int | None = Field(default=None, validation_alias="max_val")

    def __str__(self) -> str:
        """Return the bounds in words."""
        upper = f"to {self.max}" if self.max is not None and self.max < _UNBOUNDED else "or more"
        return f"{max(self.min or 1, 1)} {upper}"


class _Program(BaseModel):
    """The part of ``models/model.json`` that describes inputs; source: torch/_export/serde/schema.py.

    Tensors and ranges are decoded when they are used: pydantic would keep an error for each that is not valid.
    """

    inputs: Annotated[list[_Input], FailFast()] = Field(
        validation_alias=AliasPath("graph_module", "signature", "input_specs"), max_length=_MAX_PROGRAM_INPUTS
    )
    tensors: dict[str, object] = Field(validation_alias=AliasPath("graph_module", "graph", "tensor_values"))
    ranges: dict[str, object] = Field(default={}, validation_alias="range_constraints")
    torch_version: str = "?"


def describe_program(path: Path, relative: str) -> ModelDescription:
    """Describe a program of ``torch.export`` by its signature.

    Raises:
        SpecError: The file cannot be read.
    """
    try:
        with open_archive(path) as archive:
            member = next(name for name in archive.names if name.endswith("models/model.json"))
            content = archive.read(member, _MAX_PROGRAM_BYTES)
        require_few_values(content, _MAX_PROGRAM_VALUES)
        program = _Program.model_validate_json(content)
        tensors = {name: _Tensor.model_validate(program.tensors[name]) for name in _input_names(program)}
        shapes, names = _named_shapes(
            {name: [str(size) for size in tensor.sizes] for name, tensor in tensors.items()}, program.ranges
        )
        limits = {symbol: _Range.model_validate(each) for symbol, each in program.ranges.items()}
        ranges = [f"  {names.get(symbol, symbol)} is {allowed}" for symbol, allowed in limits.items()]
        inputs = [_program_input(name, tensor, shapes[name]) for name, tensor in tensors.items()]
        bounds = [_bounds(names[symbol], limits[symbol]) for symbol in islice(names, 1)]
    except (OSError, ValueError, KeyError, StopIteration) as error:
        raise SpecError(
            f"{path} cannot be read as a torch.export program", "save it again", code="init.from"
        ) from error
    keys = (
        "# Inputs, dynamic dims and example inputs come from the program. Optional keys:",
        *bounds,
        "# examples: examples.npz             # real inputs",
    )
    return ModelDescription(
        model_name(path.stem),
        {"kind": "torch_export", "path": relative},
        (f"torch.export program, torch {program.torch_version}:", *inputs, *ranges),
        keys,
    )


def _input_names(program: _Program) -> list[str]:
    """Return the names of the inputs that are tensors.

    Raises:
        ValueError: Two inputs are the same tensor; one of many sizes would be described for each.
    """
    names = [spec.tensor for spec in program.inputs if spec.tensor is not None]
    if len(set(names)) != len(names):
        raise ValueError("two inputs are the same tensor")
    return names


def _bounds(name: str, allowed: _Range) -> str:
    """Return the key for the bounds of a dynamic dim."""
    smallest = max(allowed.min or 1, 1)
    largest = min(max(16, 2 * smallest), allowed.max or _UNBOUNDED)
    return f"# dims: {{{flow(name)}: {{min: {smallest}, max: {largest}}}}}   # narrower bounds than the program's"


def _program_input(name: str, tensor: _Tensor, shape: Sequence[int | str]) -> str:
    return f"  in  {flow(name)}: {_TORCH_DTYPES.get(tensor.dtype, 'another type')} {shape_text(shape)}"


def describe_script(path: Path, relative: str) -> ModelDescription:
    """Describe a TorchScript module by the parameters of its forward; archives contain no dtypes and shapes."""
    parameters = list(_script_parameters(path))
    tensors = [name for name, annotation in parameters if annotation == "Tensor"] or ["x"]
    signature = ", ".join(f"{name}: {annotation}" for name, annotation in parameters) or "parameters unknown"
    return ModelDescription(
        model_name(path.stem),
        {"kind": "torchscript", "path": relative},
        (f"forward({signature})",),
        input_placeholders(tensors),
        "declare inputs: and dims: in it",
    )


def pickled_class(path: Path) -> str:
    """Return the first class in a file of ``torch.save`` that weights do not need; empty if there is none.

    Such as ``torch.nn.modules.linear.Linear``, if a whole module was saved. Nothing is unpickled.
    """
    names: list[str] = []
    try:
        for content in _pickles(path):
            names += (
                str(arg).replace(" ", ".", 1) for op, arg, _ in pickletools.genops(content) if op.name == "GLOBAL"
            )
    except (OSError, StopIteration, ValueError):  # damaged, or the storages that follow the pickles
        pass
    return next((name for name in names if name.rpartition(".")[0] not in _MODULES_OF_WEIGHTS), "")


def _pickles(path: Path) -> Iterator[IO[bytes]]:
    """Yield the pickles of a file of ``torch.save``; each must be read to its end before the next one.

    Raises:
        OSError: The file cannot be read.
        ContentError: A pickle is too large.
    """
    with open_regular(path) as file:
        start = file.read(MAX_TEXT_BYTES)
    if start.startswith(_ZIP):
        with open_archive(path) as archive:
            data = (name for name in archive.names if name.endswith("data.pkl"))
            yield from (io.BytesIO(archive.read(name, MAX_TEXT_BYTES)) for name in data)
    elif start.startswith(_PICKLE):
        stream = io.BytesIO(start)
        yield from (stream for _ in range(_MAX_PICKLES))


def _script_parameters(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and type of each parameter, read from the archive's code; nothing when it cannot be read."""
    try:
        with open_archive(path) as archive:
            data = next(name for name in archive.names if name.endswith("/data.pkl"))
            # parses the pickle without running it
            operations = pickletools.genops(archive.read(data, MAX_TEXT_BYTES))
            module, _, class_name = next(str(arg) for op, arg, _ in operations if op.name == "GLOBAL").partition(" ")
            code = f"/code/{module.replace('.', '/')}.py"
            member = next(name for name in archive.names if name.endswith(code))
            text = archive.read(member, MAX_TEXT_BYTES).decode()
    except (OSError, StopIteration, ValueError):
        return
    body = text.partition(f"class {class_name}(")[2]
    definition = _DEFINITION.search(body)
    forward = _FORWARD.match(body, definition.end()) if definition is not None else None
    if forward is None:
        return
    # A comma inside of Dict[str, Tensor] is not a separator.
    for parameter in re.split(r",(?![^\[]*\])", forward["parameters"]):
        name, _, annotation = parameter.partition(":")
        if parameter.strip():
            yield name.strip(), annotation.partition("=")[0].strip()

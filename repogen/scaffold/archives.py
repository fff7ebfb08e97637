"""What a ``.pt2`` and a TorchScript archive tell of their inputs without torch: both are zip files of text."""

from __future__ import annotations

import json
import pickletools
import re
import zipfile
from typing import TYPE_CHECKING, Any

from repogen.errors import SpecError
from repogen.scaffold.description import Found, flow, model_name, shape_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Source: torch/_export/serde/schema.py, ScalarType.
_DTYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64", 12: "bool",
}  # fmt: skip
_SYMBOL = re.compile(r"Symbol\('(\w+)'[^()]*\)")
_FORWARD = re.compile(r"def forward\(self: [\w.]+,?(?P<parameters>[^{]*?)\)\s*->", re.DOTALL)
_UNBOUNDED = 2**31


def describe_program(path: Path, shown: str) -> Found:
    """Read the signature of a program of ``torch.export``.

    Args:
        path: The file.
        shown: The same, as seen from the spec.

    Raises:
        SpecError: It can't be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            member = next(name for name in archive.namelist() if name.endswith("models/model.json"))
            document = json.loads(archive.read(member))
        inputs = list(_program_inputs(document["graph_module"]))
        ranges = [_range(symbol, limits) for symbol, limits in document.get("range_constraints", {}).items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise SpecError(
            f"{path} cannot be read as a program of torch.export", "save it again", code="init.from"
        ) from error
    comments = [f"A program of torch {document.get('torch_version', '?')}:", *inputs, *ranges]
    keys = (
        "# Inputs, dynamic dims and example inputs come from the program. What may be added:",
        "# dims: {batch: {min: 1, max: 16}}   # narrower than the program's own",
        "# examples: examples.npz             # real inputs",
    )
    return Found(model_name(path.stem), {"kind": "torch_export", "path": shown}, tuple(comments), keys)


def _program_inputs(module: dict[str, Any]) -> Iterator[str]:
    values = module["graph"]["tensor_values"]
    for spec in module["signature"]["input_specs"]:
        argument = spec.get("user_input", {}).get("arg", {}).get("as_tensor")
        if argument is not None:
            value = values[argument["name"]]
            sizes = [_size(size) for size in value["sizes"]]
            yield f"  in  {flow(argument['name'])}: {_DTYPES.get(value['dtype'], 'another type')} {shape_text(sizes)}"


def _size(size: dict[str, Any]) -> int | str:
    if "as_int" in size:
        return int(size["as_int"])
    return _SYMBOL.sub(r"\1", str(size["as_expr"]["expr_str"]))[:40]


def _range(symbol: str, limits: dict[str, int | None]) -> str:
    least, most = limits.get("min_val"), limits.get("max_val")
    upper = f"to {most}" if most is not None and most < _UNBOUNDED else "and more"
    return f"  {symbol} is {1 if least is None else max(least, 1)} {upper}"


def describe_script(path: Path, shown: str) -> Found:
    """Read the parameters of a TorchScript module's forward; their dtypes and shapes no archive tells.

    Args:
        path: The file.
        shown: The same, as seen from the spec.
    """
    parameters = _script_parameters(path)
    tensors = [name for name, kind in parameters if kind == "Tensor"] or ["x"]
    signature = ", ".join(f"{name}: {kind}" for name, kind in parameters) or "its parameters are not known"
    keys = (
        "# FILL IN what forward is given, with true dtypes and shapes; words are dynamic dims:",
        "# inputs:",
        *(f"#   {name}: {{dtype: float32, shape: [batch, 3]}}" for name in tensors),
        "# dims: {batch: {min: 1, max: 32}}",
        "# Integers need a range as well: {dtype: int64, shape: [batch, sequence], range: [0, 30521]}",
    )
    return Found(
        model_name(path.stem),
        {"kind": "torchscript", "path": shown},
        (f"forward({signature})",),
        keys,
        "declare inputs: and dims: in it",
    )


def _script_parameters(path: Path) -> list[tuple[str, str]]:
    """Return name and type of each parameter, read from the archive's code; none when it is not found."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            data = next(name for name in names if name.endswith("/data.pkl"))
            operations = pickletools.genops(archive.read(data))  # looks at a pickle, runs nothing
            module, _, kind = next(str(arg) for op, arg, _ in operations if op.name == "GLOBAL").partition(" ")
            code = f"/code/{module.replace('.', '/')}.py"
            text = archive.read(next(name for name in names if name.endswith(code))).decode()
    except (OSError, StopIteration, ValueError, zipfile.BadZipFile):
        return []
    body = text.partition(f"class {kind}(")[2]
    found = _FORWARD.search(body)
    if found is None:
        return []
    # A comma inside of Dict[str, Tensor] is no separator.
    pieces = re.split(r",(?![^\[]*\])", found["parameters"])
    pairs = (piece.partition(":") for piece in pieces if piece.strip())
    return [(name.strip(), kind.partition("=")[0].strip()) for name, _, kind in pairs]

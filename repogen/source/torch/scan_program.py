"""Scans a ``.pt2`` file before ``torch.export.load`` reads it, and rejects one whose loading could run code.

In torch 2.13 a ``.pt2`` can run code in six ways: pickled weights, constants and example inputs (loaded with
``weights_only=False``, at least on the second attempt), compiled libraries, the targets that a graph calls (any
attribute of ``torch``), symbolic sizes (evaluated by ``sympy.sympify``), guards (Python run by
``ExportedProgram.module``) and structures that name a module to import. Source: torch/_export/serde/serialize.py,
torch/export/_unlift.py and torch/export/pt2_archive/_package.py of torch 2.13.
"""

from __future__ import annotations

import io
import json
import re
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch._ops import HigherOrderOperator, OpOverload

from repogen.errors import SourceError
from repogen.files import is_plain_name
from repogen.files.archive import open_archive
from repogen.source.torch.scan_script import unsafe_operator

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

_MODELS, _COMPILED, _SAMPLES = "models/", "data/aotinductor/", "data/sample_inputs/"
_WEIGHTS, _CONSTANTS = "data/weights/", "data/constants/"
# Objects of any type that would be unpickled; an ONNX graph cannot contain them.
_OBJECTS = ("custom_obj_", "opaque_obj_")

# The targets that serde writes: an operator with its overload, a control-flow operator, a function of sizes.
_OPERATOR = re.compile(r"torch\.ops\.(?!higher_order\.)[a-z]\w*\.[a-z_]?\w+\.[A-Za-z]\w*")
_CONTROL = re.compile(r"torch\.ops\.higher_order\.[a-z]\w*")
_SIZE_FUNCTIONS = frozenset(
    {f"_operator.{name}" for name in ("eq", "ne", "le", "ge", "lt", "gt", "neg", "pos", "mul", "add", "sub", "mod")}
    | {f"_operator.{name}" for name in ("floordiv", "truediv", "pow", "and_", "or_", "lshift", "rshift", "getitem")}
    | {f"torch.sym_{name}" for name in ("not", "int", "float", "ite", "max", "min", "sqrt")}
    | {"math.trunc"}
)
_SIZE = re.compile(r"[\w\s+\-*/%(),.<>=!&|~]*")
_WORD = re.compile(r"[^\W\d]\w*")
_QUOTED = re.compile(r"\bSymbol\('(\w+)'")
_SYMBOL = re.compile(r"z?[suf]+\d+|u\d+|True|False|oo|int_oo")
_SIZE_WORDS = frozenset(
    {
        "FloorDiv", "ModularIndexing", "Where", "PythonMod", "Mod", "CleanDiv", "CeilToInt", "FloorToInt", "CeilDiv",
        "LShift", "RShift", "PowByNatural", "FloatPow", "FloatTrueDiv", "IntTrueDiv", "TruncToFloat", "TruncToInt",
        "IsNonOverlappingAndDenseIndicator", "RoundToInt", "RoundDecimal", "ToFloat", "Identity", "Max", "Min", "Abs",
        "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "And", "Or", "Not", "Add", "Mul", "Pow", "Integer", "Float", "Rational",
        "floor", "ceiling", "sqrt", "Piecewise", "Symbol", "positive", "nonnegative", "negative", "integer", "real",
        "finite", "zero", "evaluate", "Equality", "Unequality", "StrictLessThan", "LessThan", "StrictGreaterThan",
        "GreaterThan", "precision",
    }
)  # fmt: skip
_NAME = re.compile(r"[\w.$\[\]]*")
_KEY = re.compile(r"[\w.$\[\] /\-\"]*")


def scan_program(path: Path) -> None:
    """Reject a ``.pt2`` file whose loading could run code.

    Args:
        path: An archive that passed ``formats.check_archive``.

    Raises:
        SourceError: The file has an old format, is damaged, or contains more than a program and tensors.
    """
    try:
        with open_archive(path) as archive:
            names = archive.names
        _require_new_format(path, names)
        # torch's own reader: another reader might find other members under the same names.
        reader: Any = torch._C.PyTorchFileReader(str(path))  # noqa: SLF001 - see above
        for name in reader.get_all_records():
            _scan_member(path, name, reader)
    except SourceError:
        raise
    except Exception as error:  # of torch's reader, of JSON, or of unexpected values
        raise SourceError(
            f"{path.name} cannot be read as a torch.export program: it is damaged",
            "save it again, or download it again",
            code="source.archive",
            where=path.name,
            details=str(error),
        ) from error


def _require_new_format(path: Path, names: Collection[str]) -> None:
    if "version" in names:  # torch.export.load makes the same check
        raise SourceError(
            f"{path.name} has the format of torch 2.7 or older, in which weights are pickled",
            "save it again with torch 2.8 or newer: torch.export.save(program, 'model.pt2')",
            code="source.archive",
            where=path.name,
        )


def _scan_member(path: Path, name: str, reader: Any) -> None:  # noqa: ANN401 - torch._C is untyped
    name = name.lower()  # the reader ignores case: torch finds a member under a name that is not in the list
    folder, _, file = name.rpartition("/")
    if name.startswith(_COMPILED):
        _reject(path, f"contains a compiled library ({file})")
    if name.startswith(_MODELS):
        _scan_graph(path, json.loads(reader.get_record(name)))
    elif name.startswith((_WEIGHTS, _CONSTANTS)) and file.endswith(".json"):
        _scan_payloads(path, folder, json.loads(reader.get_record(name)), reader)
    elif name.startswith(_SAMPLES) or file.endswith(".pt"):
        _scan_pickle(path, name, reader.get_record(name))


def _scan_payloads(path: Path, folder: str, payloads: Any, reader: Any) -> None:  # noqa: ANN401 - JSON; torch._C is untyped
    """Scan pickled weights or constants; the others are plain bytes."""
    for payload in payloads["config"].values():
        file = str(payload["path_name"])
        if not is_plain_name(file):  # torch joins it to the folder, and an absolute path replaces the folder
            _reject(path, f"has a payload with the name {file[:80]!r}")
        if file.startswith(_OBJECTS):
            _reject(path, f"contains a Python object ({file})")
        if payload.get("use_pickle"):
            _scan_pickle(path, f"{folder}/{file}", reader.get_record(f"{folder}/{file}"))


def _scan_pickle(path: Path, name: str, content: bytes) -> None:
    """Reject a pickle that contains more than tensors, according to torch's safe unpickler."""
    if not content:
        return
    try:
        torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 - the unsafe reader must not get a file that this one rejects
        _reject(path, f"contains more than tensors in {name}", str(error))


def _scan_graph(path: Path, document: Any) -> None:  # noqa: ANN401 - JSON
    for key, value in _strings(document):
        if key in {"target", "as_operator"} and not _is_operator(value):
            _reject(path, f"calls {value[:80]!r}, which is not a PyTorch operator")
        if key in {"target", "as_operator"} and (reason := unsafe_operator(value)):
            _reject(path, f"calls {value[:80]!r}, which {reason}")
        if key == "expr_str" and not _is_size(value):
            _reject(path, f"has the size {value[:80]!r}, which is not an arithmetic expression")
        if key in {"name", "as_name", "forward_arg_names", "field_names"} and not _NAME.fullmatch(value):
            _reject(path, f"uses the name {value[:80]!r}")
        if key in {"in_spec", "out_spec", "treespec"} and value:
            _scan_structure(path, json.loads(value))


def _scan_structure(path: Path, structure: Any) -> None:  # noqa: ANN401 - JSON
    for key, value in _strings(structure):
        if key in {"default_factory_module", "fqn"}:
            _reject(path, f"names a module to import ({value[:80]!r})")
        if key == "context" and value[:1] in {"{", "["}:
            _scan_structure(path, json.loads(value))
        elif not _KEY.fullmatch(value):  # keyword arguments become part of generated code
            _reject(path, f"has an argument named {value[:80]!r}")


def _strings(value: Any, key: str = "") -> Iterator[tuple[str, str]]:  # noqa: ANN401 - JSON
    """Yield every string in a JSON value with its key."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, child in value.items():
            yield from _strings(child, name)
    elif isinstance(value, list):
        for child in value:
            yield from _strings(child, key)


def _is_operator(target: str) -> bool:
    """Return whether a target is a function of sizes or an operator; a custom one need not be registered here.

    torch resolves it by attributes, and calls whatever that leads to, such as ``torch.ops.load_library``.
    """
    if target in _SIZE_FUNCTIONS:
        return True
    if not any(pattern.fullmatch(target) for pattern in (_OPERATOR, _CONTROL)):
        return False
    resolved: object = torch
    for name in target.split(".")[1:]:
        resolved = getattr(resolved, name, None)
        if resolved is None:
            return True  # torch rejects it as well
    return isinstance(resolved, (OpOverload, HigherOrderOperator))


def _is_size(expression: str) -> bool:
    """Return whether an expression of ``sympy.srepr`` consists of symbols, numbers and arithmetic only."""
    expression = _QUOTED.sub(r"Symbol(\1", expression)
    words = _WORD.findall(expression)
    attribute = re.search(r"\.\s*[^\W\d]", expression)
    allowed = all(word in _SIZE_WORDS or _SYMBOL.fullmatch(word) for word in words)
    return bool(_SIZE.fullmatch(expression)) and allowed and not attribute


def _reject(path: Path, reason: str, details: str = "") -> NoReturn:
    raise SourceError(
        f"{path.name} {reason}, and loading it could run code",
        "export the model again yourself: torch.export.save(torch.export.export(model, args), 'model.pt2')",
        code="source.archive",
        where=path.name,
        details=details,
    )

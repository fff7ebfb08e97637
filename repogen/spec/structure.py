"""Validates plain data as spec models, and converts pydantic's errors to readable findings."""

from __future__ import annotations

from types import UnionType
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeGuard, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from repogen.artifacts.tensors import DTYPES
from repogen.spec.gates import GatesSpec, gate_names, gate_options
from repogen.spec.models import MODEL_NAME_RULE, ModelSpec, SpecFile
from repogen.spec.plugin_fields import UNKNOWN_OPTION
from repogen.spec.problems import MAX_SHOWN, closest, nearest, printable, value_text
from repogen.spec.sources import SourceOptions, source_kinds, source_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pydantic_core import ErrorDetails

    from repogen.triton_config.sections.base import KeyPath

_KEY = "[key]"
_MISSING = "is missing"
_ADD_KIND = "add kind:"
_STUB_SOURCE = {"factory": "stub.py:build"}
_NEVER_SERVED = ("float8", "fp8", "float4", "fp4")
_DTYPES = list(DTYPES)
_TAGS = {"outputs": {"list", "mapping"}, "optimize": {"list", "auto"}}
"""Tags that pydantic puts into the loc after a key whose value has several forms."""
_KIND_OF_FILE = {"onnx": "onnx", "pt2": "torch_export", "pt": "torchscript", "py": "python"}
_OTHER_NAMES = {
    "half": "float16", "bf16": "bfloat16", "fp16": "float16", "float": "float32", "fp32": "float32",
    "double": "float64", "fp64": "float64", "long": "int64", "int": "int32", "short": "int16", "byte": "uint8",
    "boolean": "bool",
}  # fmt: skip


class Finding(NamedTuple):
    """A problem at a key path, without its position in the file.

    Attributes:
        path: Key path.
        what: The problem.
        hint: What to do; may be empty.
    """

    path: KeyPath
    what: str
    hint: str = ""


class Structure(NamedTuple):
    """A file after validation.

    Attributes:
        file: The validated file; None if it has problems.
        findings: The problems.
    """

    file: SpecFile | None
    findings: list[Finding]


class PartialModel(NamedTuple):
    """The valid part of a model.

    Attributes:
        spec: The model; each invalid section has its default.
        broken: Names of the invalid sections, which rules must not read.
    """

    spec: ModelSpec
    broken: frozenset[str]


def check_file(document: object) -> Structure:
    """Validate the file, with defaults merged into its models.

    Args:
        document: Dicts, lists and scalars.
    """
    try:
        return Structure(SpecFile.model_validate(document), [])
    except ValidationError as error:
        return Structure(None, _findings(error, SpecFile, ()))


def check_tracking(document: object) -> Structure:
    """Validate ``mlflow`` and the names of all keys at the top; the other sections are replaced by their defaults."""
    entries = document.items() if isinstance(document, dict) else ()
    used = {key: value for key, value in entries if key == "mlflow" or key not in SpecFile.model_fields}
    return check_file({**used, "models": {"stub": {"source": _STUB_SOURCE}}})


def check_defaults(defaults: object) -> list[Finding]:
    """Validate ``defaults`` as a model without required keys; key paths start at ``defaults``."""
    if not isinstance(defaults, dict):
        return []
    try:
        ModelSpec.model_validate(defaults)
    except ValidationError as error:
        findings = _findings(error, ModelSpec, ("defaults",))
        return [finding for finding in findings if not _is_missing(finding)]
    return []


def salvage(model: object) -> PartialModel:
    """Return the valid part of a model, so that its other sections are still checked."""
    if not isinstance(model, dict):
        return PartialModel(ModelSpec.model_validate({"source": _STUB_SOURCE}), frozenset(ModelSpec.model_fields))
    unknown = [str(key) for key in model if key not in ModelSpec.model_fields]
    misspelled = frozenset(filter(None, (closest(key, list(ModelSpec.model_fields)) for key in unknown[:MAX_SHOWN])))
    trusted = {key: value for key, value in model.items() if key in ModelSpec.model_fields}
    try:
        return PartialModel(ModelSpec.model_validate(trusted), misspelled)
    except ValidationError as error:
        # The first part of pydantic's loc is the section.
        broken_sections = frozenset(
            str(detail["loc"][0]) for detail in error.errors(include_url=False, include_context=False)
        )
    for section in broken_sections:
        trusted.pop(section, None)
    if "source" in broken_sections:
        trusted["source"] = _STUB_SOURCE
    return PartialModel(ModelSpec.model_validate(trusted), broken_sections | misspelled)


def _is_missing(finding: Finding) -> bool:
    return finding.what.endswith(_MISSING)


def _findings(error: ValidationError, model: type[BaseModel], prefix: KeyPath) -> list[Finding]:
    # Each hint compares a key with all valid keys; a file with 20,000 unknown keys needs only the first hundred.
    details = error.errors(include_url=False)[: 2 * MAX_SHOWN]
    findings = [_finding(detail, model, prefix) for detail in details]
    # A source without kind is validated as torch; its missing factory is then not reported as a second problem.
    other_kinds = {finding.path[:-1] for finding in findings if finding.hint.startswith(_ADD_KIND)}
    return [finding for finding in findings if not (_is_missing(finding) and finding.path in other_kinds)]


def _finding(detail: ErrorDetails, model: type[BaseModel], prefix: KeyPath) -> Finding:
    loc, kind_of_source = _without_tag(detail["loc"])
    path = (*prefix, *(part for part in loc if part != _KEY))
    if loc and loc[-1] == _KEY:
        return _bad_key((*prefix, *loc[:-1]), detail)
    kind, value = detail["type"], detail["input"]
    if kind == "missing":
        return Finding(path[:-1], f"{loc[-1]} {_MISSING}", _missing_hint(path))
    if kind in {"extra_forbidden", UNKNOWN_OPTION}:
        known_keys = (
            list(source_options(kind_of_source).model_fields) if kind_of_source else _known_keys(model, loc[:-1])
        )
        known_keys = detail.get("ctx", {}).get("known", known_keys)
        key = str(loc[-1])
        hint = (_source_hint(key, kind_of_source, value) if kind_of_source else "") or _section_hint(
            model, loc, known_keys
        )
        hint = hint or nearest(key, known_keys)
        is_of_a_pass = path[-3:-2] == ("optimize",) and not closest(key, known_keys)
        return Finding(path, "unknown key", f"{hint}; a pass has its options under options:" if is_of_a_pass else hint)
    if kind in {"too_short", "value_error"}:
        what = "needs at least one entry" if kind == "too_short" else detail["msg"].removeprefix("Value error, ")
        return Finding(path, what)
    if path and path[-1] in _SPECIAL and not kind_of_source:
        return _SPECIAL[str(path[-1])](path, value)
    expected = _expected_text(detail)
    actual = _list_text(value) if kind == "must_be" and isinstance(value, list) else value_text(value)
    hint = _MAPPINGS.get(str(path[-1]), "") if path and expected == "a mapping" else ""
    return Finding(path, f"must be {expected}, not {actual}", hint)


def _section_hint(model: type[BaseModel], loc: KeyPath, known_keys: Sequence[str]) -> str:
    """Return the hint for a key that belongs into a section of its mapping, such as ``triton``; empty for others.

    ``input`` and ``output`` are keys of ``triton``, but next to it, they are misspelled.
    """
    if f"{loc[-1]}s" in known_keys:
        return ""
    sections = [section for section in known_keys if str(loc[-1]) in _known_keys(model, (*loc[:-1], section))]
    return f"write it under {' or '.join(f'{section}:' for section in sections)}" if sections else ""


def _source_hint(key: str, kind: str, value: object) -> str:
    """Return the hint for a key that other kinds of source have; empty for others."""
    kinds = [other for other in source_kinds() if other != kind and key in source_options(other).model_fields]
    if not kinds and key in _known_keys(ModelSpec, ()):
        return "write it next to source:, not in it"
    suffix = value.rpartition(".")[2].lower() if isinstance(value, str) else ""
    if kind == "torch" and suffix.startswith("py:"):
        return f'write factory: "{printable(str(value))}"'
    if _KIND_OF_FILE.get(suffix) in kinds:
        return f"{_ADD_KIND} {_KIND_OF_FILE[suffix]}"
    return f"kind: {kind} does not have it; {' and '.join(kinds)} do" if len(kinds) > 1 else _kind_hint(kinds)


def _kind_hint(kinds: list[str]) -> str:
    return f"it is a key of kind: {kinds[0]}" if kinds else ""


def _without_tag(loc: tuple[int | str, ...]) -> tuple[tuple[int | str, ...], str]:
    """Return pydantic's loc without the tag of a value's form, and the tag of a source's unknown key."""
    if "source" not in loc[:-1]:
        key = next((key for key in _TAGS if key in loc[:-1]), "")
        at = loc.index(key) + 1 if key else len(loc)
        return ((*loc[:at], *loc[at + 1 :]) if loc[at : at + 1] and loc[at] in _TAGS.get(key, ()) else loc), ""
    at = loc.index("source") + 1
    kind = str(loc[at])
    return (*loc[:at], *loc[at + 1 :]), kind if kind in source_kinds() and len(loc) == at + 2 else ""


def _bad_kind(path: KeyPath, source: object) -> Finding:
    kind = source.get("kind") if isinstance(source, dict) else source
    if not isinstance(source, dict):
        return Finding(path, f"must be a mapping, not {value_text(source)}", _missing_hint(path))
    hint = nearest(kind, source_kinds()) if isinstance(kind, str) else ""
    return Finding((*path, "kind"), f"{value_text(kind)} is not a kind of source", hint)


def _expected_text(detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "must_be":
        return str(context["what"])
    if kind == "literal_error":
        return str(context["expected"]).replace("'", "").replace("True", "true")
    if kind.startswith("string_"):
        return _EXPECTED_STRINGS.get(kind, "a string").format(**context)
    # A plug-in's model has pydantic's own messages.
    return _EXPECTED.get(kind, detail["msg"].removeprefix("Input should be "))


_EXPECTED = {
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dict_type": "a mapping",
    "tuple_type": "a list",
    "bool_type": "true or false",
}
_EXPECTED_STRINGS = {
    "string_too_short": "a string of at least {min_length} characters",
    "string_too_long": "a string of at most {max_length} characters",
    "string_pattern_mismatch": "a name that matches {pattern}",
}


_MAPPINGS = {
    "target": 'write target: {triton: "24.10"}',
    "dynamic_batching": "write dynamic_batching: {}",
    "mlflow": "write mlflow: {}",
}
"""Hints with an example for some keys whose value must be a mapping."""


def _list_text(values: list[object]) -> str:
    """Return a list in YAML notation, shortened."""
    return printable(f"[{', '.join(map(value_text, values[:MAX_SHOWN]))}]")


def _bad_key(path: KeyPath, detail: ErrorDetails) -> Finding:
    if path[:-1] == ("models",):
        return Finding(path, f'"{printable(str(path[-1]))}" is not a valid model name', MODEL_NAME_RULE)
    return Finding(path, f"the key must be {_expected_text(detail)}")


def _bad_dtype(path: KeyPath, value: object) -> Finding:
    name = value.lower().removeprefix("torch.").removeprefix("type_") if isinstance(value, str) else ""
    if name.startswith(_NEVER_SERVED):
        what = f"{printable(name)} is not supported: repogen does not build models with FP8 or FP4 inputs and outputs"
        return Finding(path, what, "declare float32 or float16, and cast inside the model")
    suggestion = _OTHER_NAMES.get(name) or closest(name, _DTYPES)
    hint = f'did you mean "{suggestion}"?' if suggestion else ""
    return Finding(path, f"must be one of {', '.join(_DTYPES)}, not {value_text(value)}", hint)


def _missing_hint(path: KeyPath) -> str:
    if path[-1] == "factory":
        return f'factory: "models.py:build"; for another source, set kind to one of {", ".join(source_kinds())}'
    if path[-1] == "source":
        return 'source: {factory: "models.py:build"}'
    if path[-1] == "models":
        return "create one with `repogen init`"
    if path[-1] == "calibration":
        return "write {name: int8-static, options: {calibration: calibration.npz}}"
    return ""


def _known_keys(model: type[BaseModel], loc: KeyPath) -> list[str]:
    """Return the keys allowed at ``loc`` below ``model``."""
    annotation: object = model
    for part in loc:
        if annotation is GatesSpec:
            annotation = gate_options(str(part))
        elif _is_model(annotation):
            field = annotation.model_fields.get(str(part))
            annotation = _form(field.annotation) if field else None
        else:
            # A mapping or list: its last type argument other than `...` is the type of its values.
            arguments = [argument for argument in get_args(annotation) if argument is not ...]
            annotation = arguments[-1] if arguments else None
    if annotation is GatesSpec:
        return gate_names()
    if annotation is SourceOptions:
        return [key for kind in source_kinds() for key in source_options(kind).model_fields]
    if not _is_model(annotation):
        return []
    return [field.alias or name for name, field in annotation.model_fields.items()]


_SPECIAL: dict[str, Callable[[KeyPath, object], Finding]] = {"dtype": _bad_dtype, "source": _bad_kind}


def _form(annotation: object) -> object:
    """Return the mapping, model or list among the forms that a value may have."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) not in {Union, UnionType}:
        return annotation
    forms = [_form(argument) for argument in get_args(annotation)]
    forms = [form for form in forms if _is_model(form) or get_origin(form) in {dict, tuple}]
    return next((form for form in forms if get_origin(form) is dict), forms[0] if forms else None)


def _is_model(annotation: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)

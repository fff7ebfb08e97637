"""A config.pbtxt as the ``triton:`` section of a spec, and the comparison of two configs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf import text_format
from pydantic import ValidationError

from repogen.artifacts.steps import EnsembleStep
from repogen.errors import ConfigError
from repogen.triton_config.render.config_sections import merge_extra
from repogen.triton_config.render.spec_findings import section_findings
from repogen.triton_config.rules.identity import ONNX_BACKEND, ONNX_PLATFORM, is_ensemble
from repogen.triton_config.sections.model import TritonSpec
from repogen.triton_config.text.compare import differences
from repogen.triton_config.text.dims import config_dims
from repogen.triton_config.text.parse import empty_config
from repogen.triton_config.text.view import tensor_views

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from repogen.artifacts.tensors import Dim, Signature
    from repogen.triton_config.sections.base import KeyPath
    from repogen.triton_config.text.parse import ModelConfig

_TRITONS_GROUP = {"kind": "KIND_AUTO", "count": "auto"}
"""The instance group of a config without one; in the spec, an empty list means one instance."""
# Not settings: they follow from the spec's other keys, or are converted below.
_DERIVED = frozenset({
    "name", "platform", "backend", "runtime", "input", "output", "ensemble_scheduling", "default_model_filename",
})  # fmt: skip


def triton_section(
    config: ModelConfig, directory: str, signature: Signature
) -> tuple[dict[str, object], TritonSpec, list[str]]:
    """Return the section of a config, the same as a model, and the settings that the section cannot have.

    Args:
        config: The config.
        directory: The model's directory, relative to the spec; label files are in it.
        signature: Inputs and outputs of the model.
    """
    fields = {field.name: value for field, value in config.ListFields() if field.name not in _DERIVED}
    rest = [name for name in fields if name not in TritonSpec.model_fields]
    section: dict[str, Any] = {"max_batch_size": config.max_batch_size}
    if not is_ensemble(config):
        section["instance_group"] = [dict(_TRITONS_GROUP)]
    section |= {name: _SPECIAL.get(name, _plain)(value) for name, value in fields.items() if name not in rest}
    _place_state_files(section, directory)
    shapes_of_warmups = {
        tensor.name: tensor.shape[1:] if config.max_batch_size > 0 else tensor.shape for tensor in signature.inputs
    }
    for entry, warmup in zip(section.get("model_warmup", ()), config.model_warmup, strict=True):
        if sizes := _warmup_sizes(warmup, shapes_of_warmups):
            entry["sizes"] = sizes
    for kind, tensors in (("input", config.input), ("output", config.output)):
        specs = signature.inputs if kind == "input" else signature.outputs
        shapes = {spec.name: config_dims(spec.shape, batched=config.max_batch_size > 0)[0] for spec in specs}
        if settings := _tensor_settings(tensors, shapes, directory):
            section[kind] = settings
    notes: list[str] = []
    kind = "ensemble" if is_ensemble(config) else "python" if config.backend == "python" else "onnx"
    spec = _without_mistakes(section, kind, rest, notes)
    if extra := _extra(config, rest, notes):
        section["extra"] = extra
        spec = spec.model_copy(update={"extra": extra})
    return section, spec, notes


def _place_state_files(section: dict[str, Any], directory: str) -> None:
    """Make the paths of files with initial states relative to the spec."""
    for state in section.get("sequence_batching", {}).get("state", ()):
        for initial in state.get("initial_state", ()):
            if "data_file" in initial:
                initial["data_file"] = f"{directory}/initial_state/{initial['data_file']}"


def ensemble_steps(config: ModelConfig) -> tuple[EnsembleStep, ...]:
    """Return the steps of an ensemble; none for another model."""
    return tuple(
        EnsembleStep(
            step.model_name,
            dict(step.input_map),
            dict(step.output_map),
            step.model_version if step.model_version > 0 else None,
        )
        for step in config.ensemble_scheduling.step
    )


def compared(existing: ModelConfig, rendered: ModelConfig, name: str) -> list[str]:
    """Return one line per difference between an existing config and the one that a spec renders."""
    normalized = empty_config()
    normalized.CopyFrom(existing)
    normalized.name = name
    if normalized.platform == ONNX_PLATFORM or not (normalized.platform or normalized.backend):
        normalized.platform, normalized.backend = "", ONNX_BACKEND
    if not (normalized.instance_group or is_ensemble(normalized)):
        normalized.instance_group.add()
    for group in normalized.instance_group:
        group.count = max(group.count, 0)  # Triton chooses for 0, and for less
    for step in normalized.ensemble_scheduling.step:
        step.model_version = step.model_version or -1
    lines = [
        line.replace(": expected ", ": config.pbtxt has ").replace(", found ", ", the spec writes ")
        for line in differences(normalized, rendered)
    ]
    return lines + [
        f"{line.partition(': expected ')[0]}: not set in config.pbtxt, but the spec writes "
        f"{line.partition(': expected ')[2].removesuffix(', found no value')}"
        for line in differences(rendered, normalized)
        if line.endswith(", found no value")
    ]


def _without_mistakes(section: dict[str, Any], kind: str, rest: list[str], notes: list[str]) -> TritonSpec:
    """Remove what a build rejects, such as a second instance group with the same name; return the section as a model.

    If a section without single values is rejected as well, the keys that contain them are removed.
    """
    spec = _valid(section, rest, notes)
    for length in (None, 1):
        findings = list(section_findings(spec, kind))
        removed = [
            f"{'.'.join(map(str, path))}: {finding.message}"
            for path, finding in reversed(findings)  # the numbers of the entries before them do not change
            if _remove(section, path[:length])
        ]
        notes += reversed(removed)
        if removed:
            spec = _valid(section, rest, notes)
    return spec


def _remove(section: dict[str, Any], path: KeyPath) -> bool:
    """Remove a value; return whether it existed."""
    node: Any = section
    try:
        for key in path[:-1]:
            node = node[key]
        del node[path[-1]]
    except (LookupError, TypeError):
        return False
    return True


def _valid(section: dict[str, Any], rest: list[str], notes: list[str]) -> TritonSpec:
    """Return the section as a model; keys with values that it does not accept are moved to ``rest``."""
    while True:
        try:
            return TritonSpec.model_validate(section)
        except ValidationError as error:
            for problem in error.errors():
                key = str(problem["loc"][0])
                if section.pop(key, None) is not None:
                    if key in {"max_batch_size", "input", "output", "instance_group", "version_policy"}:
                        notes.append(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}")
                    else:
                        rest.append(key)


def _extra(config: ModelConfig, names: list[str], notes: list[str]) -> str:
    """Return fields of a config as text; those that a spec does not accept in ``extra`` become notes."""
    texts = []
    for field, _ in config.ListFields():
        if field.name in names:
            part = empty_config()
            part.CopyFrom(config)
            for other, _ in config.ListFields():
                if other.name != field.name:
                    part.ClearField(other.name)
            text = text_format.MessageToString(part)
            try:
                merge_extra(empty_config(), text, "")
                texts.append(text)
            except ConfigError as error:
                notes.append(f"{field.name} is not in the spec: {error.message}")
    return "".join(texts)


def _tensor_settings(tensors: Any, shapes: dict[str, tuple[int, ...]], directory: str) -> dict[str, Any]:  # noqa: ANN401 - protobuf
    settings: dict[str, Any] = {}
    for tensor, view in zip(tensors, tensor_views(tensors), strict=True):
        values = {
            field.name: _plain_field(field, value)
            for field, value in tensor.ListFields()
            if field.name in {"format", "allow_ragged_batch", "optional"}
        }
        if view.label_filename:
            values["label_filename"] = f"{directory}/{view.label_filename}"
        if view.reshape is not None and view.dims != shapes.get(view.name):
            values["dims"] = list(view.dims)
        if values:
            settings[view.name] = values
    return settings


def _plain(value: Any) -> Any:  # noqa: ANN401 - a message, a list of messages, or a scalar
    """Return a value of a message as YAML has it: integers stay numbers, enum values become names."""
    if hasattr(value, "ListFields"):
        kind = value.DESCRIPTOR.fields_by_name.get("kind")  # the spec requires it, also where it is protobuf's default
        plain = {} if kind is None else {"kind": _plain_field(kind, value.kind)}
        return plain | {field.name: _plain_field(field, child) for field, child in value.ListFields()}
    if hasattr(value, "items"):
        return {key: _plain(child) for key, child in value.items()}
    if hasattr(value, "append"):
        return [_plain(child) for child in value]
    return value


def _plain_field(field: Any, value: Any) -> Any:  # noqa: ANN401 - a field's descriptor and its value
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        return [names[item].name for item in value] if field.is_repeated else names[value].name
    return _plain(value)


def _version_policy(value: Any) -> dict[str, Any]:  # noqa: ANN401 - protobuf
    if value.HasField("all"):
        return {"all": True}
    return {"specific": list(value.specific.versions)} if value.HasField("specific") else _plain(value)


def _parameters(value: Any) -> dict[str, str]:  # noqa: ANN401 - protobuf
    return {key: value[key].string_value for key in sorted(value)}


def _optimization(value: Any) -> dict[str, Any]:  # noqa: ANN401 - protobuf
    section = _plain(value)
    for key in ("input_pinned_memory", "output_pinned_memory"):
        if key in section:
            section[key] = {"enable": getattr(value, key).enable}
    return dict(section)


def _warmups(value: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - protobuf
    """Return warmups; the spec derives data types and dims from the graph."""
    warmups = []
    for warmup in value:
        kinds = {sample.WhichOneof("input_data_type") or "" for sample in warmup.inputs.values()}
        data = {"zero_data": "zero", "random_data": "random"}.get(next(iter(kinds), "")) if len(kinds) == 1 else None
        entry: dict[str, Any] = {"name": warmup.name, "batch_size": max(warmup.batch_size, 1), "data": data or "golden"}
        warmups.append({**entry, "count": warmup.count} if warmup.count else entry)
    return warmups


def _warmup_sizes(warmup: Any, shapes: Mapping[str, tuple[Dim, ...]]) -> dict[str, int]:  # noqa: ANN401 - protobuf
    """Return the sizes of the dynamic dims in a warmup's request; none for a dim that has two sizes in it.

    A graph and its config can have many thousands of inputs and warmups, so only the inputs of the request are read.
    """
    sizes: dict[str, set[int]] = {}
    for name in sorted(warmup.inputs):
        for dim, size in zip(shapes.get(name, ()), warmup.inputs[name].dims, strict=False):
            if isinstance(dim, str) and size > 0:
                sizes.setdefault(dim, set()).add(size)
    return {dim: next(iter(values)) for dim, values in sizes.items() if len(values) == 1}


def _instance_groups(value: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - protobuf
    return [{**_plain(group), "count": group.count if group.count > 0 else "auto"} for group in value]


_SPECIAL: dict[str, Callable[[Any], Any]] = {
    "version_policy": _version_policy,
    "instance_group": _instance_groups,
    "parameters": _parameters,
    "optimization": _optimization,
    "model_warmup": _warmups,
    "response_cache": lambda value: {"enable": value.enable},
}

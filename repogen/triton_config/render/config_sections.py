"""The ``triton:`` section of a spec as a ModelConfig message, before anything from the graph is added."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format, text_format

from repogen.artifacts.file_names import MAX_CONFIG_TOKENS
from repogen.errors import ConfigError
from repogen.triton_config.rules.file_names import file_problems
from repogen.triton_config.sections.model import parameter_text
from repogen.triton_config.text.parse import empty_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tritonclient.grpc.model_config_pb2 import ModelConfig as Message

    from repogen.triton_config.sections.model import TritonSpec

_TOKENS_OF_VALUE = 10
"""Fewer than a value of a warmup has in config.pbtxt, without its dims."""
# Not sections of ModelConfig with the same content: converted below, or completed from the graph.
_CONVERTED = {"max_batch_size", "input", "output", "version_policy", "parameters", "model_warmup", "tensorrt", "extra"}
# Fields that follow from the graph, the measurements or other keys of the spec.
_NOT_IN_EXTRA = (
    "name", "platform", "backend", "max_batch_size", "input", "output", "instance_group", "version_policy",
    "default_model_filename", "cc_model_filenames",
)  # fmt: skip


def excessive_warmups(number: int, ranks: Sequence[int]) -> str:
    """Return that a config.pbtxt cannot have as many warmups; empty if it can.

    Args:
        number: Number of warmups, each of which has a value for each input.
        ranks: Number of dims of each input.
    """
    if number * sum(_TOKENS_OF_VALUE + rank for rank in ranks) <= MAX_CONFIG_TOKENS:
        return ""
    return f"{number:,} warmups for {len(ranks):,} inputs are more than a config.pbtxt can have"


def section_config(triton: TritonSpec) -> Message:
    """Return a ModelConfig with what the section sets; types, dims and data from the graph are missing.

    ``extra`` is not included: see ``merge_extra``.

    Raises:
        ParseError: The section sets two keys of which ModelConfig allows one.
    """
    sections = triton.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=_CONVERTED)
    for accelerators in sections.get("optimization", {}).get("execution_accelerators", {}).values():
        for accelerator in accelerators:
            accelerator["parameters"] = _texts(accelerator["parameters"])
    for group in sections.get("instance_group", ()):
        if group["count"] == "auto":
            del group["count"]
    sections["parameters"] = {key: {"string_value": text} for key, text in _texts(triton.parameters).items()}
    sections["model_warmup"] = [
        {"name": warmup.name, "batch_size": warmup.batch_size, "count": warmup.count} for warmup in triton.model_warmup
    ]
    policy = triton.version_policy
    if policy is not None:
        sections["version_policy"] = {
            **({"latest": {"num_versions": policy.latest.num_versions}} if policy.latest is not None else {}),
            **({"specific": {"versions": list(policy.specific)}} if policy.specific is not None else {}),
            **({"all": {}} if policy.all else {}),
        }
    return json_format.ParseDict(sections, empty_config())


def merge_extra(message: Message, extra: str, where: str) -> None:
    """Add the fields of ``triton.extra``.

    Args:
        message: The config, with everything else that the spec sets.
        extra: Text of config.pbtxt.
        where: Key path of ``extra``, for errors.

    Raises:
        ConfigError: ``extra`` is not part of a ModelConfig, sets a field that is already set, names a file, or makes
            the model decoupled.
    """
    if not extra.strip():
        return
    extra_config = empty_config()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an unknown escape, which is also reported as an error
            text_format.Parse(extra, extra_config)
    except text_format.ParseError as error:
        raise ConfigError(
            f"triton.extra is not valid config.pbtxt text: {error}",
            "write it as in config.pbtxt",
            code="config.syntax",
            where=where,
        ) from error
    for field, _ in extra_config.ListFields():
        already_set = message.HasField(field.name) if _has_presence(field) else bool(getattr(message, field.name))
        if field.name in _NOT_IN_EXTRA or already_set:
            decided = field.name in _NOT_IN_EXTRA
            reason = "the spec and the graph determine" if decided else "another key of the spec sets"
            raise ConfigError(
                f"triton.extra contains {field.name}, which {reason}",
                "set it once, with the spec's own key if there is one",
                code="config.extra",
                where=where,
            )
    if extra_config.model_transaction_policy.decoupled:
        raise ConfigError(
            "triton.extra makes the model decoupled, and repogen does not build models that return several responses",
            "remove it if the model returns one response per request; otherwise, keep the model out of the spec",
            code="config.extra",
            where=where,
        )
    if problem := next(file_problems(extra_config, {}), None):
        hint = "label_filename of an output, data_file of a state and data: golden of a warmup publish files"
        raise ConfigError(f"triton.extra: {problem}", hint, code="config.extra", where=where)
    message.MergeFrom(extra_config)


def _texts(values: Mapping[str, bool | float | str]) -> dict[str, str]:
    return {key: parameter_text(value) for key, value in values.items()}


def _has_presence(field: Any) -> bool:  # noqa: ANN401 - protobuf's descriptors have several types
    return not field.is_repeated and field.message_type is not None

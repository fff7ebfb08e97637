"""What a spec wishes beyond the signature, as parts of a ModelConfig."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format, text_format

from repogen.errors import ConfigError
from repogen.triton_config.render.batch_tensors import add_batch_tensors
from repogen.triton_config.render.sequence import set_sequence_batching
from repogen.triton_config.render.warmups import add_warmups
from repogen.triton_config.sections.model import parameter_text
from repogen.triton_config.text.parse import empty_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tritonclient.grpc.model_config_pb2 import ModelConfig as Message

    from repogen.triton_config.render.model_facts import Known
    from repogen.triton_config.sections.model import TritonSpec

# What the graph, the measurements and the spec's own keys decide; raw text has no say in it.
_DECIDED = ("name", "platform", "backend", "max_batch_size", "input", "output", "instance_group", "version_policy")


def wishes(triton: TritonSpec, known: Known) -> Message:
    """Return the parts of a config that the template writes as they are.

    Args:
        triton: The spec's wishes.
        known: What they are about.

    Raises:
        ConfigError: ``extra`` is no ModelConfig, or says what is decided elsewhere; a sequence or a batch is made of
            tensors that the graph does not have; a warmup lacks a size.
    """
    message = empty_config()
    said: dict[str, Any] = {
        key: section.model_dump(mode="json", by_alias=True, exclude_none=True)
        for key in ("optimization", "response_cache")
        if (section := getattr(triton, key)) is not None
    }
    for accelerators in said.get("optimization", {}).get("execution_accelerators", {}).values():
        for accelerator in accelerators:
            accelerator["parameters"] = _texts(accelerator.get("parameters", {}))
    if triton.parameters:
        said["parameters"] = {key: {"string_value": value} for key, value in _texts(triton.parameters).items()}
    if triton.metric_tags:
        said["metric_tags"] = dict(triton.metric_tags)
    json_format.ParseDict(said, message)
    if triton.default_model_filename is not None:
        message.default_model_filename = triton.default_model_filename
    if triton.sequence_batching is not None:
        set_sequence_batching(message, triton.sequence_batching, known)
    add_batch_tensors(message, triton, known)
    add_warmups(message, triton, known)
    _merge(message, triton.extra, known.where("extra"))
    return message


def _texts(values: Mapping[str, bool | float | str]) -> dict[str, str]:
    return {key: parameter_text(value) for key, value in values.items()}


def _merge(message: Message, extra: str, where: str) -> None:
    if not extra.strip():
        return
    added = empty_config()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an escape that Python does not know is told of below
            text_format.Parse(extra, added)
    except text_format.ParseError as error:
        raise ConfigError(
            f"triton.extra is no part of a ModelConfig: {error}",
            "write it as in config.pbtxt",
            code="config.syntax",
            where=where,
        ) from error
    for field, _ in added.ListFields():
        twice = message.HasField(field.name) if _singular(field) else bool(getattr(message, field.name))
        if field.name in _DECIDED or twice:
            decides = "another key of the spec says, too" if twice else "the spec and the graph decide"
            raise ConfigError(
                f"triton.extra says {field.name}, which {decides}",
                "say it once: in the spec's own keys where there is one",
                code="config.extra",
                where=where,
            )
    message.MergeFrom(added)


def _singular(field: Any) -> bool:  # noqa: ANN401 - protobuf's descriptors have several types
    return not field.is_repeated and field.message_type is not None

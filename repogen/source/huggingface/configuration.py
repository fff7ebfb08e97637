"""Builds the transformers configuration, without settings that download kernels, quantize, or return tuples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from repogen.errors import SourceError
from repogen.source.huggingface.checkpoint import CONFIG

if TYPE_CHECKING:
    from repogen.source.huggingface.checkpoint import Checkpoint

Config: TypeAlias = Any
"""A transformers configuration; its attributes depend on the architecture."""

# Attention implementations and kernels from the Hub are downloaded code; transformers' default is used instead.
_IGNORED_KEYS = frozenset({
    "attn_implementation", "_attn_implementation", "_attn_implementation_internal", "experts_implementation",
    "_experts_implementation", "_experts_implementation_internal", "kernel_config", "fusion_config",
    "distributed_config", "transformers_weights",
    "attribute_map",  # it gives keys other names, such as those above
})  # fmt: skip
_INTERMEDIATE_OUTPUTS = ("hidden_states", "attentions")
_MAX_REASON_LENGTH = 300
_MAX_LABELS = 1_000_000
_MAX_LAYERS = 10_000
"""transformers creates an object for each label and each layer before it reads weights."""


def read_config(checkpoint: Checkpoint, outputs: tuple[str, ...]) -> Config:
    """Return the configuration to build the model with; the checkpoint's own code is run if it has any.

    Hidden states and attentions are computed only when ``outputs``, the names in the spec, has them.

    Raises:
        SourceError: transformers does not support the configuration, or the weights are quantized.
    """
    if checkpoint.config.quantization_config:
        method = checkpoint.config.quantization_config.get("quant_method", "unknown method")
        raise SourceError(
            f"the weights of {checkpoint.name} are quantized ({method}), which no exporter supports",
            "export the original float model, and quantize the ONNX file: onnxruntime.quantization.quantize_dynamic",
            code="source.quantized",
            where=CONFIG,
        )
    try:
        config = _load_config(checkpoint)
    except (SourceError, MemoryError):
        raise
    except Exception as error:  # each configuration class has its own validators and exceptions
        reason = " ".join(str(error).split())[:_MAX_REASON_LENGTH] or type(error).__name__
        raise SourceError(
            f"transformers {transformers.__version__} rejects {CONFIG} of {checkpoint.name}: {reason}",
            "correct it, or save the model again with this version of transformers",
            code="source.hf-files",
            where=CONFIG,
        ) from error
    config.return_dict = True
    parts = (value for value in vars(config).values() if isinstance(value, transformers.PreTrainedConfig))
    for part in (config, *parts):
        part.use_cache = False  # an exported graph has no inputs or outputs for past keys and values
    for kind in _INTERMEDIATE_OUTPUTS:
        requested = any(kind in name for name in outputs)
        if requested and kind == "attentions":
            config._attn_implementation = "eager"  # noqa: SLF001 - only this implementation returns attention weights
        setattr(config, f"output_{kind}", requested)
    return config


def _load_config(checkpoint: Checkpoint) -> Config:
    _require_few_objects(checkpoint.raw_config)
    if checkpoint.config.has_remote_code:
        return transformers.AutoConfig.from_pretrained(checkpoint.directory, trust_remote_code=True)
    kind = checkpoint.config.model_type
    if not kind or kind not in CONFIG_MAPPING:
        unsupported = f"model_type {kind!r} is not supported by transformers {transformers.__version__}"
        raise SourceError(
            f"{CONFIG}: {unsupported if kind else 'model_type is missing'}",
            "upgrade transformers, or write a factory: source: {factory: …}",
            code="source.hf-task",
            where=CONFIG,
        )
    return CONFIG_MAPPING[kind].from_dict(_without_ignored(checkpoint.raw_config))


def _require_few_objects(value: object) -> None:
    """Require that a configuration, and those in it, have a plausible number of labels and layers.

    Raises:
        SourceError: They would need all memory.
    """
    if isinstance(value, list):
        for child in value:
            _require_few_objects(child)
    for key, child in value.items() if isinstance(value, dict) else ():
        limit = _MAX_LABELS if key == "num_labels" else _MAX_LAYERS if key.endswith(("layers", "n_layer")) else None
        if limit is not None and isinstance(child, int) and child > limit:
            raise SourceError(
                f"{CONFIG}: {key} is {child}, which is more than {limit}",
                "download the model again, or write a factory: source: {factory: …}",
                code="source.hf-files",
                where=CONFIG,
            )
        _require_few_objects(child)


def _without_ignored(value: Any) -> Any:  # noqa: ANN401 - a JSON value
    if isinstance(value, dict):
        return {key: _without_ignored(child) for key, child in value.items() if key not in _IGNORED_KEYS}
    return [_without_ignored(child) for child in value] if isinstance(value, list) else value

"""``config.json`` -> transformers' configuration, without what would fetch kernels, quantize, or answer in tuples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from repogen.errors import SourceError
from repogen.source.huggingface.files import CONFIG, has_remote_code

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repogen.source.huggingface.files import Checkpoint
    from repogen.source.huggingface.untyped import Config, Json

# An attention or kernel of the hub's is downloaded code; transformers' own choice is what the checkpoint is run with.
_IGNORED = frozenset({
    "attn_implementation", "_attn_implementation", "_attn_implementation_internal", "experts_implementation",
    "_experts_implementation", "_experts_implementation_internal", "kernel_config", "fusion_config",
    "distributed_config", "transformers_weights",
})  # fmt: skip
_BY_PRODUCTS = ("hidden_states", "attentions")


def read_config(checkpoint: Checkpoint, outputs: tuple[str, ...]) -> Config:
    """Return the configuration to build the model with.

    Args:
        checkpoint: Where it lies; code of its own is run, so it must be trusted.
        outputs: Outputs that the spec asks for: hidden states and attentions only come when they are.

    Raises:
        SourceError: It is not one that transformers knows, or its weights are quantized.
    """
    raw = checkpoint.config
    if raw.get("quantization_config"):
        raise SourceError(
            f"the weights of {checkpoint.name} are quantized ({_method(raw)}), and no exporter translates them",
            "export the original float model, and quantize the ONNX file: onnxruntime.quantization.quantize_dynamic",
            code="source.quantized",
            where=CONFIG,
        )
    try:
        config = _with_own_code(checkpoint) if has_remote_code(raw) else _known(raw)
    except SourceError:
        raise
    except Exception as error:  # validators of each configuration raise what they like
        reason = " ".join(str(error).split())[:300]
        raise SourceError(
            f"transformers {transformers.__version__} does not take {CONFIG} of {checkpoint.name}: {reason}",
            "correct it, or save the model again with this transformers",
            code="source.hf-files",
            where=CONFIG,
        ) from error
    config.return_dict = True
    for part in (
        config,
        *(value for value in vars(config).values() if isinstance(value, transformers.PreTrainedConfig)),
    ):
        part.use_cache = False  # a graph of logits has no place for keys and values of the past
    for kind in _BY_PRODUCTS:
        asked = any(kind in name for name in outputs)
        if asked and kind == "attentions":
            config._attn_implementation = "eager"  # noqa: SLF001 - the other ones never have the weights in hand
        setattr(config, f"output_{kind}", asked)
    return config


def _known(raw: Mapping[str, object]) -> Config:
    kind = raw.get("model_type")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        what = f"model_type {kind!r} is unknown to transformers {transformers.__version__}" if kind else "no model_type"
        raise SourceError(
            f"{CONFIG}: {what}",
            "upgrade transformers, or write a factory: source: {factory: …}",
            code="source.hf-task",
            where=CONFIG,
        )
    return CONFIG_MAPPING[kind].from_dict(_without(raw))


def _without(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _without(child) for key, child in value.items() if key not in _IGNORED}
    return [_without(child) for child in value] if isinstance(value, list) else value


def _with_own_code(checkpoint: Checkpoint) -> Config:
    return transformers.AutoConfig.from_pretrained(checkpoint.directory, trust_remote_code=True)


def _method(raw: Mapping[str, object]) -> str:
    quantization = raw["quantization_config"]
    return (
        str(quantization.get("quant_method", "method unknown")) if isinstance(quantization, dict) else "method unknown"
    )

"""Prepares a module for export: unwrapped, on the CPU, in one precision that ONNX Runtime takes, in evaluation mode."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

from repogen.errors import SourceError
from repogen.source.common.callables import RAISED, import_callable, user_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_MODE_DEPENDENT = ("Dropout", "BatchNorm", "InstanceNorm")
_QUANTIZED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.nn.quantized")
_DTYPES = {"float32": torch.float32, "float16": torch.float16}


def require_module(made: object, reference: str) -> torch.nn.Module:
    """Return what a source made, which must be a module.

    Args:
        made: What it made.
        reference: Who made it: a callable or a URI.

    Raises:
        SourceError: It is something else.
    """
    if isinstance(made, torch.nn.Module):
        return made
    raise SourceError(
        f"{reference!r} returned {type(made).__name__}, not a torch.nn.Module",
        "return the module itself",
        code="source.return-type",
        where=reference,
    )


def make_module(reference: str, kwargs: Mapping[str, object], root: Path) -> torch.nn.Module:
    """Call a factory of the user's.

    Raises:
        SourceError: It can't be imported, fails, or returns no module.
    """
    factory = import_callable(reference, root)
    try:
        made = factory(**kwargs)
    except RAISED as error:
        raise user_error(error, f"{reference!r} failed", root) from error
    return require_module(made, reference)


def prepare(module: torch.nn.Module, dtype: str | None) -> tuple[torch.nn.Module, tuple[str, ...]]:
    """Make a module exportable.

    Args:
        module: As the source made it; changed in place.
        dtype: ``float32`` or ``float16`` to cast floating weights to; None leaves all but bfloat16.

    Returns:
        The module, and what was done to it that a person should know.

    Raises:
        SourceError: It has no values, is quantized, or stays in training mode.
    """
    module, notes = _unwrap(module)
    _refuse_meta(module)
    _refuse_quantized(module)
    module = module.cpu()
    return module, (*notes, *_cast(module, dtype), *_no_cache(module), *_plain_experts(module), *_enforce_eval(module))


def _unwrap(module: torch.nn.Module) -> tuple[torch.nn.Module, tuple[str, ...]]:
    """Return what lies inside ``torch.compile``, ``DataParallel`` and the like."""
    notes: list[str] = []
    while True:
        inner = getattr(module, "_orig_mod", None)
        what = "torch.compile"
        if inner is None and isinstance(module, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
            inner, what = module.module, type(module).__name__
        if not isinstance(inner, torch.nn.Module):
            return module, tuple(notes)
        notes.append(f"the model was taken out of {what}")
        module = inner


def _refuse_meta(module: torch.nn.Module) -> None:
    meta = [name for name, tensor in module.named_parameters() if tensor.is_meta]
    if meta:
        raise SourceError(
            f"parameter {meta[0]!r} is on the meta device: it has no values",
            "build the model on the CPU; the weights are loaded into what the factory returns",
            code="source.meta",
        )


def _refuse_quantized(module: torch.nn.Module) -> None:
    for name, child in module.named_modules():
        if type(child).__module__.startswith(_QUANTIZED):
            which = f"module {name!r}" if name else "the model"
            raise SourceError(
                f"{which} is quantized ({type(child).__module__}.{type(child).__name__}), "
                "and no exporter translates PyTorch's packed weights",
                "export the float model, and quantize the ONNX file: onnxruntime.quantization.quantize_dynamic",
                code="source.quantized",
            )


def _tensors(module: torch.nn.Module) -> Iterable[tuple[str, torch.Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _cast(module: torch.nn.Module, dtype: str | None) -> tuple[str, ...]:
    """Cast floating weights to ``dtype``; bfloat16, which Triton's ONNX Runtime backend does not serve, always."""
    want = _DTYPES[dtype or "float32"]
    kinds = Counter(tensor.dtype for _, tensor in _tensors(module) if tensor.is_floating_point())
    found = [kind for kind in kinds if kind != want and (dtype is not None or kind == torch.bfloat16)]
    if not found:
        return ()
    cast: Any = module._apply  # noqa: SLF001 - as Module.to does
    cast(lambda tensor: tensor.to(want) if tensor.dtype in found else tensor)
    return tuple(
        f"{kinds[kind]} tensors were cast from {_said(kind)} to {_said(want)}"
        + (": Triton's ONNX Runtime backend does not serve bfloat16" if kind == torch.bfloat16 else "")
        for kind in found
    )


def _said(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _no_cache(module: torch.nn.Module) -> tuple[str, ...]:
    """Switch off the key-value cache of language models: a graph of logits has no place for it."""
    configs = [getattr(child, "config", None) for child in module.modules()]
    caching: list[Any] = [config for config in configs if getattr(config, "use_cache", False)]
    for config in caching:
        config.use_cache = False
    return ("config.use_cache was switched off: the graph returns logits, not a key-value cache",) if caching else ()


def _plain_experts(module: torch.nn.Module) -> tuple[str, ...]:
    """Have transformers' mixtures of experts multiply in batches: no exporter translates their grouped products."""
    done = False
    for child in module.modules():
        choose = getattr(child, "set_experts_implementation", None)
        if callable(choose) and getattr(child, "_can_set_experts_implementation", bool)():
            choose("batched_mm")
            done = True
    return ("experts are multiplied in batches (batched_mm), which has a translation",) if done else ()


def _enforce_eval(module: torch.nn.Module) -> tuple[str, ...]:
    """Switch to evaluation mode and say so when the factory forgot it.

    Raises:
        SourceError: A submodule refuses (it overrides ``train``).
    """
    training = [name or type(module).__name__ for name, child in module.named_modules() if child.training]
    sensitive = [
        name
        for name, child in module.named_modules()
        if child.training and any(kind in type(child).__name__ for kind in _MODE_DEPENDENT)
    ]
    module.eval()
    stuck = [name or type(module).__name__ for name, child in module.named_modules() if child.training]
    if stuck:
        raise SourceError(
            f"model.eval() leaves {', '.join(stuck[:3])} in training mode",
            "its train() is overridden: call super().train(mode) there",
            code="source.training-mode",
        )
    if not training:
        return ()
    which = f"; it matters for {', '.join(sensitive[:3])}" if sensitive else ""
    return (f"the factory returned the model in training mode; model.eval() was called{which}",)

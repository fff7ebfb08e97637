"""Prepares a module for export: unwrapped, on the CPU, in evaluation mode, in a dtype that ONNX Runtime supports."""

from __future__ import annotations

import difflib
import inspect
import sys
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.ao.quantization.fake_quantize import FakeQuantize
from torch.nn.parameter import is_lazy

from repogen.errors import SourceError
from repogen.source.common.callables import RAISED, import_callable, user_error
from repogen.source.torch.flat import dtype_name

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from repogen.source.common.callables import UserCallable

_MODE_DEPENDENT = ("Dropout", "BatchNorm", "InstanceNorm")
# Their scales depend on the values of a whole batch; the exporter translates static quantization only.
_QUANTIZED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.nn.quantized")
_DYNAMICALLY_QUANTIZED = tuple(f"{name}.dynamic" for name in _QUANTIZED)
_PACKED_TABLES = tuple(f"{name}.modules.embedding_ops" for name in _QUANTIZED)
_DTYPES = {"float32": torch.float32, "float16": torch.float16}


def require_module(value: object, reference: str) -> torch.nn.Module:
    """Return the value if it is a module.

    Args:
        value: What a source returned.
        reference: The source, for messages: a callable or a URI.

    Raises:
        SourceError: The value is not a module.
    """
    if isinstance(value, torch.nn.Module):
        return value
    is_state = isinstance(value, Mapping) and any(isinstance(each, torch.Tensor) for each in value.values())
    raise SourceError(
        f"{reference!r} returned {'a state_dict' if is_state else type(value).__name__}, not a torch.nn.Module",
        "return the module without weights, and name their file in source.weights (.safetensors or .pt)"
        if is_state
        else "return the module itself",
        code="source.return-type",
        where=reference,
    )


def make_module(reference: str, kwargs: Mapping[str, object], root: Path) -> torch.nn.Module:
    """Call the user's factory.

    Raises:
        SourceError: It cannot be imported, fails, or does not return a module.
    """
    factory = import_callable(reference, root)
    if isinstance(factory, torch.nn.Module):
        raise SourceError(
            f"{reference!r} is a module, not a function that returns one",
            f"write a function, such as `def build(): return {reference.rpartition(':')[2]}`",
            code="source.return-type",
        )
    _check_kwargs(factory, reference, kwargs)
    try:
        module = factory(**kwargs)
    except RAISED as error:
        raise user_error(error, f"{reference!r} failed", root) from error
    return require_module(module, reference)


def _check_kwargs(factory: UserCallable, reference: str, kwargs: Mapping[str, object]) -> None:
    """Raise SourceError when a factory's signature does not accept ``kwargs``."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # a callable implemented in C
        return
    try:
        signature.bind(**kwargs)
    except TypeError as error:
        parameters = list(signature.parameters)
        unknown = [name for name in kwargs if name not in parameters]
        similar = difflib.get_close_matches(unknown[0], parameters, n=1) if unknown else []
        suggestion = f'; did you mean "{similar[0]}"?' if similar else ""
        raise SourceError(
            f"{reference!r} does not accept source.kwargs: {error}",
            f"its signature is {getattr(factory, '__name__', 'factory')}{signature}{suggestion}",
            code="source.kwargs",
            where=reference,
        ) from error


def prepare(
    module: torch.nn.Module, dtype: str | None, *, keep_bfloat16: bool = False
) -> tuple[torch.nn.Module, tuple[str, ...]]:
    """Prepare a module for export.

    Args:
        module: The module; it is changed in place.
        dtype: ``float32`` or ``float16``, to which floating-point weights are cast; None casts bfloat16 only.
        keep_bfloat16: Whether the weights keep their dtype, because forward itself casts its values to bfloat16.

    Returns:
        The module, and notes about the changes.

    Raises:
        SourceError: Its parameters have no values, it is quantized, or it stays in training mode.
    """
    module, notes = _unwrap(module)
    _check_has_values(module)
    _check_not_quantized(module)
    module = module.cpu()
    _run_functions_uncompiled()
    return module, (
        *notes,
        *_uncompile(module),
        *(() if keep_bfloat16 else _cast_module(module, dtype)),
        *_no_cache(module),
        *_plain_experts(module),
        *_freeze_fake_quantize(module),
        *_enforce_eval(module),
    )


def _unwrap(module: torch.nn.Module) -> tuple[torch.nn.Module, tuple[str, ...]]:
    """Return the module inside wrappers such as ``torch.compile`` and ``DataParallel``."""
    notes: list[str] = []
    while True:
        inner = getattr(module, "_orig_mod", None)
        wrapper = "torch.compile"
        if inner is None and isinstance(module, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
            inner, wrapper = module.module, type(module).__name__
        if not isinstance(inner, torch.nn.Module):
            return module, tuple(notes)
        notes.append(f"removed the {wrapper} wrapper of the model")
        module = inner


def _uncompile(module: torch.nn.Module) -> tuple[str, ...]:
    """Remove torch.compile from inner modules, and ``module.compile()``; return a note about them."""
    names = []
    for name, child in list(module.named_modules()):
        if getattr(child, "_compiled_call_impl", None) is not None:
            child._compiled_call_impl = None  # noqa: SLF001 - torch has no public way back
            names.append(name or type(module).__name__)
        for key, inner in list(child.named_children()):
            original = getattr(inner, "_orig_mod", None)
            if isinstance(original, torch.nn.Module):
                setattr(child, key, original)
                names.append(f"{name}.{key}".lstrip("."))
    return (f"removed torch.compile from {', '.join(names[:3])}",) if names else ()


def _run_functions_uncompiled() -> None:
    """Let functions that ``torch.compile`` wraps run eagerly in this process.

    After an export of a module that calls such a function, the compiled code of the function can no longer be called.
    """
    if "torch._dynamo" in sys.modules:  # torch.compile imports it
        torch.compiler.set_stance("force_eager")


def _check_has_values(module: torch.nn.Module) -> None:
    lazy = [name for name, tensor in _tensors(module) if is_lazy(tensor)]
    if lazy:
        raise SourceError(
            f"{lazy[0]!r} of a lazy module has neither a shape nor values before the first forward",
            "load the trained weights with source.weights, or in the factory; a first forward would draw random values",
            code="source.meta",
        )
    meta = [name for name, tensor in module.named_parameters() if tensor.is_meta]
    if meta:
        raise SourceError(
            f"parameter {meta[0]!r} is on the meta device: it has no values",
            "create the model on the CPU; the weights are loaded into the module that the factory returns",
            code="source.meta",
        )


def _check_not_quantized(module: torch.nn.Module) -> None:
    for name, child in module.named_modules():
        kind = type(child).__module__
        if kind.startswith((*_DYNAMICALLY_QUANTIZED, *_PACKED_TABLES)):
            subject = f"module {name!r}" if name else "the model"
            how = "quantized dynamically" if kind.startswith(_DYNAMICALLY_QUANTIZED) else "a quantized embedding"
            raise SourceError(
                f"{subject} is {how} ({kind}.{type(child).__name__}), and the exporters do not support its packed "
                "weights",
                "export the float model, and quantize the ONNX file: onnxruntime.quantization.quantize_dynamic",
                code="source.quantized",
            )


def _tensors(module: torch.nn.Module) -> Iterable[tuple[str, torch.Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _cast_module(module: torch.nn.Module, dtype: str | None) -> tuple[str, ...]:
    """Cast floating-point weights to ``dtype``, and always bfloat16, for which ONNX Runtime's CPU has few kernels."""
    target = _DTYPES[dtype or "float32"]
    kinds = Counter(tensor.dtype for _, tensor in _tensors(module) if tensor.is_floating_point())
    casts = [kind for kind in kinds if kind != target and (dtype is not None or kind == torch.bfloat16)]
    if not casts:
        return ()
    apply: Any = module._apply  # noqa: SLF001 - as Module.to does
    apply(lambda tensor: tensor.to(target) if tensor.dtype in casts else tensor)
    return tuple(
        f"cast {kinds[kind]} tensor{'' if kinds[kind] == 1 else 's'} from {dtype_name(kind)} to {dtype_name(target)}"
        + (": ONNX Runtime has few bfloat16 operators on a CPU" if kind == torch.bfloat16 else "")
        for kind in casts
    )


def _no_cache(module: torch.nn.Module) -> tuple[str, ...]:
    """Disable the key-value cache of language models, which is not an output of the graph."""
    configs = [getattr(child, "config", None) for child in module.modules()]
    caching: list[Any] = [config for config in configs if getattr(config, "use_cache", False)]
    for config in caching:
        config.use_cache = False
    if not caching:
        return ()
    note = (
        "published without the key-value cache (config.use_cache is set to False): each request computes all tokens "
        "of its sequence, so a loop that generates one token per request repeats that work"
    )
    return (note,)


def _plain_experts(module: torch.nn.Module) -> tuple[str, ...]:
    """Select batched matrix products in transformers' mixtures of experts: exporters do not support grouped ones."""
    has_experts = False
    for child in module.modules():
        choose = getattr(child, "set_experts_implementation", None)
        if callable(choose) and getattr(child, "_can_set_experts_implementation", bool)():
            choose("batched_mm")
            has_experts = True
    return ("experts use batched_mm, which the exporters support",) if has_experts else ()


class FrozenFakeQuantize(torch.nn.Module):
    """A ``FakeQuantize`` module whose observer is off: it does not read its switches, on which no graph can branch.

    Args:
        module: The module; its scale and zero point are kept.
    """

    def __init__(self, module: FakeQuantize) -> None:
        """Copy the numbers."""
        super().__init__()
        observer: Any = module.activation_post_process
        self.limits: tuple[int, int] = (observer.quant_min, observer.quant_max)
        self.axis: int | None = module.ch_axis if module.is_per_channel else None
        if self.axis is None:
            self.scale: Any = float(module.scale)
            self.zero_point: Any = int(module.zero_point)
        else:
            self.register_buffer("scale", module.scale)
            self.register_buffer("zero_point", module.zero_point)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x`` rounded to the numbers of the quantized type."""
        if self.axis is not None:
            return torch.fake_quantize_per_channel_affine(x, self.scale, self.zero_point, self.axis, *self.limits)
        return torch.fake_quantize_per_tensor_affine(x, self.scale, self.zero_point, *self.limits)


def _freeze_fake_quantize(module: torch.nn.Module) -> tuple[str, ...]:
    """Replace the modules of quantization-aware training whose observers are off."""
    fixed: dict[torch.nn.Module, torch.nn.Module] = {}  # a module may have several parents and names
    for parent in list(module.modules()):
        for name, child in list(parent._modules.items()):  # noqa: SLF001 - named_children omits further names
            if isinstance(child, FakeQuantize) and not child.observer_enabled[0] and not child.is_dynamic:
                if child not in fixed:
                    constant = FrozenFakeQuantize(child) if child.fake_quant_enabled[0] else torch.nn.Identity()
                    fixed[child] = constant.train(child.training)
                setattr(parent, name, fixed[child])
    if not fixed:
        return ()
    return (f"replaced {len(fixed)} FakeQuantize modules by their fixed scales: their observers are off",)


def _enforce_eval(module: torch.nn.Module) -> tuple[str, ...]:
    """Switch to evaluation mode, and return a note if the module was in training mode.

    Raises:
        SourceError: A submodule stays in training mode because it overrides ``train``.
    """
    training = {name: type(child) for name, child in module.named_modules() if child.training}
    # PyTorch creates quantized modules, which have one mode only, in training mode.
    training = {name: kind for name, kind in training.items() if not kind.__module__.startswith(_QUANTIZED)}
    sensitive = [name for name, kind in training.items() if any(part in kind.__name__ for part in _MODE_DEPENDENT)]
    others = [name for name, kind in training.items() if not name or not kind.__module__.startswith("torch.nn.")]
    module.eval()
    stuck = [name or type(module).__name__ for name, child in module.named_modules() if child.training]
    if stuck:
        raise SourceError(
            f"model.eval() leaves {', '.join(stuck[:3])} in training mode",
            "its train() is overridden: call super().train(mode) there",
            code="source.training-mode",
        )
    if not sensitive and not others:
        return ()
    details = f"; this affects {', '.join(sensitive[:3])}" if sensitive else ""
    return (f"the model was in training mode; repogen called model.eval(){details}",)

"""Loads weights into a module: safetensors, or ``.pt`` without running pickled code."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy

from repogen.errors import SourceError
from repogen.source.common.formats import check_format
from repogen.source.torch.flat import dtype_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

State: TypeAlias = "Mapping[str, torch.Tensor]"

_SHOWN = 5
_UNSAFE_GLOBAL = re.compile(r"GLOBAL ([\w.]+\w)")
_SAVE = "safetensors.torch.save_file(model.state_dict(), 'model.safetensors')"
_KWARGS_HINT = "pass the factory the arguments that the weights were trained with (source.kwargs)"
_DTYPE_HINT = "a cast would change the values: save them in the model's dtype, and dequantize quantized weights"
# Key prefix -> its cause.
_WRAPPERS = {
    "module.": "nn.DataParallel wrapped the model",
    "_orig_mod.": "torch.compile wrapped the model",
}


def load_weights(module: torch.nn.Module, path: Path) -> tuple[str, ...]:
    """Load weights strictly: the file and the module have the same tensors.

    Returns:
        Notes about tensors that were cast to another precision.

    Raises:
        SourceError: The file is unreadable, could run code, or does not match the module.
    """
    state = read_state(path)
    _materialize(module, state)
    model_state = module.state_dict()
    shared = [key for key in model_state if key in state]
    problems = {
        "missing": [key for key in model_state if key not in state and not _is_tied(key, model_state, state)],
        "unexpected": [key for key in state if key not in model_state],
        "different shape": [
            f"{key}: file {list(state[key].shape)}, model {list(model_state[key].shape)}"
            for key in shared
            if state[key].shape != model_state[key].shape
        ],
        "different dtype": [
            f"{key}: file {dtype_name(state[key].dtype)}, model {dtype_name(model_state[key].dtype)}"
            for key in shared
            # of another shape, a tensor may have any number of elements in one byte
            if state[key].shape == model_state[key].shape and not _is_castable(state[key], model_state[key].dtype)
        ],
    }
    if any(problems.values()):
        summary = "; ".join(f"{what}: {_key_list(keys)}" for what, keys in problems.items() if keys)
        only_dtype = not (problems["missing"] or problems["unexpected"] or problems["different shape"])
        raise SourceError(
            f"{path.name} does not match the model; {summary}",
            _DTYPE_HINT if only_dtype else _prefix_hint(model_state, state, path.name) or _KWARGS_HINT,
            code="source.weights-mismatch",
            where=path.name,
        )
    module.load_state_dict(dict(state), strict=False)
    casts = Counter(
        (dtype_name(state[key].dtype), dtype_name(model_state[key].dtype))
        for key in shared
        if state[key].dtype != model_state[key].dtype
    )
    return tuple(
        f"cast {count} of {len(shared)} tensors from {actual} in {path.name} to {expected} as in the model"
        for (actual, expected), count in casts.items()
    )


def _materialize(module: torch.nn.Module, state: State) -> None:
    """Give the tensors of lazy modules (``nn.LazyLinear``) the shapes that they have in a file."""
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if isinstance(tensor, (UninitializedParameter, UninitializedBuffer)) and name in state:
            tensor.materialize(state[name].shape)


def _key_list(keys: list[str]) -> str:
    return f"{', '.join(keys[:_SHOWN])}{f' and {len(keys) - _SHOWN} more' if len(keys) > _SHOWN else ''}"


def _is_castable(tensor: torch.Tensor, dtype: torch.dtype) -> bool:
    """Return whether a cast changes at most the precision of floats, and no value of integers."""
    if tensor.dtype == dtype or (tensor.is_floating_point() and dtype.is_floating_point):
        return True
    is_integer = not (tensor.is_floating_point() or tensor.is_complex() or tensor.is_quantized)
    if not is_integer or dtype.is_floating_point or dtype.is_complex:
        return False
    return torch.equal(tensor.to(dtype).to(tensor.dtype), tensor)


def _prefix_hint(model_state: State, state: State, name: str) -> str:
    """Return how to fix keys that differ only by a prefix; empty if they differ otherwise."""
    if prefix := _prefix(model_state, state):
        why = f" ({_WRAPPERS[prefix]})" if prefix in _WRAPPERS else ""
        return (
            f"the keys of {name} start with {prefix!r}{why}: save model.{prefix}state_dict(), or strip it: "
            f"{{k.removeprefix({prefix!r}): v for k, v in state.items() if k.startswith({prefix!r})}}"
        )
    if prefix := _prefix(state, model_state):
        add = (
            f", or add the prefix: {{{prefix!r} + k: v for k, v in state.items()}}"
            if len(state) == len(model_state)
            else ""
        )
        return f"the keys of {name} are those of model.{prefix[:-1]} only: save the state_dict of the whole model{add}"
    return ""


def _prefix(short_keys: Collection[str], long_keys: Collection[str]) -> str:
    """Return the prefix that turns every key of ``short`` into one of ``long``; empty if there is none."""
    first = next(iter(short_keys), None)
    for key in long_keys if first is not None else ():
        if key.endswith(f".{first}"):
            prefix = key.removesuffix(str(first))
            if all(prefix + key_suffix in long_keys for key_suffix in short_keys):
                return prefix
    return ""


def _is_tied(key: str, model_state: Mapping[str, torch.Tensor], state: Mapping[str, torch.Tensor]) -> bool:
    """Return whether a tensor shares its storage with one that the file has; safetensors stores it once."""
    tied = model_state[key]
    return not is_lazy(tied) and any(
        name in state and tensor.data_ptr() == tied.data_ptr() and tensor.shape == tied.shape
        for name, tensor in model_state.items()
        if name != key
    )


def read_state(path: Path) -> State:
    """Return the state_dict in a file.

    Raises:
        SourceError: The file has no state_dict, could run code, or is damaged.
    """
    check_format(path)
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file  # noqa: PLC0415 - part of the build extra

            content: object = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        unsafe = _UNSAFE_GLOBAL.search(str(error)) if isinstance(error, pickle.UnpicklingError) else None
        raise _unsafe(path, unsafe[1], error) if unsafe else _damaged_error(path, error) from error
    return _state_dict(content, path)


def _unsafe(path: Path, name: str, error: Exception) -> SourceError:
    return SourceError(
        f"{path.name} contains {name}, and loading it would run code",
        f"save only the state_dict: {_SAVE}",
        code="source.weights-unsafe",
        where=path.name,
        details=str(error),
    )


def _damaged_error(path: Path, error: Exception) -> SourceError:
    # The loaders' own messages do not help users, or advise them to disable the protection.
    return SourceError(
        f"{path.name} cannot be read: it is damaged or truncated, or was not written by "
        f"{'safetensors' if path.suffix == '.safetensors' else 'torch.save'}",
        "save it again, or download it again",
        code="source.weights-unreadable",
        where=path.name,
        details=f"{type(error).__name__}: {error}",
    )


def _state_dict(loaded: object, path: Path) -> State:
    """Return the state_dict of a loaded file: the whole object, or its key ``state_dict``."""
    if isinstance(loaded, dict) and _is_state_dict(loaded.get("state_dict")):
        loaded = loaded["state_dict"]
    if isinstance(loaded, dict) and (not loaded or _is_state_dict(loaded)):
        return {str(key): value for key, value in loaded.items()}
    hint = "save model.state_dict()"
    if not isinstance(loaded, dict):
        reason = f"it contains a value of type {type(loaded).__name__}"
    elif inner := [str(key) for key, value in loaded.items() if _is_state_dict(value)]:
        reason = f"it is a checkpoint with the weights under {' or '.join(map(repr, inner))}"
        hint = f"save only these: torch.save(torch.load({path.name!r})[{inner[0]!r}], 'weights.pt')"
    else:
        key, value = next((k, v) for k, v in loaded.items() if not isinstance(v, torch.Tensor))
        reason = f"{str(key)!r} is a value of type {type(value).__name__}"
    raise SourceError(f"{path.name} is not a state_dict: {reason}", hint, code="source.weights-type", where=path.name)


def _is_state_dict(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(v, torch.Tensor) for v in value.values())

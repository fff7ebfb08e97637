"""Loads weights into a module: safetensors, or ``.pt`` without running what it pickles."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import torch

from repogen.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SHOWN = 5


def load_weights(module: torch.nn.Module, path: Path) -> None:
    """Load ``path`` into ``module``, strictly: every tensor has a place and every place its tensor.

    Raises:
        SourceError: The file is unreadable, wants to run code, or does not match the module.
    """
    state = _read(path)
    own = module.state_dict()
    missing = [key for key in own if key not in state and not _tied(key, own, state)]
    unexpected = [key for key in state if key not in own]
    shapes = [
        f"{key}: file {list(state[key].shape)}, model {list(own[key].shape)}"
        for key in own
        if key in state and state[key].shape != own[key].shape
    ]
    problems = [
        f"{what}: {', '.join(keys[:_SHOWN])}{f' and {len(keys) - _SHOWN} more' if len(keys) > _SHOWN else ''}"
        for what, keys in (("missing", missing), ("unexpected", unexpected), ("other shape", shapes))
        if keys
    ]
    if problems:
        raise SourceError(
            f"{path.name} does not match the model; {'; '.join(problems)}",
            "give the factory the arguments that these weights were trained with (source.kwargs)",
            code="source.weights-mismatch",
            where=path.name,
        )
    module.load_state_dict(dict(state), strict=False)


def _tied(key: str, own: Mapping[str, torch.Tensor], state: Mapping[str, torch.Tensor]) -> bool:
    """Whether ``key`` shares its storage with a tensor that the file does hold (safetensors stores it once)."""
    mine = own[key]
    return any(
        other in state and tensor.data_ptr() == mine.data_ptr() and tensor.shape == mine.shape
        for other, tensor in own.items()
        if other != key
    )


def _read(path: Path) -> Mapping[str, torch.Tensor]:
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file  # noqa: PLC0415 - only when asked for

            loaded: object = load_file(path)
        else:
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise SourceError(
            f"{path.name} holds more than tensors, and loading it would run its code",
            "save the state_dict alone: safetensors.torch.save_file(model.state_dict(), 'model.safetensors')",
            code="source.weights-unsafe",
            where=path.name,
            details=str(error),
        ) from error
    except Exception as error:
        raise SourceError(
            f"{path.name} cannot be read: {(str(error).splitlines() or [type(error).__name__])[0]}".replace(
                str(path), path.name
            ),
            "save it again; is it whole?",
            code="source.weights-unreadable",
            where=path.name,
        ) from error
    if isinstance(loaded, dict) and isinstance(loaded.get("state_dict"), dict):
        loaded = loaded["state_dict"]
    if not isinstance(loaded, dict) or not all(isinstance(v, torch.Tensor) for v in loaded.values()):
        raise SourceError(
            f"{path.name} is not a state_dict", "save model.state_dict()", code="source.weights-type", where=path.name
        )
    return {str(key): value for key, value in loaded.items()}

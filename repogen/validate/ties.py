"""Finds equal values that a model puts into an order: PyTorch does not define which of them comes first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode

from repogen.errors import SourceError
from repogen.source.torch.torch_frames import forget_compiled

if TYPE_CHECKING:
    import torch

    from repogen.artifacts.source import Reference
    from repogen.artifacts.tensors import Arrays

_ORDERING = frozenset({"aten::topk", "aten::sort", "aten::argsort", "aten::max", "aten::min"})
_EXTREMES = frozenset({"aten::argmax", "aten::argmin"})


class _TieRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call] # as torch declares it
    """Records whether an operator orders floating-point values of which two are equal."""

    supports_higher_order_operators = True  # allows torch.cond and similar operators

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # the same
        self.has_ties = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's own signature
        del types
        schema = getattr(func, "_schema", None)
        if schema is not None and schema.name in _ORDERING | _EXTREMES:
            arguments = dict(zip((argument.name for argument in schema.arguments), args, strict=False)) | (kwargs or {})
            if schema.name in _EXTREMES or any(argument.name == "dim" for argument in schema.arguments):
                self.has_ties |= _has_ties(
                    arguments["self"], arguments.get("dim", None if schema.name in _EXTREMES else -1)
                )
        return func(*args, **(kwargs or {}))


def _has_ties(values: torch.Tensor, dim: int | None) -> bool:
    if not values.is_floating_point() or values.dim() == 0:
        return False
    ordered = (values.flatten() if dim is None else values.movedim(dim, -1)).sort(-1).values
    return bool((ordered[..., 1:] == ordered[..., :-1]).any())


def orders_equal_values(model: Reference, inputs: Arrays) -> bool:
    """Return whether a model orders equal values of these inputs; False if it is not a PyTorch model."""
    try:
        with _TieRecorder() as recorder:
            forget_compiled()
            model(inputs)
    except SourceError:
        return False
    finally:
        forget_compiled()
    return bool(recorder.has_ties)

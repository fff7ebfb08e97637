"""Runs a module a few times and tells what no graph can keep: random numbers, and buffers that its forward changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from repogen.errors import ParityError, RepogenError, SourceError
from repogen.source.callables import RAISED, user_error
from repogen.values.watching import forget_compiled, user_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.source.flat import FlatModule

_SHOWN = 3
_COARSE = (torch.float16, torch.bfloat16)
_CLOSE = (1e-3, 1e-4)


@dataclass(frozen=True)
class Observed:
    """What a module did with example inputs.

    Attributes:
        leaves: Everything in its answer, by name.
        attention: Whether it called ``scaled_dot_product_attention``.
        precision: ``float16`` or ``bfloat16`` when it computes anything in it; else empty.
    """

    leaves: list[tuple[str, object]]
    attention: bool
    precision: str


class _Functions(TorchFunctionMode):
    """Notices attention before it is taken apart into kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's own signature
        del types
        self.attention |= func is torch.nn.functional.scaled_dot_product_attention
        return func(*args, **(kwargs or {}))


class _Draws(TorchDispatchMode):  # type: ignore[no-untyped-call] # as torch declares it
    """Collects operators that draw random numbers, each with the user's line.

    Args:
        disturb: Whether to give other numbers than were drawn: so a draw that the model seeds itself is seen, too.
    """

    supports_higher_order_operators = True  # torch.cond and the like pass through

    def __init__(self, *, disturb: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # the same
        self._disturb = disturb
        self.seen: list[str] = []
        self.precision = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's own signature
        del types
        may_draw = torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())
        before = _generator_state(args, kwargs) if may_draw else None
        made = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves(made) if isinstance(leaf, torch.Tensor)]
        # Attention and the like bear the tag for their dropout, which is 0 here.
        if before is not None and not torch.equal(before, _generator_state(args, kwargs)):
            self._drawn(f"{func.name().replace('::', '.')} at {user_line()}", tensors)
        for tensor in tensors:
            if tensor.dtype in _COARSE and self.precision != "bfloat16":
                self.precision = str(tensor.dtype).removeprefix("torch.")
        return made

    def _drawn(self, place: str, tensors: list[torch.Tensor]) -> None:
        if place not in self.seen:
            self.seen.append(place)
        for tensor in tensors if self._disturb else ():
            if tensor.is_floating_point():
                tensor.add_(torch.rand(tensor.shape) + 0.5)
            elif tensor.dtype == torch.bool:
                tensor.logical_not_()
            elif tensor.ndim:  # a permutation stays one
                tensor.copy_(tensor.flip(0))


def _generator_state(args: Any, kwargs: Any) -> torch.Tensor:  # noqa: ANN401 - torch's own signature
    """Return the state of the generator that an operator is given, else of torch's own."""
    given = [leaf for leaf in tree_leaves((args, kwargs or {})) if isinstance(leaf, torch.Generator)]
    return (given[0] if given else torch.default_generator).get_state()


def probe(flat: FlatModule, tensors: Mapping[str, torch.Tensor], root: Path, seed: int) -> Observed:
    """Run a module a few times on the same inputs.

    Args:
        flat: The module.
        tensors: Example inputs by name, in order.
        root: Directory of the spec, for places.
        seed: Seed of the first run; the later ones get others.

    Raises:
        SourceError: It fails, draws random numbers that reach its outputs, or changes its buffers.
        ParityError: It differs from itself for another reason.
    """
    draws, functions = _Draws(), _Functions()
    with draws, functions:
        first = _run(flat, tensors, root, seed)
    forget_compiled()
    before = {name: buffer.clone() for name, buffer in flat.module.named_buffers()}
    second = _run(flat, tensors, root, seed + 1)
    changed = [
        name
        for name, buffer in flat.module.named_buffers()
        if name not in before or not torch.equal(before[name], buffer)
    ]
    if changed:
        raise SourceError(
            f"forward changes the model's buffer {', '.join(changed[:_SHOWN])}, and an ONNX graph keeps no state",
            "take and return the state as tensors, or compute it without the buffer",
            code="source.stateful",
        )
    if draws.seen and _random(flat, tensors, root, seed, first):
        raise SourceError(
            f"forward draws random numbers that reach its outputs: {', '.join(draws.seen[:_SHOWN])}",
            "take the noise as an input, or return what is random no more (the mean, the logits)",
            code="source.random",
        )
    if not _alike(first, second, exactly=False):
        raise ParityError(
            "the PyTorch model differs from itself on the same inputs",
            "it is not deterministic: look for numpy.random, random, time, or an attribute that forward changes",
            code="parity.non-deterministic",
        )
    return Observed(first, functions.attention, draws.precision)


def _random(
    flat: FlatModule, tensors: Mapping[str, torch.Tensor], root: Path, seed: int, first: list[tuple[str, object]]
) -> bool:
    """Whether random numbers reach the outputs, or decide whether there are any."""
    try:
        with _Draws(disturb=True):
            disturbed = _run(flat, tensors, root, seed)
    except SourceError:
        return True
    forget_compiled()
    return not _alike(first, disturbed, exactly=True)


def _run(flat: FlatModule, tensors: Mapping[str, torch.Tensor], root: Path, seed: int) -> list[tuple[str, object]]:
    torch.manual_seed(seed)
    copies = [tensor.clone() for tensor in tensors.values()]  # a forward that works in place must not reach ours
    try:
        with torch.no_grad():
            return flat.leaves(*copies)
    except RepogenError:
        raise
    except RAISED as error:
        shapes = (f"{name} {list(t.shape)} {str(t.dtype).removeprefix('torch.')}" for name, t in tensors.items())
        failure = user_error(error, f"the model's forward failed on the inputs {', '.join(shapes)}", root)
        failure.hint = "correct inputs: or dims: in the spec, or the model"
        raise failure from error


def _alike(first: list[tuple[str, object]], second: list[tuple[str, object]], *, exactly: bool) -> bool:
    """Whether two answers hold the same tensors; NaN counts as equal, since parity names it."""
    ones = [leaf for _, leaf in first if isinstance(leaf, torch.Tensor)]
    others = [leaf for _, leaf in second if isinstance(leaf, torch.Tensor)]
    return len(ones) == len(others) and all(
        one.shape == other.shape and one.dtype == other.dtype and _equal(one, other, exactly=exactly)
        for one, other in zip(ones, others, strict=True)
    )


def _equal(one: torch.Tensor, other: torch.Tensor, *, exactly: bool) -> bool:
    if not (one.is_floating_point() or one.is_complex()):
        return torch.equal(one, other)
    rtol, atol = (0.0, 0.0) if exactly else _CLOSE
    return torch.allclose(one, other, rtol, atol, equal_nan=True)

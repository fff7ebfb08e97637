"""Runs a module a few times and tells what no graph can keep: random numbers, and buffers that its forward changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from repogen.errors import ParityError, RepogenError, SourceError
from repogen.source.common.callables import RAISED, user_error
from repogen.source.torch.state import changed, disturb, restore, state_of, twin_of, written
from repogen.source.torch.torch_frames import forget_compiled, user_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.source.torch.flat import FlatModule
    from repogen.source.torch.state import State

_SHOWN = 3
_COARSE = (torch.float16, torch.bfloat16)
_CLOSE = (1e-3, 1e-4)


_UNDRAWN = "take the noise as an input, or return what is random no more (the mean, the logits)"
_UNDROPPED = (
    "it looks like dropout: F.dropout(x, p, training=self.training), or model.eval() before it is traced or saved"
)


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
            place = f" at {line}" if (line := user_line()) else ""
            self._drawn(func.name().replace("::", ".") + place, tensors)
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


def probe(
    flat: FlatModule,
    tensors: Mapping[str, torch.Tensor],
    others: Mapping[str, torch.Tensor],
    root: Path,
    seed: int,
) -> Observed:
    """Run a module a few times on the same inputs.

    Args:
        flat: The module.
        tensors: Example inputs by name, in order.
        others: The same of other sizes and values.
        root: Directory of the spec, for places.
        seed: Seed of the first run; the later ones get others.

    Raises:
        SourceError: It fails, draws random numbers that reach its outputs, or keeps what changes its answers.
        ParityError: It differs from itself for another reason.
    """
    draws, functions = _Draws(), _Functions()
    untouched, twin = state_of(flat.module), twin_of(flat.module)
    with draws, functions:
        first = _run(flat, tensors, root, seed)
    forget_compiled()
    once = state_of(flat.module)
    second = _run(flat, tensors, root, seed + 1)
    twice = state_of(flat.module)
    _refuse_written(flat, untouched, once, twice)
    if draws.seen and _random(flat, tensors, root, seed, first):
        raise _random_error(draws)
    again = _Again(flat, tensors, others, root, seed, first)
    _refuse_counted(again, once, twice)
    if not _alike(first, second, exactly=False):
        if draws.seen:  # through whole numbers, such as places of the largest, which are not followed
            raise _random_error(draws)
        raise ParityError(
            "the PyTorch model differs from itself on the same inputs",
            "it is not deterministic: look for numpy.random, random, time, or what forward keeps in a list or dict",
            code="parity.non-deterministic",
        )
    _refuse_kept(again, twin, untouched, once)
    return Observed(first, functions.attention, draws.precision)


def _random_error(draws: _Draws) -> SourceError:
    dropped = any("bernoulli" in draw or "dropout" in draw for draw in draws.seen)
    return SourceError(
        f"forward draws random numbers that reach its outputs: {', '.join(draws.seen[:_SHOWN])}",
        _UNDROPPED if dropped else _UNDRAWN,
        code="source.random",
    )


@dataclass(frozen=True)
class _Again:
    """How to ask a module again.

    Attributes:
        flat: It.
        tensors: The inputs it was asked with.
        others: Others.
        root: Directory of the spec.
        seed: Of the first run.
        first: What it answered then.
    """

    flat: FlatModule
    tensors: Mapping[str, torch.Tensor]
    others: Mapping[str, torch.Tensor]
    root: Path
    seed: int
    first: list[tuple[str, object]]

    def same(self) -> bool:
        """Whether it answers as it did; a failure is another answer."""
        try:
            return _alike(self.first, _run(self.flat, self.tensors, self.root, self.seed), exactly=False)
        except SourceError:
            return False

    def with_others(self) -> bool:
        """Ask it something else; return whether it could answer."""
        try:
            _run(self.flat, self.others, self.root, self.seed)
        except SourceError:
            return False
        return True


def _refuse_written(flat: FlatModule, untouched: State, once: State, twice: State) -> None:
    buffers = {name for name, _ in flat.module.named_buffers()}
    if counted := [name for name in changed(once, twice) if name in buffers]:
        raise SourceError(
            f"forward changes the model's buffer {', '.join(counted[:_SHOWN])}, and an ONNX graph keeps no state",
            "take and return the state as tensors, or compute it without the buffer",
            code="source.stateful",
        )
    if parameters := written(untouched, twice):
        raise SourceError(
            f"forward writes to the model's parameter {', '.join(parameters[:_SHOWN])}",
            "load trained weights, and whatever says that they are set; or set them before repogen gets the model",
            code="source.stateful",
        )


def _refuse_counted(again: _Again, once: State, twice: State) -> None:
    """Refuse attributes that change with every call and that the answers hang on."""
    counted = changed(once, twice)
    if not counted:
        return
    disturb(again.flat.module, counted)
    hangs = not again.same()
    restore(again.flat.module, once, counted)
    if hangs:
        raise SourceError(
            f"forward changes the model's attribute {', '.join(counted[:_SHOWN])} at every call, and answers by it",
            "take and return it as a tensor: an ONNX graph keeps no state, and answers as at its first call forever",
            code="source.stateful",
        )


def _refuse_kept(again: _Again, twin: torch.nn.Module | None, untouched: State, once: State) -> None:
    """Refuse what the first call leaves behind where it makes later answers hang on the first call's inputs."""
    kept = changed(untouched, once)
    if not kept or twin is None:
        return
    other = replace(again, flat=again.flat.of(twin))
    if other.with_others() and not other.same():
        raise SourceError(
            f"the first call sets the model's {', '.join(kept[:_SHOWN])} by its own inputs, and later answers hang on "
            "it",
            "set it in __init__, or load it; repogen's first call is an example, not your data",
            code="source.stateful",
        )


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

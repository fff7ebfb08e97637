"""Runs a module several times to detect behavior that an ONNX graph cannot represent: random numbers and state."""

from __future__ import annotations

import inspect
import re
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from repogen.errors import ParityError, RepogenError, SourceError
from repogen.source.common.callables import RAISED, user_error
from repogen.source.torch.clock import another_time
from repogen.source.torch.flat import dtype_name
from repogen.source.torch.state import PHASES, Caches, Snapshot, caches, changes, counts, disturb
from repogen.source.torch.torch_frames import forget_compiled, user_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from repogen.source.torch.flat import FlatModule
    from repogen.source.torch.state import Change

_MAX_LISTED = 3
_DIRECTIONS: tuple[Literal["up", "down"], ...] = ("up", "down")
_HALF = (torch.float16, torch.bfloat16)
_ROUNDS_TO_8_BITS = ("fake_quantize", "quantized_decomposed::")
_RTOL, _ATOL = 1e-3, 1e-4
_MAX_ALONE = 8
"""How many inputs are changed alone, each in calls of its own."""

_FACTORS = (10.0, -10.0)
"""Factors of inputs that reach rare changes of the state, such as a maximum over all calls."""

_OF_DTYPES = re.compile(r"d(?:ata)?type|scalar type|[Ii]nput type .* should be the same|not implemented for")
"""Words of PyTorch's errors about tensors of different dtypes."""

_OF_INTEGERS = re.compile(r"\b(?:long|int|short|char)", re.IGNORECASE)
"""PyTorch's names of integer dtypes in these errors."""

_OUTSIDE_TABLE = re.compile(
    r"index out of range in self|index -?\d+ (?:is )?out of |tried to access index|takes value|exceeds dimension size"
)
"""Words of PyTorch's errors about values that are not positions of a tensor."""

_TOO_FEW_DIMS = re.compile(r"(?:tuple|list) index out of range|Dimension out of range|too many indices")
"""Words of errors about dims that a tensor, or its shape, does not have."""

_NOT_INDICES = re.compile(r"'indices'|used as indices|dtype int32(?: or |/)int64 for index|index tensor of type")
"""Words of PyTorch's errors about indices that are not integers."""

_STRING_KEY = re.compile(r"""\w\[["']""")
"""A subscript with a string, as in ``batch["x"]``."""
_INTERPRETER = "TorchScript interpreter"
"""Words of each error in TorchScript."""
_NOISE_HINT = "make the noise an input, or return values before the random step, such as a mean or logits"
_STATE_HINT = "make it an input and an output: an ONNX graph has no state, so every call runs like the first one"
_BUFFER_HINT = (
    "make the state an input and an output, or compute it without the buffer; a counter that no output depends on can "
    "be an attribute instead of a buffer"
)
_BATCH_NORM_BUFFERS = frozenset({"running_mean", "running_var", "num_batches_tracked"})
_BATCH_NORM_HINT = (
    "this is batch norm in training mode: call model.eval() before you trace or save the model, do not call "
    "self.train() in forward, and use F.batch_norm(..., training=self.training)"
)
_DROPOUT_HINT = "it looks like dropout: use F.dropout(x, p, training=self.training), or model.eval() before tracing"


@dataclass(frozen=True)
class Observed:
    """Observations of a module that ran on example inputs.

    Attributes:
        leaves: Every leaf of its result with its name.
        attention: Whether it called ``scaled_dot_product_attention``.
        precision: ``float16``, ``bfloat16`` or ``qint8`` if it computes anything in that dtype, otherwise empty.
        complex: ``complex64`` or ``complex128`` if it computes anything in that dtype, otherwise empty.
        caches: Initial values of what it sets in itself, if some depend on the size of its inputs.
    """

    leaves: list[tuple[str, object]]
    attention: bool
    precision: str
    complex: str
    caches: Caches


class _AttentionRecorder(TorchFunctionMode):
    """Records calls of attention before torch dispatches them to kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's own signature
        del types
        self.attention |= func is torch.nn.functional.scaled_dot_product_attention
        return func(*args, **(kwargs or {}))


class _RandomOpRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call] # as torch declares it
    """Records operators that draw random numbers, each with the line of user code, and half-precision results.

    Args:
        disturb: How to change the random numbers, which also has an effect if the model sets its own seed: toward the
            top or toward the bottom of their range, and beyond it; None to keep them.
    """

    supports_higher_order_operators = True  # allows torch.cond and similar operators

    def __init__(self, *, disturb: Literal["up", "down"] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # the same
        self._disturb = disturb
        self.operators: list[str] = []
        self.precision = ""
        self.complex = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's own signature
        del types
        may_draw = torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())
        before = _generator_state(args, kwargs) if may_draw else None
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        # Attention and similar operators have the tag because of their dropout, which is 0 here.
        if before is not None and not torch.equal(before, _generator_state(args, kwargs)):
            location = f" at {line}" if (line := user_line()) else ""
            self._record(func.name().replace("::", ".") + location, tensors)
        name = func.name() if hasattr(func, "name") else ""
        for tensor in tensors:
            if tensor.is_quantized or any(part in name for part in _ROUNDS_TO_8_BITS):
                self.precision = "qint8"
            elif tensor.dtype in _HALF and self.precision not in {"bfloat16", "qint8"}:
                self.precision = dtype_name(tensor.dtype)
            if tensor.is_complex():
                self.complex = dtype_name(tensor.dtype)
        return result

    def _record(self, operator: str, tensors: list[torch.Tensor]) -> None:
        if operator not in self.operators:
            self.operators.append(operator)
        for tensor in tensors if self._disturb else ():
            if tensor.is_floating_point():
                _disturb(tensor, up=self._disturb == "up")
            elif tensor.dtype == torch.bool:
                tensor.logical_not_()
            elif tensor.ndim:  # a flipped permutation is still a permutation
                tensor.copy_(tensor.flip(0))


def _disturb(tensor: torch.Tensor, *, up: bool) -> None:
    """Change random numbers, so that comparisons with small and with large thresholds have other results."""
    amount = torch.rand(tensor.shape) + 0.5
    if bool((tensor < 0).any()):  # of a normal distribution, for example
        tensor.add_(amount * (8 if up else -8))
    elif up:
        tensor.add_(amount)
    else:  # not 0, whose logarithm is infinite
        tensor.mul_(amount * 1e-6)


def _generator_state(args: Any, kwargs: Any) -> torch.Tensor:  # noqa: ANN401 - torch's own signature
    """Return the state of the generator among the arguments, otherwise of torch's default generator."""
    generators = [leaf for leaf in tree_leaves((args, kwargs or {})) if isinstance(leaf, torch.Generator)]
    return (generators[0] if generators else torch.default_generator).get_state()


def probe(
    flat: FlatModule,
    tensors: Mapping[str, torch.Tensor],
    others: Mapping[str, torch.Tensor],
    alike: Mapping[str, torch.Tensor],
    root: Path,
    seed: int,
) -> Observed:
    """Run a module several times on the same inputs, once at another time of the clock.

    Args:
        flat: The module.
        tensors: Example inputs by name, in order.
        others: Example inputs of other sizes and values.
        alike: Example inputs of the same sizes as ``tensors``, and of other values.
        root: Directory of the spec, for locations in messages.
        seed: Seed of the first run; later runs use other seeds.

    Raises:
        SourceError: It fails, random numbers reach its outputs, or it keeps state that changes its outputs.
        ParityError: It is not deterministic for another reason.
    """
    random, attention = _RandomOpRecorder(), _AttentionRecorder()
    initial = Snapshot(flat.module, root)
    try:
        with random, attention:
            first = _run(flat, tensors, root, seed)
    except SourceError as error:
        if _INTERPRETER in error.details:  # it loses torch's text in a dispatch mode
            _run(flat, tensors, root, seed)
        raise
    forget_compiled()
    once = Snapshot(flat.module, root)
    with another_time():
        second = _run(flat, tensors, root, seed + 1)
    twice = Snapshot(flat.module, root)
    _check_no_writes(changes(initial, twice), changes(once, twice))
    harness = _ReplayHarness(flat, tensors, root, seed, first)
    if random.operators and harness.depends_on_random_numbers():
        raise _random_error(random, flat.module)
    _check_no_call_state(harness, once, twice)
    if not _equal_results(first, second, exactly=False):
        if random.operators:  # through integers such as argmax, which changed random numbers may not affect
            raise _random_error(random, flat.module)
        _check_no_first_call_state(harness, initial, once)
        raise ParityError(
            "the PyTorch model returns different outputs for the same inputs",
            "it is not deterministic: look for numpy.random, random, the current time, or state in an installed "
            "package or an extension",
            code="parity.non-deterministic",
        )
    other = _check_no_early_state(harness, others, initial, once)
    for inputs in _alike_inputs(tensors, alike, each_alone=bool(changes(initial, once))):
        _check_no_early_state(harness, inputs, initial, once, may_be_first_call=False)
    once.restore()
    return Observed(first, attention.attention, random.precision, random.complex, caches(initial, once, other))


def _random_error(random: _RandomOpRecorder, module: torch.nn.Module) -> SourceError:
    dropout = any("bernoulli" in operator or "dropout" in operator for operator in random.operators)
    hint = _DROPOUT_HINT if dropout else _NOISE_HINT
    if dropout and (names := _unregistered(module)):
        hint = (
            f"model.eval() does not reach the modules in {', '.join(names[:_MAX_LISTED])}: use nn.ModuleList or "
            "nn.ModuleDict instead of a Python list or dict"
        )
    return SourceError(
        f"forward draws random numbers that reach its outputs: {', '.join(random.operators[:_MAX_LISTED])}",
        hint,
        code="source.random",
    )


def _unregistered(module: torch.nn.Module) -> list[str]:
    """Return the attributes with lists, tuples and dicts of modules in training mode that PyTorch does not know."""
    registered = set(module.modules())
    return [
        f"{path}.{name}".lstrip(".")
        for path, part in module.named_modules()
        for name, value in vars(part).items()
        if not name.startswith("_") and isinstance(value, (list, tuple, dict))
        for items in [value.values() if isinstance(value, dict) else value]
        if any(isinstance(item, torch.nn.Module) and item.training and item not in registered for item in items)
    ]


@dataclass(frozen=True)
class _ReplayHarness:
    """Repeats the first run of a module under other conditions.

    Attributes:
        flat: The module.
        tensors: The inputs of the first run.
        root: Directory of the spec.
        seed: The seed of the first run.
        first: The result of the first run.
    """

    flat: FlatModule
    tensors: Mapping[str, torch.Tensor]
    root: Path
    seed: int
    first: list[tuple[str, object]]

    def same_result(self) -> bool:
        """Return whether the module returns the same outputs as in the first run; False if it fails."""
        try:
            return _equal_results(self.first, _run(self.flat, self.tensors, self.root, self.seed), exactly=False)
        except SourceError:
            return False

    def run_others(self, others: Mapping[str, torch.Tensor]) -> bool:
        """Run the module on other inputs, and on the same rescaled; return whether any of them succeeded.

        Inputs of the first run among them are not rescaled.
        """
        changed = {name for name, t in others.items() if t.is_floating_point() and t is not self.tensors[name]}
        succeeded = False
        for factor in (1.0, *(_FACTORS if changed else ())):
            inputs = {name: t * factor if name in changed else t for name, t in others.items()}
            try:
                _run(self.flat, inputs, self.root, self.seed)
            except SourceError:
                continue
            succeeded = True
        return succeeded

    def snapshot(self) -> Snapshot:
        """Return the current values in the module, and in the user's files."""
        return Snapshot(self.flat.module, self.root)

    def depends_on_random_numbers(self) -> bool:
        """Return whether changed random numbers change the outputs, or make the module fail."""
        for direction in _DIRECTIONS:
            try:
                with _RandomOpRecorder(disturb=direction):
                    disturbed = _run(self.flat, self.tensors, self.root, self.seed)
            except SourceError:
                return True
            forget_compiled()
            if not _equal_results(self.first, disturbed, exactly=True):
                return True
        return False


def _paths(places: Sequence[Change]) -> str:
    return ", ".join(list(dict.fromkeys(place.path for place in places))[:_MAX_LISTED])


def _subject(places: Sequence[Change]) -> str:
    """Return the places for a message; those in the user's files are not a part of the model."""
    inside = [place for place in places if place.inside]
    return f"the model's {_paths(inside)}" if inside else f"{_paths(places)} (outside of the model)"


def _check_no_writes(in_two_calls: Sequence[Change], in_each_call: Sequence[Change]) -> None:
    """Reject a forward that changes buffers at every call, or writes to parameters."""
    if updated := [place for place in in_each_call if place.is_buffer]:
        paths = {place.path for place in updated}
        is_batch_norm = all(path.rpartition(".")[2] in _BATCH_NORM_BUFFERS for path in paths)
        raise SourceError(
            f"forward changes the model's buffer{'s' if len(paths) > 1 else ''} {_paths(updated)}, and an ONNX graph "
            "has no state",
            _BATCH_NORM_HINT if is_batch_norm else _BUFFER_HINT,
            code="source.stateful",
        )
    _check_parameters(in_two_calls)


def _check_parameters(places: Sequence[Change]) -> None:
    """Reject a forward that writes to parameters."""
    if parameters := [place for place in places if place.is_parameter]:
        raise SourceError(
            f"forward writes to the model's parameter {_paths(parameters)}",
            "load trained weights together with the flag that marks them as initialized, or set them in the factory; "
            "for an embedding with max_norm, rescale its weight there, and set max_norm to None",
            code="source.stateful",
        )


def _check_no_call_state(harness: _ReplayHarness, once: Snapshot, twice: Snapshot) -> None:
    """Reject values that change at every call and affect the outputs."""
    updated = changes(once, twice)
    for phase in range(PHASES if counts(updated) else min(len(updated), 1)):
        disturb(updated, phase)
        affects_outputs = not harness.same_result()
        once.restore()
        if not affects_outputs:
            continue
        raise SourceError(
            f"forward changes {_subject(updated)} at every call, and its outputs depend on it",
            _STATE_HINT,
            code="source.stateful",
        )


def _check_no_first_call_state(harness: _ReplayHarness, initial: Snapshot, once: Snapshot) -> None:
    """Reject state that explains why the second call, on the same inputs, returned something else."""
    updated = changes(initial, once)
    initial.restore()
    if updated and harness.same_result():
        raise SourceError(
            f"forward changes {_subject(updated)}, and the outputs of the next call depend on it",
            _STATE_HINT,
            code="source.stateful",
        )


def _alike_inputs(
    tensors: Mapping[str, torch.Tensor], alike: Mapping[str, torch.Tensor], *, each_alone: bool
) -> Iterator[dict[str, torch.Tensor]]:
    """Yield inputs of the same sizes as the first ones, with other values of all inputs, and of each one alone.

    A forward may keep a result as long as the size of its inputs, or one of its inputs, stays the same.
    """
    other_values = {  # files have the same values for every seed
        name: alike[name].flip(0) if tensor.ndim and torch.equal(tensor, alike[name]) else alike[name]
        for name, tensor in tensors.items()
    }
    yield other_values
    if each_alone and len(tensors) > 1:
        for name in list(tensors)[:_MAX_ALONE]:
            yield {**tensors, name: other_values[name]}


def _check_no_early_state(
    harness: _ReplayHarness,
    others: Mapping[str, torch.Tensor],
    initial: Snapshot,
    once: Snapshot,
    *,
    may_be_first_call: bool = True,
) -> Snapshot:
    """Reject values that some calls set if later outputs depend on the inputs of these calls.

    A call may overwrite a part of a cache, and read another part of it only at other positions. A tensor with values of
    the inputs is therefore also changed before a call: a buffer for intermediate results does not change the outputs.

    Returns:
        The snapshot after calls on other inputs, or ``once`` if there were none.
    """
    initial.restore()
    succeeded, after = harness.run_others(others), harness.snapshot()
    updated = changes(initial, after)
    _check_parameters(updated)
    if not succeeded:
        return once
    if harness.same_result():
        updated = [place for place in changes(once, after) if place.is_array]
        after.restore()  # the call above may have replaced a key, which would then not match the values
        disturb(updated)
        if not updated or harness.same_result():
            return after
    elif may_be_first_call and (initialized := changes(initial, once)) and not changes(after, harness.snapshot()):
        raise SourceError(
            f"the first call sets {_subject(initialized)} from its inputs, and later outputs depend on it",
            "set it in __init__, or load it; the first call of repogen uses example inputs, not your data",
            code="source.stateful",
        )
    raise SourceError(
        f"forward changes {_subject(updated) if updated else 'an object of the model'} for some inputs, and later "
        "outputs depend on it",
        _STATE_HINT,
        code="source.stateful",
    )


def _run(flat: FlatModule, tensors: Mapping[str, torch.Tensor], root: Path, seed: int) -> list[tuple[str, object]]:
    torch.manual_seed(seed)
    copies = [tensor.clone() for tensor in tensors.values()]  # a forward may change its inputs in place
    try:
        with torch.no_grad():
            return flat.leaves(*copies)
    except RepogenError:
        raise
    except RAISED as error:
        shapes = (f"{name} {list(t.shape)} {dtype_name(t.dtype)}" for name, t in tensors.items())
        failure = user_error(error, f"the model's forward failed on the inputs {', '.join(shapes)}", root)
        failure.hint = _forward_hint(error, flat.module, tensors)
        raise failure from error


def _forward_hint(error: BaseException, module: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> str:
    """Return what to do about an exception in forward."""
    text = str(error)
    integers = [name for name, tensor in tensors.items() if not tensor.is_floating_point() and tensor.numel()]
    if integers and _OUTSIDE_TABLE.search(text):
        largest = ", ".join(f"{name}: {int(tensors[name].max())}" for name in integers)
        return (
            "an integer input may exceed a table of the model, such as its vocabulary or positions: lower the upper "
            f"end of range: in the spec (largest values in this call: {largest})"
        )
    if hint := (
        _index_hint(tensors)
        if _NOT_INDICES.search(text)
        else _dtype_hint(text, module, tensors) or _arguments_hint(error, module)
    ):
        return hint
    frames = traceback.extract_tb(error.__traceback__)
    if (
        any(_STRING_KEY.search(frame.line or "") for frame in frames[-2:])
        and "site-packages" not in frames[-1].filename
    ):
        return (
            "if forward accepts a dict, set examples: to a callable that returns (({name: tensor},), {}); each tensor "
            "becomes an input"
        )
    if isinstance(error, IndexError) and _TOO_FEW_DIMS.search(text):
        return "an input may have too few dims: correct its shape in inputs:, or the examples"
    if _INTERPRETER in text:
        return (
            "correct inputs: or dims: in the spec; an archive that was traced can have a fixed batch size: use "
            "x.flatten(1) in the model instead of numbers from int(x.shape[0]), and trace it again"
        )
    return "correct inputs: or dims: in the spec, or the model"


def _arguments_hint(error: BaseException, module: torch.nn.Module) -> str:
    """Return the parameters of forward, if it does not accept the arguments; otherwise empty."""
    if not isinstance(error, TypeError) or traceback.extract_tb(error.__traceback__)[-1].name != "_call_impl":
        return ""  # nn.Module calls forward in _call_impl
    parameters = ", ".join(inspect.signature(module.forward).parameters)
    return (
        f"the parameters of forward are ({parameters}): declare one input for each in inputs:, or return the arguments "
        "of one call from the function in examples:"
    )


def _index_hint(tensors: Mapping[str, torch.Tensor]) -> str:
    """Return which inputs are floating-point numbers, for an error about indices; empty if none are."""
    floats = {name: tensor.dtype for name, tensor in tensors.items() if tensor.is_floating_point()}
    listing = ", ".join(f"{name} is {dtype_name(dtype)}" for name, dtype in floats.items())
    return listing and (
        f"input {listing}: if it is used as indices, declare int64 and a range in inputs:, or change the examples"
    )


def _dtype_hint(text: str, module: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> str:
    """Return which inputs and weights have different dtypes, if an error is about dtypes; otherwise empty."""
    weights = {value.dtype for value in module.parameters() if value.is_floating_point()}
    if len(weights) != 1 or not _OF_DTYPES.search(text):
        return ""
    inputs = {name: tensor.dtype for name, tensor in tensors.items() if tensor.dtype not in weights}
    floats = {name: dtype for name, dtype in inputs.items() if dtype.is_floating_point}
    others = floats or (inputs if _OF_INTEGERS.search(text) else {})
    listing = ", ".join(f"{name} is {dtype_name(dtype)}" for name, dtype in others.items())
    return listing and (
        f"input {listing}, and the weights are {dtype_name(*weights)}: write their dtype in inputs:, or change that of "
        "the examples"
    )


def _equal_results(first: list[tuple[str, object]], second: list[tuple[str, object]], *, exactly: bool) -> bool:
    """Return whether two results have the same tensors; NaN equals NaN, because the parity check reports it."""
    tensors = [leaf for _, leaf in first if isinstance(leaf, torch.Tensor)]
    others = [leaf for _, leaf in second if isinstance(leaf, torch.Tensor)]
    return len(tensors) == len(others) and all(
        tensor.shape == other_tensor.shape
        and tensor.dtype == other_tensor.dtype
        and _equal(tensor, other_tensor, exactly=exactly)
        for tensor, other_tensor in zip(tensors, others, strict=True)
    )


def _equal(first: torch.Tensor, second: torch.Tensor, *, exactly: bool) -> bool:
    if not (first.is_floating_point() or first.is_complex()):
        return torch.equal(first, second)
    rtol, atol = (0.0, 0.0) if exactly else (_RTOL, _ATOL * min(1.0, _magnitude(first)))
    return torch.allclose(first, second, rtol, atol, equal_nan=True)


def _magnitude(tensor: torch.Tensor) -> float:
    """Return the root mean square of the values that are finite; 0 without any."""
    finite = tensor[tensor.isfinite()].abs().double()
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0

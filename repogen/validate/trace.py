"""Every operator that a module runs, in order: what it was given, what it made, whose line and module called it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from repogen.source.torch.torch_frames import forget_compiled, user_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.artifacts.tensors import Array

_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class Operation:
    """One operator call.

    Attributes:
        name: For example ``aten.floor_divide``.
        module: Path of the innermost module that ran it; empty for the model itself.
        where: ``file.py:line`` of the user's code.
        takes: Keys of the tensors that it was given.
        makes: Keys of the tensors that it made.
    """

    name: str
    module: str
    where: str
    takes: tuple[int, ...]
    makes: tuple[int, ...]


@dataclass
class Trace:
    """What a run left.

    Attributes:
        operations: In order.
        values: Arrays by key; those beyond a gigabyte are not kept.
        outputs: Keys of what the module returned, in order; -1 for what no operator made.
    """

    operations: list[Operation] = field(default_factory=list)
    values: dict[int, Array] = field(default_factory=dict)
    outputs: tuple[int, ...] = ()


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call] # as torch declares it
    supports_higher_order_operators = True  # torch.cond and the like are operators, too

    def __init__(self, modules: list[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # the same
        self.trace = Trace()
        self._modules = modules
        self._keys: dict[int, int] = {}
        self._kept: list[torch.Tensor] = []  # an id is a tensor's as long as it lives
        self._bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's own signature
        del types
        takes = tuple(self.key(leaf) for leaf in tree_leaves((args, kwargs or {})) if isinstance(leaf, torch.Tensor))
        made = func(*args, **(kwargs or {}))
        fresh = [leaf for leaf in tree_leaves(made) if isinstance(leaf, torch.Tensor)]
        makes = tuple(self._store(leaf) for leaf in fresh)
        module = self._modules[-1] if self._modules else ""
        name = func.name().replace("::", ".").removesuffix(".default")
        self.trace.operations.append(Operation(name, module, user_line(), takes, makes))
        return made

    def key(self, tensor: torch.Tensor) -> int:
        """Return the key of a tensor; -1 for an input or a weight."""
        return self._keys.get(id(tensor), -1)

    def _store(self, tensor: torch.Tensor) -> int:
        key = len(self._kept)
        self._keys[id(tensor)] = key  # one that an operator changed in place is another value from here on
        self._kept.append(tensor)
        self._bytes += tensor.nbytes
        if self._bytes <= _MOST_BYTES and not tensor.is_complex() and tensor.dtype != torch.bfloat16:
            self.trace.values[key] = tensor.detach().cpu().numpy().copy()
        return key


def trace(module: torch.nn.Module, tensors: tuple[torch.Tensor, ...]) -> Trace:
    """Run a module and record its operators.

    Args:
        module: With flat tensors in.
        tensors: Its inputs.
    """
    copies = [tensor.clone() for tensor in tensors]
    with _module_names(module) as names:
        recorder = _Recorder(names)
        with torch.no_grad(), recorder:
            forget_compiled()
            made = module(*copies)
    forget_compiled()
    recorder.trace.outputs = tuple(recorder.key(tensor) for tensor in made)
    return recorder.trace


@contextmanager
def _module_names(module: torch.nn.Module) -> Iterator[list[str]]:
    """Keep the path of the module that is running as the last of a list, while the block runs."""
    running: list[str] = []
    hooks = []
    for name, child in module.named_modules():
        # The wrapper's only child is the user's model.
        path = name.removeprefix("module").removeprefix(".")

        def enter(_module: object, _args: object, path: str = path) -> None:
            running.append(path)

        def leave(_module: object, _args: object, _made: object) -> None:
            running.pop()

        if isinstance(child, torch.jit.ScriptModule):
            continue  # takes no Python hooks while it runs
        hooks += [child.register_forward_pre_hook(enter), child.register_forward_hook(leave, always_call=True)]
    try:
        yield running
    finally:
        for hook in hooks:
            hook.remove()

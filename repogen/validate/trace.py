"""Records every operator that a module runs: its inputs and outputs, and the module and line that call it."""

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

_MAX_BYTES = 1 << 30


@dataclass(frozen=True)
class Operation:
    """One operator call.

    Attributes:
        name: For example ``aten.floor_divide``.
        module: Path of the innermost module that ran it; empty for the model itself.
        where: ``file.py:line`` of the user's code.
        inputs: Keys of its input tensors.
        outputs: Keys of its output tensors.
    """

    name: str
    module: str
    where: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass
class Trace:
    """The record of one run.

    Attributes:
        operations: The operator calls, in order.
        values: Arrays by key, up to a total of one gigabyte.
        outputs: Keys of the returned tensors, in order; -1 for a tensor that no operator returned.
    """

    operations: list[Operation] = field(default_factory=list)
    values: dict[int, Array] = field(default_factory=dict)
    outputs: tuple[int, ...] = ()


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch's signature
    supports_higher_order_operators = True  # such as torch.cond

    def __init__(self, modules: list[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch's signature
        self.trace = Trace()
        self._modules = modules
        self._keys: dict[int, int] = {}
        self._tensors: list[torch.Tensor] = []  # references, so that no id is used twice
        self._bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's signature
        del types
        # Before the call: an operator that works in place gives its input another key.
        inputs = tuple(self.key(leaf) for leaf in tree_leaves((args, kwargs or {})) if isinstance(leaf, torch.Tensor))
        result = func(*args, **(kwargs or {}))
        outputs = tuple(self._store(leaf) for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor))
        module = self._modules[-1] if self._modules else ""
        name = func.name().replace("::", ".").removesuffix(".default")
        self.trace.operations.append(Operation(name, module, user_line(), inputs, outputs))
        return result

    def key(self, tensor: torch.Tensor) -> int:
        """Return the key of a tensor; -1 for an input of the module or a weight."""
        return self._keys.get(id(tensor), -1)

    def _store(self, tensor: torch.Tensor) -> int:
        key = len(self._tensors)
        self._keys[id(tensor)] = key
        self._tensors.append(tensor)
        self._bytes += tensor.nbytes
        if self._bytes <= _MAX_BYTES and not tensor.is_complex() and tensor.dtype != torch.bfloat16:
            self.trace.values[key] = tensor.detach().cpu().numpy().copy()
        return key


def trace(module: torch.nn.Module, tensors: tuple[torch.Tensor, ...]) -> Trace:
    """Run a module and record its operators.

    Args:
        module: A module that takes positional tensors and returns a tuple of tensors.
        tensors: Its inputs; not changed.
    """
    copies = [tensor.clone() for tensor in tensors]
    with _module_names(module) as names:
        recorder = _Recorder(names)
        with torch.no_grad(), recorder:
            forget_compiled()
            outputs = module(*copies)
    forget_compiled()
    recorder.trace.outputs = tuple(recorder.key(tensor) for tensor in outputs)
    return recorder.trace


@contextmanager
def _module_names(module: torch.nn.Module) -> Iterator[list[str]]:
    """Yield a list of the paths of the modules that are running, the innermost last."""
    running: list[str] = []
    hooks = []
    for name, child in module.named_modules():
        # The only child of the wrapper is the user's model.
        path = name.removeprefix("module").removeprefix(".")

        def enter(_module: object, _args: object, path: str = path) -> None:
            running.append(path)

        def leave(_module: object, _args: object, _outputs: object) -> None:
            running.pop()

        if isinstance(child, torch.jit.ScriptModule):
            continue  # does not support Python hooks
        hooks += [child.register_forward_pre_hook(enter), child.register_forward_hook(leave, always_call=True)]
    try:
        yield running
    finally:
        for hook in hooks:
            hook.remove()

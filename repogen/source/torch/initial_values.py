"""Parameters that still have the random values of their initialization, because no trained values were loaded."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch._dynamo  # otherwise imported in the code of the user, which may have damaged the process
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from collections.abc import Iterator

_REPLACES_VALUES = ("aten::copy_", "aten::fill_", "aten::zero_")


class RandomStorages:
    """The storages of tensors whose values were computed from random numbers only."""

    def __init__(self) -> None:
        """Create an empty set."""
        # a reference to a freed storage keeps its address from being used again
        self._references: dict[int, StorageWeakRef] = {}

    def __contains__(self, storage: torch.UntypedStorage) -> bool:
        """Return whether its values are random."""
        return storage._cdata in self._references  # noqa: SLF001 - torch identifies storages by it

    def update(self, storage: torch.UntypedStorage, *, is_random: bool) -> None:
        """Add or remove a storage."""
        reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call] # as torch declares it
        if is_random:
            self._references[reference.cdata] = reference
        else:
            self._references.pop(reference.cdata, None)

    def note(self, module: torch.nn.Module) -> tuple[str, ...]:
        """Return a note if parameters of a module have random values; one with a gradient was trained."""
        parameters = dict(module.named_parameters())
        names = [
            name
            for name, parameter in parameters.items()
            if parameter.grad is None and any(storage in self for storage in _storages(parameter))
        ]
        if not names:
            return ()
        note = (
            f"{len(names)} of {len(parameters)} parameters have random initial values, for example {names[0]}: the "
            "factory did not load trained values for them, and source.weights is not set"
        )
        return (note,)


@contextmanager
def random_storages() -> Iterator[RandomStorages]:
    """Yield the storages that receive random values in this block."""
    storages = RandomStorages()
    with _Recorder(storages):
        yield storages


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call] # as torch declares it
    """Records the results of operators that draw random numbers, or that have random inputs only."""

    supports_higher_order_operators = True  # allows torch.cond and similar operators

    def __init__(self, storages: RandomStorages) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # the same
        self._random = storages

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's own signature
        del types
        inputs = _storages((args, kwargs))
        if hasattr(func, "name") and func.name().startswith(_REPLACES_VALUES):
            # the rest of a storage keeps its values
            inputs = inputs[1:] if _is_whole(args[0], inputs[0]) else inputs[:1]
        draws = torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())
        is_random = draws or (bool(inputs) and all(storage in self._random for storage in inputs))
        result = func(*args, **(kwargs or {}))
        for storage in _storages(result):
            self._random.update(storage, is_random=is_random)
        return result


def _is_whole(tensor: torch.Tensor, storage: torch.UntypedStorage) -> bool:
    return tensor.numel() * tensor.element_size() == storage.nbytes()


def _storages(values: Any) -> list[torch.UntypedStorage]:  # noqa: ANN401 - the arguments or results of any operator
    """Return the storages of tensors in nested containers; sparse and uninitialized tensors have none."""
    storages = []
    for value in tree_leaves(values):
        if isinstance(value, torch.Tensor):
            try:
                storages.append(value.untyped_storage())
            except (NotImplementedError, RuntimeError, ValueError):
                continue
    return storages

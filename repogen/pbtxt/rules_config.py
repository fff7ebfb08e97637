"""Rules that a config.pbtxt must keep by itself, whatever the model.

Source: each was seen on tritonserver 2.51.0 with the stock onnxruntime backend; warnings are what it accepts to a
user's surprise.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import TYPE_CHECKING

from repogen.pbtxt.findings import Finding
from repogen.values.tensors import DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from repogen.pbtxt.view import ConfigView, TensorView

INT32_MAX = 2**31 - 1
_SERVED = frozenset(dtype.triton for dtype in DTYPES.values())


def config_findings(view: ConfigView, directory: str | None = None) -> list[Finding]:
    """Return every rule of the RG1 family that ``view`` breaks.

    Args:
        view: The config.
        directory: Name of the directory that holds the config, when it lies in one.
    """
    found = [] if directory is None else list(_name(view, directory))
    for rule in _RULES:
        found.extend(rule(view))
    return found


def _name(view: ConfigView, directory: str) -> Iterator[Finding]:
    if view.name not in {"", directory}:
        yield Finding(
            "RG101",
            "error",
            f"name is {view.name!r}, but the model's directory is {directory!r}",
            f'write name: "{directory}" or rename the directory',
        )


def _backend(view: ConfigView) -> Iterator[Finding]:
    if view.backend != "onnxruntime":
        said = f"backend is {view.backend!r}" if view.backend else "backend is left out"
        yield Finding("RG102", "error", said, 'write backend: "onnxruntime"')
    if view.platform:
        # the older name of the same backend is harmless; any other, `onnx` included, is refused
        harmless = view.platform == "onnxruntime_onnx"
        yield Finding(
            "RG102",
            "warning" if harmless else "error",
            f"platform is {view.platform!r}",
            "drop platform, backend says it",
        )


def _max_batch_size(view: ConfigView) -> Iterator[Finding]:
    if view.max_batch_size < 0:
        yield Finding("RG103", "error", f"max_batch_size is {view.max_batch_size}", "use 0 where it does not batch")
    if view.sequence_batching and view.max_batch_size == INT32_MAX:
        message = "max_batch_size 2147483647 with sequence batching brings tritonserver 2.51 down"
        yield Finding("RG117", "error", message, "give the largest batch that you mean")


def _tensors(view: ConfigView) -> Iterator[Finding]:
    for kind, tensors in (("input", view.inputs), ("output", view.outputs)):
        if not tensors:
            message = f"no {kind} is declared, so Triton guesses, and takes any dynamic first axis for a batch"
            yield Finding("RG113", "warning", message, f"declare each {kind}")
        for name, times in Counter(tensor.name for tensor in tensors).items():
            if times > 1:
                yield Finding("RG104", "error", f"{kind} {name!r} stands {times} times", "keep one of them")
        for tensor in tensors:
            yield from _dims(f"{kind} {tensor.name!r}", tensor)
            if tensor.dtype not in _SERVED:
                message = f"{kind} {tensor.name!r} has data_type TYPE_{tensor.dtype}, which the backend does not serve"
                yield Finding("RG107", "error", message, "cast to FP32 or FP16 inside the model")


def _dims(what: str, tensor: TensorView) -> Iterator[Finding]:
    if not tensor.dims:
        hint = "use dims: [ 1 ], with reshape { shape: [ ] } where the graph's shape is [batch]"
        yield Finding("RG105", "error", f"{what} has empty dims", hint)
    for dim in (*tensor.dims, *(tensor.reshape or ())):
        if dim == 0 or dim < -1:
            yield Finding("RG106", "error", f"{what} has a dim of {dim}", "use -1 for a dynamic dim, else its size")
    if tensor.reshape is not None and not _same_elements(tensor.dims, tensor.reshape):
        message = f"{what} reshapes {_listed(tensor.dims)} to {_listed(tensor.reshape)}, which holds another number"
        yield Finding("RG114", "error", message, "give both the same number of elements")


def _same_elements(dims: tuple[int, ...], reshape: tuple[int, ...]) -> bool:
    if dims.count(-1) != reshape.count(-1):
        return False
    return prod(dim for dim in dims if dim > 0) == prod(dim for dim in reshape if dim > 0)


def _dynamic_batching(view: ConfigView) -> Iterator[Finding]:
    if view.dynamic_batching and view.max_batch_size < 1:
        message = "dynamic_batching is asked for, but max_batch_size is 0"
        yield Finding("RG109", "error", message, "drop dynamic_batching, or give a max_batch_size the model can keep")
        return
    for size in view.preferred_batch_sizes:
        if not 1 <= size <= view.max_batch_size:
            message = f"preferred_batch_size {size} is not between 1 and max_batch_size {view.max_batch_size}"
            yield Finding("RG108", "error", message, "lower it, or raise max_batch_size")


def _groups(view: ConfigView) -> Iterator[Finding]:
    for group in view.groups:
        if group.kind == "KIND_CPU" and group.gpus:
            message = f"an instance group of KIND_CPU names gpus {_listed(group.gpus)}"
            yield Finding("RG110", "error", message, "use KIND_GPU, or drop gpus")
        if group.count < 1:
            message = f"an instance group has count {group.count}, and Triton takes a number of its own"
            yield Finding("RG111", "warning", message, "write count: 1 or more")
    for name, times in Counter(group.name for group in view.groups if group.name).items():
        if times > 1:
            yield Finding("RG112", "warning", f"{times} instance groups are named {name!r}", "give each its own name")


def _version_policy(view: ConfigView) -> Iterator[Finding]:
    if view.specific_versions is not None and not view.specific_versions:
        message = "version_policy is specific and names no version, so none is served"
        yield Finding("RG115", "error", message, "name versions, or use latest")


def _warmups(view: ConfigView) -> Iterator[Finding]:
    names = {tensor.name for tensor in view.inputs}
    largest = max(view.max_batch_size, 1)
    for warmup in view.warmups:
        if warmup.batch_size > largest:
            message = f"warmup {warmup.name!r} has batch_size {warmup.batch_size}, more than {largest}"
            yield Finding("RG116", "error", f"{message}; this can bring Triton down", "lower it")
        if unknown := sorted(set(warmup.inputs) - names):
            message = f"warmup {warmup.name!r} feeds {', '.join(map(repr, unknown))}, unknown to the model"
            yield Finding("RG116", "error", f"{message}; this can bring Triton down", "use the config's input names")


def _listed(values: Iterable[int]) -> str:
    return f"[{', '.join(map(str, values))}]"


_RULES: tuple[Callable[[ConfigView], Iterable[Finding]], ...] = (
    _backend,
    _max_batch_size,
    _tensors,
    _dynamic_batching,
    _groups,
    _version_policy,
    _warmups,
)

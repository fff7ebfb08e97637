"""``kind: torch``, a callable that returns a module, and ``kind: torchscript``, an archive of ``torch.jit.save``."""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch

from repogen.artifacts.source import Script, SourceModel
from repogen.errors import SourceError
from repogen.files import raise_if_exhausted
from repogen.files.private_file import private_file
from repogen.source.common.formats import check_archive
from repogen.source.common.inputs import find_inputs
from repogen.source.torch.eager import examine, source_from_module
from repogen.source.torch.initial_values import random_storages
from repogen.source.torch.module import make_module, prepare
from repogen.source.torch.scan_script import load_script
from repogen.source.torch.weights import load_weights

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.source.interface import SourceRequest
    from repogen.spec.models import ModelSpec
    from repogen.spec.sources import TorchScriptSource, TorchSource

_MAY_BE_BFLOAT16 = ("BFloat16", "TorchScript interpreter")
"""Words in tracebacks of errors about values in bfloat16 and in float32; those of the interpreter may not name them."""


class LoadInPrecision(Protocol):
    """Loads a model, and keeps its weights in bfloat16 or casts them to float32."""

    def __call__(self, *, keep_bfloat16: bool) -> SourceModel:
        """Load it."""


def load_torch(request: SourceRequest[TorchSource]) -> SourceModel:
    """Call a factory, load weights into its module, and determine the signature.

    Raises:
        SourceError: The factory, the weights, the inputs or the outputs cannot be used.
    """
    if request.options.dtype is not None:
        return _load(request, keep_bfloat16=False)
    return in_either_precision(partial(_load, request))


def in_either_precision(load: LoadInPrecision) -> SourceModel:
    """Load a model with weights in float32; if its code computes in bfloat16 explicitly, with those that it has.

    Raises:
        SourceError: The first error, if both fail.
    """
    try:
        return load(keep_bfloat16=False)
    except SourceError as error:
        if error.code != "source.user-code" or not any(words in error.details for words in _MAY_BE_BFLOAT16):
            raise
        try:
            return load(keep_bfloat16=True)
        except SourceError:
            raise error from None


def _load(request: SourceRequest[TorchSource], *, keep_bfloat16: bool) -> SourceModel:
    options, model, root = request.options, request.model, request.root
    with random_storages() as storages:
        built = make_module(options.factory, options.kwargs, root)
    weights_notes = storages.note(built) if options.weights is None else load_weights(built, root / options.weights)
    module, notes = prepare(built, options.dtype, keep_bfloat16=keep_bfloat16)
    if isinstance(module, torch.jit.ScriptModule):
        source = _source_from_script(module, model, root)
    else:
        inputs = find_inputs(model, root, inspect.signature(module.forward).parameters)
        source = source_from_module(module, inputs, model, root)
    return replace(source, notes=(*weights_notes, *notes, *source.notes))


def load_torchscript(request: SourceRequest[TorchScriptSource]) -> SourceModel:
    """Load an archive with TorchScript's own reader, which runs no Python code.

    Raises:
        SourceError: The file is not such an archive, or its inputs or outputs cannot be used.
    """
    check_archive(request.root / request.options.path, "torchscript")
    return in_either_precision(partial(_load_archive, request))


def _load_archive(request: SourceRequest[TorchScriptSource], *, keep_bfloat16: bool) -> SourceModel:
    path = request.root / request.options.path
    try:
        with private_file(path) as own:
            script_module = load_script(own)
    except SourceError:
        raise
    except Exception as error:
        if isinstance(error, OSError):
            raise_if_exhausted(error)
        raise SourceError(
            f"{path.name} cannot be read as a TorchScript archive: it is damaged, or from another PyTorch version",
            "save it again: torch.jit.save(module, 'model.pt')",
            code="source.archive",
            where=request.options.path,
            details=str(error),
        ) from error
    module, notes = prepare(script_module, None, keep_bfloat16=keep_bfloat16)
    source = _source_from_script(module, request.model, request.root)
    return replace(source, notes=(*notes, *source.notes))


def _source_from_script(script: Any, model: ModelSpec, root: Path) -> SourceModel:  # noqa: ANN401 - its schema is not typed
    inputs = find_inputs(model, root, _parameters(script))
    examined = examine(script, inputs, model, root)
    return examined.source_model(Script(_without_dict(script), examined.select, examined.flat))


class _Values(torch.jit.ScriptModule):
    """Calls a TorchScript module; ``define`` adds the forward."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module


def _without_dict(script: Any) -> Any:  # noqa: ANN401 - its graph is not typed
    """Return a module that returns the values of the dict that ``script`` returns, because the exporter has no dicts.

    A module whose result is not constructed as a dict of tensors, in its last step or in each branch of it, is
    returned unchanged.
    """
    names = [argument.name for argument in script.forward.schema.arguments[1:] if str(argument.type) == "Tensor"]
    graph = script.inlined_graph  # its nodes are invalid without it
    keys = _dict_keys(next(graph.outputs()))
    if not keys or len(names) < len(script.forward.schema.arguments) - 1:
        return script
    arguments, result = ", ".join(names), "_".join((*names, "result"))
    values = ", ".join(f"{result}[{key!r}]" for key in keys)
    module: Any = _Values(script)
    module.define(f"def forward(self, {arguments}):\n    {result} = self.module({arguments})\n    return ({values},)\n")
    module.eval()
    torch._C._jit_pass_inline(module.graph)  # noqa: SLF001 - as the exporter does
    last = next(module.graph.outputs()).node()
    for lookup in [value.node() for value in last.inputs()]:
        container, key = lookup.inputs()
        lookup.output().replaceAllUsesWith(_tensor_of(container, key.toIValue()))
    torch._C._jit_pass_dce(module.graph)  # noqa: SLF001
    return module


def _dict_keys(value: Any) -> list[str]:  # noqa: ANN401
    """Return the keys of a dict of tensors that is constructed at once here, or in each branch; none if it is not."""
    if value.node().kind() == "prim::If":
        first, *others = (_dict_keys(part) for part in _branch_values(value))
        return first if all(first == keys for keys in others) else []  # outputs are compared in the order of the keys
    if value.node().kind() != "prim::DictConstruct" or any(use.user.kind() != "prim::Return" for use in value.uses()):
        return []
    operands = list(value.node().inputs())
    keys = list(dict.fromkeys(key.toIValue() for key in operands[::2]))
    is_plain = all(isinstance(key, str) and key.isascii() and key.isprintable() for key in keys)
    return keys if is_plain and all(str(item.type()) == "Tensor" for item in operands[1::2]) else []


def _branch_values(value: Any) -> list[Any]:  # noqa: ANN401
    """Return what becomes an output of an ``if``, in each branch."""
    index = [output.debugName() for output in value.node().outputs()].index(value.debugName())
    return [list(block.outputs())[index] for block in value.node().blocks()]


def _tensor_of(value: Any, key: str) -> Any:  # noqa: ANN401
    """Return the tensor of a key of a dict; one that is constructed in branches becomes an output of the branches."""
    node = value.node()
    if node.kind() != "prim::If":
        operands = list(node.inputs())
        return {name.toIValue(): item for name, item in zip(operands[::2], operands[1::2], strict=True)}[key]
    for block, part in zip(node.blocks(), _branch_values(value), strict=True):
        block.registerOutput(_tensor_of(part, key))
    output = node.addOutput()
    output.setType(torch._C.TensorType.get())  # noqa: SLF001
    return output


def _parameters(script: Any) -> dict[str, inspect.Parameter]:  # noqa: ANN401 - its schema is not typed
    """Return the parameters of a compiled forward, which cannot have ``*args``."""
    arguments = script.forward.schema.arguments[1:]
    return {
        argument.name: inspect.Parameter(
            argument.name,
            inspect.Parameter.KEYWORD_ONLY if argument.kwarg_only else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=argument.default_value if argument.has_default_value() else inspect.Parameter.empty,
        )
        for argument in arguments
    }

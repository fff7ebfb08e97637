"""``kind: torchscript``: an archive of ``torch.jit.save``, exported as it is."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

from repogen.artifacts.source import Script, SourceModel
from repogen.errors import SourceError
from repogen.source.common.formats import check_archive
from repogen.source.common.inputs import find_inputs
from repogen.source.torch.eager import TorchReference, examine
from repogen.source.torch.module import prepare

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.spec.models import ModelSpec
    from repogen.spec.sources import TorchScriptSource


def load_script(source: TorchScriptSource, model: ModelSpec, root: Path) -> SourceModel:
    """Load an archive; TorchScript's own reader runs no Python.

    Raises:
        SourceError: It is no such archive, or its inputs or outputs are not usable.
    """
    path = root / source.path
    check_archive(path, "torchscript")
    try:
        loaded = torch.jit.load(  # type: ignore[no-untyped-call] # as torch declares it
            str(path), map_location="cpu"
        )
    except Exception as error:
        raise SourceError(
            f"{path.name} cannot be read as a TorchScript archive: it is damaged, or of another PyTorch",
            "save it again: torch.jit.save(module, 'model.pt')",
            code="source.archive",
            where=source.path,
            details=str(error),
        ) from error
    return of_script(loaded, model, root)


def of_script(loaded: torch.jit.ScriptModule, model: ModelSpec, root: Path) -> SourceModel:
    """Make the source model of a TorchScript module.

    Raises:
        SourceError: Its inputs or outputs are not usable.
    """
    module, done = prepare(loaded, None)
    script: Any = module
    inputs = find_inputs(model, root, _parameters(script))
    examined = examine(script, inputs, model, root)
    return SourceModel(
        origin=Script(script, examined.select, examined.flat),
        signature=examined.signature,
        dims=inputs.dims,
        examples=inputs.examples,
        reference=TorchReference(examined.flat, examined.signature, root),
        notes=(*done, *examined.notes),
        precision=examined.precision,
    )


def _parameters(script: Any) -> dict[str, inspect.Parameter]:  # noqa: ANN401 - its schema is not typed
    """Return the parameters of a compiled forward; TorchScript knows no ``*args``."""
    arguments = script.forward.schema.arguments[1:]
    return {
        argument.name: inspect.Parameter(
            argument.name,
            inspect.Parameter.KEYWORD_ONLY if argument.kwarg_only else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=argument.default_value if argument.has_default_value() else inspect.Parameter.empty,
        )
        for argument in arguments
    }

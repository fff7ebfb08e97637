"""Loads the model of a spec entry with the loader of its kind."""

from __future__ import annotations

import pkgutil
import traceback
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import torch

from repogen.artifacts.source import Operators, SourceModel
from repogen.errors import RepogenError, SourceError, first_line
from repogen.source.common.callables import RAISED, import_object, user_error
from repogen.source.interface import SourceRequest

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.source.interface import BuiltStep, SourceLoader
    from repogen.spec.models import ExportSpec, ModelSpec
    from repogen.spec.sources import SourceOptions


def load_source(
    model: ModelSpec,
    root: Path,
    fetched: Path | None = None,
    steps: Mapping[str, BuiltStep] = MappingProxyType({}),
    work_dir: Path | None = None,
) -> SourceModel:
    """Load the model of a spec entry and determine its signature by running it.

    Args:
        model: The spec entry.
        root: Directory of the spec; relative paths start there.
        fetched: Directory of the files downloaded for the model; None if nothing was downloaded.
        steps: Built steps of an ensemble, by model name.
        work_dir: Directory for temporary files; None for the system's.

    Raises:
        SourceError: The source, its inputs or its outputs cannot be used.
    """
    # The fast path of nested tensors differs from every export on padded rows (measured with torch 2.3).
    torch.backends.mha.set_fastpath_enabled(False)
    torch.manual_seed(model.parity.seed)
    load = partial(load_source, root=root, steps=steps, work_dir=work_dir)
    source = _run_loader(SourceRequest(model.source, model, root, load, fetched, steps, work_dir))
    if not source.signature.inputs:
        raise SourceError(
            "the model has no inputs, so every request would get the same outputs",
            "an exporter may have turned the inputs into constants: export it again with its inputs",
            code="source.no-inputs",
        )
    return replace(source, operators=load_operators(model.export, root))


def _run_loader(request: SourceRequest[SourceOptions]) -> SourceModel:
    if type(request.options).__module__.startswith("repogen."):
        return _run_built_in(request)
    loader: SourceLoader = pkgutil.resolve_name(request.options.loader)
    name = f"plug-in {request.options.kind!r} ({request.options.loader})"
    try:
        source = cast("object", loader(request))
    except RepogenError:
        raise
    except RAISED as error:
        raise user_error(error, f"the source {name} failed", request.root) from error
    if not isinstance(source, SourceModel):
        raise SourceError(
            f"the source {name} returned a {type(source).__name__}, not a SourceModel",
            "fix or update the plug-in",
            code="source.return-type",
        )
    return source


def _run_built_in(request: SourceRequest[SourceOptions]) -> SourceModel:
    """Run a loader of repogen.

    Raises:
        SourceError: The model cannot be used, or a library that the loader needs is broken.
    """
    try:
        loader: SourceLoader = pkgutil.resolve_name(request.options.loader)
        return loader(request)
    except RepogenError:
        raise
    except (ImportError, RuntimeError) as error:  # transformers replaces what the import of its own modules raises
        cause = _chain(error)[-1]
        library = _importing_library(cause)
        if not library or isinstance(cause, ModuleNotFoundError):  # the worker names the extra of a missing module
            raise
        raise SourceError(
            f"{library} cannot be imported: {type(cause).__name__}: {first_line(cause)}",
            f"install a version of {library} that matches torch {torch.__version__}, or uninstall it",
            code="source.library",
            details="".join(traceback.format_exception(error)),
        ) from error


def _chain(error: BaseException) -> list[BaseException]:
    """Return an exception and those that caused it, the first one last."""
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    return chain


def _importing_library(error: BaseException) -> str:
    """Return the library whose own import raised an exception; empty if none did."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        package = frame.filename.rpartition("/site-packages/")[2].partition("/")[0]
        if frame.name == "<module>" and package != frame.filename:
            return package
    return ""


def load_operators(spec: ExportSpec, root: Path) -> Operators:
    """Import the operator tables that ``export:`` names: mappings, or callables that return one.

    Raises:
        SourceError: A table cannot be imported or is not a mapping, or a symbolic function has an invalid key.
    """
    translations = {} if spec.custom_translations is None else _operator_table(spec.custom_translations, root)
    symbolics = {} if spec.custom_symbolics is None else _operator_table(spec.custom_symbolics, root)
    for key in symbolics:
        if not (isinstance(key, str) and "::" in key):
            raise SourceError(
                f"{spec.custom_symbolics!r} has the key {key!r}",
                'name operators as TorchScript does: "domain::operator"',
                code="source.operators",
                where=spec.custom_symbolics or "",
            )
    return Operators(translations, symbolics)


def _operator_table(reference: str, root: Path) -> dict[Any, Any]:
    table = import_object(reference, root)
    if callable(table):
        try:
            table = table()
        except RAISED as error:
            raise user_error(error, f"{reference!r} failed", root) from error
    if not isinstance(table, Mapping):
        raise SourceError(
            f"{reference!r} is a {type(table).__name__}, not a mapping of operators",
            "provide a dict of operator -> function, or a callable that returns one",
            code="source.operators",
            where=reference,
        )
    return dict(table)

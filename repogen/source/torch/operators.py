"""The user's translations of operators that the exporters do not know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from repogen.artifacts.source import Operators
from repogen.errors import SourceError
from repogen.source.common.callables import RAISED, import_object, user_error

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.spec.models import ExportSpec


def load_operators(spec: ExportSpec, root: Path) -> Operators:
    """Import the tables that ``export:`` names: mappings, or callables that return one.

    Raises:
        SourceError: A table can't be imported, or is no mapping.
    """
    translations = {} if spec.custom_translations is None else _table(spec.custom_translations, root)
    symbolics = {} if spec.custom_symbolics is None else _table(spec.custom_symbolics, root)
    for key in symbolics:
        if not (isinstance(key, str) and "::" in key):
            raise SourceError(
                f"{spec.custom_symbolics!r} has the key {key!r}",
                'name operators as TorchScript does: "domain::operator"',
                code="source.operators",
                where=spec.custom_symbolics or "",
            )
    return Operators(translations, symbolics)


def _table(reference: str, root: Path) -> dict[Any, Any]:
    found = import_object(reference, root)
    if callable(found):
        try:
            found = found()
        except RAISED as error:
            raise user_error(error, f"{reference!r} failed", root) from error
    if not isinstance(found, Mapping):
        raise SourceError(
            f"{reference!r} is a {type(found).__name__}, not a mapping of operators",
            "give a dict of operator -> function, or a callable that returns one",
            code="source.operators",
            where=reference,
        )
    return dict(found)

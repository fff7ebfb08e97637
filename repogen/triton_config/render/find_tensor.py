"""Tensors that a spec names, looked up in the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from repogen.artifacts.tensors import TensorSpec


def found(specs: Iterable[TensorSpec], name: str, what: str, where: str) -> TensorSpec:
    """Return the graph's tensor of a name.

    Args:
        specs: The graph's inputs, or its outputs.
        name: The name.
        what: What the spec takes it for, for the message.
        where: The key path that names it.

    Raises:
        ConfigError: There is none; those that there are, are named.
    """
    by_name = {spec.name: spec for spec in specs}
    if name not in by_name:
        raise ConfigError(
            f"{what} {name!r} is not in the graph",
            f"the graph has {', '.join(map(repr, by_name)) or 'none'}",
            code="config.no-such-tensor",
            where=where,
        )
    return by_name[name]

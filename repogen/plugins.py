"""Extension points: built-in parts and other packages' parts are found in the same way, as entry points.

Each group of entry points has a Protocol, which the package of that subject defines:

====================  =============================================  ===============================
group                 an entry point is                              Protocol
====================  =============================================  ===============================
``repogen.sources``   a kind of ``source:`` in a spec                ``repogen.source.interface``
``repogen.exporters``  a value of ``export.exporter`` in a spec      ``repogen.export.interface``
``repogen.passes``    an optimization pass                           ``repogen.optimize.interface``
``repogen.servers``   a value of ``--server``                        ``repogen.serving.interface``
``repogen.gates``     a gate of a promotion                          ``repogen.registry.gates.interface``
``repogen.stores``    the scheme of a repository's URL               ``repogen.stores.interface``
``repogen.executors``  a value of ``--executor``                     ``repogen.executors.interface``
====================  =============================================  ===============================
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict

from repogen.errors import SpecError, first_line

if TYPE_CHECKING:
    from collections.abc import Iterable

Group: TypeAlias = Literal[
    "repogen.sources",
    "repogen.exporters",
    "repogen.passes",
    "repogen.servers",
    "repogen.gates",
    "repogen.stores",
    "repogen.executors",
]

DISTRIBUTION = "triton-repogen"

_Part = TypeVar("_Part")


class NoOptions(BaseModel):
    """The options of a plug-in that has none."""

    model_config = ConfigDict(extra="forbid")


@cache
def plugins(group: Group) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name; nothing is imported.

    Raises:
        SpecError: Two distributions register one name.
    """
    by_name: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        previous_entry = by_name.setdefault(entry.name, entry)
        if previous_entry.value != entry.value:
            packages = sorted({_package(previous_entry), _package(entry)})
            raise SpecError(
                f"two entry points of {group} are named {entry.name!r}: {previous_entry.value} and {entry.value}",
                f"uninstall one of {', '.join(packages)}",
                code="plugin.duplicate",
            )
    return by_name


def load_instance(group: Group, name: str, protocol: type[_Part]) -> _Part:
    """Return an instance of the class that an entry point refers to.

    Args:
        group: The group.
        name: A key of ``plugins(group)``.
        protocol: A runtime-checkable Protocol, which the class implements.

    Raises:
        SpecError: Importing the entry point failed, or it does not implement the Protocol.
    """
    plugin = load_plugin(group, name)
    instance = plugin() if isinstance(plugin, type) else plugin
    if isinstance(instance, protocol) and getattr(instance, "name", None) == name:
        return instance
    entry = plugins(group)[name]
    raise SpecError(
        f"plug-in {name!r} of {_package(entry)}: {entry.value} is not a {protocol.__name__} with the name {name!r}",
        f"implement {protocol.__module__}.{protocol.__name__}",
        code="plugin.interface",
    )


def load_plugin(group: Group, name: str) -> object:
    """Import and return what an entry point names.

    Args:
        group: The group.
        name: A key of ``plugins(group)``.

    Raises:
        SpecError: There is no such entry point, or importing it failed.
    """
    registered = plugins(group)
    if name not in registered:
        raise SpecError(
            f"{name!r} is not registered in {group}",
            f"registered names: {', '.join(sorted(registered)) or 'none'}",
            code="plugin.unknown",
        )
    entry = registered[name]
    try:
        return entry.load()
    except Exception as error:
        if _package(entry) == DISTRIBUTION:
            raise
        raise SpecError(
            f"plug-in {name!r} of {_package(entry)} failed to import: {type(error).__name__}: {first_line(error)}",
            f"fix or uninstall {_package(entry)}",
            code="plugin.import",
        ) from error


def is_built_in(group: Group, name: str) -> bool:
    """Return whether repogen itself registers a name of a group."""
    return name in plugins(group) and _package(plugins(group)[name]) == DISTRIBUTION


def plugin_distributions(group: Group, names: Iterable[str]) -> set[str]:
    """Return the distributions of other packages that register some of the names of a group."""
    entries = (plugins(group).get(name) for name in names)
    return {_name(entry.dist) for entry in entries if entry is not None and entry.dist is not None} - {DISTRIBUTION}


def _package(entry: EntryPoint) -> str:
    return _name(entry.dist) if entry.dist is not None else entry.module


@cache
def _name(distribution: Distribution) -> str:
    """Return the name of a distribution; cached, because its metadata is parsed and many models need it."""
    return distribution.name

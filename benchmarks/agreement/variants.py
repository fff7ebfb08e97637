"""All variants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agreement.backend import BACKEND
from agreement.bases import BASES
from agreement.core_basic import BASIC
from agreement.core_scheduling import SCHEDULING
from agreement.layout import layouts
from agreement.syntax import SYNTAX, encodings
from agreement.values import Variant

if TYPE_CHECKING:
    from agreement.swaps import Swaps
    from agreement.values import Group


def all_variants() -> list[Variant]:
    """Return the bases as they are and every variant, neighbors of different bases: each load is another model.

    Raises:
        ValueError: Two have one name.
    """
    plain = [Variant(f"{name}/as_it_is", base, "core", lambda _: None) for name, base in BASES.items()]
    tables: tuple[tuple[Group, list[Swaps]], ...] = (
        ("core", [*BASIC, *SCHEDULING]),
        ("backend", BACKEND),
        ("syntax", SYNTAX),
    )
    swapped = [variant for group, swaps in tables for each in swaps for variant in each.variants(group)]
    found = [*plain, *swapped, *encodings(), *layouts()]
    names = [variant.name for variant in found]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"two variants of one name: {', '.join(sorted(twice))}")
    return _mixed(found)


def _mixed(variants: list[Variant]) -> list[Variant]:
    by_base: dict[str, list[Variant]] = {}
    for variant in variants:
        by_base.setdefault(variant.base.name, []).append(variant)
    places = {v.name: i / len(group) for group in by_base.values() for i, v in enumerate(group)}
    return sorted(variants, key=lambda variant: places[variant.name])

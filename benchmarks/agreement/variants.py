"""Collects all variants."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from agreement.backend import BACKEND
from agreement.bases import BASES
from agreement.core_basic import BASIC
from agreement.core_scheduling import SCHEDULING
from agreement.layout import layouts
from agreement.syntax import SYNTAX, encodings
from agreement.values import Variant

if TYPE_CHECKING:
    from agreement.replacements import Replacements
    from agreement.values import Group


def all_variants() -> list[Variant]:
    """Return the unchanged bases and all variants, in an order that alternates between bases.

    Raises:
        ValueError: Two variants have the same name.
    """
    plain = [Variant(f"{name}/as_it_is", base, "core", lambda _: None) for name, base in BASES.items()]
    tables: tuple[tuple[Group, list[Replacements]], ...] = (
        ("core", [*BASIC, *SCHEDULING]),
        ("backend", BACKEND),
        ("syntax", SYNTAX),
    )
    replaced = [variant for group, rows in tables for row in rows for variant in row.variants(group)]
    variants = [*plain, *replaced, *encodings(), *layouts()]
    names = [variant.name for variant in variants]
    duplicates = {name for name, count in Counter(names).items() if count > 1}
    if duplicates:
        raise ValueError(f"several variants have the same name: {', '.join(sorted(duplicates))}")
    return _interleaved(variants)


def _interleaved(variants: list[Variant]) -> list[Variant]:
    """Return variants in an order in which neighbors have different bases, so that few loads use the same model."""
    by_base: dict[str, list[Variant]] = {}
    for variant in variants:
        by_base.setdefault(variant.base.name, []).append(variant)
    positions = {v.name: i / len(group) for group in by_base.values() for i, v in enumerate(group)}
    return sorted(variants, key=lambda variant: positions[variant.name])

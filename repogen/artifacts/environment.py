"""The result of one check of this machine, as ``repogen doctor`` prints it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One check of this machine.

    Attributes:
        name: Subject of the check, for example ``glibc``.
        found: Version or state, and the required one where they differ.
        ok: Whether repogen can work with it.
        optional: Whether repogen works without it; ``ok`` is then true even if it is missing.
        remedy: The command or advice that fixes it; empty when nothing needs fixing.
        group: What it belongs to: ``repogen``, an extra, or ``servers``.
    """

    name: str
    found: str
    ok: bool
    optional: bool = False
    remedy: str = ""
    group: str = ""

"""What ``repogen doctor`` found out about this machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What.
        found: Version or state.
        ok: Whether repogen can do its job with it.
        optional: Whether repogen does without; ``ok`` is then true although it is missing.
        remedy: The command that mends it; empty when nothing needs mending.
    """

    name: str
    found: str
    ok: bool
    optional: bool = False
    remedy: str = ""

"""Changes of a config's text, as tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agreement.bases import BASES
from agreement.values import Variant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from agreement.values import Group


@dataclass(frozen=True)
class Swaps:
    """Variants of one base that differ in what stands in one place of the config.

    Attributes:
        base: Name of the base.
        old: Text that stands in its config once; empty adds a line at the end.
        new: What stands there instead, by the variant's name without the base's.
    """

    base: str
    old: str
    new: Mapping[str, str]

    def variants(self, group: Group) -> Iterator[Variant]:
        """Yield them."""
        for name, text in self.new.items():
            yield Variant(f"{self.base}/{name}", BASES[self.base], group, _swapped(self.base, self.old, text))


def adding(old: str, more: Mapping[str, str]) -> dict[str, str]:
    """Return what puts each text behind ``old``."""
    return {name: old + text for name, text in more.items()}


def _swapped(model: str, old: str, new: str) -> Callable[[Path], None]:
    def change(repository: Path) -> None:
        path = repository / model / "config.pbtxt"
        text = path.read_text(encoding="utf-8")
        if not old:
            path.write_text(f"{text}{new}\n", encoding="utf-8")
            return
        if text.count(old) != 1:
            raise ValueError(f"{model}: {old!r} stands {text.count(old)} times in\n{text}")
        path.write_text(text.replace(old, new), encoding="utf-8")

    return change

"""Changes of the text of a config, as tables."""

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
class Replacements:
    """Variants of one base, each with a replacement for the same text of its config.

    Attributes:
        base: Name of the base.
        old: Text that occurs once in its config; an empty text adds a line at the end.
        new: The replacements, by the variant's name without the base's.
    """

    base: str
    old: str
    new: Mapping[str, str]

    def variants(self, group: Group) -> Iterator[Variant]:
        """Yield the variants."""
        for name, text in self.new.items():
            yield Variant(f"{self.base}/{name}", BASES[self.base], group, _replace(self.base, self.old, text))


def appended(old: str, texts: Mapping[str, str]) -> dict[str, str]:
    """Return replacements that append each text to ``old``."""
    return {name: old + text for name, text in texts.items()}


def _replace(model: str, old: str, new: str) -> Callable[[Path], None]:
    def change(repository: Path) -> None:
        path = repository / model / "config.pbtxt"
        text = path.read_text(encoding="utf-8")
        if not old:
            path.write_text(f"{text}{new}\n", encoding="utf-8")
            return
        if text.count(old) != 1:
            raise ValueError(f"{model}: {old!r} occurs {text.count(old)} times in\n{text}")
        path.write_text(text.replace(old, new), encoding="utf-8")

    return change

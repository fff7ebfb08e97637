"""Where steps tell how far they are; the console implements it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """A sink for progress; calls may come from several threads."""

    def step(self, model: str, step: str) -> None:
        """``model`` (empty for the whole build) entered ``step``."""

    def note(self, model: str, text: str) -> None:
        """Something a person should read about ``model``."""

    def download(self, what: str, done: int, total: int) -> None:
        """``done`` of ``total`` bytes of ``what`` arrived."""


class Silent:
    """A Progress that says nothing."""

    def step(self, model: str, step: str) -> None:
        """Say nothing."""

    def note(self, model: str, text: str) -> None:
        """Say nothing."""

    def download(self, what: str, done: int, total: int) -> None:
        """Say nothing."""

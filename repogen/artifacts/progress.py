"""The Protocol through which steps report their progress; ``repogen.reporting`` implements it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives progress events; calls may come from several threads."""

    def step(self, model: str, step: str) -> None:
        """``model`` entered ``step``; ``model`` is empty for a step of the whole build."""

    def note(self, model: str, text: str) -> None:
        """Report the note ``text`` about ``model`` to the user."""

    def download(self, what: str, done: int, total: int) -> None:
        """``done`` of ``total`` bytes of ``what`` were downloaded."""


class Silent:
    """A Progress that ignores all events."""

    def step(self, model: str, step: str) -> None:
        """Ignore the event."""

    def note(self, model: str, text: str) -> None:
        """Ignore the event."""

    def download(self, what: str, done: int, total: int) -> None:
        """Ignore the event."""

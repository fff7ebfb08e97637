"""Which fields of Triton's ModelConfig each release knows."""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources

from repogen.targets import targets


@cache
def _newer() -> dict[tuple[str, str], tuple[str, str]]:
    """Return the fields that are not in every release: (message, field) -> (first release, last release or "").

    Source: the protobuf classes of tritonclient's wheels; ``tools/model_config_fields.py`` writes the file.
    """
    text = (resources.files("repogen") / "data" / "model_config_fields.csv").read_text(encoding="utf-8")
    oldest = next(iter(targets()))
    return {
        (row["message"], row["field"]): (row["since"], row["until"])
        for row in csv.DictReader(text.splitlines())
        if row["since"] != oldest or row["until"]
    }


def span_of(message: str, field: str) -> tuple[str, str]:
    """Return the first release that knows a field, and the last; "" where there is no end.

    Args:
        message: Message or enum without the package, for example ``ModelDynamicBatching``.
        field: Field or enum value.
    """
    return _newer().get((message, field), ("", ""))


def knows(release: str, message: str, field: str) -> bool:
    """Whether ``release`` knows a field; one that no release has is taken as known."""
    order = list(targets())
    since, until = span_of(message, field)
    at = order.index(release)
    return (not since or order.index(since) <= at) and (not until or at <= order.index(until))

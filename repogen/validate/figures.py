"""What the user's code returns for a model: one figure, or several by name."""

from __future__ import annotations

import math


def figures_of(returned: object) -> dict[str, float]:
    """Return figures by name; one number has the name "".

    >>> figures_of({"accuracy": 0.5}), figures_of(1)
    ({'accuracy': 0.5}, {'': 1.0})

    Raises:
        ValueError: It is neither a finite number nor a dict of such numbers; the message says what it is.
    """
    items = returned.items() if isinstance(returned, dict) else [("", returned)]
    figures = {str(name): _number(value) for name, value in items}
    invalid = [f"{name or 'it'} is {value!r:.60}" for name, value in items if not math.isfinite(_number(value))]
    if invalid or not figures:
        raise ValueError("; ".join(invalid) or "an empty dict")
    return figures


def select_figure(figures: dict[str, float], metric: str | None, option: str) -> tuple[float | None, str]:
    """Return the figure that a limit applies to; or None, and the reason.

    Args:
        figures: The figures by name.
        metric: The name that the spec selects; None for the only one.
        option: The key of the spec that selects it, for the reason.
    """
    if metric is not None and metric in figures:
        return figures[metric], ""
    if metric is None and len(figures) == 1:
        return next(iter(figures.values())), ""
    names = ", ".join(name or "one number" for name in figures) or "nothing"
    advice = f"{metric!r} is not among them" if metric is not None else f"select one with {option}"
    return None, f"the callable returned {names}: {advice}"


def _number(value: object) -> float:
    """Return a number, NumPy's included, as a float; NaN for anything else."""
    try:
        return float(value) if not isinstance(value, str | bytes) else math.nan  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return math.nan

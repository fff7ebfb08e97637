"""Shapes of which some dims are variable, compared by what they hold."""

from __future__ import annotations

from math import prod


def same_elements(dims: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether two shapes hold as many elements, between their variable dims, too.

    >>> same_elements((2, -1, 3), (2, -1, 3)), same_elements((6, -1), (2, 3, -1)), same_elements((2, -1), (-1, 2))
    (True, True, False)
    """
    return _parts(dims) == _parts(shape)


def _parts(dims: tuple[int, ...]) -> list[int]:
    parts: list[list[int]] = [[]]
    for dim in dims:
        if dim == -1:
            parts.append([])
        else:
            parts[-1].append(dim)
    return [prod(part) for part in parts]

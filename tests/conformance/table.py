"""The zoo's table, for a terminal and for the docs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conformance.run import Row

_COLUMNS = ("case", "true", "ours", "right", "rung", "batch", "max_abs_diff", "s", "one exporter", "both")
_WIDTHS = (26, 32, 32, 5, 17, 5, 12, 5, 12, 8)
_LONGEST = 170


def _cells(row: Row) -> tuple[str, ...]:
    ours = row.ours
    apart = "" if ours.max_abs_diff is None else f"{ours.max_abs_diff:.1e}"
    batch = "" if ours.max_batch_size is None else str(ours.max_batch_size)
    named = (row.case.name, row.case.expected, ours.verdict, "yes" if row.right else "NO")
    return (*named, ours.rung, batch, apart, f"{ours.seconds:.0f}", row.one, row.both)


def plain(rows: Sequence[Row], *, header: bool) -> str:
    """Return lines of fixed columns, so that a table can grow while it is printed; a wrong verdict says why."""
    lines = [_line(_COLUMNS)] if header else []
    for row in rows:
        lines.append(_line(_cells(row)))
        if not row.right:
            reason = " ".join(row.ours.why.split())
            lines.append(f"    ^ {reason[:_LONGEST]}")
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return " ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()


def summary(rows: Sequence[Row], seconds: float) -> str:
    """Return how many of each one's verdicts are right, and ours that are not."""
    wrong = [row.case.name for row in rows if not row.right]
    counts = [f"ours {_share(len(rows) - len(wrong), len(rows))}"]
    if any(row.one for row in rows):
        one = sum(row.case.is_right_without_reason(row.one) for row in rows)
        both = sum(row.case.is_right_without_reason(row.both) for row in rows)
        counts += [f"plain script, one exporter {_share(one, len(rows))}", f"both {_share(both, len(rows))}"]
    lines = [f"right: {'; '.join(counts)}; {seconds:.0f} s"]
    if wrong:
        lines.append(f"wrong: {', '.join(wrong)}")
    return "\n".join(lines)


def _share(right: int, total: int) -> str:
    return f"{right}/{total} ({100 * right / max(total, 1):.0f} %)"


def markdown(rows: Sequence[Row]) -> str:
    """Return the table as Markdown, with the reason of each true verdict; a plain script's wrong ones are bold."""
    columns = ("case", "true verdict, and why", "ours", "rung", "batch", "max_abs_diff", "s", "one exporter", "both")
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        name, expected, verdict, _, *others = _cells(row)
        true = f"{expected.replace('|', ' or ')}: {row.case.why}"
        ours = verdict if row.right else f"**{verdict}**"
        plain_ones = [one if row.case.is_right_without_reason(one) else f"**{one}**" for one in others[-2:] if one]
        cells = (name, true.replace("|", "\\|"), ours, *others[:-2], *(plain_ones or ("", "")))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"

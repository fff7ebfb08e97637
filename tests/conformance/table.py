"""The table of results, for a terminal and for the docs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conformance.run import Row

_COLUMNS = ("case", "expected", "repogen", "correct", "exporter", "batch", "max_abs_diff", "s", "one exporter", "both")
_WIDTHS = (26, 32, 32, 7, 17, 5, 12, 5, 12, 8)
_MAX_REASON_LENGTH = 170


def _cells(row: Row) -> tuple[str, ...]:
    outcome = row.outcome
    difference = "" if outcome.max_abs_diff is None else f"{outcome.max_abs_diff:.1e}"
    batch = "" if outcome.max_batch_size is None else str(outcome.max_batch_size)
    verdicts = (row.case.name, row.case.expected, outcome.verdict, "yes" if row.correct else "NO")
    return (*verdicts, outcome.exporter, batch, difference, f"{outcome.seconds:.0f}", row.one, row.both)


def plain(rows: Sequence[Row], *, header: bool) -> str:
    """Return lines with fixed columns, so that the table can be printed in parts; a wrong verdict has its reason."""
    lines = [_line(_COLUMNS)] if header else []
    for row in rows:
        lines.append(_line(_cells(row)))
        if not row.correct:
            reason = " ".join(row.outcome.why.split())
            lines.append(f"    ^ {reason[:_MAX_REASON_LENGTH]}")
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return " ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()


def summary(rows: Sequence[Row], seconds: float) -> str:
    """Return the number of correct verdicts of repogen and of the script, and the cases that repogen got wrong."""
    wrong = [row.case.name for row in rows if not row.correct]
    counts = [f"repogen {_share(len(rows) - len(wrong), len(rows))}"]
    if any(row.one for row in rows):
        one = sum(row.case.is_correct_without_code(row.one) for row in rows)
        both = sum(row.case.is_correct_without_code(row.both) for row in rows)
        counts += [f"plain script, one exporter {_share(one, len(rows))}", f"both {_share(both, len(rows))}"]
    lines = [f"correct: {'; '.join(counts)}; {seconds:.0f} s"]
    if wrong:
        lines.append(f"wrong: {', '.join(wrong)}")
    return "\n".join(lines)


def _share(correct: int, total: int) -> str:
    return f"{correct}/{total} ({100 * correct / max(total, 1):.0f}%)"


def markdown(rows: Sequence[Row]) -> str:
    """Return the table as Markdown, with the reason of each correct verdict; wrong verdicts are bold."""
    columns = (
        "case",
        "correct verdict and reason",
        "repogen",
        "exporter",
        "batch",
        "max_abs_diff",
        "s",
        "one exporter",
        "both",
    )
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        name, expected, verdict, _, *others = _cells(row)
        reason = f"{expected.replace('|', ' or ')}: {row.case.why}"
        repogen = verdict if row.correct else f"**{verdict}**"
        scripts = [one if row.case.is_correct_without_code(one) else f"**{one}**" for one in others[-2:] if one]
        cells = (name, reason.replace("|", "\\|"), repogen, *others[:-2], *(scripts or ("", "")))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"

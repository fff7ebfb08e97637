"""Gates of a promotion: flags and spec say which, paired rounds measure, judges hold figures against limits."""

from repogen.gates.flags import GRAMMAR, declared_gates, with_flags
from repogen.gates.judge import CANDIDATE, CHAMPION, judge, passed
from repogen.gates.ledger import OUTSIDE, PROMOTE, ROLLBACK, before, periods
from repogen.gates.paired import Schedule, alternate

__all__ = [
    "CANDIDATE",
    "CHAMPION",
    "GRAMMAR",
    "OUTSIDE",
    "PROMOTE",
    "ROLLBACK",
    "Schedule",
    "alternate",
    "before",
    "declared_gates",
    "judge",
    "passed",
    "periods",
    "with_flags",
]

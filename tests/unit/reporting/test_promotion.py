"""The output of `repogen promote` and `repogen history`."""

from __future__ import annotations

import json

from repogen.artifacts.promotion import GateResult, History, Outcome, Period, PromotionReport, Verdict
from repogen.artifacts.registry import AliasMove
from repogen.reporting.json import as_dict
from repogen.reporting.registry_text import history_text, promotion_text

GATES = (
    GateResult("smoke", "14/14 checks", "all", Verdict.PASSED),
    GateResult(
        "latency.max_ratio", "1.250 (1.200 to 1.300), p50 2.00 ms, champion 1.60 ms", "<= 1.1", Verdict.FAILED, "", 1.25
    ),
    GateResult("holdout.min", "-", ">= 0.9", Verdict.FAILED, "gates.py:3: no such label"),
)
REFUSED = PromotionReport(
    "digits", "champion", 3, 4, Outcome.REFUSED, GATES, server="Triton 2.51.0 (embedded), ORT", indicative=True
)
TEXT = """\
gate               measured                                               limit   verdict
-----------------  -----------------------------------------------------  ------  -------
smoke              14/14 checks                                           all     passed
latency.max_ratio  1.250 (1.200 to 1.300), p50 2.00 ms, champion 1.60 ms  <= 1.1  FAILED
holdout.min        -                                                      >= 0.9  FAILED

notes:
  holdout.min: gates.py:3: no such label
  times are only indicative: the embedded Triton runs ONNX Runtime in Python; for production times, measure with \
NVIDIA's container (--server docker)

measured on Triton 2.51.0 (embedded), ORT

not promoted: version 4 failed 2 gates; champion of digits still points to version 3"""
HISTORY = History(
    "digits",
    (
        Period("champion", 3, "", "2026-01-01T00:00:00+00:00", present=False, by="", why="outside"),
        Period(
            "champion", 4, "2026-01-01T00:00:00+00:00", "", present=False, by="ann", why="promote",
            figures={"smoke": "14/14 checks [all]",
                     "latency.max_ratio": "1.050 (1.0 to 1.1), p50 2 ms, champion 2 ms [<= 1.1]",
                     "size.max_mb": "3 MB", "server": "Triton"},
            values={"latency.max_ratio": 1.05, "size.max_mb": 3.0},
        ),
        Period("champion", None, "", "", present=True, by="", why="outside"),
    ),
)  # fmt: skip
TABLE = """\
alias     version  from                       until                      by       why      figures
--------  -------  -------------------------  -------------------------  -------  -------  --------------------\
-----------------------
champion  3        unknown                    2026-01-01T00:00:00+00:00  unknown  outside  -
champion  4        2026-01-01T00:00:00+00:00  unknown                    ann      promote  smoke 14/14 checks, \
latency.max_ratio 1.050
champion  none     unknown                    now                        unknown  outside  -

champion was deleted outside of repogen: when, by whom and why are not recorded"""


def test_rejection_text() -> None:
    """A rejected promotion is a table, notes, and a final sentence."""
    assert promotion_text(REFUSED) == TEXT


def test_outcome_sentences() -> None:
    """Each sentence names the move, or says that nothing moved."""
    move = AliasMove("champion", None, 4, "ann", "2026-01-01T00:00:00+00:00", "promote", {})
    sentences = [
        promotion_text(PromotionReport("m", "champion", old, 4, outcome, move=moved))
        for old, outcome, moved in (
            (None, Outcome.PROMOTED, move),
            (5, Outcome.ROLLED_BACK, move),
            (4, Outcome.ALREADY, None),
            (3, Outcome.WOULD_MOVE, None),
            (None, Outcome.REFUSED, None),
        )
    ]
    assert sentences == [
        "champion of m: version 4 (promoted by ann at 2026-01-01T00:00:00+00:00)",
        "champion of m: version 5 -> 4 (rolled back by ann at 2026-01-01T00:00:00+00:00)",
        "champion of m already points to version 4; nothing was measured or moved",
        "champion of m would move: version 3 -> 4; nothing was moved",
        "not promoted: version 4 failed 0 gates; champion of m is still unset",
    ]


def test_promotion_json_has_no_nan() -> None:
    """Infinities and NaN are written as null."""
    infinite = GateResult("parity.max_abs_diff", "inf", "<= 1", Verdict.FAILED, "", float("inf"))
    document = json.loads(json.dumps(as_dict(PromotionReport("m", "a", 3, 4, Outcome.REFUSED, (*GATES, infinite)))))
    assert [gate["value"] for gate in document["gates"]] == [None, 1.25, None, None]
    assert (document["outcome"], document["server"], document["move"]) == ("refused", None, None)


def test_history_table() -> None:
    """Unrecorded values are unknown; figures without a limit are only in the JSON."""
    assert history_text(HISTORY) == TABLE


def test_history_json() -> None:
    """Unknown times are null."""
    first = json.loads(json.dumps(as_dict(HISTORY)))["periods"][0]
    assert (first["since"], first["until"], first["why"]) == (None, "2026-01-01T00:00:00+00:00", "outside")

"""The holdout gate: the user's code, in a process of its own, judges what a running Triton answers."""

from repogen.holdout.job import HoldoutJob
from repogen.holdout.process import run_holdout

__all__ = ["HoldoutJob", "run_holdout"]

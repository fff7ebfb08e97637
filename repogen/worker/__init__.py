"""Builds one model in a process of its own: time and memory limits, and a crash becomes an error value."""

from repogen.worker.extras import require_extras
from repogen.worker.job import Job, Outcome
from repogen.worker.process import run_worker

__all__ = ["Job", "Outcome", "require_extras", "run_worker"]

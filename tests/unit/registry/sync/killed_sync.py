"""A program that syncs from a pickled registry and kills itself with SIGKILL at the k-th filesystem operation."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from repogen.artifacts.progress import Silent
from repogen.artifacts.sync import SyncOptions
from repogen.registry.sync.sync import sync
from tests.unit.repository.publish.killed_publish import Killed

if __name__ == "__main__":
    registry = pickle.loads(Path(sys.argv[1]).read_bytes())  # noqa: S301 - written by the test
    options = SyncOptions("champion", prune="prune" in sys.argv)
    sync(registry, Path(sys.argv[2]), options, Silent(), Killed(int(sys.argv[3])))

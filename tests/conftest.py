"""Settings for all tests: their order, no time limits, and no results of other tests or builds."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from repogen.build.cache import SIZE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

settings.register_profile("repogen", deadline=None)  # no test depends on the speed of the machine
settings.load_profile("repogen")
os.environ[SIZE_VARIABLE] = "0"  # also for the processes that tests start
# Before PyTorch is imported: with three workers on two cores, threads that spin while they wait use up the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest; ``--no-loadscope-reorder`` keeps it so."""
    items.sort(key=lambda item: item.get_closest_marker("first") is None)


@pytest.fixture(autouse=True, scope="module")
def _mlflow_servers() -> Iterator[None]:
    """Restore MLflow's variables and servers, so that a test does not use the server of another file's tests."""
    before = {name: value for name, value in os.environ.items() if name.startswith("MLFLOW_")}
    yield
    mlflow: Any = sys.modules.get("mlflow")
    if mlflow is not None:
        mlflow.set_tracking_uri(None)
        mlflow.set_registry_uri(None)
    for name in [name for name in os.environ if name.startswith("MLFLOW_")]:
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let child processes react to SIGINT and SIGHUP, also if a shell or nohup started the tests with both ignored."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)

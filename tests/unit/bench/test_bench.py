"""The order of a benchmark: what cannot be measured is reported before anything is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.progress import Silent
from repogen.bench import machine
from repogen.bench.bench import BenchRequest, bench
from repogen.errors import SpecError
from tests.support.scaled_models import Scaled, publish_scaled

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("server", "code"), [("foo", "server.kind"), ("remote:foo", "server.options")])
def test_wrong_server_has_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str, code: str) -> None:
    """There is no measurement to describe."""
    monkeypatch.setattr(machine, "_SECONDS", 0.01)
    publish_scaled(tmp_path / "repository", "m", Scaled(1.0))
    with pytest.raises(SpecError) as caught:
        bench(BenchRequest(tmp_path / "repository", server=server), Silent())
    assert (caught.value.code, caught.value.exit_code) == (code, 2)

"""What a deploy reads of a server."""

from __future__ import annotations

from itertools import count
from unittest.mock import Mock

import pytest

from repogen.deploy import live_server
from repogen.deploy.live_server import LiveServer
from repogen.errors import SmokeError
from repogen.smoke.inference import Limits, RefusedError


def test_state_is_read_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server can reject each request just before its timeout."""
    client = Mock()
    client.index.side_effect = RefusedError("NOT_FOUND", "x")
    monkeypatch.setattr(live_server, "time", Mock(monotonic=Mock(side_effect=count(step=2.0))))
    with pytest.raises(SmokeError):
        LiveServer("host:8001", Mock(), client, Limits()).snapshot("m")
    assert client.index.call_count == 3

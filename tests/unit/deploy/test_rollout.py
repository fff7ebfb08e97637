"""The restore of a group, at an interrupt."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import MagicMock

import pytest

from repogen.artifacts.progress import Silent
from repogen.deploy.deploy import _Run
from repogen.deploy.rollout import Rollout
from repogen.errors import SmokeError

if TYPE_CHECKING:
    from collections.abc import Sequence


def test_interrupt_during_a_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed group is restored completely, and the report has the error of the model."""
    calls: list[int] = []

    def go_back(_: Rollout, attempts: Sequence[object]) -> list[object]:
        calls.append(len(attempts))
        if len(calls) == 1:
            raise KeyboardInterrupt
        return list(attempts)

    def fail(*_: object) -> None:
        raise SmokeError("version 2 failed")

    monkeypatch.setattr(Rollout, "_go_back", go_back)
    monkeypatch.setattr(Rollout, "_deploy_model", fail)
    rollout = Rollout(MagicMock(), Path(), 1.0, Silent(), MagicMock())
    result = rollout.deploy((MagicMock(selected=True),))
    assert calls == [1, 1]
    assert (result.complete, result.interrupted) == (False, True)
    assert [attempt.error.message for attempt in result.models] == ["version 2 failed"]  # type: ignore[union-attr] # set


def test_texts_about_a_server_that_rejects_requests() -> None:
    """It polls or is in mode none; `repogen rollback` helps only if it serves the new version."""
    server = MagicMock(address="a:8001")
    server.unload.return_value = False
    rollout = Rollout(server, Path("r"), 1.0, Silent(), MagicMock())
    attempt = MagicMock()
    hint = rollout._hint(attempt)  # noqa: SLF001 - a real server in mode none is in the integration tests
    assert "to serve the earlier version again, run `repogen rollback" in hint
    error = rollout._not_polled_error("m", (2,), (1,))  # noqa: SLF001 - the same
    attempt.error = error.record
    assert rollout._hint(attempt) == "nothing was changed on the server"  # noqa: SLF001 - the same
    assert "run `repogen deploy` with a --timeout" in error.hint
    assert "start it with --model-control-mode=explicit or `repogen serve --poll`" in error.hint
    assert rollout.unload("m").note.startswith("the server is in mode poll or none")


def test_text_about_a_server_without_the_model() -> None:
    """Its repository may have the model by now: in mode none, a server reads it only when it starts."""
    model = MagicMock(selected=True)
    model.name = "rec"
    server = MagicMock(address="a:8001")
    server.models.return_value = frozenset({"digits"})
    with pytest.raises(SmokeError, match="a:8001: the server's repository has no model rec; it has digits") as caught:
        _Run._require_models(MagicMock(groups=((model,),), repository=Path("live")), server)  # noqa: SLF001 - as above
    assert (
        "a server in mode none, such as `repogen serve` without --poll, reads its repository only when it starts"
        in (caught.value.hint)
    )

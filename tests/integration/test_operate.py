"""A real Triton serves what `repogen rollback` holds, and answers every request while that changes."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from tritonclient.grpc import InferenceServerClient

import repogen
from repogen.artifacts.progress import Silent
from repogen.serving import commands as live
from tests.integration.test_sync import adds, output, wait_for
from tests.support.published import Publisher

if TYPE_CHECKING:
    from pathlib import Path


def test_rollback_is_served(tmp_path: Path) -> None:
    """A server that polls follows a rollback, a publish under the hold, and the release; a new one serves the hold."""
    publisher = Publisher(tmp_path / "repository")
    for number, batch in ((1, 8), (2, 0)):  # under one config.pbtxt, each would make the other unservable
        publisher.publish("m", adds(number), batch=batch)
    with (
        live.serve(publisher.repository, "embedded", poll=True, progress=Silent()) as triton,
        closing(InferenceServerClient(triton.endpoint.grpc)) as client,
    ):
        assert output(client, "m") == 2
        assert repogen.rollback("m", repository=publisher.repository).after == (1,)
        assert wait_for(lambda: output(client, "m"), 1)
        publisher.publish("m", adds(3), batch=0)
        assert output(client, "m") == 1
        repogen.rollback("m", repository=publisher.repository, release=True)
        assert wait_for(lambda: output(client, "m"), 3)
    repogen.rollback("m", 2, repository=publisher.repository)
    assert [finding for finding in repogen.check(publisher.repository) if finding.severity == "error"] == []
    with (
        live.serve(publisher.repository, "embedded", poll=False, progress=Silent()) as triton,
        closing(InferenceServerClient(triton.endpoint.grpc)) as client,
    ):
        assert output(client, "m") == 2


def test_published_copy_is_served(tmp_path: Path) -> None:
    """A copy of the version that one repository serves is served by a server on another, after a prune."""
    source, target = Publisher(tmp_path / "source"), Publisher(tmp_path / "target")
    for number in (1, 2):
        source.publish("m", adds(number))
    for number in (3, 4, 5):
        target.publish("m", adds(number))
    with (
        live.serve(target.repository, "embedded", poll=True, progress=Silent()) as triton,
        closing(InferenceServerClient(triton.endpoint.grpc)) as client,
    ):
        assert output(client, "m") == 5
        assert len(repogen.prune(keep=1, repository=target.repository).deleted) == 2
        assert repogen.publish("m", source=source.repository, target=target.repository).versions[0].number == 4
        assert wait_for(lambda: output(client, "m"), 2)

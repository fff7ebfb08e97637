"""The shipped wheel lock."""

from __future__ import annotations

import pytest

from repogen.artifacts.progress import Silent
from repogen.errors import ServerError
from repogen.serving.embedded import EmbeddedTriton
from repogen.serving.wheels import shipped_lock
from repogen.targets import targets

NEVER_PUBLISHED = {"1.17.2"}


def test_lock_covers_every_release_with_a_published_onnx_runtime() -> None:
    """Every release of the table can run embedded except 24.03, whose ONNX Runtime 1.17.2 has no wheel."""
    lock = shipped_lock()

    versions = {version for wheels in lock.onnxruntime.values() for version in wheels}

    assert {target.onnxruntime for target in targets().values()} - versions == NEVER_PUBLISHED


def test_every_wheel_has_a_full_digest() -> None:
    """Each sha256 has 64 hex digits."""
    lock = shipped_lock()
    wheels = [lock.tritonserver.wheel, *lock.numpy.values()]
    wheels += [wheel for each in lock.onnxruntime.values() for wheel in each.values()]

    assert [wheel.file for wheel in wheels if len(bytes.fromhex(wheel.sha256)) != 32] == []


def test_every_wheel_has_its_size() -> None:
    """Progress bars show it."""
    lock = shipped_lock()
    wheels = [lock.tritonserver.wheel, *lock.numpy.values()]
    wheels += [wheel for each in lock.onnxruntime.values() for wheel in each.values()]

    assert [wheel.file for wheel in wheels if wheel.size < 2**20] == []


def test_numpy_stays_below_2() -> None:
    """With NumPy 2 the stub returns empty outputs."""
    assert {wheel.requirement for wheel in shipped_lock().numpy.values()} == {"numpy==1.26.4"}


def test_tags_are_those_of_published_wheels() -> None:
    """ONNX Runtime 1.28 has no wheel for Python 3.10, and 1.16 has none for 3.12."""
    lock = shipped_lock()

    assert (lock.tags_for("1.28.0"), lock.tags_for("1.16.3")) == (("cp311", "cp312"), ("cp310", "cp311"))


def test_version_without_a_wheel_is_an_error() -> None:
    """The message names the version, and the hint the alternatives."""
    with pytest.raises(ServerError, match=r"ONNX Runtime 1\.17\.2 was never published") as caught:
        shipped_lock().tags_for("1.17.2")

    assert "another --server, such as docker" in caught.value.hint


def test_release_without_a_wheel_has_the_same_code() -> None:
    """And not that of a machine that cannot run the server."""
    with pytest.raises(ServerError, match="never published") as caught:
        EmbeddedTriton(targets()["24.03"], Silent()).preflight()
    assert caught.value.code == "server.no-wheel"

"""The shipped lock, and what is read from it."""

from __future__ import annotations

import pytest

from repogen.errors import ServerError
from repogen.serving import wheel_lock as lock
from repogen.targets import targets

NEVER_PUBLISHED = {"1.17.2"}


def test_the_lock_covers_every_release_whose_onnx_runtime_was_published() -> None:
    """Every release of the table but 24.03 (ONNX Runtime 1.17.2 has no wheel) can run embedded."""
    locked = lock.shipped()

    known = {version for wheels in locked.onnxruntime.values() for version in wheels}

    assert {target.onnxruntime for target in targets().values()} - known == NEVER_PUBLISHED


def test_every_wheel_is_pinned_by_a_whole_digest() -> None:
    """64 hex digits each, and file names that say project and version."""
    locked = lock.shipped()
    wheels = [locked.tritonserver, *locked.numpy.values()]
    wheels += [wheel for each in locked.onnxruntime.values() for wheel in each.values()]

    assert [wheel.file for wheel in wheels if len(bytes.fromhex(wheel.sha256)) != 32] == []


def test_numpy_stays_below_2() -> None:
    """With NumPy 2 the stub gives empty outputs."""
    assert {wheel.requirement for wheel in lock.shipped().numpy.values()} == {"numpy==1.26.4"}


def test_tags_are_those_with_a_wheel() -> None:
    """ONNX Runtime 1.28 dropped Python 3.10, and 1.16 did not know 3.12."""
    locked = lock.shipped()

    assert (locked.tags_for("1.28.0"), locked.tags_for("1.16.3")) == (("cp311", "cp312"), ("cp310", "cp311"))


def test_a_version_without_a_wheel_is_said_so() -> None:
    """The message names the version, the hint the ways out."""
    with pytest.raises(ServerError, match=r"ONNX Runtime 1\.17\.2 was never published") as caught:
        lock.shipped().tags_for("1.17.2")

    assert "--server docker" in caught.value.hint

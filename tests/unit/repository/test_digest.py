"""Digests of files."""

from __future__ import annotations

import hashlib
import signal
from typing import TYPE_CHECKING, Any

import pytest

from repogen.repository import digest
from repogen.repository.digest import sha256_files

if TYPE_CHECKING:
    from pathlib import Path


def test_signal_ends_hashing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file is hashed in a thread, which the interrupted main thread would otherwise wait for."""

    def hash_endlessly(stream: Any, _name: str) -> None:
        while True:
            stream.readinto(bytearray(1))

    (tmp_path / "large").write_bytes(b"x")
    monkeypatch.setattr(digest, "_MIN_BYTES_FOR_THREADS", 0)
    monkeypatch.setattr(hashlib, "file_digest", hash_endlessly)
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            sha256_files([tmp_path / "large"])
    finally:
        signal.signal(signal.SIGALRM, previous)

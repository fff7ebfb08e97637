"""A claim: an object that reserves a version number of a model for one process, while it uploads the version.

It is created with a conditional write, so of several processes one succeeds; the others wait, and then take the next
number. The owner rewrites it every few seconds. A process that finds it unchanged for two minutes, or that runs on the
same machine and sees that the owner has ended, takes it over. No clocks are compared. After an hour, a process does not
wait any longer: who can write to the bucket can renew any claim.

An owner that did not renew its claim may only be suspended, and go on later. So the number is used again only if the
owner is known to have ended. Otherwise, the claim is marked as skipped, and the next number is used; the claim is
deleted, with what its owner uploaded, after the owner cannot serve it any more.

The key is a file in the repository's root, where Triton ignores files.
"""

from __future__ import annotations

import json
import os
import random
import re
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from repogen.errors import PublishError, RepogenError
from repogen.stores.interface import ChangedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from repogen.stores.interface import Store

LEASE_SECONDS = 120.0
"""Time without a change after which the owner of a claim counts as dead."""

RENEWAL_SECONDS = 20.0
"""Time after which the owner rewrites its claim."""

_MAX_SECONDS = 3600.0
"""Time to wait for other processes."""
MAX_BYTES = 4096
_MAX_WAIT = 2.0
_MAX_REFUSALS = 200
_NAME = re.compile(r"\.repogen\.(?P<model>[^/]+)\.(?P<version>[0-9]{1,19})\.claim\.json")


def claim_name(model: str, version: int) -> str:
    """Return the name of a claim in the repository's root."""
    return f".repogen.{model}.{version}.claim.json"


def claimed_version(name: str) -> tuple[str, int] | None:
    """Return the model and the version that a file in the repository's root claims; None if it is not a claim.

    >>> claimed_version(claim_name("digits", 3)), claimed_version("repogen.json")
    (('digits', 3), None)
    """
    match = _NAME.fullmatch(name)
    return None if match is None else (match["model"], int(match["version"]))


def is_skipped(content: bytes) -> bool:
    """Return whether a claim's content marks a number that must not be used."""
    try:
        return _DOCUMENT.validate_json(content).is_skipped
    except ValidationError:
        return False


class _Process(BaseModel):
    """A process, as another process on the same machine can identify it."""

    model_config = ConfigDict(frozen=True)

    boot: str
    pid_namespace: str
    pid: int
    started: str


class _Document(BaseModel):
    """The format of a claim."""

    token: str
    renewals: int
    process: _Process
    is_skipped: bool = False


_DOCUMENT = TypeAdapter(_Document)


class Claim:
    """A claim that this process acquires, renews in a thread, and releases."""

    def __init__(self, store: Store, key: str) -> None:
        """Prepare a claim; nothing is written."""
        self.key = key
        self.taken_over = False
        """Whether another process had it before."""
        self._store = store
        self._token = uuid4().hex
        self._renewals = 0
        self._tag = ""
        self._lock = threading.Lock()
        self._released = threading.Event()

    def acquire(self, wait: Callable[[], None], *, may_skip: bool = True) -> None:
        """Create the claim, after other processes have released it or have ended.

        Args:
            wait: Called once if another process has the claim.
            may_skip: Whether another number can be used. A sync cannot: the number is that of the registry, and both
                processes upload the same files.

        Raises:
            ChangedError: The number must be skipped: a process that had the claim may still run.
            PublishError: The store rejects the creation of the claim, although it does not exist; or other processes
                had it for an hour.
        """
        began = time.monotonic()
        last_tag, since, pause, absent = "", began, 0.1, 0
        while not self._created():
            tag, content = self._current()
            absent = 0 if tag else absent + 1
            if absent > _MAX_REFUSALS:
                raise PublishError(
                    f"the store rejected {absent} attempts to create {self.key}, although this object does not exist",
                    "check that the store supports conditional writes (If-None-Match)",
                    code="store.request",
                )
            if tag and tag != last_tag:
                if not last_tag:
                    wait()
                last_tag, since = tag, time.monotonic()
            if self._ends_wait(tag, content, expired=time.monotonic() - since > LEASE_SECONDS, may_skip=may_skip):
                break
            if time.monotonic() - began > _MAX_SECONDS:
                raise PublishError(
                    f"other processes had the claim {self.key} for {_MAX_SECONDS / 60:.0f} minutes",
                    "run the command again after they have published; if none is running, delete this object",
                    code="store.changed",
                )
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - spreads the requests of several processes
            pause = min(_MAX_WAIT, pause * 1.5)
        threading.Thread(target=self._keep, daemon=True).start()

    def renew(self) -> None:
        """Prove that the claim is still this process's.

        Raises:
            ChangedError: Another process took it over: this one was stopped for too long.
        """
        with self._lock:
            self._renewals += 1
            self._tag = self._store.replace(self.key, self._content(), self._tag)

    def release(self) -> None:
        """Delete the claim."""
        self._released.set()
        with self._lock:
            self._store.delete([self.key])

    def abandon(self) -> None:
        """Stop renewing the claim, and do not delete it: it is not known what a failed request has done."""
        self._released.set()

    def _ends_wait(self, tag: str, content: bytes, *, expired: bool, may_skip: bool) -> bool:
        """Return whether this process took the claim over, because its owner has ended, or does the same.

        Raises:
            ChangedError: The number must be skipped.
        """
        if is_skipped(content) and may_skip:
            raise ChangedError(self.key)
        has_ended = _has_ended(content)
        must_skip = may_skip and not has_ended
        if not tag or not (has_ended or expired) or not self._took_over(tag, is_skipped=must_skip):
            return False
        if must_skip:
            raise ChangedError(self.key)
        return True

    def _created(self) -> bool:
        with suppress(ChangedError):
            self._tag = self._store.create(self.key, self._content())
            return True
        return False

    def _took_over(self, tag: str, *, is_skipped: bool) -> bool:
        with suppress(ChangedError):
            self._tag = self._store.replace(self.key, self._content(is_skipped=is_skipped), tag)
            self.taken_over = True
            return True
        return False

    def _current(self) -> tuple[str, bytes]:
        """Return tag and content of the claim; an empty tag if it does not exist, or changes at this moment."""
        tags = [each.tag for each in self._store.list(self.key) if each.key == self.key]
        with suppress(FileNotFoundError):
            content = self._store.read(self.key, MAX_BYTES)
            return (tags[0] if tags else ""), content
        return "", b""

    def _content(self, *, is_skipped: bool = False) -> bytes:
        document = _Document(token=self._token, renewals=self._renewals, process=_this_process(), is_skipped=is_skipped)
        return json.dumps(document.model_dump(), sort_keys=True).encode() + b"\n"

    def _keep(self) -> None:
        """Renew the claim until it is released; a renewal that fails is detected by the next call of ``renew``."""
        while not self._released.wait(RENEWAL_SECONDS):
            try:
                self.renew()
            except ChangedError:
                return
            except (RepogenError, OSError):
                continue


def _this_process() -> _Process:
    return _Process(
        boot=_read("/proc/sys/kernel/random/boot_id"),
        pid_namespace=_pid_namespace(),
        pid=os.getpid(),
        started=_started(os.getpid()),
    )


def _has_ended(content: bytes) -> bool:
    """Return whether a claim's owner ran on this machine and has ended; False where that is not known."""
    try:
        owner = _DOCUMENT.validate_json(content).process
    except ValidationError:
        return False
    here = _this_process()
    same_machine = bool(here.boot) and (owner.boot, owner.pid_namespace) == (here.boot, here.pid_namespace)
    return same_machine and _started(owner.pid) != owner.started


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Return when a process started, in ticks after boot; empty if it does not exist, or has ended."""
    # the name of the program is in parentheses, and may contain spaces and parentheses
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in {"Z", "X"} else ""  # noqa: PLR2004 - see proc(5)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""

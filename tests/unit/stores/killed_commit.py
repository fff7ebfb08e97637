"""A program that runs one command on a store and is killed by SIGKILL after its k-th write to the store.

For S3 the writes are the requests that write, so each part of a multipart upload is one of them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import repogen
from repogen import plugins

_WRITES = ("upload", "create", "replace", "copy")
_S3_WRITES = frozenset(
    {
        *("put_object", "create_multipart_upload", "upload_part", "complete_multipart_upload"),
        *("copy_object", "delete_object", "abort_multipart_upload"),
    }
)


class Killer:
    """Counts writes, and kills this process at one of them."""

    def __init__(self, at: int) -> None:
        """Kill after the write number ``at``, which counts from 0."""
        self._left = at

    def around(self, write: Any) -> Any:
        """Return a function that counts as one write."""

        def counted(*arguments: Any, **options: Any) -> Any:
            result = write(*arguments, **options)
            self._tick()
            return result

        return counted

    def around_request(self, request: Any) -> Any:
        """Return a coroutine function that counts requests that write to S3."""

        async def counted(client: Any, method: str, *arguments: Any, **options: Any) -> Any:
            result = await request(client, method, *arguments, **options)
            if method in _S3_WRITES:
                self._tick()
            return result

        return counted

    def _tick(self) -> None:
        self._left -= 1
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def delete(self, delete: Any) -> Any:
        """Return a function that deletes one object after another, each of which is a write."""

        def counted(bucket: Any, keys: list[str]) -> None:
            for key in keys:
                self.around(delete)(bucket, [key])

        return counted


def register_example() -> None:
    """Register the store of the example plug-in, as installing the package does."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "plugin_package"))
    entry = EntryPoint("dir", "repogen_example_plugin.store:DirectoryStore", "repogen.stores")
    installed = entry_points
    plugins.entry_points = lambda group: [  # type: ignore[assignment,attr-defined]
        *installed(group=group),
        *([entry] if group == entry.group else ()),
    ]


def main(job: dict[str, Any]) -> None:
    """Run the command of a job."""
    register_example()
    killer = Killer(job["at"])
    if job["url"].startswith("s3:"):
        from fsspec.asyn import sync_wrapper  # noqa: PLC0415 - an extra
        from s3fs import S3FileSystem  # noqa: PLC0415 - takes a second

        from repogen.stores import s3  # noqa: PLC0415 - the same

        s3._PART_BYTES = 5 * 2**20  # noqa: SLF001 - several parts of a small file; S3 rejects smaller ones
        S3FileSystem._call_s3 = killer.around_request(S3FileSystem._call_s3)  # noqa: SLF001 - all requests
        S3FileSystem.call_s3 = sync_wrapper(S3FileSystem._call_s3)  # noqa: SLF001 - the same, for other threads
    else:
        from repogen_example_plugin.store import DirectoryBucket  # type: ignore[import-not-found]  # noqa: PLC0415

        for name in _WRITES:
            setattr(DirectoryBucket, name, killer.around(getattr(DirectoryBucket, name)))
        DirectoryBucket.delete = killer.delete(DirectoryBucket.delete)
    run(job)


def run(job: dict[str, Any]) -> None:
    """Run a command; ``publish`` publishes the newest version of a local repository."""
    url, command = job["url"], job["command"]
    if command == "publish":
        repogen.publish("m", source=job["source"], target=url, allow_breaking=True)
    elif command == "rollback":
        repogen.rollback("m", 1, repository=url)
    else:
        repogen.prune("m", keep=1, repository=url)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

"""Google Cloud Storage: the extra ``gcs``, which is gcsfs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from repogen.errors import PublishError
from repogen.responses import SECONDS
from repogen.stores.fsspec_store import FsspecStore, Pages, missing_extra
from repogen.stores.interface import ChangedError, StoredObject

if TYPE_CHECKING:
    from collections.abc import Iterator


class GcsStore(FsspecStore):
    """A bucket of Google Cloud Storage; conditional writes have ``ifGenerationMatch``."""

    scheme = "gs"
    credentials = (
        "the default credentials of Google: GOOGLE_APPLICATION_CREDENTIALS, `gcloud auth application-default login`, "
        "or the service account of the machine; STORAGE_EMULATOR_HOST for another endpoint"
    )

    def __init__(self, bucket: str) -> None:
        """Open a bucket."""
        try:
            import aiohttp  # noqa: PLC0415 - an extra
            from gcsfs import GCSFileSystem  # noqa: PLC0415 - the same
            from gcsfs.retry import HttpError  # noqa: PLC0415 - the same
            from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415 - the same
        except ImportError as error:
            raise missing_extra("gcs", error) from error
        # ValueError: an endpoint, or a response, that is not valid
        self.errors = (OSError, ValueError, HttpError, aiohttp.ClientError, GoogleAuthError, TimeoutError)
        # without a limit, a server that accepts a connection and does not begin TLS is waited for indefinitely
        timeout = aiohttp.ClientTimeout(sock_connect=SECONDS)
        options = {"use_listings_cache": False, "skip_instance_cache": True, "requests_timeout": timeout}
        super().__init__(bucket, GCSFileSystem(**options))

    def _objects(self, prefix: str) -> Iterator[StoredObject]:
        page: dict[str, str] = {}
        pages = Pages()
        while True:
            answer = self._call("GET", f"b/{quote(self.bucket)}/o", json_out=True, prefix=prefix, **page)
            entries = answer.get("items") or ()
            for entry in entries:
                if entry.get("contentEncoding", "identity") not in {"", "identity"}:
                    raise _compressed(entry["name"])
                modified = datetime.fromisoformat(entry["updated"]).timestamp()
                yield StoredObject(entry["name"], int(entry["size"]), str(entry["generation"]), modified)
            if not answer.get("nextPageToken"):
                return
            pages.add(len(entries))
            page = {"pageToken": answer["nextPageToken"]}

    def _write_if(self, key: str, content: bytes, tag: str | None) -> str:
        # the request that gcsfs makes, with a condition that it does not have
        path = f"{self.filesystem._location}/upload/storage/v1/b/{quote(self.bucket)}/o"  # noqa: SLF001 - no public name
        condition = {"ifGenerationMatch": tag or "0"}
        try:
            answer = self._call(
                "POST",
                path,
                uploadType="media",
                name=key,
                headers={"Content-Type": "application/octet-stream"},
                data=content,
                json_out=True,
                **condition,
            )
        except FileExistsError as error:  # how gcsfs reports a condition that does not hold
            raise ChangedError(key) from error
        except FileNotFoundError as error:  # an object that was deleted; or the bucket
            if tag is None:
                raise
            raise ChangedError(key) from error
        return str(answer["generation"])

    def _delete(self, key: str) -> None:
        try:
            self._call("DELETE", f"b/{quote(self.bucket)}/o/{quote(key, safe='')}")
        except FileNotFoundError:
            return

    def _delete_tagged(self, key: str, tag: str) -> None:
        try:
            self._call("DELETE", f"b/{quote(self.bucket)}/o/{quote(key, safe='')}", ifGenerationMatch=tag)
        except (FileExistsError, FileNotFoundError) as error:
            raise ChangedError(key) from error

    def _call(self, method: str, path: str, **options: object) -> Any:  # noqa: ANN401 - decoded JSON
        return self.filesystem.call(method, path, **options)


def _compressed(key: str) -> PublishError:
    """Return the error of an object that Google, or the library, would unpack: in memory, and to any size."""
    return PublishError(
        f"the store has the object {key!r:.200} with a content encoding",
        "upload it without an encoding such as gzip: Triton reads the bytes as they are stored",
        code="store.encoding",
    )


class Gcs:
    """The plug-in for ``gs://``."""

    def open(self, bucket: str) -> GcsStore:
        """Return a bucket."""
        return GcsStore(bucket)

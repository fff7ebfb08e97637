"""S3 and services with its API: the extra ``s3``, which is s3fs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from repogen.stores.fsspec_store import FsspecStore, Pages, missing_extra, too_large
from repogen.stores.interface import ChangedError, StoredObject

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PART_BYTES = 16 * 2**20
_PARALLEL_PARTS = 4
_ATTEMPTS = 2
"""In addition to botocore's own five: a server that does not respond has 15 s each time."""
_CHANGED = frozenset({"PreconditionFailed", "ConditionalRequestConflict"})
_NOT_IMPLEMENTED = "NotImplemented"
_MISSING = frozenset({"NoSuchKey", "NotFound", "404"})
_REDIRECTS = range(300, 400)
_RANGE = re.compile(r"bytes=(?P<first>[0-9]{1,19})-(?P<last>[0-9]{1,19})")


class _Session:
    """A session of aiohttp that follows no redirect."""

    def __init__(self, session: Any) -> None:  # noqa: ANN401 - an extra
        self._session = session

    async def request(self, *arguments: object, **options: object) -> Any:  # noqa: ANN401 - an extra
        """Return the response to a request."""
        response = await self._session.request(*arguments, allow_redirects=False, **options)
        if response.status in _REDIRECTS:
            await response.read()
            response.close()
        return response


class S3Store(FsspecStore):
    """A bucket of S3; conditional writes are PutObject with If-None-Match and If-Match."""

    scheme = "s3"
    credentials = (
        "the usual sources of AWS: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or the role of the "
        "machine; AWS_ENDPOINT_URL for another endpoint"
    )

    def __init__(self, bucket: str) -> None:
        """Open a bucket."""
        try:
            import aiohttp  # noqa: PLC0415 - an extra
            from aiobotocore.httpsession import AIOHTTPSession  # noqa: PLC0415 - the same
            from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - the same
            from s3fs import S3FileSystem  # noqa: PLC0415 - the same
        except ImportError as error:
            raise missing_extra("s3", error) from error
        # ValueError: an endpoint, or a response, that is not valid
        self.errors = (OSError, ValueError, BotoCoreError, ClientError, aiohttp.ClientError, TimeoutError)
        # anon=False: without credentials, s3fs would otherwise send requests that are not signed

        class Bounded(S3FileSystem):  # type: ignore[misc]
            """A filesystem that reads no more than it requests: the library reads each response as a whole."""

            retries = _ATTEMPTS

            async def _call_s3(self, method: str, *arguments: object, **options: Any) -> Any:  # noqa: ANN401 - no types
                answer = await super()._call_s3(method, *arguments, **options)
                _require_range(options.get("Range", ""), answer)
                return answer

        class WithoutRedirects(AIOHTTPSession):  # type: ignore[misc]
            """Follows no redirect: aiohttp would send the session token to the other host. botocore handles regions."""

            async def _get_session(self, proxy_url: str | None) -> Any:  # noqa: ANN401 - no types
                return _Session(await super()._get_session(proxy_url))

        filesystem = Bounded(
            anon=False,
            use_listings_cache=False,
            skip_instance_cache=True,
            cache_regions=False,
            config_kwargs={"http_session_cls": WithoutRedirects},
        )
        super().__init__(bucket, filesystem)

    def abort_uploads(self, prefix: str) -> None:
        """Abort the multipart uploads to keys that start with ``prefix``: S3 keeps their parts otherwise."""
        with self.requests():
            answer = self._call("list_multipart_uploads", Prefix=prefix)
            for upload in answer.get("Uploads") or ():
                self._call("abort_multipart_upload", Key=upload["Key"], UploadId=upload["UploadId"])

    def _objects(self, prefix: str) -> Iterator[StoredObject]:
        page: dict[str, str] = {}
        pages = Pages()
        while True:
            answer = self._call("list_objects_v2", Prefix=prefix, **page)
            entries = answer.get("Contents") or ()
            for entry in entries:
                yield StoredObject(entry["Key"], entry["Size"], entry["ETag"], entry["LastModified"].timestamp())
            if not answer.get("IsTruncated"):
                return
            pages.add(len(entries))
            page = {"ContinuationToken": answer["NextContinuationToken"]}

    def _write_if(self, key: str, content: bytes, tag: str | None) -> str:
        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        try:
            etag: str = self._call("put_object", Key=key, Body=content, **condition)["ETag"]
        except FileNotFoundError as error:  # If-Match for an object that was deleted; or the bucket
            if tag is None or _code(error) not in _MISSING:
                raise
            raise ChangedError(key) from error
        except OSError as error:
            if _code(error) not in _CHANGED:
                raise
            raise ChangedError(key) from error
        return etag

    def _put(self, path: Path, key: str, callback: Any) -> None:  # noqa: ANN401 - fsspec has no types
        # at most 10,000 parts, and at most this many of them in memory
        part = max(_PART_BYTES, -(-path.stat().st_size // 9_000))
        self.filesystem.put_file(
            str(path), self._path(key), callback=callback, chunksize=part, max_concurrency=_PARALLEL_PARTS
        )

    def _delete(self, key: str) -> None:
        self._call("delete_object", Key=key)

    def _delete_tagged(self, key: str, tag: str) -> None:
        try:
            self._call("delete_object", Key=key, IfMatch=tag)
        except OSError as error:
            if _code(error) == _NOT_IMPLEMENTED:  # a service that has only the older conditions
                self._delete(key)
            elif _code(error) in _CHANGED | _MISSING:
                raise ChangedError(key) from error
            else:
                raise

    def _call(self, method: str, **options: object) -> dict[str, Any]:
        answer: dict[str, Any] = self.filesystem.call_s3(method, Bucket=self.bucket, **options)
        return answer


def _require_range(requested: str, answer: Any) -> None:  # noqa: ANN401 - decoded response
    """Require that a response has no more bytes than a request for a range of them.

    Raises:
        PublishError: It has more, or does not declare its size.
    """
    match = _RANGE.fullmatch(requested)
    if match is not None:
        size, limit = answer.get("ContentLength"), int(match["last"]) - int(match["first"]) + 1
        if size is None or size > limit:
            raise too_large(f"{size} bytes in response to a request for {limit}")


def _code(error: OSError) -> str:
    """Return the code of S3's response that an error of s3fs was made from."""
    response = getattr(error.__cause__, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


class S3:
    """The plug-in for ``s3://``."""

    def open(self, bucket: str) -> S3Store:
        """Return a bucket."""
        return S3Store(bucket)

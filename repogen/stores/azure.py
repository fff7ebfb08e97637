"""Azure Blob Storage: the extra ``azure``, which is adlfs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from repogen.stores.fsspec_store import FsspecStore, Pages, missing_extra
from repogen.stores.interface import MAX_OBJECTS, ChangedError, StoredObject

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PARALLEL_PARTS = 4
_PAGE_OBJECTS = 1000
"""The default is 5000, and a page has a limited size."""


class AzureStore(FsspecStore):
    """A container of Azure Blob Storage; conditional writes have If-None-Match and If-Match."""

    scheme = "az"
    streams = False  # the first response of a download has at most 32 MiB, the others have 4 MiB
    credentials = (
        "AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY, "
        "AZURE_STORAGE_SAS_TOKEN, AZURE_CLIENT_ID and others, or `az login`"
    )

    def __init__(self, bucket: str) -> None:
        """Open a container."""
        try:
            from adlfs import AzureBlobFileSystem  # noqa: PLC0415 - an extra
            from azure.core import MatchConditions  # noqa: PLC0415 - the same
            from azure.core import exceptions as azure_errors  # noqa: PLC0415 - the same
        except ImportError as error:
            raise missing_extra("azure", error) from error
        self._conditions = MatchConditions
        self._azure = azure_errors
        # ValueError: no account is configured; adlfs raises it, also for a connection string that is not valid
        self.errors = (OSError, ValueError, azure_errors.AzureError, TimeoutError)
        with self.requests_to(bucket):
            filesystem = AzureBlobFileSystem(anon=False, use_listings_cache=False, skip_instance_cache=True)
        _keep_compressed(filesystem.service_client)
        super().__init__(bucket, filesystem)

    def _objects(self, prefix: str) -> Iterator[StoredObject]:
        yield from self._sync(self._list, prefix)

    async def _list(self, prefix: str) -> list[StoredObject]:
        container = self.filesystem.service_client.get_container_client(self.bucket)
        objects: list[StoredObject] = []
        pages = Pages()
        listing = container.list_blobs(name_starts_with=prefix, include=["metadata"], results_per_page=_PAGE_OBJECTS)
        listed = listing.by_page()
        try:
            async for page in listed:
                number = 0
                async for each in page:
                    number += 1
                    # accounts with a hierarchical namespace list directories as well
                    if not (each.metadata or {}).get("hdi_isfolder"):
                        modified = each.last_modified.timestamp()
                        objects.append(StoredObject(each.name, int(each.size), _quoted(each.etag), modified))
                if len(objects) > MAX_OBJECTS:
                    break
                if listed.continuation_token:
                    pages.add(number)
        except self._azure.ResourceNotFoundError as error:
            raise FileNotFoundError(self.bucket) from error
        return objects

    def _write_if(self, key: str, content: bytes, tag: str | None) -> str:
        return str(self._sync(self._upload_if, key, content, tag))

    async def _upload_if(self, key: str, content: bytes, tag: str | None) -> str:
        blob = self.filesystem.service_client.get_blob_client(self.bucket, key)
        options: dict[str, Any] = {"overwrite": False}
        if tag is not None:
            options = {"overwrite": True, "etag": tag, "match_condition": self._conditions.IfNotModified}
        try:
            answer = await blob.upload_blob(content, **options)
        except (self._azure.ResourceExistsError, self._azure.ResourceModifiedError) as error:
            raise ChangedError(key) from error
        except self._azure.ResourceNotFoundError as error:
            if tag is None:
                raise FileNotFoundError(self.bucket) from error
            raise ChangedError(key) from error
        return _quoted(answer["etag"])

    def _put(self, path: Path, key: str, callback: Any) -> None:  # noqa: ANN401 - fsspec has no types
        self.filesystem.put_file(
            str(path), self._path(key), callback=callback, max_concurrency=_PARALLEL_PARTS, overwrite=True
        )

    def _delete(self, key: str) -> None:
        self._sync(self._delete_blob, key)

    async def _delete_blob(self, key: str) -> None:
        blob = self.filesystem.service_client.get_blob_client(self.bucket, key)
        try:
            await blob.delete_blob()
        except self._azure.ResourceNotFoundError:
            return

    def _delete_tagged(self, key: str, tag: str) -> None:
        self._sync(self._delete_tagged_blob, key, tag)

    async def _delete_tagged_blob(self, key: str, tag: str) -> None:
        blob = self.filesystem.service_client.get_blob_client(self.bucket, key)
        try:
            await blob.delete_blob(etag=tag, match_condition=self._conditions.IfNotModified)
        except (self._azure.ResourceNotFoundError, self._azure.ResourceModifiedError) as error:
            raise ChangedError(key) from error

    def _sync(self, function: Any, *arguments: object) -> Any:  # noqa: ANN401 - fsspec has no types
        """Run a coroutine on the thread of the filesystem."""
        from fsspec.asyn import sync  # noqa: PLC0415 - an extra

        return sync(self.filesystem.loop, function, *arguments)


def _keep_compressed(client: Any) -> None:  # noqa: ANN401 - the SDK is an extra
    """Let a client return the bytes of an object as they are stored.

    Who writes an object sets its encoding, and the SDK would unpack it in memory: a file of 1 MiB can have 1 GiB.
    """
    get_blob_client = client.get_blob_client

    def without_unpacking(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - of the SDK
        blob = get_blob_client(*args, **options)
        blob.download_blob = partial(blob.download_blob, decompress=False)
        return blob

    client.get_blob_client = without_unpacking


def _quoted(etag: str) -> str:
    """Return an ETag as a header has it; listings have it without quotes."""
    return f'"{etag.strip(chr(34))}"'


class Azure:
    """The plug-in for ``az://``."""

    def open(self, bucket: str) -> AzureStore:
        """Return a container."""
        return AzureStore(bucket)

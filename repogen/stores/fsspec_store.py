"""What the stores on top of fsspec share: listing, transfers, and the errors of their libraries."""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

from repogen.distribution import install_command
from repogen.errors import NO_THREAD, MissingExtraError, PublishError, SpecError, first_line
from repogen.responses import INVALID_RESPONSE, MAX_BYTES, SECONDS, ResponseError, response_limits
from repogen.stores.interface import MAX_OBJECTS, ChangedError, StoredObject
from repogen.stores.limits import TotalTime, limit_responses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

# a signed URL, in the message of a library's error
_SECRETS = re.compile(r"\?[^\s'\")]+|(?<=//)[^\s/]+@|[^\s/:]+:[^\s/]+@")
_MAX_KEY = 4096
"""Characters of the key of an object; the stores allow 1024."""
_WRITE_SECONDS = 600.0
"""A store may need minutes to copy a large object, or to complete one from its parts."""
_MAX_PAGES = 2_000
_MAX_EMPTY_PAGES = 20
"""One after another; Azure and Google may send some."""
_LISTED_PER_SECOND = 500
_LOGGERS = ("adlfs", "azure", "aiobotocore", "botocore", "fsspec", "gcsfs", "s3fs")


class FsspecStore:
    """A bucket through a filesystem of fsspec; subclasses implement what fsspec does not have: conditional writes.

    Attributes:
        scheme: The scheme of its URLs.
        credentials: Where the library looks for credentials, for messages.
        errors: The exceptions of the library.
        streams: Whether the library writes a response to a file as it arrives, or in parts of at most 100 MiB.
    """

    scheme = ""
    credentials = ""
    errors: tuple[type[Exception], ...] = (OSError,)
    streams = True

    def __init__(self, bucket: str, filesystem: Any) -> None:  # noqa: ANN401 - fsspec has no types
        """Use a bucket of a filesystem."""
        self.bucket = bucket
        self.filesystem = filesystem
        limit_responses()
        # they log what they raise as well, with tracebacks
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(logging.NullHandler())
            logging.getLogger(name).propagate = False

    def list(self, prefix: str) -> list[StoredObject]:
        """Return the objects whose keys start with ``prefix``; stop after one more than a repository may have."""
        with self.requests():
            try:
                return [_required(each, prefix) for each in islice(self._objects(prefix), MAX_OBJECTS + 1)]
            except FileNotFoundError as error:
                raise SpecError(
                    f"the bucket {self.scheme}://{self.bucket} does not exist",
                    "create it, or correct its name; repogen does not create buckets",
                    code="store.no-bucket",
                ) from error

    def read(self, key: str, limit: int) -> bytes:
        """Return an object's bytes, at most ``limit`` of them."""
        with self.requests():
            try:
                content: bytes = self.filesystem.cat_file(self._path(key), start=0, end=limit)
            except FileNotFoundError:
                raise
            except self.errors:  # stores reject the request for a range of an empty object
                if not any(each.key == key and not each.size for each in self._objects(key)):
                    raise
                return b""
            return content[:limit]

    def download(self, key: str, path: Path, size: int) -> None:
        """Write an object to a new local file."""
        with self.requests(max(size, MAX_BYTES) if self.streams else MAX_BYTES):
            self.filesystem.get_file(self._path(key), str(path), callback=_limited(size))

    def upload(self, path: Path, key: str, progress: Callable[[int], None]) -> None:
        """Write a local file to an object."""
        with self.requests(seconds=_WRITE_SECONDS):
            self._put(path, key, _callback(progress))

    def create(self, key: str, content: bytes) -> str:
        """Write a small object that does not exist, and return its tag."""
        return self._conditionally(key, content, None)

    def replace(self, key: str, content: bytes, tag: str) -> str:
        """Write a small object that has the tag ``tag``, and return its new tag."""
        return self._conditionally(key, content, tag)

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the bucket."""
        with self.requests(seconds=_WRITE_SECONDS):
            self.filesystem.cp_file(self._path(source), self._path(target))

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, in this order."""
        with self.requests():
            for key in keys:
                self._delete(key)

    def delete_if(self, key: str, tag: str) -> None:
        """Delete an object if it still has the tag ``tag``."""
        with self.requests():
            try:
                self._delete_tagged(key, tag)
            except ChangedError:
                # also after a request that was sent again, because the first one had its effect
                if any(each.key == key for each in self._objects(key)):
                    raise

    def abort_uploads(self, prefix: str) -> None:
        """Remove the parts of interrupted uploads; without effect in a store that does not keep them."""

    def requests(self, size: int = MAX_BYTES, seconds: float = SECONDS) -> AbstractContextManager[None]:
        """Limit responses, and turn the library's errors into repogen's; see ``requests_to``."""
        return self.requests_to(self.bucket, size, seconds)

    @contextmanager
    def requests_to(self, bucket: str, size: int = MAX_BYTES, seconds: float = SECONDS) -> Iterator[None]:
        """Limit responses, and turn the library's errors into repogen's; a missing object stays a `FileNotFoundError`.

        Args:
            bucket: The bucket, for messages.
            size: Largest number of bytes of a response.
            seconds: Time for a request and its response, in addition to that for the bytes.

        Raises:
            PublishError: A request failed.
        """
        try:
            with response_limits(size, seconds):
                yield
        except FileNotFoundError:
            raise
        except PermissionError as error:
            raise self._denied(bucket, error) from error
        except ResponseError as error:
            raise PublishError(
                f"a request to {self.scheme}://{bucket} failed: {error}",
                "check the network and the endpoint, and run the command again",
                code="store.request",
            ) from error
        except (*INVALID_RESPONSE, RuntimeError) as error:  # botocore raises the last one for a time
            if NO_THREAD in str(error):
                raise
            raise PublishError(
                f"a response of {self.scheme}://{bucket} is not valid: {type(error).__name__}: {_text(error)}",
                "check the endpoint",
                code="store.request",
            ) from error
        except self.errors as error:
            if _is_about_credentials(error):
                raise self._denied(bucket, error) from error
            raise PublishError(
                f"a request to {self.scheme}://{bucket} failed: {_text(error)}",
                "check the network and the endpoint, and run the command again",
                code="store.request",
            ) from error

    def _conditionally(self, key: str, content: bytes, tag: str | None) -> str:
        with self.requests():
            try:
                return self._write_if(key, content, tag)
            except ChangedError:
                # a request that was sent again after a lost response fails, because the first one had its effect
                return self._tag_of_own(key, content)

    def _tag_of_own(self, key: str, content: bytes) -> str:
        """Return the tag of an object if it has this content.

        Raises:
            ChangedError: It has another content, or does not exist.
        """
        before = [each.tag for each in self._objects(key) if each.key == key]
        try:
            same = self.read(key, len(content) + 1) == content
        except FileNotFoundError:
            same = False
        after = [each.tag for each in self._objects(key) if each.key == key]
        if not same or not before or before != after:
            raise ChangedError(key)
        return before[0]

    def _write_if(self, key: str, content: bytes, tag: str | None) -> str:
        """Write an object that has a tag, or that does not exist if ``tag`` is None; return the new tag.

        Raises:
            ChangedError: The condition does not hold.
        """
        raise NotImplementedError

    def _objects(self, prefix: str) -> Iterator[StoredObject]:
        raise NotImplementedError

    def _put(self, path: Path, key: str, callback: Any) -> None:  # noqa: ANN401 - fsspec has no types
        self.filesystem.put_file(str(path), self._path(key), callback=callback)

    def _delete(self, key: str) -> None:
        raise NotImplementedError

    def _delete_tagged(self, key: str, tag: str) -> None:
        """Delete an object if it still has a tag.

        Raises:
            ChangedError: The condition does not hold, or there is no such object.
        """
        raise NotImplementedError

    def _path(self, key: str) -> str:
        return f"{self.bucket}/{key}"

    def _denied(self, bucket: str, error: Exception) -> PublishError:
        return PublishError(
            f"access to {self.scheme}://{bucket} was denied: {_text(error)}",
            f"repogen uses {self.credentials}",
            code="store.denied",
        )


def _required(stored: StoredObject, prefix: str) -> StoredObject:
    """Return an object of a listing.

    Raises:
        PublishError: It is not below the prefix that was requested, or its key is too long.
    """
    if not stored.key.startswith(prefix) or len(stored.key) > _MAX_KEY:
        raise PublishError(
            f"the store lists the object {stored.key[:200]!r} in response to a request for {prefix[:200]!r}",
            "check the endpoint: the store's response is not valid",
            code="store.key",
        )
    return stored


class Pages:
    """Limits on the pages of a listing: a response may always name another page, have no objects, and be slow."""

    def __init__(self) -> None:
        """Begin a listing."""
        self._time = TotalTime("a listing of the store", _LISTED_PER_SECOND)
        self._pages = self._empty = self._objects = 0

    def add(self, objects: int) -> None:
        """Count a page that another one follows.

        Args:
            objects: Their number in the page.

        Raises:
            PublishError: There are too many pages, or the time is over.
        """
        self._pages += 1
        self._empty = 0 if objects else self._empty + 1
        self._objects += objects
        if self._pages >= _MAX_PAGES:
            raise too_large(f"more than {_MAX_PAGES} pages of a listing")
        if self._empty >= _MAX_EMPTY_PAGES:
            raise too_large(f"{_MAX_EMPTY_PAGES} pages of a listing without objects")
        self._time.require(self._objects)


def _limited(size: int) -> Any:  # noqa: ANN401 - fsspec has no types
    """Return a callback that ends the download of an object that is larger than ``size`` bytes."""
    from fsspec.callbacks import Callback  # noqa: PLC0415 - an extra

    class Limited(Callback):  # type: ignore[misc]
        """Compares what is declared, and what was received; fsspec reports a sum or a difference."""

        def set_size(self, number: int | None) -> None:
            """Receive the size that the response declares."""
            self._require(number or 0)
            super().set_size(number)

        def call(self, *_args: object, **_options: object) -> None:
            """Receive the number of bytes so far."""
            self._require(self.value)

        def _require(self, number: int) -> None:
            if number > size:
                raise too_large(f"{number} bytes of an object with {size} bytes")

    return Limited()


def too_large(what: str) -> PublishError:
    """Return the error of a response that is larger than it should be, or has no end."""
    return PublishError(
        f"the store sends {what}", "check the endpoint, and run the command again", code="store.request"
    )


def missing_extra(extra: str, error: ImportError) -> MissingExtraError:
    """Return the error for a store whose packages are not installed."""
    return MissingExtraError(
        f"{error.name or extra} is not installed, and URLs of this store need it", install_command(extra)
    )


def _callback(progress: Callable[[int], None]) -> Any:  # noqa: ANN401 - fsspec has no types
    from fsspec.callbacks import Callback  # noqa: PLC0415 - an extra

    class Progress(Callback):  # type: ignore[misc]
        """Passes the numbers of bytes on; fsspec reports a sum or a difference, depending on the filesystem."""

        passed_on = 0

        def call(self, *_args: object, **_options: object) -> None:
            """Report the bytes since the last call."""
            sent = self.value - self.passed_on
            self.passed_on = self.value
            if sent:
                progress(sent)

    return Progress()


def _text(error: Exception) -> str:
    return _SECRETS.sub("?…", first_line(error))


def _is_about_credentials(error: Exception) -> bool:
    names = {cls.__name__ for cls in type(error).__mro__}
    words = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "authenticate", "Forbidden", "account_name", "401")
    is_named = any(word in name for name in names for word in ("Credential", "Authentication", "Unauthorized", "Auth"))
    return is_named or any(word in str(error) for word in words)

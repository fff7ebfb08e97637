"""URLs of repositories in object stores, in places where paths of local repositories are used as well."""

from __future__ import annotations

import os
import re
from pathlib import Path, PosixPath
from typing import Self

from repogen.errors import SpecError

# a letter alone would be a drive of Windows; Path removes one of two slashes
_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+):/+(?P<rest>.*)", re.DOTALL)
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}\Z")
_SEGMENT = re.compile(r"[\w.%+=,:~!() -]+")


class RepositoryUrl(PosixPath):
    """The URL of a repository, or of a file in it, as a path whose text is the URL.

    It does not exist on the disk. Its purpose is that reports and messages, which contain paths, contain URLs.

    >>> str(RepositoryUrl("s3://bucket/models") / "digits"), RepositoryUrl("s3://bucket/models").bucket
    ('s3://bucket/models/digits', 'bucket')
    """

    def __str__(self) -> str:
        """Return the URL."""
        return f"{self.parts[0]}//{'/'.join(self.parts[1:])}"

    def absolute(self) -> Self:
        """Return the URL."""
        return self

    def resolve(self, strict: bool = False) -> Self:  # noqa: ARG002, FBT001, FBT002 - the signature of Path
        """Return the URL."""
        return self

    @property
    def scheme(self) -> str:
        """The part before ``://``."""
        return self.parts[0].removesuffix(":")

    @property
    def bucket(self) -> str:
        """The bucket, or the container."""
        return self.parts[1]

    @property
    def key(self) -> str:
        """The path in the bucket, without slashes at its ends; empty for the bucket itself."""
        return "/".join(self.parts[2:])


def is_url(text: Path | str) -> bool:
    """Return whether text is a URL, and not the path of a local file."""
    return _URL.fullmatch(str(text)) is not None


def is_model_uri(text: Path | str) -> bool:
    """Return whether text is the URI of a registered model, and not the place of a repository.

    >>> [is_model_uri(text) for text in ("models:/digits@champion", "models", "s3://models/digits")]
    [True, False, False]
    """
    return str(text).startswith("models:/")


def relative_text(path: Path | str) -> str:
    """Return a path relative to the working directory, and a URL unchanged."""
    return str(path) if is_url(path) else os.path.relpath(path)


def location(text: Path | str) -> Path:
    """Return the place of a repository: a path, or a ``RepositoryUrl`` for text such as ``s3://bucket/models``.

    >>> location("model_repository"), str(location("s3://bucket/models/")), str(location(Path("s3://bucket/models")))
    (PosixPath('model_repository'), 's3://bucket/models', 's3://bucket/models')

    Raises:
        SpecError: The URL has no bucket, or contains a user, a password, a query or a fragment.
    """
    match = _URL.fullmatch(str(text))
    if match is None:
        return Path(text)
    scheme, rest = match["scheme"], match["rest"].rstrip("/")
    if not rest or rest.startswith("/"):
        raise SpecError(f"{scheme}:// has no bucket", f"for example {scheme}://bucket/models", code="store.url")
    # the digest of an image is the only text with @ that is not a secret
    name = _DIGEST.sub("", rest) if scheme == "oci" else rest
    if set("@?#") & set(name):  # the message must not contain a password or a token
        raise SpecError(
            f"the {scheme}:// URL of a repository contains `@`, `?` or `#`",
            "credentials and options come from environment variables and profiles, not from the URL",
            code="store.url",
        )
    for segment in name.split("/"):
        if segment in {"", ".", ".."} or not _SEGMENT.fullmatch(segment):
            raise SpecError(
                f"{scheme}://{rest!r} contains an empty part, `.`, `..` or a character that is not supported",
                f"for example {scheme}://bucket/models",
                code="store.url",
            )
    return RepositoryUrl(f"{scheme}:", *rest.split("/"))

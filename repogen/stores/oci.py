"""OCI registries: versions as an image whose model repository is in ``/models``, as KServe mounts it. Extra ``oci``.

An image is written once and read as a whole, so it is not a `Store`: it has no objects that are listed or written on
condition. `repogen publish` pushes one, and commands that read a repository read an image as they read a directory.

The image has one layer per model, an uncompressed tar archive, because weights hardly compress. Layers and manifest
depend only on the files, so the same versions have the same digest. The image is for the platform linux/amd64 and has
no operating system.

What a registry returns is not trusted: every blob is compared with its digest, and only regular files and directories
below ``/models`` are written.
"""

from __future__ import annotations

import gzip
import hashlib
import ipaddress
import json
import logging
import re
import tarfile
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.client import HTTP_PORT
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Self, cast
from urllib.parse import urlencode, urljoin, urlsplit

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from repogen.errors import PublishError, RepogenError, SpecError, first_line
from repogen.files import is_plain_name, lack_of_space, raise_if_exhausted
from repogen.machine import has_own_listeners
from repogen.repository.archive import write_tar
from repogen.repository.digest import sha256_bytes, sha256_file
from repogen.repository.layout import models_of
from repogen.responses import INVALID_RESPONSE, ResponseError, limited_adapter, response_limits, without_netrc
from repogen.stores.fsspec_store import missing_extra
from repogen.stores.interface import MAX_OBJECTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repogen.files.url import RepositoryUrl

_SCHEME = "oci"
ROOT = "models"
"""Directory of the model repository in the image, where KServe expects it."""

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
_ARTIFACT = "application/vnd.triton-repogen.models.v1"
_DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_READABLE_LAYERS = frozenset({LAYER, f"{LAYER}+gzip", "application/vnd.docker.image.rootfs.diff.tar.gzip"})
_REFERENCE = re.compile(
    r"(?P<name>[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_MAX_MANIFEST_BYTES = 4 * 2**20
_MAX_LAYERS = 1000
_BLOCK = 2**20
_GZIP = b"\x1f\x8b"
_SECONDS = 60.0
_TRIES = 3
_TEMPORARY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE})
# gzip cannot compress by more than a factor of 1032; models, which hardly compress, are far below this one
_MAX_EXPANSION = 16
_MAX_SMALL_LAYER_BYTES = 2**30
# of long names and other records before a member's header, which tarfile reads into memory
_MAX_RECORD_BYTES = 2**13
_MAX_RECORDS_OF_MEMBER_BYTES = 2**20
_MAX_RECORDS_BYTES = 2**25
_MAX_GLOBAL_RECORDS = 100
_MAX_NAME = 1024  # characters: that many directories in each other exceed Python's limit of recursion


class _Descriptor(BaseModel):
    media_type: str = Field(alias="mediaType")
    digest: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    size: int = Field(ge=0, le=2**63 - 1)


class _Manifest(BaseModel):
    layers: list[_Descriptor] = Field(max_length=_MAX_LAYERS)


_MANIFEST_TYPE = TypeAdapter(_Manifest)


@dataclass(frozen=True)
class Reference:
    """An image in a registry.

    Attributes:
        url: Its URL.
        host: The registry.
        name: The repository in the registry.
        tag: Its tag, or the digest of its manifest.
    """

    url: RepositoryUrl
    host: str
    name: str
    tag: str


def reference(url: RepositoryUrl) -> Reference:
    """Return what a URL ``oci://HOST/NAME:TAG`` or ``oci://HOST/NAME@sha256:…`` names.

    Raises:
        SpecError: It has no name, or no tag and no digest.
    """
    match = _REFERENCE.fullmatch(url.key)
    if match is None or not (match["tag"] or match["digest"]):
        raise SpecError(
            f"{url} is not the name of an image with a tag or a digest",
            f"for example {_SCHEME}://registry.example.com/team/digits:3; the name has lowercase letters only",
            code="store.url",
        )
    return Reference(url, url.bucket, match["name"], match["digest"] or match["tag"])


def push(repository: Path, image: Reference, scratch: Path) -> tuple[str, bool]:
    """Push the models of a repository as an image.

    Args:
        repository: The repository; all its models are in the image.
        image: Where to push it.
        scratch: An empty directory for the layers.

    Returns:
        The digest of the manifest, and whether it was pushed; False if the tag has this digest.

    Raises:
        PublishError: The tag has another digest, or the registry rejected a request.
    """
    layers = [_layer(repository / model, scratch) for model in models_of(repository)]
    config = _json({
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [describe(path, LAYER)["digest"] for path in layers]},
    })  # fmt: skip
    (scratch / "config.json").write_bytes(config)
    manifest = _json({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": _ARTIFACT,
        "config": describe(scratch / "config.json", CONFIG),
        "layers": [describe(path, LAYER) for path in layers],
    })  # fmt: skip
    digest = f"sha256:{sha256_bytes(manifest)}"
    with Registry(image) as registry:
        existing = registry.digest()
        if existing == digest:
            return digest, False
        if existing is not None:
            raise PublishError(
                f"{image.url} exists with other content: {existing}",
                "push to a new tag; a tool such as `oras tag` or `crane tag` moves a tag such as latest to it",
                code="publish.exists",
            )
        for path in (*layers, scratch / "config.json"):
            registry.upload(path)
        registry.put_manifest(manifest)
    return digest, True


def pull(image: Reference, directory: Path, scratch: Path) -> None:
    """Write the model repository of an image to a new directory.

    Args:
        image: The image, also one that another tool made, with any base image.
        directory: The directory.
        scratch: An existing directory for one layer at a time.

    Raises:
        SpecError: There is no such image.
        PublishError: A request failed, a blob differs from its digest, the image has no models, or the disk has no
            space for it.
    """
    directory.mkdir(parents=True)
    path = scratch / "layer"
    contents = Contents()
    with Registry(image) as registry:
        layers = registry.layers()
        _require_space(image, directory, sum(layer.size for layer in layers))
        for layer in layers:
            registry.download(layer, path)
            extract(path, directory, image, contents)
            path.unlink()
    if not models_of(directory):
        raise _malformed(image, f"it has no models in /{ROOT}")


def _require_space(image: Reference, directory: Path, required: int) -> None:
    """Require disk space for bytes before they are written.

    Raises:
        PublishError: The disk has less free space.
    """
    if problem := lack_of_space(directory, required):
        raise PublishError(
            f"the layers or files of {image.url} have {problem}",
            "free disk space, or use another directory: set TMPDIR, or --stage-dir if the command has it",
            code="store.copy",
        )


def _layer(model: Path, scratch: Path) -> Path:
    path = scratch / f"{model.name}.tar"
    with path.open("xb") as stream:
        write_tar(stream, {ROOT: None, f"{ROOT}/{model.name}": model})
    return path


def describe(path: Path, media_type: str) -> dict[str, object]:
    """Return the descriptor of a file in a manifest."""
    return {"mediaType": media_type, "digest": f"sha256:{sha256_file(path)}", "size": path.stat().st_size}


def _json(document: dict[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()


@dataclass
class Contents:
    """What the layers of an image that were read have in total.

    Attributes:
        compressed: Bytes of the layers.
        size: Bytes of their files.
        count: Number of their members.
    """

    compressed: int = 0
    size: int = 0
    count: int = 0

    def add(self, member: tarfile.TarInfo) -> bool:
        """Count a member; return whether the image is within its limits."""
        self.size += member.size
        self.count += 1
        limit = max(_MAX_EXPANSION * self.compressed, _MAX_SMALL_LAYER_BYTES)
        return member.size >= 0 and self.size <= limit and self.count <= MAX_OBJECTS


class _Headers:
    """The stream of an archive, as tarfile reads headers from it; records before them are limited."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._left = _MAX_RECORDS_BYTES
        self._left_of_member = 0
        self.seek, self.tell = stream.seek, stream.tell

    def begin_member(self) -> None:
        """Expect the records and the header of the next member."""
        self._left_of_member = _MAX_RECORDS_OF_MEMBER_BYTES

    def read(self, size: int) -> bytes:
        """Read a header or a record.

        Raises:
            tarfile.TarError: The records are too large.
        """
        self._left_of_member -= size
        if size > tarfile.BLOCKSIZE:
            self._left -= size
        if not 0 <= size <= _MAX_RECORD_BYTES or min(self._left, self._left_of_member) < 0:
            raise tarfile.ReadError("a name or a record is too large")
        return self._stream.read(size)


def extract(path: Path, directory: Path, image: Reference, contents: Contents) -> None:
    """Unpack what a layer has below ``/models``.

    Args:
        path: The layer.
        directory: Where to.
        image: The image.
        contents: Those of the layers before; this one is added.

    Raises:
        PublishError: It is not an archive, or has a link, a special file, too many files, or too large files.
        OSError: The disk is full.
    """
    contents.compressed += path.stat().st_size
    try:
        with path.open("rb") as file:
            is_compressed = file.read(len(_GZIP)) == _GZIP
        with gzip.open(path) if is_compressed else path.open("rb") as stream:
            _extract(cast("IO[bytes]", stream), directory, image, contents)
    # tarfile raises ValueError for records that are not valid, and reads a record before another one by recursion
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        if isinstance(error, OSError):
            raise_if_exhausted(error)
        raise _malformed(image, f"a layer cannot be unpacked: {first_line(error)}") from error


def _extract(stream: IO[bytes], directory: Path, image: Reference, contents: Contents) -> None:
    headers = _Headers(stream)
    headers.begin_member()  # opening an archive reads the first one
    with tarfile.open(fileobj=cast("IO[bytes]", headers), mode="r:") as archive:
        while (member := archive.next()) is not None:
            headers.begin_member()
            archive.members.clear()  # type: ignore[attr-defined]  # they have their records
            if not contents.add(member):
                raise _malformed(image, "it has too many files, or files that are too large")
            if len(archive.pax_headers) > _MAX_GLOBAL_RECORDS:
                raise _malformed(image, "a layer has too many global pax records")
            parts = PurePosixPath(member.name.removeprefix("./")).parts
            if parts[:1] != (ROOT,) or parts == (ROOT,):
                continue  # of a base image
            is_plain = len(member.name) <= _MAX_NAME and all(map(_is_plain, parts))
            if member.issparse() or not (member.isfile() or member.isdir()) or not is_plain:
                raise _malformed(image, f"{member.name[:200]!r} is not a regular file with a plain name")
            target = directory.joinpath(*parts[1:])
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            _require_space(image, directory, member.size)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)  # a later layer replaces a file
            with target.open("xb") as file:
                _copy(stream, member, file)


def _copy(stream: IO[bytes], member: tarfile.TarInfo, file: IO[bytes]) -> None:
    stream.seek(member.offset_data)
    left = member.size
    while left:
        block = stream.read(min(left, _BLOCK))
        if not block:
            raise EOFError("it is truncated")
        file.write(block)
        left -= len(block)


def _is_plain(part: str) -> bool:
    return is_plain_name(part) and not part.startswith(".wh.")  # which marks a file that a layer deletes


def _malformed(image: Reference, problem: str) -> PublishError:
    return PublishError(
        f"{image.url} is not an image of a model repository: {problem}",
        "push the image with `repogen publish`, or build it from an image that `repogen publish` pushed",
        code="store.image",
    )


class Registry:
    """Requests about one image; each is repeated after a failure of the connection.

    oras finds the credentials, which Docker's configuration has, and answers the registry's requests for them.
    """

    def __init__(self, image: Reference) -> None:
        """Connect to the registry of an image.

        Raises:
            MissingExtraError: oras is not installed.
        """
        try:
            from oras.provider import Registry as Client  # noqa: PLC0415 - an extra
            from requests import Session  # noqa: PLC0415 - the same
            from requests.adapters import HTTPAdapter  # noqa: PLC0415 - the same
            from requests.exceptions import RequestException  # noqa: PLC0415 - the same
            from urllib3 import Retry  # noqa: PLC0415 - the same
            from urllib3.exceptions import HTTPError  # noqa: PLC0415 - the same
        except ImportError as error:
            raise missing_extra("oci", error) from error

        logging.getLogger("oras.logger").setLevel(logging.CRITICAL)  # errors are raised as well
        self._image = image
        self._errors = (OSError, RequestException, HTTPError, ValueError, ResponseError)
        is_local = _is_local(image.host)
        self._root = f"{'http' if is_local else 'https'}://{image.host}/v2/"
        retry = Retry(
            _TRIES,
            backoff_factor=0.5,
            allowed_methods=None,
            status_forcelist=_TEMPORARY,
            raise_on_status=False,
            respect_retry_after_header=False,  # it could ask for hours
        )
        adapter = limited_adapter(HTTPAdapter)(max_retries=retry)
        with self._requests():
            with Session() as session:
                _limit(session, self._root, adapter)
                response = session.get(self._root, timeout=_SECONDS)
            challenge = response.headers.get("WWW-Authenticate", "") if self._is_of_registry(response) else ""
            if challenge and is_local:
                self._require_own_port()
            self._realm = _origin_of_realm(challenge)
            backend = "basic" if challenge.lower().startswith("basic") else "token"
            client = Client(insecure=is_local, auth_backend=backend)
            _limit(client.session, self._root, adapter)
            client.session.request = partial(client.session.request, timeout=_SECONDS)
            client.auth.authenticate_request = partial(self._authenticate, client.auth.authenticate_request)
            client.auth.load_configs(client.get_container(f"{image.host}/{image.name}:{image.tag}"))
        self._client = client
        # oras would repeat requests for two minutes, also those with a body that was read
        self._request = Client.do_request.__wrapped__

    def __enter__(self) -> Self:
        """Return the connection."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close the connection."""
        self._client.session.close()

    def digest(self) -> str | None:
        """Return the digest of the image's manifest; None if there is no such image."""
        content = self._manifest()
        return None if content is None else f"sha256:{sha256_bytes(content)}"

    def layers(self) -> list[_Descriptor]:
        """Return the layers of the image, the first one first.

        Raises:
            SpecError: There is no such image.
            PublishError: It has a layer that cannot be read.
        """
        content = self._manifest()
        if content is None:
            raise SpecError(
                f"there is no image {self._image.url}",
                "check the name and the tag; a registry also hides images that the credentials do not grant access to",
                code="store.no-image",
            )
        if self._image.tag.startswith("sha256:") and f"sha256:{sha256_bytes(content)}" != self._image.tag:
            raise _malformed(self._image, "the registry returned a manifest with another digest")
        try:
            layers = _MANIFEST_TYPE.validate_json(content).layers
        except ValidationError as error:
            raise _malformed(self._image, "its manifest is not that of one image") from error
        if unreadable := [layer.media_type for layer in layers if layer.media_type not in _READABLE_LAYERS]:
            raise _malformed(self._image, f"a layer has the type {unreadable[0][:100]!r}")
        return layers

    def download(self, layer: _Descriptor, path: Path) -> None:
        """Write a layer to a file, and compare its digest."""
        digest, left = hashlib.sha256(), layer.size
        url = self._url(f"blobs/{layer.digest}")
        with (
            self._requests(),
            response_limits(layer.size),
            self._send("GET", url, stream=True) as response,
            path.open("wb") as stream,
        ):
            self._require(response, HTTPStatus.OK)
            for block in response.raw.stream(_BLOCK, decode_content=False):
                left -= len(block)
                if left < 0:
                    break
                digest.update(block)
                stream.write(block)
        if left or f"sha256:{digest.hexdigest()}" != layer.digest:
            raise _malformed(self._image, f"the registry returned a layer that differs from its digest {layer.digest}")

    def upload(self, path: Path) -> None:
        """Upload a file, unless the registry has it; memory does not grow with its size."""
        digest = f"sha256:{sha256_file(path)}"
        with self._requests():
            self._client.auth.token = None  # a token is only valid for the kind of request that it was issued for
            # a mount from the same name succeeds if the registry has the blob, and begins an upload if not
            query = urlencode({"mount": digest, "from": self._image.name})
            response = self._send("POST", self._url(f"blobs/uploads/?{query}"))
            if response.status_code == HTTPStatus.CREATED:
                return
            self._require(response, HTTPStatus.ACCEPTED)
            location = urljoin(self._url("blobs/uploads/"), response.headers["Location"])
            separator = "&" if "?" in location else "?"
            # another host, such as a store of objects, does not receive the credentials
            send = self._send if location.startswith(self._root) else self._client.session.request
            with path.open("rb") as stream:
                url = f"{location}{separator}{urlencode({'digest': digest})}"
                response = send("PUT", url, data=stream, headers={"Content-Type": "application/octet-stream"})
            self._require(response, HTTPStatus.CREATED)

    def put_manifest(self, content: bytes) -> None:
        """Write the manifest, which makes the image visible."""
        with self._requests():
            url = self._url(f"manifests/{self._image.tag}")
            response = self._send("PUT", url, data=content, headers={"Content-Type": MANIFEST})
            self._require(response, HTTPStatus.CREATED)

    def _manifest(self) -> bytes | None:
        headers = {"Accept": f"{MANIFEST}, {_DOCKER_MANIFEST}"}
        url = self._url(f"manifests/{self._image.tag}")
        with self._requests():
            response = self._send("HEAD", url, headers=headers)
            if response.status_code == HTTPStatus.NOT_FOUND:
                return None
            self._require(response, HTTPStatus.OK)
        with self._requests():
            response = self._send("GET", url, headers=headers)
            self._require(response, HTTPStatus.OK)
            return bytes(response.content)

    def _send(self, method: str, url: str, headers: Mapping[str, str] | None = None, **options: object) -> Any:  # noqa: ANN401 - of requests
        """Send a request with the credentials of the last one, because oras would send a body only once."""
        headers = {**self._client.auth.get_auth_header(), **(headers or {})}
        return self._request(self._client, url, method, headers=headers, **options)

    def _authenticate(self, answer: Any, response: Any, headers: object, *, refresh: bool = False) -> Any:  # noqa: ANN401 - of oras
        """Answer a challenge of the registry, which names the server that receives the password: the realm.

        That of a host to which the registry redirects is not answered: the host could name itself. Nor is one whose
        realm differs from that of the registry's first challenge, or is another server without TLS, which a registry
        on this machine could name.
        """
        realm = _origin_of_realm(response.headers.get("WWW-Authenticate", ""))
        is_private = not realm or realm.startswith("https:") or self._root.startswith(f"{realm}/")
        if not self._is_of_registry(response) or (self._realm and realm != self._realm) or not is_private:
            return headers, False
        return answer(response, headers, refresh=refresh)

    def _require_own_port(self) -> None:
        """Require that another user could not receive the password on a port of this machine, where TLS is not used.

        Raises:
            PublishError: A user other than this one and root listens there.
        """
        port = urlsplit(self._root).port or HTTP_PORT
        if not has_own_listeners(port, loopback=True):
            raise PublishError(
                f"{self._image.host} asks for a password, and a user other than you and root may listen on its port",
                "run the registry as your user or as root, or use a registry with TLS",
                code="store.foreign-registry",
            )

    def _is_of_registry(self, response: Any) -> bool:  # noqa: ANN401 - of requests
        """Return whether a response is that of the registry, and not that of a redirect to another host."""
        return str(response.url).lower().startswith(self._root.lower())

    def _url(self, path: str) -> str:
        return f"{self._root}{self._image.name}/{path}"

    def _require(self, response: Any, status: HTTPStatus) -> None:  # noqa: ANN401 - of requests
        """Require that a request succeeded.

        Raises:
            PublishError: It did not.
        """
        if response.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise self._denied()
        if response.status_code != status:
            raise PublishError(
                f"a request to {_SCHEME}://{self._image.host} failed: {response.status_code} {response.reason}",
                "check that the registry accepts images of this name, and run the command again",
                code="store.request",
            )

    @contextmanager
    def _requests(self) -> Iterator[None]:
        """Limit responses, and turn the errors of oras and requests into repogen's; their texts could contain a token.

        Raises:
            PublishError: A request failed.
        """
        try:
            with response_limits(_MAX_MANIFEST_BYTES):
                yield
        except RepogenError:
            raise
        except INVALID_RESPONSE as error:
            # oras has no credentials where the registry asks for them
            if isinstance(error, AttributeError) and error.name == "_basic_auth":
                raise self._denied() from error
            raise PublishError(  # a header or a field is missing, or has another type
                f"a response of {_SCHEME}://{self._image.host} is not valid: {type(error).__name__}",
                "check the name of the registry",
                code="store.request",
            ) from error
        except self._errors as error:
            if isinstance(error, OSError):
                raise_if_exhausted(error)
            if "authenti" in str(error):
                raise self._denied() from error
            raise PublishError(
                f"a request to {_SCHEME}://{self._image.host} failed: {_reason(error)}",
                "check the name of the registry and the network, and run the command again",
                code="store.request",
            ) from error

    def _denied(self) -> PublishError:
        return PublishError(
            f"access to {self._image.url} was denied",
            f"run `docker login {self._image.host}`, or write credentials to ~/.docker/config.json",
            code="store.denied",
        )


def _origin_of_realm(challenge: str) -> str:
    """Return the scheme and the host of the server that issues tokens; empty if a challenge has none.

    Raises:
        ValueError: The URL of the server is not valid.
    """
    from oras.auth.utils import parse_auth_header  # noqa: PLC0415 - an extra
    from urllib3.util import parse_url  # noqa: PLC0415 - with the extra; requests finds the host of a URL with it

    realm = parse_url(parse_auth_header(challenge).realm or "")
    return f"{realm.scheme}://{realm.netloc}" if realm.netloc else ""


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, ResponseError) else type(error).__name__


def _limit(session: Any, root: str, adapter: object) -> None:  # noqa: ANN401 - of requests
    """Send the requests of a session through an adapter, none without TLS if the registry has it, without netrc.

    Args:
        session: The session.
        root: URL of the registry.
        adapter: Limits the responses, also those of other hosts: of a redirect, or where credentials are checked.
    """
    without_netrc(session)
    session.headers["Accept-Encoding"] = "identity"  # of blobs, the digests are those of the bytes that are sent
    session.adapters.clear()
    session.mount("https://", adapter)
    if root.startswith("http:"):
        session.mount("http://", adapter)


def _is_local(host: str) -> bool:
    """Return whether a registry is on this machine; as for Docker, it is used without TLS."""
    name = host.removeprefix("[").partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"

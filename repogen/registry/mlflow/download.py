"""Downloads models from MLflow: registered versions of repogen, and models that are the source of a build."""

from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

from repogen.artifacts.file_names import ATTESTATION_FILES, MANIFEST_FILE
from repogen.errors import SourceError, TrackingError
from repogen.files import (
    MAX_TEXT_BYTES,
    foreign_reason,
    is_plain_name,
    lack_of_space,
    open_inside,
    open_regular,
)
from repogen.files.own_code import FOREIGN_CODE, foreign_code
from repogen.files.resolve import resolved
from repogen.files.temporary import temporary_directory
from repogen.registry.mlflow.client import Connection, connect
from repogen.registry.mlflow.library import MlflowException, get_artifact_repository
from repogen.registry.mlflow.uri import MODEL_ALIAS, MODEL_VERSION, is_pinned
from repogen.repository.decode import MalformedRecordError
from repogen.repository.manifest import damaged_files, read_manifest
from repogen.responses import MAX_BYTES, response_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from repogen.artifacts.registry import RegistryEntry
    from repogen.artifacts.versions import Manifest

__all__ = ["connect", "download_model", "fetch_manifest", "fetch_version", "pinned_uri"]

_MISSING = {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE", "NOT_FOUND"}
_MAX_DOWNLOADS = 8
_BUFFER_BYTES = 2**20
_MAX_ENTRIES = 10_000
_MAX_LISTED = 100_000
"""Entries of all listed directories of a version, in addition to its own."""
_MAX_LISTING_BYTES = 64 * 2**20
_LISTING_SECONDS = 300.0
"""Time for all listings of one artifact; that of each one has a limit as well."""
_DELETED = "check that its artifacts still exist; `repogen build --force` builds and registers a new version"


def pinned_uri(connection: Connection, uri: str) -> str:
    """Return the URI of the version that an alias points to now; any other URI unchanged.

    Raises:
        SourceError: The model or alias does not exist, or the URI names a stage.
        TrackingError: The server cannot be reached.
    """
    if is_pinned(uri):
        return uri
    match = MODEL_ALIAS.fullmatch(uri)
    if match is None:
        raise SourceError(
            f"{uri!r} names neither a version nor an alias; MLflow no longer has stages",
            "write models:/NAME/VERSION, models:/NAME@ALIAS or runs:/RUN/PATH",
            code="source.mlflow",
            where=uri,
        )
    with connection.doing(f"reading alias {match['alias']} of {match['name']}"), _existing(uri):
        version = connection.client.get_model_version_by_alias(match["name"], match["alias"])
    return f"models:/{match['name']}/{version.version}"


def download_model(connection: Connection, uri: str, directory: Path, code_base: Path | None = None) -> Path:
    """Download a model's files.

    Args:
        connection: An open connection.
        uri: As ``pinned_uri`` returns it.
        directory: An existing empty directory.
        code_base: Directory of the spec, if the files are code that will be run; None if they are not.

    Returns:
        The directory.

    Raises:
        SourceError: The version, run or artifact does not exist, or other users of the machine can change its code.
        TrackingError: The server cannot be reached.
    """
    match = MODEL_VERSION.fullmatch(uri)
    with connection.doing(f"downloading {uri}"), _existing(uri):
        artifact_uri = uri
        if match is not None:
            artifact_uri = connection.client.get_model_version_download_uri(match["name"], match["version"])
        artifacts: Any = get_artifact_repository(artifact_uri, tracking_uri=connection.tracking.uri)
        files = _tree(artifacts, uri)
        local = _local_directory(artifacts)
        if code_base is not None and local is not None:
            _require_own_code(uri, local, files, code_base)
        _download_all(uri, artifacts, files, directory)
    if not files:
        raise _missing_error(uri, "it contains no files")
    return directory


def fetch_manifest(connection: Connection, entry: RegistryEntry, directory: Path) -> Manifest:
    """Download the manifest of a registered version, and compare it with the registry's entry.

    Args:
        connection: An open connection.
        entry: The version.
        directory: A directory to download to.

    Raises:
        TrackingError: It was deleted or changed, or the server cannot be reached.
    """
    name = f"{entry.name} version {entry.version}"
    with connection.doing(f"downloading {name}", _DELETED):
        return _manifest(_artifacts(connection, entry), entry, directory)


def fetch_version(connection: Connection, entry: RegistryEntry, directory: Path) -> Path:
    """Download the files in the manifest of a registered version, and compare every byte with the manifest.

    Args:
        connection: An open connection.
        entry: The version.
        directory: An empty directory to download to.

    Returns:
        The directory.

    Raises:
        TrackingError: Artifacts were deleted or changed, or the server cannot be reached.
    """
    name = f"{entry.name} version {entry.version}"
    with connection.doing(f"downloading {name}", _DELETED):
        artifacts = _artifacts(connection, entry)
        manifest = _manifest(artifacts, entry, directory)
        paths = {str(PurePosixPath(record.path)) for record in manifest.files}
        sizes = _sizes(artifacts, name, paths.union(ATTESTATION_FILES))
        _require_sizes(name, sizes, manifest)
        described = [file for file in ATTESTATION_FILES if sizes.get(file, MAX_TEXT_BYTES + 1) <= MAX_TEXT_BYTES]
        files = {file: sizes[file] for file in described} | {record.path: record.size for record in manifest.files}
        _download_all(name, artifacts, files, directory)
    if damaged := damaged_files(directory, manifest):
        raise _altered_error(name, "; ".join(damaged))
    return directory


def _artifacts(connection: Connection, entry: RegistryEntry) -> Any:  # noqa: ANN401 - mlflow is not typed
    uri = connection.client.get_model_version_download_uri(entry.name, str(entry.version))
    return get_artifact_repository(uri, tracking_uri=connection.tracking.uri)


def _manifest(artifacts: Any, entry: RegistryEntry, directory: Path) -> Manifest:  # noqa: ANN401 - mlflow is not typed
    name = f"{entry.name} version {entry.version}"
    size = _sizes(artifacts, name, {MANIFEST_FILE}).get(MANIFEST_FILE, 0)
    if size > MAX_TEXT_BYTES:
        raise _altered_error(name, f"its {MANIFEST_FILE} has {size} bytes; the limit is {MAX_TEXT_BYTES}")
    download_file(artifacts, MANIFEST_FILE, MAX_TEXT_BYTES, directory)
    try:
        manifest = read_manifest(directory)
    except (MalformedRecordError, OSError) as error:
        raise _altered_error(name, f"its {MANIFEST_FILE} can't be read: {error}") from error
    if manifest.model != entry.name or manifest.content_sha256 != entry.content:
        raise _altered_error(name, f"its {MANIFEST_FILE} is not the one that was registered")
    return manifest


def _download_all(name: str, artifacts: Any, files: Mapping[str, int | None], directory: Path) -> None:  # noqa: ANN401 - the same
    """Download files of these sizes; None for a size that the store does not know.

    Raises:
        TrackingError: The disk does not have space for them.
    """
    if problem := lack_of_space(directory, sum(size or 0 for size in files.values())):
        raise TrackingError(
            f"the artifacts of {name} have {problem}",
            "free disk space, or use another directory: set TMPDIR, or --stage-dir if the command has it",
            code="tracking.space",
        )
    free = shutil.disk_usage(directory).free
    limits = {path: free if size is None else size for path, size in files.items()}
    with ThreadPoolExecutor(_MAX_DOWNLOADS) as pool:
        list(pool.map(lambda path: download_file(artifacts, path, limits[path], directory), limits))


def download_file(artifacts: Any, path: str, size: int, directory: Path) -> None:  # noqa: ANN401 - the same
    """Download one file, of at most ``size`` bytes from a server with HTTP.

    The public method lists the path first, and downloads all that the server lists below it, which may have no end.
    Where another user can replace directories, a link could be in the place of the file, and MLflow would follow it.
    """
    target = directory / path
    target.parent.mkdir(parents=True, exist_ok=True)
    local = _local_directory(artifacts)
    if local is not None:
        root = resolved(local)
        with open_inside(root / path, root, root) as source:
            _create(target, source)
    elif foreign_reason(target.parent):
        with temporary_directory() as private:
            with response_limits(size):
                artifacts._download_file(path, str(private / "file"))  # noqa: SLF001 - as above
            with open_regular(private / "file") as source:
                _create(target, source)
    else:
        with response_limits(size):
            artifacts._download_file(path, str(target))  # noqa: SLF001 - as above


def _local_directory(artifacts: Any) -> Path | None:  # noqa: ANN401 - as above
    """Return the directory of an artifact on this machine; None if it is in another store."""
    local = getattr(getattr(artifacts, "repo", artifacts), "artifact_dir", None)
    return None if local is None else Path(local)


def _require_own_code(uri: str, local: Path, files: Iterable[str], base: Path) -> None:
    """Require that no other user of the machine can change an artifact with code.

    Raises:
        SourceError: Another user can.
    """
    if unsafe := foreign_code(local, [local / path for path in files], base):
        raise SourceError(
            f"{unsafe} contains Python code or a pickle of {uri}, {FOREIGN_CODE}",
            "use a directory of artifacts to which other users cannot write (chmod -R o-w DIR), or log the model as a "
            "program: mlflow.pytorch.log_model(…, serialization_format='pt2')",
            code="working-directory.foreign",
            where=uri,
        )


def _create(target: Path, source: IO[bytes]) -> None:
    """Write a new file in the place of any other, such as a link of another user."""
    target.unlink(missing_ok=True)
    with target.open("xb") as stream:
        shutil.copyfileobj(source, stream, _BUFFER_BYTES)


def _tree(artifacts: Any, uri: str) -> dict[str, int | None]:  # noqa: ANN401 - as above
    """Return the paths of all files of an artifact, with their sizes; None where the store does not know it.

    Only the names in a listing are used, not its paths.

    Raises:
        TrackingError: There are very many files and directories, listing them takes too long, or a name cannot be that
            of a file.
    """
    files, folders, count = dict[str, int | None](), [""], 0
    with _listing(artifacts, uri) as listed:
        while folders:
            folder = folders.pop()
            for info in listed(folder):
                if info.path in {".", folder}:  # some stores list the directory itself
                    continue
                count += 1
                name = PurePosixPath(info.path).name
                if count > _MAX_ENTRIES or not is_plain_name(name):
                    problem = f"{name!r:.60} as a file" if count <= _MAX_ENTRIES else f"more than {_MAX_ENTRIES} files"
                    raise _unusable(uri, f"MLflow lists {problem}")
                path = str(PurePosixPath(folder, name))
                if info.is_dir:
                    folders.append(path)
                else:
                    files[path] = None if info.file_size is None else max(0, int(info.file_size))
    return files


def _sizes(artifacts: Any, name: str, files: Collection[str]) -> dict[str, int]:  # noqa: ANN401 - mlflow is not typed
    """Return the sizes of files, as the artifact store lists them; some stores do not know them.

    Raises:
        TrackingError: Their directories have very many other files.
    """
    sizes, folders = dict[str, int](), {_folder(path) for path in files}
    left = _MAX_LISTED + len(files) + len(folders)
    with _listing(artifacts, name) as listed:
        for folder in folders:
            entries = listed(folder)
            left -= len(entries)
            if left < 0:
                raise _unusable(name, f"MLflow lists more than {_MAX_LISTED} other files")
            for info in entries:
                path = str(PurePosixPath(folder, PurePosixPath(info.path).name))
                if path in files and not info.is_dir and info.file_size is not None:
                    sizes[path] = int(info.file_size)
    return sizes


@contextmanager
def _listing(artifacts: Any, name: str) -> Iterator[Callable[[str], list[Any]]]:  # noqa: ANN401 - the same
    """Give a function that returns the entries of a directory; all listings in the block have limits together.

    Raises:
        TrackingError: They take too long.
        ResponseError: They are too large.
    """
    end = time.monotonic() + _LISTING_SECONDS

    def listed(folder: str) -> list[Any]:
        if time.monotonic() > end:
            raise _unusable(name, "MLflow takes too long to list them")
        return list(artifacts.list_artifacts(folder or None))

    with response_limits(MAX_BYTES, total=_MAX_LISTING_BYTES):
        yield listed


def _unusable(name: str, problem: str) -> TrackingError:
    return TrackingError(
        f"the artifacts of {name} are not those of a model: {problem}",
        "log the model again",
        code="tracking.server",
    )


def _folder(path: str) -> str:
    parent = PurePosixPath(path).parent
    return str(parent) if parent.name else ""


def _require_sizes(name: str, sizes: Mapping[str, int], manifest: Manifest) -> None:
    """Require files of the sizes in the manifest, before they are downloaded: a larger one could fill the disk.

    Raises:
        TrackingError: A file has another size.
    """
    for record in manifest.files:
        size = sizes.get(str(PurePosixPath(record.path)), record.size)
        if size != record.size:
            raise _altered_error(name, f"{record.path} has {size} bytes, not {record.size}")


@contextmanager
def _existing(uri: str) -> Iterator[None]:
    """Turn the exceptions of MLflow for a model that does not exist into a ``SourceError``."""
    try:
        yield
    except MlflowException as error:
        if error.error_code in _MISSING:
            raise _missing_error(uri, " ".join(str(error).split())[:200]) from error
        raise
    except FileNotFoundError as error:
        raise _missing_error(uri, "its files were deleted") from error


def _missing_error(uri: str, reason: str) -> SourceError:
    return SourceError(
        f"MLflow has no {uri}: {reason.removesuffix('.')}",
        "correct the URI of the model, or that of the MLflow server",
        code="source.mlflow",
        where=uri,
    )


def _altered_error(name: str, reason: str) -> TrackingError:
    return TrackingError(
        f"the artifacts of {name} were changed in MLflow's artifact store: {reason}",
        "restore them, or build the model again with `repogen build --force`",
        code="tracking.altered",
    )

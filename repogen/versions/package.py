"""``repogen publish --format``: a verified version, packed as a service reads a Triton model repository.

The version is published into a private repository first, an ensemble with its steps, so the checks are those of every
publish. Its model directories are the package: ``MODEL/config.pbtxt`` and ``MODEL/1/…``. The files include the
manifest and the golden tensors, so `repogen verify` and `repogen smoke` work on the unpacked package.

- **sagemaker**: a ``.tar.gz`` with the model directories at its root. Source: ``docker/sagemaker/serve`` of
  triton-inference-server/server, which serves the unpacked archive in explicit mode.
- **azureml**: a directory with the model directories, for a model of the type ``triton_model``. Source:
  "Deploy models with Triton Inference Server" in the documentation of Azure Machine Learning.
"""

from __future__ import annotations

import gzip
import os
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from repogen.artifacts.transfer import PackageFormat
from repogen.errors import PublishError, RepogenError, SpecError
from repogen.files import reason
from repogen.files.url import is_url
from repogen.repository.archive import write_tar
from repogen.repository.digest import sha256_file
from repogen.repository.filesystem import make_readable_and_sync, sync
from repogen.repository.layout import models_of
from repogen.repository.workspace import prepare_stage_root, private_repository
from repogen.versions.transfer import transfer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from repogen.artifacts.transfer import TransferOptions, TransferReport

_ARCHIVE_SUFFIX = ".tar.gz"
# weights hardly compress, and higher levels take several times as long
_COMPRESSION = 1


def package(
    source: Path, target: Path, name: str, options: TransferOptions, package_format: PackageFormat
) -> TransferReport:
    """Write a package of a version; the same version gives the same bytes.

    Args:
        source: The repository that has the version.
        target: The archive or the directory to write; it must not exist.
        name: The model.
        options: Which version, and how.
        package_format: What to write.

    Raises:
        SpecError: The source, the model or the version does not exist, or ``target`` cannot be the name of a package.
        PublishError: A version was rejected, or ``target`` exists or cannot be written.
    """
    require_package_name(target, package_format)
    _require_free(target)
    with private_publish(source, target, name, options) as (repository, report):
        if options.dry_run:
            return replace(report, format=package_format)
        staged = repository.with_name("package")
        try:
            digest = _WRITERS[package_format](repository, staged)
            _require_free(target)
            staged.rename(target)
            sync(target.parent)
        except OSError as error:
            raise PublishError(
                f"{target} cannot be written: {reason(error)}",
                "free disk space or fix the permissions, and run the command again",
                code="publish.package",
            ) from error
    return replace(report, format=package_format, digest=digest)


@contextmanager
def private_publish(
    source: Path, target: Path, name: str, options: TransferOptions
) -> Iterator[tuple[Path, TransferReport]]:
    """Publish a version into an empty private repository next to ``target``, which is removed afterward.

    Yields:
        The repository, without models in a dry run, and the report, in which it is ``target``.

    Raises:
        RepogenError: As ``transfer``, with ``target`` in place of the private repository.
    """
    with prepare_stage_root(target, options.stage_dir) as root:
        repository = private_repository(root)
        try:
            report = transfer(source, repository, name, replace(options, stage_dir=None))
        except RepogenError as error:
            name_in(error, repository, target)
            raise
        yield repository, replace(report, target=target)


def name_in(error: RepogenError, private: Path, target: Path) -> None:
    """Replace a private path in an error's texts by the path that the user knows."""
    texts = (error.message, error.hint, error.where)
    error.message, error.hint, error.where = (text.replace(str(private), str(target)) for text in texts)
    error.args = (error.message,)


def require_package_name(target: Path, package_format: PackageFormat) -> None:
    """Require that a path can be that of a package.

    Raises:
        SpecError: It can't.
    """
    if package_format is PackageFormat.SAGEMAKER and not target.name.endswith(_ARCHIVE_SUFFIX):
        raise SpecError(
            f"{target} is not the name of an archive: SageMaker reads a {_ARCHIVE_SUFFIX} file",
            f"for example --to {_archive(target)}",
            code="publish.package-name",
        )
    if package_format is PackageFormat.AZUREML and is_url(target):
        raise SpecError(
            f"{target} is not a directory: `az ml model create` uploads a directory of this machine",
            "for example --to models",
            code="publish.package-name",
        )


def _archive(target: Path) -> Path:
    """Return the name of an archive for a name that has another suffix, or in a directory."""
    return target.with_suffix(_ARCHIVE_SUFFIX) if target.suffix else target / f"model{_ARCHIVE_SUFFIX}"


def exists_error(target: Path) -> PublishError:
    """Return the error that there is a package already."""
    return PublishError(
        f"{target} exists, and a package is not replaced", "choose another name, or remove it", code="publish.exists"
    )


def _require_free(target: Path) -> None:
    if os.path.lexists(target):
        raise exists_error(target)


def _write_archive(repository: Path, target: Path) -> str:
    """Write a compressed archive of the models of a repository; return its digest."""
    with target.open("xb") as file:
        # without a name and a time, so that the bytes depend only on the content
        with gzip.GzipFile("", "wb", _COMPRESSION, file, mtime=0) as stream:
            write_tar(stream, {model: repository / model for model in models_of(repository)})
        file.flush()
        os.fsync(file.fileno())
    return f"sha256:{sha256_file(target)}"


def _write_directory(repository: Path, target: Path) -> str:
    """Move the models of a repository into a directory; a directory has no digest."""
    target.mkdir()
    for model in models_of(repository):
        (repository / model).rename(target / model)
    make_readable_and_sync(target)
    return ""


_WRITERS: dict[PackageFormat, Callable[[Path, Path], str]] = {
    PackageFormat.SAGEMAKER: _write_archive,
    PackageFormat.AZUREML: _write_directory,
}

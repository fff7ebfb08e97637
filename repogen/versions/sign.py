"""``repogen sign``: signs a published version."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from repogen.artifacts.attestation import SignReport
from repogen.attestation.signature import sign_version, unsignable
from repogen.attestation.statement import attestation_problems
from repogen.errors import PublishError, SpecError
from repogen.files import reason
from repogen.files.resolve import resolved
from repogen.files.work_limit import work_limit
from repogen.repository.filesystem import opened_directory
from repogen.repository.inventory import read_model, require_models
from repogen.repository.layout import require_own_directories
from repogen.repository.lock import locked
from repogen.repository.manifest import damaged_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from repogen.artifacts.attestation import SigningKey
    from repogen.artifacts.inventory import VersionRecord
    from repogen.artifacts.versions import Manifest


def sign(repository: Path, name: str, number: int | None, key: SigningKey) -> SignReport:
    """Sign a version, after its files were compared with its manifest.

    Args:
        repository: The repository; only the signature is written to it.
        name: The model.
        number: The version; None for the newest one that is served.
        key: What signs it.

    Raises:
        SpecError: The repository, the model or the version does not exist, or the key cannot be used.
        PublishError: The version is damaged, was not built by repogen, or cannot be signed; a symlink leads to it, so
            that the signature would be written elsewhere; or another user created it in a directory such as ``/tmp``.
    """
    repository = resolved(repository)
    require_models(repository, (name,))
    record = read_model(repository, name)
    require_own_directories(record.path)
    number = record.newest_served if number is None else number
    version = None if number is None else record.find(number)
    if version is None:
        existing = ", ".join(str(each.version) for each in record.versions) or "none"
        missing = f"{name} has no version {number}" if number is not None else f"Triton serves no version of {name}"
        raise SpecError(missing, f"its versions are {existing}", code="repository.no-such-version")
    if version.manifest is None:
        raise PublishError(
            f"{name} version {number} cannot be signed: {version.problem}",
            "sign versions that `repogen build`, `repogen sync` or `repogen publish` published",
            code="sign.not-built",
        )
    try:
        _sign(repository, version, version.manifest, key)
    except OSError as error:
        raise PublishError(
            f"{name} version {number} cannot be signed: {reason(error)}",
            "free disk space or fix the permissions of the repository, and run the command again",
            code="sign.failed",
        ) from error
    return SignReport(repository, name, version.version)


def _sign(repository: Path, version: VersionRecord, manifest: Manifest, key: SigningKey) -> None:
    with locked(repository, 60.0), _opened(version.path) as opened:
        with work_limit(f"model {version.model}"):
            damage = (*damaged_files(opened, manifest), *attestation_problems(opened, manifest))
            if not damage and (problem := unsignable(opened, manifest)):
                damage = (problem,)
        if damage:
            raise PublishError(
                f"{version.model} version {version.version} is damaged, and was not signed: {'; '.join(damage)}",
                "restore its files and delete those that the manifest does not list, or build it again",
                code="sign.damaged",
            )
        sign_version(version.path, key, opened)


@contextmanager
def _opened(version_dir: Path) -> Iterator[Path]:
    """Yield a path of a version's directory that leads nowhere else if another user replaces it, or the model's.

    Raises:
        PublishError: One of the two is a symlink, before or afterward.
        OSError: One cannot be read, or is not a directory.
    """
    _require_no_link(version_dir)
    with ExitStack() as stack:
        try:
            model = stack.enter_context(opened_directory(version_dir.parent))
            opened = stack.enter_context(opened_directory(model / version_dir.name))
        except OSError as error:
            _require_no_link(version_dir)  # that has replaced one since
            raise OSError(error.errno, error.strerror, str(version_dir)) from error
        yield opened
    _require_no_link(version_dir)


def _require_no_link(version_dir: Path) -> None:
    for directory in (version_dir.parent, version_dir):
        if directory.is_symlink():
            raise PublishError(
                f"{directory} is a symlink, and repogen does not write through links",
                "sign the version in the repository that contains it",
                code="publish.symlink",
            )

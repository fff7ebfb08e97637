"""``repogen.versions``, ``verify``, ``diff``, ``rollback``, ``prune`` and ``publish``: the versions of a repository."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.api.model_registry import open_registry
from repogen.api.working_directory import own_default
from repogen.artifacts.progress import Silent
from repogen.artifacts.prune import PruneOptions
from repogen.artifacts.rollback import RollbackOptions
from repogen.artifacts.transfer import PackageFormat, TransferOptions
from repogen.errors import RepogenError, SpecError
from repogen.files.temporary import temporary_directory
from repogen.files.url import RepositoryUrl, is_model_uri, location
from repogen.registry.registered import find_version, registered_version
from repogen.stores.open import open_store, open_url, run
from repogen.stores.selection import everything
from repogen.versions import listing
from repogen.versions import prune as pruning
from repogen.versions import rollback as rolling_back
from repogen.versions import verify as verification

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import timedelta

    from repogen.artifacts.attestation import SigningKey, SignReport, TrustedSigner
    from repogen.artifacts.difference import DiffReport
    from repogen.artifacts.inventory import VersionsReport
    from repogen.artifacts.prune import PruneReport
    from repogen.artifacts.registry import ModelRegistry
    from repogen.artifacts.rollback import RollbackReport
    from repogen.artifacts.transfer import TransferReport
    from repogen.artifacts.verification import VerifyReport
    from repogen.spec.models import Spec
    from repogen.stores.interface import Store

_ARCHIVE_SUFFIXES = (".tar.gz", ".tgz", ".tar", ".zip")


def versions(
    name: str | None = None,
    *,
    repository: Path | str = "model_repository",
    spec: Spec | Path | str | None = None,
    tracking_uri: str | None = None,
) -> VersionsReport:
    """Return the versions of a repository, and which of them Triton serves, as ``repogen versions`` does.

    Example::

        report = repogen.versions("digits")
        [version.version for version in report.models[0].versions if version.served]  # [3]

    Args:
        name: Only this model; all when None.
        repository: Any model repository.
        spec: A spec file or a loaded spec, which names the MLflow server.
        tracking_uri: MLflow server, instead of ``MLFLOW_TRACKING_URI`` and the spec's. It is queried for the numbers
            and aliases of versions that were registered; if the server does not respond, a note says so.

    Raises:
        repogen.errors.SpecError: The repository, or the model, does not exist.
        repogen.errors.PublishError: A directory can't be read.
    """
    names = () if name is None else (name,)
    connect = partial(_configured_registry, spec, tracking_uri)
    return run(repository, lambda path: listing.list_versions(path, names, connect))


def verify(
    repository: Path | str = "model_repository", *, models: Sequence[str] = (), signer: TrustedSigner | None = None
) -> VerifyReport:
    """Compare every file of a repository with the manifests of its versions, as ``repogen verify`` does.

    Example::

        repogen.verify("model_repository").findings  # ()

    Args:
        repository: A repository that repogen built.
        models: Names of the models; all when empty.
        signer: Whose signatures are required; none are when None.

    Returns:
        The number of files and bytes that were compared, and every difference.

    Raises:
        repogen.errors.SpecError: The repository or a model does not exist, or it has no models.
        repogen.errors.PublishError: A directory can't be read.
    """
    return run(
        repository,
        lambda path: verification.verify(path, models, signer),
        fetch=lambda path: everything(path, models),
    )


def sign(
    name: str, version: int | None = None, *, key: SigningKey, repository: Path | str = "model_repository"
) -> SignReport:
    """Sign a published version, as ``repogen sign`` does.

    Example::

        repogen.sign("digits", key=SigningKey(Path("key.pem")))

    Args:
        name: The model.
        version: The version; the newest one that is served when None.
        key: What signs it, a ``repogen.artifacts.attestation.SigningKey``.
        repository: A repository with versions that repogen built.

    Raises:
        repogen.errors.SpecError: The repository, the model, the version or the key does not exist.
        repogen.errors.PublishError: The version is damaged or cannot be signed.
    """
    from repogen.versions.sign import sign as sign_published  # noqa: PLC0415 - few commands need it

    return run(
        own_default(repository),
        lambda path: sign_published(path, name, version, key),
        fetch=lambda path: everything(path, (name,)),
        writes=True,
    )


def diff(  # noqa: PLR0913 - one parameter per option of `repogen diff`
    name: str,
    before: int | None = None,
    after: int | None = None,
    *,
    repository: Path | str = "model_repository",
    against: Path | str | None = None,
    spec: Spec | Path | str | None = None,
    tracking_uri: str | None = None,
) -> DiffReport:
    """Compare two versions of a model, as ``repogen diff`` does.

    Example::

        repogen.diff("digits", 2, 3).weights.unchanged  # False
        repogen.diff("digits", against="models:/digits@champion").identical  # False

    Args:
        name: The model.
        before: The first version; without it, the newest version below ``after``, or the newest one of ``repository``
            if ``against`` is set.
        after: The second version; the newest one when None.
        repository: The repository of the first version, and of the second one without ``against``.
        against: The repository of the second version. Or the URI of a registered version, which is then the first one:
            ``before`` is the version of ``repository`` that it is compared with, the newest one when None.
        spec: A spec file or a loaded spec, which names the MLflow server of a registered version.
        tracking_uri: MLflow server, instead of ``MLFLOW_TRACKING_URI`` and the spec's.

    Returns:
        What differs: signature, weights, operators, config, metrics, files.

    Raises:
        repogen.errors.SpecError: A repository, the model or a version does not exist.
        repogen.errors.PublishError: A directory can't be read.
        repogen.errors.TrackingError: The registry cannot be reached, or its files were changed.
    """
    from repogen.versions.difference import compare  # noqa: PLC0415 - imports onnx

    def fetch(path: Path) -> Iterator[Path]:
        return everything(path, (name,))

    if against is not None and is_model_uri(against):
        if after is not None:
            raise SpecError(f"with --against {against}, only one version of the repository can be specified")
        registry = open_registry(spec, tracking_uri)
        with registered_version(registry, find_version(registry, name, str(against))) as registered:
            first = (registered.repository, registered.number)
            report = run(repository, lambda path: compare(name, first, (path, before)), fetch=fetch)
        return replace(report, before=replace(report.before, repository=registered.uri))
    if against is None:
        return run(repository, lambda path: compare(name, (path, before), (path, after)), fetch=fetch)
    return run(
        repository,
        lambda first: run(against, lambda second: compare(name, (first, before), (second, after)), fetch=fetch),
        fetch=fetch,
    )


def rollback(  # noqa: PLR0913 - one parameter per option of `repogen rollback`
    name: str,
    to: int | None = None,
    *,
    repository: Path | str = "model_repository",
    release: bool = False,
    allow_breaking: bool = False,
    dry_run: bool = False,
    stage_dir: Path | str | None = None,
) -> RollbackReport:
    """Make a repository serve an older version of a model again, as ``repogen rollback`` does.

    The version is held: ``build`` and ``sync`` do not change what is served until ``release=True``.

    Example::

        report = repogen.rollback("digits")
        report.before, report.after  # (3,), (2,)

    Args:
        name: The model.
        to: The version to serve; the newest one below the served one when None.
        repository: A repository that repogen built or synced.
        release: End the hold: the newest version is served again; in a synced repository, the next sync follows the
            alias again.
        allow_breaking: Change the model although an ensemble would no longer load.
        dry_run: Change nothing.
        stage_dir: Stage here instead of next to the repository; it must be on the same filesystem.

    Returns:
        What was served before, and what is served now.

    Raises:
        repogen.errors.SpecError: The repository, the model or the version does not exist.
        repogen.errors.PublishError: The change was rejected or failed, and the repository is unchanged.
    """
    directory = None if stage_dir is None else Path(stage_dir)
    options = RollbackOptions(to, release, allow_breaking, dry_run, directory)
    place = own_default(repository)
    return run(place, lambda path: rolling_back.roll_back(path, name, options), writes=True, stage_dir=directory)


def prune(  # noqa: PLR0913 - one parameter per option of `repogen prune`
    name: str | None = None,
    *,
    keep: int,
    repository: Path | str = "model_repository",
    older_than: timedelta | None = None,
    dry_run: bool = False,
    ignore_registry: bool = False,
    stage_dir: Path | str | None = None,
    spec: Spec | Path | str | None = None,
    tracking_uri: str | None = None,
) -> PruneReport:
    """Delete old versions that are no longer needed, as ``repogen prune`` does.

    A version is kept if it is served, held, newer than the served one, aliased in the model registry, named by an
    ensemble, or not built by repogen.

    Example::

        report = repogen.prune("digits", keep=3, dry_run=True)
        [version.version for version in report.deleted]  # [2, 1]

    Args:
        name: Only this model; all when None.
        keep: Number of versions to keep of each model: the newest one that is served, and those before it.
        repository: A repository.
        older_than: Keep versions that were created less than this time ago.
        dry_run: Delete nothing.
        ignore_registry: Delete registered versions without querying the model registry for aliases.
        stage_dir: Move versions here before they are deleted, instead of next to the repository; it must be on the
            same filesystem.
        spec: A spec file or a loaded spec, which names the MLflow server.
        tracking_uri: MLflow server, instead of ``MLFLOW_TRACKING_URI`` and the spec's.

    Returns:
        Every version, with the reason why it was kept.

    Raises:
        repogen.errors.SpecError: The repository, or the model, does not exist, or ``keep`` is negative.
        repogen.errors.TrackingError: The model registry did not respond; nothing was deleted.
        repogen.errors.PublishError: A directory can't be read or written.
    """
    if keep < 0:
        raise SpecError(f"keep is {keep}: the number of versions to keep must not be negative", code="prune.keep")
    directory = None if stage_dir is None else Path(stage_dir)
    options = PruneOptions(keep, older_than, dry_run, ignore_registry, directory)
    names = () if name is None else (name,)
    connect = partial(_configured_registry, spec, tracking_uri)
    place = own_default(repository)
    return run(place, lambda path: pruning.prune(path, names, options, connect), writes=True, stage_dir=directory)


def publish(  # noqa: PLR0913 - one parameter per option of `repogen publish`
    name: str | None = None,
    version: int | None = None,
    *,
    source: Path | str,
    target: Path | str,
    allow_breaking: bool = False,
    dry_run: bool = False,
    stage_dir: Path | str | None = None,
    signer: TrustedSigner | None = None,
    package_format: PackageFormat | str | None = None,
) -> TransferReport:
    """Copy verified versions from one repository to another, as ``repogen publish`` does; ensembles with their steps.

    Every byte is compared with the manifest while it is copied. The version gets the target's next number.

    Example::

        report = repogen.publish("digits", source="staging", target="production")
        report.versions[0].number  # 4
        report = repogen.publish("digits", source="staging", target="model.tar.gz", package_format="sagemaker")
        report.digest  # 'sha256:…'

    Args:
        name: The model; all models of the source when None, each with its newest served version.
        version: The version in the source; the newest one that is served there when None.
        source: A repository with versions that repogen built. It is not trusted, and is only read.
        target: A repository that ``build`` may write; created if it does not exist. With ``package_format``, the
            archive or the directory to write, which must not exist. Or an image of an OCI registry,
            ``oci://HOST/NAME:TAG``.
        allow_breaking: Allow inputs and outputs that differ from those of the target's version.
        dry_run: Copy and check, but do not publish.
        stage_dir: Stage here instead of next to the target; it must be on the same filesystem.
        signer: Whose signatures the versions must have; none are required when None.
        package_format: ``sagemaker`` or ``azureml``, to write a package for that service.

    Returns:
        What was published; a version that the target has and serves is not published again.

    Raises:
        repogen.errors.SpecError: The source, the model or the version does not exist, or source and target are the
            same.
        repogen.errors.PublishError: A version was rejected, or the target cannot be written.
    """
    if name is None and version is not None:
        raise SpecError(
            "a version was specified without a model", "specify the name of the model", code="publish.version-of-all"
        )
    directory = None if stage_dir is None else Path(stage_dir)
    options = TransferOptions(version, allow_breaking, dry_run, directory, signer)
    from repogen.versions.transfer import (  # noqa: PLC0415 - imports onnx
        same_repository,
        to_publish,
        transfer,
    )

    place = location(target)
    if location(source) == place:
        raise same_repository(place)

    def fetch(path: Path) -> Sequence[Path]:
        return to_publish(path, name, version)

    if package_format is not None:
        form = _package_format(package_format)
        return run(source, partial(_write_package, place, _single(name), options, form), fetch=fetch)
    if isinstance(place, RepositoryUrl) and place.scheme == PackageFormat.OCI:
        return run(source, partial(_push_image, place, _single(name), options), fetch=fetch)
    _require_repository_name(place)
    if not isinstance(place, RepositoryUrl):
        return run(source, lambda path: transfer(path, place, name, options), fetch=fetch)
    with open_url(place, directory, Silent(), older=()) as opened:
        copy = partial(transfer, target=opened.path, name=name, options=options)
        report = run(source, partial(copy, publish=opened.publish, fetch=opened.fetch_versions), fetch=fetch)
        if not dry_run:
            opened.commit()  # versions are published; this removes what a publish that was killed has left
        return opened.with_urls(report)


def _single(name: str | None) -> str:
    """Return the name of the model of a package or image.

    Raises:
        SpecError: There is no name.
    """
    if name is None:
        raise SpecError("a package contains one model", "specify the name of the model", code="publish.format")
    return name


def _require_repository_name(place: Path) -> None:
    """Require that a repository does not have the name of an archive.

    Raises:
        SpecError: It does.
    """
    if place.name.lower().endswith(_ARCHIVE_SUFFIXES):
        raise SpecError(
            f"{place} is the name of an archive, but without --format the target is a repository, which is a directory",
            "to write an archive, pass --format sagemaker and a name that ends with .tar.gz; to publish to a "
            "repository, choose another name",
            code="publish.format",
        )


def _package_format(name: str) -> PackageFormat:
    """Return a format by its name.

    Raises:
        SpecError: There is none of this name.
    """
    files = (PackageFormat.SAGEMAKER, PackageFormat.AZUREML)
    if name not in files:
        raise SpecError(
            f"{name!r} is not a package format", f"the formats are {', '.join(files)}", code="publish.format"
        )
    return PackageFormat(name)


def _write_package(
    place: Path, name: str, options: TransferOptions, package_format: PackageFormat, source: Path
) -> TransferReport:
    """Write a package to a path, or, for an archive, to an object."""
    from repogen.versions.package import (  # noqa: PLC0415 - imports onnx
        exists_error,
        name_in,
        package,
        require_package_name,
    )

    if not isinstance(place, RepositoryUrl):
        return package(source, place, name, options, package_format)
    require_package_name(place, package_format)
    store = open_store(place)
    if any(each.key == place.key for each in store.list(place.key)):
        raise exists_error(place)
    with temporary_directory(options.stage_dir) as directory:
        archive = directory / place.name
        try:
            report = package(source, archive, name, options, package_format)
        except RepogenError as error:
            name_in(error, archive, place)
            raise
        if not options.dry_run:
            _upload_package(store, archive, place)
    return replace(report, target=place)


def _upload_package(store: Store, archive: Path, place: RepositoryUrl) -> None:
    """Upload an archive; the parts of an upload that fails are removed."""
    try:
        store.upload(archive, place.key, lambda _size: None)
    except BaseException:
        with suppress(RepogenError):  # the upload's error is the cause
            store.abort_uploads(place.key)
        raise


def _push_image(place: RepositoryUrl, name: str, options: TransferOptions, source: Path) -> TransferReport:
    """Push a version as an image to an OCI registry."""
    from repogen.stores.oci import push, reference  # noqa: PLC0415 - few commands need it
    from repogen.versions.package import name_in, private_publish  # noqa: PLC0415 - imports onnx

    image = reference(place)
    with temporary_directory(options.stage_dir) as directory:
        target = directory / "image"
        try:
            with private_publish(source, target, name, replace(options, stage_dir=None)) as (repository, copied):
                report = replace(copied, target=place, format=PackageFormat.OCI)
                if options.dry_run:
                    return report
                scratch = directory / "layers"
                scratch.mkdir()
                digest, is_new = push(repository, image, scratch)
        except RepogenError as error:
            name_in(error, target, place)
            raise
    versions_of_image = tuple(replace(version, published=is_new) for version in report.versions)
    return replace(report, digest=digest, versions=versions_of_image)


def _configured_registry(spec: Spec | Path | str | None, tracking_uri: str | None) -> ModelRegistry | None:
    """Connect to the model registry, None if none is configured."""
    try:
        return open_registry(spec, tracking_uri)
    except SpecError as error:
        if error.code != "tracking.no-uri":
            raise
        return None

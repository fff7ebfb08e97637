"""Opens a repository: a local directory as it is, and one in a store as a working copy."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from repogen.artifacts.progress import Silent
from repogen.errors import PublishError, RepogenError, SpecError
from repogen.files import reason
from repogen.files.paths import real_path
from repogen.files.temporary import temporary_directory
from repogen.files.url import RepositoryUrl, location
from repogen.plugins import load_plugin, plugins
from repogen.repository.layout import model_dir, triton_versions
from repogen.repository.publish import publish as publish_locally
from repogen.repository.version_policy import served_versions
from repogen.triton_config.text.parse import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.versions import PublishedVersion, StagedVersion
    from repogen.stores.interface import Store
    from repogen.stores.working_copy import Versions, WorkingCopy

    Fetch = Callable[[Path], Iterable[Path]]

_OCI = "oci"
_Result = TypeVar("_Result")
_LISTING_SECONDS = 60.0
"""Age of a listing after which it is repeated before a version is published into it."""

_MAX_PUBLISHES = 1000
"""Attempts to publish a version while others publish the same model; a store may reject every conditional write."""


def run(
    repository: Path | str,
    action: Callable[[Path], _Result],
    *,
    fetch: Fetch | None = None,
    writes: bool = False,
    stage_dir: Path | None = None,
    progress: Progress | None = None,
) -> _Result:
    """Run a command on a repository, which is a directory, or on a working copy if it is in a store.

    Args:
        repository: A path, or a URL.
        action: The command; receives the directory.
        fetch: Returns the directories of a working copy whose files the command reads; all other files except for
            config.pbtxt and manifests are placeholders.
        writes: Whether changes are written to the store afterward.
        stage_dir: Directory for the working copy; None for the system's directory of temporary files.
        progress: Receives progress events.

    Returns:
        What ``action`` returned, with URLs in place of paths in the working copy.

    Raises:
        RepogenError: The command's, with URLs in place of paths; or the store does not respond.
    """
    place = location(repository)
    if not isinstance(place, RepositoryUrl):
        return action(place)
    if place.scheme == _OCI and not writes:
        with open_image(place, stage_dir) as image:
            return image.with_urls(action(image.path))
    with open_url(place, stage_dir, progress or Silent()) as opened:
        if fetch is not None:
            opened.fetch(fetch(opened.path))
        result = action(opened.path)
        if writes:
            opened.commit()
        return opened.with_urls(result)


@contextmanager
def open_image(url: RepositoryUrl, stage_dir: Path | None) -> Iterator[LocalCopy]:
    """Yield a local copy of an image of an OCI registry, which is removed afterward.

    Args:
        url: The image.
        stage_dir: Directory for the copy; None for the system's directory of temporary files.

    Raises:
        RepogenError: There is no such image, or the registry does not respond; or an error in the block, with URLs in
            place of paths in the copy.
    """
    from repogen.stores.oci import pull, reference  # noqa: PLC0415 - other repositories do not need it

    with _private_directory(url, stage_dir) as root:
        opened = LocalCopy(url, root / "image", root / "image" / Path(*url.parts[1:]))
        with opened.naming_urls():
            pull(reference(url), opened.path, root)
            yield opened


@contextmanager
def open_url(
    url: RepositoryUrl, stage_dir: Path | None, progress: Progress, *, older: Versions | None = None
) -> Iterator[OpenedRepository]:
    """Yield a repository in a store; its working copy is removed afterward, and changes are not written.

    Args:
        url: The repository.
        stage_dir: Directory for the working copy; None for the system's directory of temporary files.
        progress: Receives progress events.
        older: Models and versions whose small files are read, in addition to those of the newest and the served ones;
            None to read those of every version.

    Raises:
        RepogenError: The store is not known, or does not respond; or an error in the block, with URLs in place of
            paths in the working copy.
    """
    from repogen.stores.working_copy import WorkingCopy  # noqa: PLC0415 - local repositories do not need it

    store = open_store(url)
    with _private_directory(url, stage_dir) as root:
        opened = OpenedRepository(WorkingCopy(url, store, root, progress, older))
        with opened.naming_urls():
            opened.copy.refresh()
            yield opened


@contextmanager
def _private_directory(url: RepositoryUrl, stage_dir: Path | None) -> Iterator[Path]:
    """Yield a new directory for a copy of a repository, which is removed afterward.

    Raises:
        PublishError: It cannot be created.
    """
    with ExitStack() as stack:
        try:
            if stage_dir is not None:
                stage_dir.mkdir(parents=True, exist_ok=True)
            directory = stack.enter_context(temporary_directory(stage_dir))
        except OSError as error:
            raise PublishError(
                f"no temporary directory can be created for a copy of {url}: {reason(error)}",
                "use a directory that is writable: set TMPDIR, or --stage-dir if the command has it",
                code="store.copy",
            ) from error
        yield real_path(directory)


def open_store(url: RepositoryUrl) -> Store:
    """Return the bucket of a URL.

    Raises:
        SpecError: No store is registered for the URL's scheme, or its plug-in does not implement the Protocol.
    """
    from repogen.stores.interface import StorePlugin  # noqa: PLC0415 - as above

    if url.scheme == _OCI:
        raise SpecError(
            f"{url} is an image of a registry, which is not changed once it is pushed",
            "push another image: repogen publish NAME --from REPOSITORY --to oci://HOST/NAME:TAG",
            code="store.read-only",
        )
    registered = plugins("repogen.stores")
    if url.scheme not in registered:
        raise SpecError(
            f"{url}: no store is registered for {url.scheme}://",
            f"registered stores: {', '.join(f'{name}://' for name in sorted(registered))}; or pass a directory",
            code="store.unknown",
        )
    plugin = load_plugin("repogen.stores", url.scheme)
    instance = plugin() if isinstance(plugin, type) else plugin
    if not isinstance(instance, StorePlugin):
        raise SpecError(
            f"the entry point {url.scheme!r} of repogen.stores is not a StorePlugin",
            f"see repogen.stores.interface; the entry point is {registered[url.scheme].value}",
            code="plugin.interface",
        )
    return instance.open(url.bucket)


class LocalCopy:
    """A local copy of a repository at a URL.

    Attributes:
        path: Directory of the repository.
    """

    def __init__(self, url: RepositoryUrl, root: Path, path: Path) -> None:
        """Use the copy at ``path``, whose parts below ``root`` are those of the URL."""
        self.path = path
        self._url = url
        self._root = root

    def with_urls(self, value: _Result) -> _Result:
        """Return a report with URLs in place of paths in the copy."""
        named: _Result = self._named(value)
        return named

    @contextmanager
    def naming_urls(self) -> Iterator[None]:
        """Replace paths in the copy by URLs in the texts of an error."""
        try:
            yield
        except RepogenError as error:
            error.message, error.hint, error.where = map(self._text, (error.message, error.hint, error.where))
            error.args = (error.message,)
            raise

    def _text(self, text: str) -> str:
        return text.replace(f"{self._root}{os.sep}", f"{self._url.scheme}://")

    def _named(self, value: Any) -> Any:  # noqa: ANN401 - any part of a report
        match value:
            case str():
                return self._text(value) if type(value) is str else value
            case Path() if value.is_relative_to(self._root):
                return RepositoryUrl(f"{self._url.scheme}:", *value.relative_to(self._root).parts)
            case tuple() | list() if type(value) in {tuple, list}:
                return type(value)(map(self._named, value))
            case dict():
                return {self._named(key): self._named(each) for key, each in value.items()}
            case _ if is_dataclass(value) and not isinstance(value, type):
                names = [field.name for field in fields(value) if field.init]
                changes = {name: new for name in names if (new := self._named(old := getattr(value, name))) is not old}
                return replace(value, **changes) if changes else value
        return value


class OpenedRepository(LocalCopy):
    """A repository in a store, and its working copy."""

    def __init__(self, copy: WorkingCopy) -> None:
        """Use a working copy."""
        super().__init__(copy.url, copy.root, copy.path)
        self.copy = copy
        self._listed = time.monotonic()

    @contextmanager
    def naming_urls(self) -> Iterator[None]:
        """Do the same, and name a repository without objects."""
        with super().naming_urls():
            try:
                yield
            except SpecError as error:
                if error.code != "repository.missing" or not error.message.startswith(str(self.path)):
                    raise
                raise SpecError(
                    f"{self.copy.url} does not exist: the store has no objects below it",
                    "publish or build a model there, or correct the URL",
                    code="repository.missing",
                ) from error

    def fetch(self, directories: Iterable[Path]) -> None:
        """Download the files in directories of the working copy."""
        self.copy.fetch(directories)

    def fetch_versions(self, name: str, versions: tuple[int, ...], *, whole: bool) -> None:
        """Download what a smoke test of versions of a model reads, on a server that reads the store itself.

        Args:
            name: The model.
            versions: The versions.
            whole: Whether to download all files that Triton reads, for a comparison of every byte.
        """
        from repogen.stores.selection import tested, version, with_origin  # noqa: PLC0415 - few commands need it

        self.copy.describe((name, number) for number in versions)
        if whole:
            self.copy.fetch(version(self.path, name, *with_origin(self.path, name, versions)))
        else:
            self.copy.fetch(tested(self.path, name, versions))

    def commit(self) -> None:
        """Write the changes to the store.

        Raises:
            PublishError: Another process changed the same model; its changes are kept.
            RepogenError: The store does not respond.
        """
        from repogen.stores.commit import commit  # noqa: PLC0415 - reading commands do not need it
        from repogen.stores.interface import ChangedError  # noqa: PLC0415 - the same

        try:
            commit(self.copy)
        except ChangedError as error:
            raise PublishError(
                f"another command changed {self.copy.url} in the meantime ({error})",
                "run the command again",
                code="store.changed",
            ) from error

    def publish(
        self, staged: StagedVersion, repository: Path, *, breaking: bool, adopt: bool = False
    ) -> PublishedVersion:
        """Publish a version as ``repogen.repository.publish.publish`` does, and write it to the store.

        If another process publishes the model at the same time, the version is published after it: all checks are
        repeated, and the version gets the next number.
        """
        from repogen.stores.commit import commit  # noqa: PLC0415 - as above
        from repogen.stores.interface import ChangedError  # noqa: PLC0415 - the same

        for attempt in range(_MAX_PUBLISHES):
            if attempt or time.monotonic() - self._listed > _LISTING_SECONDS:
                self.copy.refresh(staged.name)
            self.copy.describe((staged.name, number) for number in _served_with(staged, repository))
            published = publish_locally(_linked(staged), repository, breaking=breaking, adopt=adopt)
            try:
                commit(self.copy, [staged.name], may_skip=True)
            except ChangedError:
                continue
            return published
        raise PublishError(
            f"{staged.name} of {self.copy.url} was changed during each of {_MAX_PUBLISHES} attempts to publish it",
            "run the command again; if no other command publishes, check that the store supports conditional writes",
            code="store.changed",
        )


def _served_with(staged: StagedVersion, repository: Path) -> tuple[int, ...]:
    """Return the existing versions that a staged version's config.pbtxt would serve as well; they must fit it."""
    config = parse(staged.config.text, f"config.pbtxt of {staged.name}")
    return served_versions(config, triton_versions(model_dir(repository, staged.name)))


def _linked(staged: StagedVersion) -> StagedVersion:
    """Return a staged version whose files are hard links, because publishing moves them."""
    directory = Path(tempfile.mkdtemp(prefix="publish-", dir=staged.repository.parent))
    shutil.copytree(staged.model_dir, directory / staged.name, symlinks=True, copy_function=os.link)
    return replace(staged, repository=directory)

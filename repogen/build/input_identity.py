"""Detects that another user replaced an input while a build read it, for example with a link to a private file.

Libraries open weights, examples and the files of Hugging Face directories by their names, so a check before they do
cannot prevent it; see ``files.replacement``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.build.fingerprint import input_files
from repogen.errors import SourceError
from repogen.files.paths import FOREIGN_LINK, foreign_link
from repogen.files.replacement import trust_of
from repogen.spec.paths import check_model_paths
from repogen.spec.sources import HuggingFaceSource, OnnxSource, PythonSource
from repogen.spec.structure import PartialModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from repogen.files.replacement import Identity, Trust
    from repogen.spec.models import Spec


@dataclass(frozen=True)
class ObservedInputs:
    """The files that a build reads, as they were before it read the first one.

    Attributes:
        paths: The files that the spec names.
        directories: Absolute paths of the directories whose files are inputs as well.
        identities: Path -> device, inode and ctime, or None if nothing is there, for what another user could replace.
        trust: Whom and what is trusted.
    """

    paths: tuple[Path, ...]
    directories: tuple[Path, ...]
    identities: Mapping[str, Identity]
    trust: Trust

    def require_unreplaced(self, used: Iterable[Path], name: str) -> None:
        """Require that the inputs are still the same.

        Args:
            used: Other files that were read; those that are not in ``directories`` are code.
            name: The model.

        Raises:
            SourceError: A file, or a link or directory that leads to it, was replaced or changed.
        """
        folders = self.directories
        data = [path for path in used if any(_lexical(path).is_relative_to(folder) for folder in folders)]
        self._require_same((*self.paths, *data), name)

    def require_all_unreplaced(self, name: str) -> None:
        """Require that all inputs are still the same, whichever of them were read.

        Raises:
            SourceError: One of them was replaced or changed.
        """
        self._require_same((*self.paths, *self.directories, *self.trust.files(self.directories)), name)

    def _require_same(self, files: Iterable[Path], name: str) -> None:
        for file in files:
            for path, identity in self.trust.replaceable(file):
                if path not in self.identities or self.identities[path] != identity:
                    raise SourceError(
                        f"{path} changed during the build, and another user can replace it",
                        "build again; if other users change files there often, copy the files to a directory of yours",
                        code="source.replaced",
                        where=f"models.{name}",
                    )


def observe(spec: Spec, names: Sequence[str], repository: Path) -> ObservedInputs:
    """Return the inputs of models as they are now.

    Args:
        spec: The spec.
        names: A model, and those that it uses if it is an ensemble.
        repository: The repository to publish to.

    Raises:
        SourceError: A path leads to another place since the spec was loaded, for example through a new link.
    """
    paths, directories = [], []
    for name in names:
        source = spec.models[name].source
        paths += input_files(spec, name)
        if isinstance(source, PythonSource):
            paths += [spec.root / file for file in source.data]
        elif isinstance(source, HuggingFaceSource):
            directories.append(_checkpoint(source, spec.root))
        elif isinstance(source, OnnxSource):  # its external data
            directories.append((spec.root / source.path).parent)
    trust = trust_of(spec.root, repository)
    identities = trust.identities((*paths, *directories, *trust.files(directories)))
    _require_same_places(spec, names, (*paths, *directories))
    return ObservedInputs(tuple(paths), tuple(map(_lexical, directories)), identities, trust)


def _lexical(path: Path) -> Path:
    """Return a path as it is written, to compare it with another one; with links, it may lead elsewhere."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - links are kept


def _require_same_places(spec: Spec, names: Sequence[str], paths: Iterable[Path]) -> None:
    """Require that no link of another user leads elsewhere, also not one that is new since the spec was loaded."""
    for path in paths:
        if link := foreign_link(path, spec.root.stat().st_uid):
            raise SourceError(
                f"{link} {FOREIGN_LINK}",
                "specify the path that it leads to, if you trust it",
                code="source.replaced",
                where=f"models.{names[-1]}",
            )
    for name in names:
        for finding in check_model_paths(PartialModel(spec.models[name], frozenset()), spec.root):
            raise SourceError(finding.what, finding.hint, code="source.replaced", where=f"models.{name}")


def _checkpoint(source: HuggingFaceSource, root: Path) -> Path:
    """Return the directory of a model, in the cache of the Hub if it is not a local one."""
    if (root / source.model).is_dir():
        return root / source.model
    home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    cache = os.environ.get("HF_HUB_CACHE") or f"{home}/hub"
    return Path(cache, f"models--{str(source.model).replace('/', '--')}").expanduser()

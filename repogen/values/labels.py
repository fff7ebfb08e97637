"""Label files: the names of an output's classes, as Triton reads them from beside config.pbtxt.

All versions of a model share one config.pbtxt, and so one ``label_filename``. A label file is therefore named by its
content: another version's labels lie in another file, and no moment of a change shows one version's config with the
other's labels. It lies twice, in the version's directory, where the manifest vouches for it, and in the model's, where
Triton looks for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.values.digest import sha256_bytes, sha256_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from repogen.values.artifacts import FileRecord

_NAME = re.compile(r"labels-[0-9a-f]{8}\.txt")


@dataclass(frozen=True)
class LabelFile:
    """Names of classes, one a line, in the order of the output's last axis.

    Attributes:
        name: ``labels-<first 8 of its sha256>.txt``.
        text: Its text.
    """

    name: str
    text: str


def label_file(labels: Sequence[str]) -> LabelFile:
    """Return the file that holds ``labels``; each must be of one line."""
    text = "".join(f"{label}\n" for label in labels)
    return LabelFile(f"labels-{sha256_bytes(text.encode())[:8]}.txt", text)


def is_label_file(name: str) -> bool:
    """Return whether a file of a version belongs beside config.pbtxt, too."""
    return _NAME.fullmatch(name) is not None


def label_records(files: Iterable[FileRecord]) -> tuple[FileRecord, ...]:
    """Return the records of a version's label files."""
    return tuple(record for record in files if is_label_file(record.path))


def labels_in_place(directory: Path, files: Iterable[FileRecord]) -> bool:
    """Return whether a model's directory holds the label files of a version.

    Args:
        directory: The model's directory.
        files: The version's, as its manifest lists them.
    """
    return all(_is(directory / record.path, record) for record in label_records(files))


def _is(path: Path, record: FileRecord) -> bool:
    return path.is_file() and sha256_file(path) == record.sha256

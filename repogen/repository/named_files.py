"""Files that config.pbtxt names and Triton reads beside it: class names, data of warmups, what sequences start with.

All versions of a model share one config.pbtxt, and so the files that it names. Each is therefore named by its content:
another version's lies in another file, and no moment of a change shows one version's config with the other's files. It
lies twice, in the version's directory, where the manifest vouches for it, and in the model's, where Triton looks for
it: class names beside config.pbtxt, data in directories of their own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from repogen.repository.digest import sha256_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from repogen.artifacts.built_model import FileRecord

_NAME = re.compile(r"(?P<kind>labels|warmup|state)-[0-9a-f]{8}\.(?:txt|bin)")
# Where Triton looks: labels by label_filename, the others by input_data_file and data_file.
_PLACES = {"labels": "", "warmup": "warmup/", "state": "initial_state/"}
DATA_PLACES = ("warmup", "initial_state")


def is_named_file(name: str) -> bool:
    """Return whether a file of a version belongs into the model's directory, too."""
    return _NAME.fullmatch(name) is not None


def place_of(name: str) -> str:
    """Return where in the model's directory a named file lies.

    >>> place_of("labels-0123abcd.txt"), place_of("warmup-0123abcd.bin")
    ('labels-0123abcd.txt', 'warmup/warmup-0123abcd.bin')
    """
    return f"{_PLACES[name.partition('-')[0]]}{name}"


def named_records(files: Iterable[FileRecord]) -> tuple[FileRecord, ...]:
    """Return the records of a version's files that its config names."""
    return tuple(record for record in files if is_named_file(record.path))


def named_files_in_place(directory: Path, files: Iterable[FileRecord]) -> bool:
    """Return whether a model's directory holds what the config of a version names.

    Args:
        directory: The model's directory.
        files: The version's, as its manifest lists them.
    """
    return all(_is(directory / place_of(record.path), record) for record in named_records(files))


def _is(path: Path, record: FileRecord) -> bool:
    return path.is_file() and sha256_file(path) == record.sha256

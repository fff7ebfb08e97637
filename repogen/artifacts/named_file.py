"""Files that config.pbtxt names and Triton reads next to it: class names, warmup data, initial states of sequences.

All versions of a model share one config.pbtxt, and therefore the files that it names. Each file is named by its
content, so two versions never use one name for different contents. It is stored twice: in the version's directory,
where the manifest lists it, and in the model's directory, where Triton looks for it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from repogen.artifacts.built_model import FileRecord

_NAME = re.compile(r"(?:labels|warmup|state)-(?P<digits>[0-9a-f]{8})\.(?:txt|bin)")
# Triton looks for a label_filename next to config.pbtxt, for an input_data_file and a data_file in these directories.
_DIRECTORIES = {"labels": "", "warmup": "warmup/", "state": "initial_state/"}
DATA_DIRECTORIES = ("warmup", "initial_state")


@dataclass(frozen=True)
class NamedFile:
    """A file that the config names.

    Attributes:
        name: Its kind and the first 8 digits of its sha256: ``labels-0123abcd.txt``, ``warmup-0123abcd.bin``.
        content: Its bytes.
    """

    name: str
    content: bytes


def label_file(labels: Sequence[str]) -> NamedFile:
    """Return the file of class names, one per line, in the order of the output's last axis."""
    content = "".join(f"{label}\n" for label in labels).encode()
    return NamedFile(f"labels-{hashlib.sha256(content).hexdigest()[:8]}.txt", content)


def data_file(kind: Literal["warmup", "state"], content: bytes) -> NamedFile:
    """Return the file of the raw values of a warmup input, or of a sequence's initial state."""
    return NamedFile(f"{kind}-{hashlib.sha256(content).hexdigest()[:8]}.bin", content)


def is_named_file(name: str) -> bool:
    """Return whether a file of a version is also stored in the model's directory."""
    return _NAME.fullmatch(name) is not None


def is_named_by(name: str, sha256: str) -> bool:
    """Return whether a file may have its name: that of a named file has the first digits of its sha256.

    >>> is_named_by("labels-0123abcd.txt", "0123abcd" * 8), is_named_by("labels-0123abcd.txt", "0" * 64)
    (True, False)
    """
    match = _NAME.fullmatch(name)
    return match is None or sha256.startswith(match["digits"])


def path_in_model(name: str) -> str:
    """Return the path of a named file, relative to the model's directory.

    >>> path_in_model("labels-0123abcd.txt"), path_in_model("warmup-0123abcd.bin")
    ('labels-0123abcd.txt', 'warmup/warmup-0123abcd.bin')
    """
    return f"{_DIRECTORIES[name.partition('-')[0]]}{name}"


def named_records(files: Iterable[FileRecord]) -> tuple[FileRecord, ...]:
    """Return the records of a version's files that its config names."""
    return tuple(record for record in files if is_named_file(record.path))

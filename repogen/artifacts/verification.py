"""The result of ``repogen verify``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Discrepancy:
    """A difference between a repository and what repogen recorded about it.

    Attributes:
        model: The model.
        version: The version; None for a file of the model's directory.
        message: What differs.
    """

    model: str
    version: int | None
    message: str


@dataclass(frozen=True)
class VerifyReport:
    """The result of ``repogen verify``.

    Attributes:
        repository: The repository.
        models: Number of models.
        versions: Number of versions.
        files: Number of files that manifests list.
        size: Bytes of these files.
        signed: Number of versions with a signature; if signatures were required, all of them are valid or findings.
        findings: Every difference, by model, newest version first.
    """

    repository: Path
    models: int
    versions: int
    files: int
    size: int
    findings: tuple[Discrepancy, ...]
    signed: int = 0

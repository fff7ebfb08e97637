"""A repository's directories as Triton reads them: what is a model, a version, and which versions it serves."""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.triton_config.rules.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from repogen.triton_config.text.parse import ModelConfig

CONFIG = "config.pbtxt"
_NUMBERED = re.compile(r"[0-9]+")
_INT64 = 2**63 - 1
# A model file by which Triton knows what serves a model whose config does not say it.
MODEL_FILES = (
    "model.onnx", "model.plan", "model.pt", "model.py", "model.graphdef", "model.savedmodel", "model.json", "model.xml",
)  # fmt: skip


@dataclass(frozen=True)
class Version:
    """A version directory, and the number that Triton reads from its name."""

    number: int
    path: Path


def is_model(directory: Path) -> bool:
    """Whether a directory looks like a model: it has a config, or a version with a model file."""
    if (directory / CONFIG).exists():
        return True
    return any((version.path / name).exists() for version in versions_of(directory) for name in MODEL_FILES)


def versions_of(directory: Path) -> list[Version]:
    """Return the versions that Triton finds in a model's directory, newest first; the path of one may not be there.

    Source: GetModelVersions of triton-inference-server/core. It ignores names with a leading zero, and reads the others
    by ``std::stoll``, which stops at the first character that is no digit.
    """
    numbers = {number for entry in directory.iterdir() if (number := _number(entry)) is not None}
    return [Version(number, directory / str(number)) for number in sorted(numbers, reverse=True)]


def _number(entry: Path) -> int | None:
    match = _NUMBERED.match(entry.name)
    if match is None or (entry.name[0] == "0" and len(entry.name) > 1) or not entry.is_dir():
        return None
    return int(match[0]) if int(match[0]) <= _INT64 else None


def root_findings(repository: Path) -> Iterator[Finding]:
    """Yield each directory of a repository's root that is no model: Triton takes every one for a model."""
    for entry in sorted(repository.iterdir()):
        if entry.is_symlink() and not entry.exists():
            message = f"{entry.name} is a link to nothing, and Triton fails to start"
            yield Finding("RG401", "error", message, "remove it", path=str(entry))
        if entry.is_dir() and not is_model(entry):
            what = "a directory without a model" if not entry.name.startswith(".") else "a hidden directory"
            message = f"{entry.name}/ is {what}, and Triton takes every directory here for one: it fails to start"
            yield Finding("RG401", "error", message, "move it out of the repository", path=str(entry))


def config_kind(path: Path) -> str:
    """Return what keeps config.pbtxt from being read; empty for a file that can be, or none."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return "is a link to nothing" if path.is_symlink() else ""
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if stat.S_ISREG(mode):
        return ""
    return "is a directory, which brings tritonserver 2.51 down" if stat.S_ISDIR(mode) else "is no regular file"


def version_findings(directory: Path, *, ensemble: bool) -> Iterator[Finding]:
    """Yield what is wrong with the names of version directories."""
    for entry in sorted(directory.iterdir()):
        match = _NUMBERED.match(entry.name)
        if match and entry.is_dir():
            yield from _name(entry, match[0])
    if not versions_of(directory):
        what = "an empty directory 1/" if ensemble else "1/ with the model file"
        message = f"{directory.name} has no version directory"
        yield Finding("RG404", "error", message, f"make {what}", path=str(directory))


def policy_findings(versions: list[Version], config: ModelConfig) -> Iterator[Finding]:
    """Yield versions that the policy asks for and that are not there."""
    wanted = [] if not config.version_policy.HasField("specific") else list(config.version_policy.specific.versions)
    there = {version.number for version in versions}
    for index, number in enumerate(wanted):
        if number not in there:
            none = not there & set(wanted)
            message = f"version_policy asks for version {number}, which is not there"
            hint = f"there are {', '.join(map(str, sorted(there))) or 'none'}"
            field = f"version_policy.specific.versions[{index}]"
            yield Finding("RG404", "error" if none else "warning", message, hint, field)


def _name(entry: Path, digits: str) -> Iterator[Finding]:
    path, number = str(entry), int(digits)
    if entry.name[0] == "0" and len(entry.name) > 1:
        message = f"{entry.name}/ has a leading zero, and Triton ignores it"
        fix = str(number) if entry.name == digits and number else ""
        yield Finding("RG403", "warning", message, f"rename it to {fix}" if fix else "remove it", path=path, fix=fix)
    elif number > _INT64:
        message = f"version {entry.name} overflows Triton's 64 bits, which brings tritonserver 2.51 down"
        yield Finding("RG403", "error", message, "use a smaller number", path=path)
    elif entry.name != digits:
        there = entry.with_name(digits).is_dir()
        message = f"{entry.name}/ is taken for version {number}: Triton reads a name up to its first other letter"
        message += "" if there else f", and looks for {digits}/"
        hint = "move it out of the model's directory"
        yield Finding("RG403", "warning" if there else "error", message, hint, path=path, fix="" if there else digits)
    elif number == 0:
        message = "version 0 loads, and a client that asks for no version gets the newest, not this one"
        yield Finding("RG403", "warning", message, "count versions from 1", path=path, fix="1")


def served(versions: list[Version], config: ModelConfig | None) -> list[Version]:
    """Return the versions that the config's policy serves, newest first."""
    if config is None or not config.HasField("version_policy"):
        return versions[:1]
    policy = config.version_policy
    if policy.HasField("specific"):
        return [version for version in versions if version.number in policy.specific.versions]
    if policy.HasField("latest"):
        return versions[: policy.latest.num_versions]
    return versions

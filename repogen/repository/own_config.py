"""Stages a version's own config.pbtxt with another version policy, for a sync or a rollback."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE
from repogen.artifacts.named_file import named_records, path_in_model
from repogen.errors import ConfigError
from repogen.files.content import write_new
from repogen.repository.filesystem import make_readable_and_sync
from repogen.repository.layout import config_bytes
from repogen.triton_config.rules.config_rules import config_findings
from repogen.triton_config.rules.file_names import file_problems, model_file_problems
from repogen.triton_config.rules.findings import errors_of
from repogen.triton_config.rules.graph import graph_findings
from repogen.triton_config.text.parse import parse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from repogen.artifacts.versions import Manifest, StagedVersion


class UnservableError(ValueError):
    """Triton would not serve a version with its own config.pbtxt; the message is the reason."""


def config_serving(version_dir: Path, manifest: Manifest, change: Callable[[str, int], str]) -> str:
    """Return a version's own config.pbtxt with a policy that serves the version alone.

    The result is parsed. It must equal the original except for the policy, and pass the rules that a build applies. The
    files that it names must be in the manifest; those that versions share must be named by their content.

    Args:
        version_dir: The version's directory; its name is the version's number.
        manifest: Its manifest.
        change: Returns the text for a version: ``serving_only`` or ``hold_text``.

    Raises:
        UnservableError: Triton would reject the config, or its policy cannot be replaced.
        RepogenError: The file is too large.
        OSError: The file can't be read.
    """
    name, version = manifest.model, int(version_dir.name)
    origin = f"config.pbtxt of {name} version {version}"
    try:
        original = (config_bytes(version_dir) or b"").decode()
        before = parse(original, f"{origin}, as published")
        text = change(original, version)
        after = parse(text, origin)
    except (ConfigError, UnicodeDecodeError) as error:
        raise UnservableError(str(error)) from error
    served_numbers = list(after.version_policy.specific.versions)
    findings = errors_of([*config_findings(after, name), *graph_findings(after, manifest.signature)])
    for message in (before, after):
        message.ClearField("version_policy")
    if before != after or served_numbers != [version]:
        raise UnservableError("its version policy cannot be replaced")
    problems = [f"{finding.code} {finding.message}" for finding in findings]
    problems += file_problems(after, {record.path: record.size for record in named_records(manifest.files)})
    problems += model_file_problems(after, {record.path for record in manifest.files})
    if problems:
        raise UnservableError("\n".join(problems))
    return text


def stage_config(staged: StagedVersion, version_dir: Path) -> None:
    """Write a staged version's config.pbtxt, and copies of the files that it names, durably.

    Args:
        staged: The version; its directory may be staged already.
        version_dir: A directory with the version's files.

    Raises:
        OSError: A file can't be read or written.
    """
    staged.model_dir.mkdir(exist_ok=True)
    write_new(staged.model_dir / CONFIG_FILE, staged.config.text.encode())
    for record in named_records(staged.manifest.files):
        copy = staged.model_dir / path_in_model(record.path)
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(version_dir / record.path, copy)
    make_readable_and_sync(staged.model_dir)

"""Whether a new version can share one config.pbtxt with the published versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.errors import PublishError
from repogen.repository.decode import MalformedRecordError
from repogen.repository.layout import triton_versions
from repogen.repository.manifest import read_manifest
from repogen.repository.version_policy import served_versions
from repogen.triton_config.text.parse import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from repogen.artifacts.tensors import Signature, TensorSpec
    from repogen.artifacts.versions import Manifest, StagedVersion


def differences(old: Signature, new: Signature) -> tuple[str, ...]:
    """Return the differences that a client of ``old`` would notice in ``new``, one line each.

    The order of tensors and the names of symbolic dims are not compared: clients and config.pbtxt use tensor names, and
    a dim is either fixed or dynamic.
    """
    return (*_differences("input", old.inputs, new.inputs), *_differences("output", old.outputs, new.outputs))


def require_same_signature(published: Manifest, version: int, staged: StagedVersion) -> None:
    """Require the inputs and outputs of the published version.

    Raises:
        PublishError: They differ; every difference is listed.
    """
    lines = differences(published.signature, staged.manifest.signature)
    if lines:
        raise PublishError(
            f"{staged.name}: inputs or outputs differ from version {version} in the repository, and config.pbtxt "
            "belongs to all versions:\n" + "\n".join(f"  {line}" for line in lines),
            "Publish it under another model name, or accept that every client breaks with --allow-breaking.",
            code="publish.breaking",
        )


def misfits(model: Path, served: Iterable[int], staged: StagedVersion) -> tuple[str, ...]:
    """Return why the new config does not fit the published versions ``served``, one line each.

    A version that repogen did not build, or whose manifest is damaged, is skipped: its signature is unknown.
    """
    return tuple(line for version in sorted(served) for line in _tensor_misfits(model / str(version), staged))


def require_servable(model: Path, number: int, staged: StagedVersion) -> None:
    """Require a version policy that serves a version, and no older one that the new config does not fit.

    Args:
        model: The model's directory.
        number: Number of the new version.
        staged: The new version.

    Raises:
        PublishError: Triton would serve nothing, fail to load a version, or batch one that was not verified to batch.
    """
    config = parse(staged.config.text, f"config.pbtxt of {staged.name}")
    served_numbers = served_versions(config, [*triton_versions(model), number])
    if not served_numbers:
        numbers = ", ".join(map(str, sorted(config.version_policy.specific.versions)))
        raise PublishError(
            f"{staged.name}: version_policy serves only version {numbers or 'none'}: it is not published, and the new "
            f"version is {number}, so Triton would serve nothing",
            f"Name {number} in `triton.version_policy: {{specific: [...]}}`, or set `{{latest: {{num_versions: 1}}}}`.",
            code="publish.version-policy",
        )
    if lines := misfits(model, set(served_numbers) - {number}, staged):
        raise PublishError(
            f"{staged.name}: version_policy would also serve older versions that the new config.pbtxt does not fit:\n"
            + "\n".join(f"  {line}" for line in lines),
            "Set `triton.version_policy: {latest: {num_versions: 1}}`, or move those version directories away.",
            code="publish.version-policy",
        )


def _tensor_misfits(version: Path, staged: StagedVersion) -> Iterator[str]:
    if not version.is_dir():
        yield f"version {version.name}: Triton reads this number from a directory's name, and {version} does not exist"
        return
    try:
        manifest = read_manifest(version)
    except (OSError, MalformedRecordError):
        return
    for line in differences(manifest.signature, staged.manifest.signature):
        yield f"version {version.name}: {line}"
    if staged.config.max_batch_size and not manifest.max_batch_size:
        yield f"version {version.name}: was published with max_batch_size 0, not {staged.config.max_batch_size}"


def _differences(kind: str, old: tuple[TensorSpec, ...], new: tuple[TensorSpec, ...]) -> Iterator[str]:
    before, after = {tensor.name: tensor for tensor in old}, {tensor.name: tensor for tensor in new}
    for name, tensor in before.items():
        if name not in after:
            yield f"{kind} {name!r} is gone"
        elif (old_text := _describe(tensor)) != (new_text := _describe(after[name])):
            yield f"{kind} {name!r} was {old_text}, is {new_text}"
    for name in after:
        if name not in before:
            yield f"{kind} {name!r} is new"


def _describe(tensor: TensorSpec) -> str:
    """Return dtype and shape, symbolic dims as ``-1``."""
    return f"{tensor.dtype} [{', '.join(str(-1 if isinstance(dim, str) else dim) for dim in tensor.shape)}]"

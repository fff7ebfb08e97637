"""Whether a new version can share one config.pbtxt with the published versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.tensors import DTYPES
from repogen.errors import PublishError
from repogen.repository.decode import MalformedRecordError
from repogen.repository.layout import triton_versions
from repogen.repository.manifest import read_manifest
from repogen.repository.version_policy import served_versions
from repogen.triton_config.rules.tensors import triton_fed_inputs
from repogen.triton_config.text.parse import parse
from repogen.triton_config.text.view import dims_text, fits, tensor_views

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from repogen.artifacts.tensors import Signature, TensorSpec
    from repogen.artifacts.versions import Manifest, StagedVersion
    from repogen.triton_config.text.parse import ModelConfig


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
            "publish it under another model name, or, if all clients can handle the change, use --allow-breaking",
            code="publish.breaking",
        )


def require_same_tensors(config: bytes, staged: StagedVersion) -> None:
    """Require the inputs and outputs of an existing config.pbtxt, for a model whose signature is not recorded.

    Raises:
        PublishError: They differ, or the config cannot be parsed.
    """
    old = parse(config.decode(errors="replace"), f"the existing config.pbtxt of {staged.name}")
    new = parse(staged.config.text, f"config.pbtxt of {staged.name}")
    filled_inputs, states = dict(triton_fed_inputs(new)), {state.output_name for state in new.sequence_batching.state}
    signature = staged.manifest.signature
    inputs = [tensor for tensor in signature.inputs if tensor.name not in filled_inputs]
    outputs = [tensor for tensor in signature.outputs if tensor.name not in states]
    lines = [
        *_config_differences("input", old, inputs, widened=True),
        *_config_differences("output", old, outputs, widened=False),
    ]
    if lines:
        raise PublishError(
            f"{staged.name}: inputs or outputs differ from those of the existing config.pbtxt:\n"
            + "\n".join(f"  {line}" for line in lines),
            "change the spec, or, if all clients can handle the change, use --allow-breaking",
            code="publish.breaking",
        )


def _config_differences(
    kind: str, config: ModelConfig, tensors: Iterable[TensorSpec], *, widened: bool
) -> Iterator[str]:
    """Yield the tensors of a config that a model does not have; with ``widened``, a fixed dim may become dynamic."""
    batch = (-1,) if config.max_batch_size > 0 else ()
    after = {tensor.name: tensor for tensor in tensors}
    before = tensor_views(getattr(config, kind))
    for view in before:
        dims = (*batch, *view.model_dims)
        if view.name not in after:
            yield f"{kind} {view.name!r} was removed"
            continue
        tensor = after[view.name]
        new_dims = tuple(-1 if isinstance(dim, str) else dim for dim in tensor.shape) or (1,)
        is_same = fits(dims, new_dims) if widened else dims == new_dims
        if view.dtype != DTYPES[tensor.dtype].triton or not is_same:
            new = f"{DTYPES[tensor.dtype].triton} {dims_text(new_dims)}"
            yield f"{kind} {view.name!r} was {view.dtype} {dims_text(dims)}, is {new}"
    names = {view.name for view in before}
    yield from (f"{kind} {name!r} is new" for name in after if names and name not in names)


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
            f"name {number} in `triton.version_policy: {{specific: [...]}}`, or set `{{latest: {{num_versions: 1}}}}`",
            code="publish.version-policy",
        )
    if lines := misfits(model, set(served_numbers) - {number}, staged):
        raise PublishError(
            f"{staged.name}: version_policy would also serve older versions that do not match the new config.pbtxt:\n"
            + "\n".join(f"  {line}" for line in lines),
            "set `triton.version_policy: {latest: {num_versions: 1}}`, or move those version directories away",
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
            yield f"{kind} {name!r} was removed"
        elif (old_text := _describe(tensor)) != (new_text := _describe(after[name])):
            yield f"{kind} {name!r} was {old_text}, is {new_text}"
    for name in after:
        if name not in before:
            yield f"{kind} {name!r} is new"


def _describe(tensor: TensorSpec) -> str:
    """Return dtype and shape, symbolic dims as ``-1``."""
    return f"{tensor.dtype} [{', '.join(str(-1 if isinstance(dim, str) else dim) for dim in tensor.shape)}]"

"""Rules for ``triton:``: those for config.pbtxt, and those for what only a spec can express."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from repogen.spec.structure import Finding
from repogen.triton_config.rules.findings import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from repogen.spec.models import ModelSpec
    from repogen.triton_config.sections.base import KeyPath
    from repogen.triton_config.sections.model import TritonSpec
    from repogen.triton_config.sections.sequence import SequenceBatchingSpec

Findings: TypeAlias = "Iterator[Finding]"

_SEQUENCE = ("triton", "sequence_batching")


def triton_findings(model: ModelSpec) -> Findings:
    """Yield the violations in ``triton:``, first of the rules that do not need the graph."""
    conflicts = list(_conflicts(model.triton))
    yield from conflicts
    yield from _required_keys(model.triton)
    # Without a section there is nothing to check, and no reason to import protobuf.
    if not conflicts and model.triton.model_fields_set - {"max_batch_size"}:
        from repogen.triton_config.render.spec_findings import (  # noqa: PLC0415 - imports protobuf
            section_findings,
            tensorrt_findings,
        )

        for path, finding in (
            *section_findings(model.triton, model.source.kind),
            *tensorrt_findings(model.triton),
        ):
            what = f"{finding.code}: {finding.message}" if finding.code.startswith("RG") else finding.message
            yield Finding(("triton", *path), what, finding.hint)


def name_findings(model: ModelSpec) -> Findings:
    """Yield names of tensors in ``triton:`` that are not in the model's ``inputs`` and ``outputs``."""
    declared = {"input": dict.fromkeys(model.inputs), "output": dict.fromkeys(model.output_names)}
    for code, kind, path, name in _tensor_names(model.triton):
        if declared[kind] and name not in declared[kind]:
            what = f'{code}"{name}" is not an {kind} of the model'
            yield Finding(("triton", *path), what, f"its {kind}s are {listed(declared[kind])}")


def _conflicts(triton: TritonSpec) -> Findings:
    """Yield mutually exclusive keys, which config.pbtxt cannot express because its fields are a ``oneof``."""
    policy, sequence = triton.version_policy, triton.sequence_batching
    keys = [name for name in ("latest", "all", "specific") if getattr(policy, name, None) is not None]
    if policy is not None and len(keys) != 1:
        what = f"needs exactly one of latest, all, specific, not {' and '.join(keys) or 'none'}"
        yield Finding(("triton", "version_policy"), what, "latest: {num_versions: 2}")
    if triton.dynamic_batching is not None and sequence is not None:
        what = "RG130: sequence_batching and dynamic_batching are mutually exclusive: a model has one scheduler"
        yield Finding(_SEQUENCE, what, "keep one; oldest batches requests of different sequences")
    if sequence is not None:
        yield from _sequence_conflicts(sequence)
    if triton.tensorrt is not None:
        yield from _tensorrt_conflicts(triton)


def _tensorrt_conflicts(triton: TritonSpec) -> Findings:
    optimization = triton.optimization
    accelerators = optimization.execution_accelerators if optimization is not None else None
    names = [accelerator.name for accelerator in accelerators.gpu_execution_accelerator] if accelerators else []
    if "tensorrt" in names:
        what = "tensorrt and optimization.execution_accelerators both configure TensorRT"
        yield Finding(("triton", "tensorrt"), what, "keep one; tensorrt: {parameters: …} sets any parameter")
    if triton.instance_group and all(group.kind == "KIND_CPU" for group in triton.instance_group):
        what = "tensorrt needs instances on a GPU, but all instances are KIND_CPU"
        yield Finding(("triton", "tensorrt"), what, "remove instance_group, or set kind: KIND_GPU")


def _sequence_conflicts(sequence: SequenceBatchingSpec) -> Findings:
    if sequence.direct is not None and sequence.oldest is not None:
        what = "direct and oldest are mutually exclusive: sequence_batching has one strategy"
        yield Finding((*_SEQUENCE, "oldest"), what, "keep one")
    for index, state in enumerate(sequence.state):
        for number, initial in enumerate(state.initial_state):
            if (initial.zero_data is None) == (initial.data_file is None):
                what = "RG122: an initial state needs exactly one of zero_data and data_file"
                yield Finding((*_SEQUENCE, "state", index, "initial_state", number), what, "zero_data: true")


def _required_keys(triton: TritonSpec) -> Findings:
    """Yield keys that need another key, because repogen cannot derive it."""
    for name, settings in triton.input.items():
        if settings.allow_ragged_batch and triton.max_batch_size == "auto":
            what = "RG124: ragged batches need a max_batch_size in the spec, because it cannot be measured"
            yield Finding(("triton", "input", name, "allow_ragged_batch"), what, "set max_batch_size: 16")
    for kind, tensors in (("input", triton.input), ("output", triton.output)):
        for name, tensor in tensors.items():
            if tensor.reshape is not None and tensor.dims is None:
                what = "RG114: reshape needs dims, the shape for clients"
                yield Finding(("triton", kind, name, "reshape"), what, "add dims; reshape.shape is the graph's shape")
    for index, state in enumerate(triton.sequence_batching.state if triton.sequence_batching is not None else ()):
        if state.use_growable_memory and not state.use_same_buffer_for_input_output:
            what = "use_growable_memory requires use_same_buffer_for_input_output"
            yield Finding((*_SEQUENCE, "state", index, "use_growable_memory"), what, "set both, or neither")


def _tensor_names(triton: TritonSpec) -> Iterator[tuple[str, str, KeyPath, str]]:
    """Yield every tensor name in a section: code of the rule, kind, key path below ``triton``, name."""
    for kind, tensors in (("input", triton.input), ("output", triton.output)):
        for name in tensors:
            yield "", kind, (kind, name), name
    sequence = triton.sequence_batching
    for index, tensor in enumerate(sequence.control_input if sequence is not None else ()):
        yield "RG201: ", "input", ("sequence_batching", "control_input", index, "name"), tensor.name
    for index, state in enumerate(sequence.state if sequence is not None else ()):
        path = ("sequence_batching", "state", index)
        yield "RG201: ", "input", (*path, "input_name"), state.input_name
        yield "RG203: ", "output", (*path, "output_name"), state.output_name


_TRITON = frozenset({"triton"})
TRITON_RULES: tuple[tuple[frozenset[str], Callable[[ModelSpec], Findings]], ...] = (
    (_TRITON | {"source"}, triton_findings),
    (_TRITON | {"inputs", "outputs"}, name_findings),
)

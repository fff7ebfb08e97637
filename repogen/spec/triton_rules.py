"""Rules about ``triton:``: what Triton would refuse of a well-formed section, each a pure function.

Rules that ``repogen check`` has, too, are named by their code (docs/rules/). Those that need the graph are configure's.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from repogen.spec.problems import printable
from repogen.spec.structure import Finding
from repogen.triton_config.rules.backend_parameters import meant_by, unreadable
from repogen.triton_config.sections.base import INT32_MAX
from repogen.triton_config.sections.model import parameter_text
from repogen.triton_config.text.dims import same_elements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from repogen.spec.models import ModelSpec
    from repogen.triton_config.sections.base import KeyPath
    from repogen.triton_config.sections.model import InstanceGroupSpec
    from repogen.triton_config.sections.sequence import ControlSpec, SequenceBatchingSpec

Findings: TypeAlias = "Iterator[Finding]"

_SEQUENCE = ("triton", "sequence_batching")
_CORRELATION = "CONTROL_SEQUENCE_CORRID"
_PAIRS = ("int32_false_true", "fp32_false_true", "bool_false_true")


def _dynamic_batching(model: ModelSpec) -> Findings:
    size, batching = model.triton.max_batch_size, model.triton.dynamic_batching
    if batching is None or size == "auto":
        return
    path = ("triton", "dynamic_batching")
    if size == 0:
        yield Finding(path, "needs max_batch_size above 0", "remove it, or raise max_batch_size")
        return
    for position, preferred in enumerate(batching.preferred_batch_size):
        if preferred > size:
            what = f"{preferred} is above max_batch_size, {size}: Triton refuses the model"
            yield Finding((*path, "preferred_batch_size", position), what)


def _instance_groups(model: ModelSpec) -> Findings:
    seen: set[str] = set()
    for position, group in enumerate(model.triton.instance_group):
        path = ("triton", "instance_group", position)
        yield from _instance_group(path, group)
        if group.name is not None and group.name in seen:
            yield Finding((*path, "name"), f'the instance group "{group.name}" is given twice')
        seen.add(group.name or "")


def _instance_group(path: tuple[str | int, ...], group: InstanceGroupSpec) -> Findings:
    if group.kind == "KIND_CPU" and group.gpus:
        yield Finding(
            (*path, "gpus"), "KIND_CPU takes no gpus: Triton refuses the model", "remove gpus, or use kind: KIND_GPU"
        )
    if group.profile:
        what = "RG130: TensorRT's engines have profiles, and ONNX models none: Triton refuses the model"
        yield Finding((*path, "profile"), what, "remove it; of the TensorRT accelerator: its trt_profile_… parameters")


def _version_policy(model: ModelSpec) -> Findings:
    policy = model.triton.version_policy
    if policy is None:
        return
    path = ("triton", "version_policy")
    given = [name for name in ("latest", "all", "specific") if getattr(policy, name) is not None]
    if len(given) != 1:
        what = f"needs exactly one of latest, all, specific, not {' and '.join(given) or 'none'}"
        yield Finding(path, what, "latest: {num_versions: 2}")
    if policy.specific == ():
        yield Finding((*path, "specific"), "names no version")


def _schedulers(model: ModelSpec) -> Findings:
    triton = model.triton
    sequence = triton.sequence_batching
    if sequence is None:
        return
    if triton.dynamic_batching is not None:
        what = "RG130: sequence_batching and dynamic_batching exclude each other: a model has one scheduler"
        yield Finding(_SEQUENCE, what, "keep one; oldest batches requests of different sequences")
    if triton.response_cache is not None and triton.response_cache.enable:
        what = "RG130: response_cache is on for sequences, whose answers hang on what came before"
        yield Finding(("triton", "response_cache"), what, "remove response_cache")
    if sequence.direct is not None and sequence.oldest is not None:
        what = "direct and oldest exclude each other: sequence_batching has one strategy"
        yield Finding((*_SEQUENCE, "oldest"), what, "keep one of the two")
    if triton.max_batch_size == INT32_MAX and sequence.oldest is None:
        what = "RG117: as many slots as max_batch_size, 2147483647, bring tritonserver 2.51 down"
        yield Finding(("triton", "max_batch_size"), what, "give the largest batch that you mean")


def _warmups(model: ModelSpec) -> Findings:
    sequence = model.triton.sequence_batching
    if sequence is not None and sequence.state and model.triton.model_warmup:
        what = "RG116: a warmup can't feed the states of sequences, and Triton refuses the model"
        yield Finding(("triton", "model_warmup"), what, "remove it")


def _preferred_of_oldest(model: ModelSpec) -> Findings:
    size, sequence = model.triton.max_batch_size, model.triton.sequence_batching
    if sequence is None or sequence.oldest is None or size == "auto":
        return
    for position, preferred in enumerate(sequence.oldest.preferred_batch_size):
        if preferred > size:
            what = f"RG108: {preferred} is above max_batch_size, {size}: Triton refuses the model"
            yield Finding((*_SEQUENCE, "oldest", "preferred_batch_size", position), what)


def _controls(model: ModelSpec) -> Findings:
    sequence = model.triton.sequence_batching
    if sequence is None:
        return
    kinds: Counter[str] = Counter()
    for position, tensor in enumerate(sequence.control_input):
        path = (*_SEQUENCE, "control_input", position)
        if not tensor.control:
            yield Finding((*path, "control"), "RG120: says no control", "control: [{kind: CONTROL_SEQUENCE_START}]")
        for number, control in enumerate(tensor.control):
            kinds[control.kind] += 1
            if kinds[control.kind] > 1:
                what = f"RG120: {control.kind} is given twice"
                yield Finding((*path, "control", number, "kind"), what, "keep one")
            yield from _control((*path, "control", number), control)


def _control(path: KeyPath, control: ControlSpec) -> Findings:
    pairs = [key for key in _PAIRS if getattr(control, key) is not None]
    if control.kind == _CORRELATION and pairs:
        what = f"RG120: {control.kind} bears a number, and has no values for false and true"
        yield Finding((*path, pairs[0]), what, "remove it; data_type may say the type")
    elif control.kind != _CORRELATION and control.data_type is not None:
        what = f"RG120: the type of {control.kind} is that of its values for false and true"
        yield Finding((*path, "data_type"), what, "remove it")
    if len(pairs) > 1:
        yield Finding((*path, pairs[1]), "RG120: values for false and true are given twice", "keep one pair")


def _states(model: ModelSpec) -> Findings:
    sequence = model.triton.sequence_batching
    for position, state in enumerate(sequence.state if sequence is not None else ()):
        path = (*_SEQUENCE, "state", position)
        if len(state.initial_state) > 1:
            yield Finding((*path, "initial_state"), "RG122: a sequence starts with one state", "keep one")
        for initial in state.initial_state:
            if (initial.zero_data is None) == (initial.data_file is None):
                what = "RG122: an initial state needs exactly one of zero_data and data_file"
                yield Finding((*path, "initial_state", 0), what, "zero_data: true")
        if state.use_growable_memory and not state.use_same_buffer_for_input_output:
            what = "growable memory is one buffer for input and output, and use_same_buffer_for_input_output is false"
            yield Finding((*path, "use_growable_memory"), what, "set both, or neither")


def _parameters(model: ModelSpec) -> Findings:
    for name, given in model.triton.parameters.items():
        path, value = ("triton", "parameters", name), parameter_text(given)
        if meant := meant_by(name):
            what = "RG128: the ONNX Runtime backend knows no such parameter, and would ignore it"
            yield Finding(path, what, f'did you mean "{meant}"?')
        elif wrong := unreadable(name, value):
            yield Finding(path, f'RG128: "{printable(value)}" is refused: {wrong}')


def _tensors(model: ModelSpec) -> Findings:
    """Yield names of tensors that the spec itself says are none, and what can't be of an input."""
    triton = model.triton
    for kind, said, names in (("input", triton.input, model.inputs), ("output", triton.output, model.outputs)):
        for name in said if names else ():
            if name not in names:
                what = f'"{name}" is not an {kind} of the model'
                yield Finding(("triton", kind, name), what, f"its {kind}s are {', '.join(names)}")
    for name, extra in triton.input.items():
        path = ("triton", "input", name)
        if extra.optional and extra.allow_ragged_batch:
            yield Finding((*path, "optional"), "RG124: an optional input can't be ragged", "keep one of the two")
        elif extra.optional and triton.max_batch_size not in {"auto", 0}:
            what = "RG124: the ONNX Runtime backend takes no optional input in a batch"
            yield Finding((*path, "optional"), what, "remove it, or set max_batch_size: 0")
        if extra.allow_ragged_batch and triton.max_batch_size in {"auto", 0}:
            what = "RG124: rows that differ in length need a batch, and no experiment tells how large it may be"
            yield Finding((*path, "allow_ragged_batch"), what, "say max_batch_size: 16")


def _reshapes(model: ModelSpec) -> Findings:
    for kind, extras in (("input", model.triton.input), ("output", model.triton.output)):
        for name, extra in extras.items():
            if extra.reshape is None:
                continue
            path = ("triton", kind, name, "reshape")
            if extra.dims is None:
                hint = "dims: what clients see; shape is what the model sees, which the graph says"
                yield Finding(path, "RG114: needs dims, from which it leads to the graph's shape", hint)
            elif not same_elements(extra.dims, extra.reshape.shape):
                what = (
                    f"RG114: {list(extra.reshape.shape)} holds another number of elements than dims, {list(extra.dims)}"
                )
                yield Finding(path, what, "give both the same number of elements")


def _fed_by_triton(model: ModelSpec) -> Findings:
    """Yield names of tensors that Triton is to feed and the model does not have, or that two would feed."""
    sequence = model.triton.sequence_batching
    if sequence is None:
        return
    seen: set[str] = set()
    for path, name in _fed(sequence):
        if model.inputs and name not in model.inputs:
            what = f'RG201: "{name}" is not an input of the model'
            yield Finding(path, what, f"its inputs are {', '.join(model.inputs)}")
        if name in seen:
            yield Finding(path, f'RG201: Triton is to fill the input "{name}" twice', "keep one of them")
        seen.add(name)
    for position, state in enumerate(sequence.state):
        if model.outputs and state.output_name not in model.outputs:
            what = f'RG203: "{state.output_name}" is not an output of the model'
            path = (*_SEQUENCE, "state", position, "output_name")
            yield Finding(path, what, f"its outputs are {', '.join(model.outputs)}")


def _fed(sequence: SequenceBatchingSpec) -> Iterator[tuple[KeyPath, str]]:
    for position, tensor in enumerate(sequence.control_input):
        yield (*_SEQUENCE, "control_input", position, "name"), tensor.name
    for position, state in enumerate(sequence.state):
        yield (*_SEQUENCE, "state", position, "input_name"), state.input_name


_OF_TRITON = frozenset({"triton"})
_OF_NAMES = frozenset({"inputs", "outputs", "triton"})
TRITON_RULES: tuple[tuple[frozenset[str], Callable[[ModelSpec], Findings]], ...] = (
    (_OF_TRITON, _dynamic_batching),
    (_OF_TRITON, _instance_groups),
    (_OF_TRITON, _version_policy),
    (_OF_TRITON, _schedulers),
    (_OF_TRITON, _warmups),
    (_OF_TRITON, _preferred_of_oldest),
    (_OF_TRITON, _controls),
    (_OF_TRITON, _states),
    (_OF_TRITON, _parameters),
    (_OF_TRITON, _reshapes),
    (_OF_NAMES, _tensors),
    (_OF_NAMES, _fed_by_triton),
)

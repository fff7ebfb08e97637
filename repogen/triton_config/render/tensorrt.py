"""TensorRT from the declared sizes: the accelerator's profiles, and warmups that build its engines before traffic.

An engine is built for a range of sizes, its profile. Without one, ONNX Runtime takes the sizes of the requests, and
builds the engine again for each request outside of them, which takes seconds to minutes (server issues 3473, 5326 and
6049). Source: "TensorRT Execution Provider" in ONNX Runtime's documentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from repogen.errors import ConfigError
from repogen.triton_config.render.model_facts import ONNXRUNTIME
from repogen.triton_config.rules.accelerators import TENSORRT, TENSORRT_11
from repogen.triton_config.sections.model import AcceleratorSpec, AcceleratorsSpec, OptimizationSpec, WarmupSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from repogen.artifacts.tensors import TensorSpec
    from repogen.targets import Target
    from repogen.triton_config.render.model_facts import ModelFacts
    from repogen.triton_config.sections.model import ParameterValue, TensorRTSpec, TritonSpec

_SEPARATORS = frozenset(":,")
"""The characters with which ONNX Runtime separates the tensors of a profile."""

_Sizes: TypeAlias = "Mapping[str, int]"


@dataclass(frozen=True)
class _Profile:
    """The sizes of each dynamic dim that an engine is built for.

    Attributes:
        smallest: The smallest sizes.
        usual: The sizes that the engine is optimized for.
        largest: The largest sizes.
    """

    smallest: _Sizes
    usual: _Sizes
    largest: _Sizes


def with_tensorrt(triton: TritonSpec, facts: ModelFacts, target: Target) -> TritonSpec:
    """Return a section in which ``tensorrt`` is written as the accelerator and the warmups that it stands for.

    Args:
        triton: The section; unchanged if it has no ``tensorrt``, or if the model is not a graph.
        facts: The facts about the model.
        target: The Triton release.

    Raises:
        ConfigError: The sizes of a dim are not declared, or the release cannot have the precision.
    """
    settings = triton.tensorrt
    if settings is None or facts.backend != ONNXRUNTIME:
        return triton
    if settings.precision != "fp32" and target.release >= TENSORRT_11:
        raise ConfigError(
            f"precision {settings.precision} has no effect in Triton {target.release}: TensorRT 11 uses the types of "
            "the graph",
            "remove precision, and convert the graph: optimize: [{name: fp16, gain: false}]",
            code="config.tensorrt",
            where=facts.where("tensorrt.precision"),
        )
    inputs = _dynamic_inputs(facts)
    profile = _profile(triton, facts, inputs)
    accelerator = AcceleratorSpec(name=TENSORRT, parameters=_parameters(settings, inputs, profile))
    optimization = triton.optimization or OptimizationSpec()
    accelerators = optimization.execution_accelerators or AcceleratorsSpec()
    on_gpu = (accelerator, *accelerators.gpu_execution_accelerator)
    accelerators = accelerators.model_copy(update={"gpu_execution_accelerator": on_gpu})
    optimization = optimization.model_copy(update={"execution_accelerators": accelerators})
    update: dict[str, object] = {"optimization": optimization}
    if settings.warmup and not triton.model_warmup:
        update["model_warmup"] = tuple(_warmups(facts, profile))
    return triton.model_copy(update=update)


def tensorrt_notes(triton: TritonSpec, facts: ModelFacts) -> Iterator[str]:
    """Yield the command that builds the same engine without Triton, or why there is none."""
    settings = triton.tensorrt
    if settings is None:
        return
    if facts.backend != ONNXRUNTIME:
        yield "triton.tensorrt is ignored: it applies to graphs only"
        return
    inputs = _dynamic_inputs(facts)
    profile = _profile(triton, facts, inputs)
    shapes = [f"--{option}Shapes={value}" for option, value in _shapes(inputs, profile).items()]
    precision = [] if settings.precision == "fp32" else [f"--{settings.precision}"]
    yield f"the engine on a GPU host, without Triton: {' '.join(['trtexec --onnx=model.onnx', *shapes, *precision])}"


def _dynamic_inputs(facts: ModelFacts) -> list[TensorSpec]:
    """Return the inputs of which TensorRT must know the sizes."""
    return [
        tensor
        for tensor in facts.signature.inputs
        if tensor.dtype != "string" and any(isinstance(size, str) for size in tensor.shape)
    ]


def _profile(triton: TritonSpec, facts: ModelFacts, inputs: Sequence[TensorSpec]) -> _Profile:
    """Return the sizes of all dynamic dims; for the batch, up to ``max_batch_size``.

    Raises:
        ConfigError: A dim has no declared sizes, a batch is ragged, or a name cannot be written in a profile.
    """
    where = facts.where("tensorrt")
    if triton.ragged:
        raise ConfigError(
            "TensorRT needs the sizes of all inputs, but those of a ragged batch are not known",
            "remove tensorrt, or the ragged inputs",
            code="config.tensorrt",
            where=where,
        )
    if name := next((tensor.name for tensor in inputs if _SEPARATORS & set(tensor.name)), ""):
        raise ConfigError(
            f"input {name!r} cannot be written in a TensorRT profile, because its name contains ':' or ','",
            "give it another name in inputs:",
            code="config.tensorrt",
            where=where,
        )
    bounds = dict(facts.bounds)
    usual = dict(facts.sizes)
    if facts.batched:
        preferred = triton.dynamic_batching.preferred_batch_size if triton.dynamic_batching is not None else ()
        for dim in {tensor.shape[0] for tensor in inputs if isinstance(tensor.shape[0], str)}:
            bounds[dim] = (1, facts.max_batch_size)
            usual[dim] = max(preferred, default=facts.max_batch_size)
    names = {size: tensor.name for tensor in inputs for size in tensor.shape if isinstance(size, str)}
    if unknown := [dim for dim in names if dim not in bounds]:
        raise ConfigError(
            f"TensorRT needs the sizes of dim {unknown[0]!r} of input {names[unknown[0]]!r}",
            f"declare them: dims: {{{unknown[0]}: {{min: …, max: …}}}}",
            code="config.tensorrt",
            where=where,
        )
    return _Profile(
        {dim: bounds[dim][0] for dim in names},
        {dim: usual[dim] for dim in names},
        {dim: bounds[dim][1] for dim in names},
    )


def _parameters(settings: TensorRTSpec, inputs: Sequence[TensorSpec], profile: _Profile) -> dict[str, ParameterValue]:
    parameters: dict[str, ParameterValue] = {}
    if settings.precision != "fp32":
        parameters["precision_mode"] = settings.precision.upper()
    if settings.workspace_mb is not None:
        parameters["max_workspace_size_bytes"] = settings.workspace_mb * 2**20
    for option, value in _shapes(inputs, profile).items():
        parameters[f"trt_profile_{option}_shapes"] = value
    if settings.cache is not None:
        for kind in ("engine", "timing"):
            parameters[f"trt_{kind}_cache_enable"] = True
            parameters[f"trt_{kind}_cache_path"] = settings.cache
    return parameters | settings.parameters


def _shapes(inputs: Sequence[TensorSpec], profile: _Profile) -> dict[str, str]:
    """Return the shapes of all inputs at each end of the profile, as ONNX Runtime and trtexec write them.

    The keys are ``min``, ``opt`` and ``max``; there are none if no input is dynamic.
    """
    if not inputs:
        return {}
    ends = {"min": profile.smallest, "opt": profile.usual, "max": profile.largest}
    return {option: ",".join(_shape(tensor, sizes) for tensor in inputs) for option, sizes in ends.items()}


def _shape(tensor: TensorSpec, sizes: _Sizes) -> str:
    return f"{tensor.name}:{'x'.join(str(sizes[size] if isinstance(size, str) else size) for size in tensor.shape)}"


def _warmups(facts: ModelFacts, profile: _Profile) -> Iterator[WarmupSpec]:
    """Yield a request of each end of the profile; equal ones once."""
    batch = {tensor.shape[0] for tensor in facts.signature.inputs if tensor.shape} if facts.batched else set()
    requests = []
    ends = {"smallest": profile.smallest, "usual": profile.usual, "largest": profile.largest}
    for name, sizes in ends.items():
        rows = next((size for dim, size in sizes.items() if dim in batch), 1)
        others = {dim: size for dim, size in sizes.items() if dim not in batch}
        if (rows, others) not in requests:
            requests.append((rows, others))
            yield WarmupSpec(name=f"tensorrt_{name}", batch_size=rows, data="zero", sizes=others)

"""The parameters that apply to a model, their values, and the ``triton:`` section for a choice of them.

Source of the parameters of the ONNX Runtime backend:
https://github.com/triton-inference-server/onnxruntime_backend, README.md, "Other Optimization Options with ONNX
Runtime".
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, product
from math import prod
from typing import TYPE_CHECKING

from repogen.triton_config.sections.model import (
    DynamicBatchingSpec,
    GraphSpec,
    InstanceGroupSpec,
    OptimizationSpec,
    TritonSpec,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Iterator, Mapping

    from repogen.artifacts.tune import Choice, Settings

PASSES = "passes"
BATCH = "max_batch_size"
BATCHING = "dynamic_batching"
PREFERRED = "preferred_batch_size"
DELAY = "max_queue_delay_microseconds"
COUNT = "instance_count"
KIND = "instance_kind"
INTRA = "intra_op_thread_count"
INTER = "inter_op_thread_count"
MODE = "execution_mode"
LEVEL = "graph_level"

SPEC = "spec"
"""Value of ``passes`` for those of the spec, which is the published graph."""

_CPU, _GPU = "KIND_CPU", "KIND_GPU"
_ON, _OFF = "on", "off"
_DELAYS = (0, 100, 500, 1000, 2000, 5000)
_LEVELS = (0, 1, -1, 2)
_PREFERRED = ("none", "max", "half")
_MAX_INSTANCES = 16
_PARALLEL = 1
_PARAMETERS = (INTRA, INTER, MODE)
_CONDITIONS: dict[str, tuple[str, Choice]] = {
    PREFERRED: (BATCHING, _ON),
    DELAY: (BATCHING, _ON),
    INTER: (MODE, _PARALLEL),
}
"""Parameter -> the parameter and value without which it has no effect."""


@dataclass(frozen=True)
class TunableModel:
    """What decides which parameters apply.

    Attributes:
        triton: The spec's section.
        max_batch_size: The verified batch size; 0 if the model does not batch.
        is_graph: Whether ONNX Runtime runs it; if not, it is Python code.
        cores: CPU cores of the machine.
        has_gpu: Whether the server can run instances on a GPU.
        gpu_default: Whether the model runs on GPUs if the spec has no instance_group.
        batch: Rows of each request, the smallest batch size.
        passes: The values of ``passes`` besides ``spec``.
    """

    triton: TritonSpec
    max_batch_size: int
    is_graph: bool
    cores: int
    has_gpu: bool = False
    gpu_default: bool = False
    batch: int = 1
    passes: tuple[str, ...] = ()

    @property
    def batches(self) -> bool:
        """Whether Triton's dynamic batcher can be used."""
        scheduled = self.triton.sequence_batching is not None or self.triton.ragged
        return self.max_batch_size > 1 and not scheduled


@dataclass(frozen=True)
class Space:
    """The values of each parameter, in the order in which they are chosen.

    Attributes:
        choices: Parameter -> values; at least two for each.
    """

    choices: Mapping[str, tuple[Choice, ...]]

    def __contains__(self, settings: object) -> bool:
        """Return whether every setting is one of the values."""
        return isinstance(settings, dict) and all(value in self.choices[key] for key, value in settings.items())

    def effective(self, settings: Mapping[str, Choice]) -> Settings:
        """Return settings without those that have no effect, in the order of the space."""
        return {name: settings[name] for name in self.choices if name in settings and self.applies(name, settings)}

    def applies(self, name: str, settings: Mapping[str, Choice]) -> bool:
        """Return whether a parameter has an effect on a config with these settings."""
        parameter, value = _CONDITIONS.get(name, ("", ""))
        return parameter not in self.choices or settings.get(parameter) == value

    def neighbors(self, settings: Settings) -> Iterator[Settings]:
        """Yield the settings that differ in one parameter; a parameter that becomes effective gets its first value."""
        for name, values in self.choices.items():
            for value in values if name in settings else ():
                if value != settings[name]:
                    first = {key: choices[0] for key, choices in self.choices.items()}
                    yield self.effective({**first, **settings, name: value})

    def random(self, generator: random.Random) -> Settings:
        """Return random settings."""
        return self.effective({name: generator.choice(values) for name, values in self.choices.items()})

    def all(self, limit: int) -> list[Settings]:
        """Return all different settings, if there are at most ``limit`` combinations; otherwise an empty list."""
        if prod(map(len, self.choices.values())) > limit:
            return []
        combinations = islice(product(*self.choices.values()), limit)
        effective = (self.effective(dict(zip(self.choices, values, strict=True))) for values in combinations)
        return list({key_of(each): each for each in effective}.values())


def key_of(settings: Mapping[str, Choice]) -> tuple[tuple[str, Choice], ...]:
    """Return settings as a key of a dictionary."""
    return tuple(sorted(settings.items()))


def space_of(model: TunableModel, exclude: Collection[str] = ()) -> Space:
    """Return the parameters that apply to a model; the spec's own values are among their values.

    Args:
        model: The model.
        exclude: Parameters that stay as they are in the spec, and with them those that have no effect then.
    """
    current = current_settings(model)
    choices = {
        PASSES: (SPEC, *model.passes),
        **_batching_choices(model),
        **_instance_choices(model),
        **_graph_choices(model),
    }
    complete = {name: tuple(dict.fromkeys((*values, current[name]))) for name, values in choices.items()}
    if BATCH in complete:
        complete[BATCH] = tuple(sorted(complete[BATCH], key=int))
    ineffective = {name for name, (other, value) in _CONDITIONS.items() if other in exclude and current[other] != value}
    left_out = {*exclude, *ineffective}
    return Space({name: values for name, values in complete.items() if len(values) > 1 and name not in left_out})


def current_settings(model: TunableModel) -> Settings:
    """Return the settings of the spec, whether they are in the search space or not."""
    triton, largest = model.triton, _largest(model.triton, model)
    group = triton.instance_group[0] if triton.instance_group else _default_group(model)
    batching = triton.dynamic_batching
    optimization = triton.optimization or OptimizationSpec()
    return {
        PASSES: SPEC,
        BATCH: largest,
        BATCHING: _OFF if batching is None else _ON,
        PREFERRED: "none" if batching is None else _preferred_name(batching.preferred_batch_size, largest),
        DELAY: 0 if batching is None else batching.max_queue_delay_microseconds,
        COUNT: _automatic_count(model, group.kind) if group.count == "auto" else group.count,
        KIND: group.kind,
        **{name: _integer(triton.parameters.get(name, 0)) for name in _PARAMETERS},
        LEVEL: 0 if optimization.graph is None else optimization.graph.level,
    }


def automatic_settings(model: TunableModel) -> Settings:
    """Return the settings closest to those that Triton's auto-completion chooses for a config without any.

    Measured on tritonserver 2.51: ``max_batch_size`` 4 with dynamic batching if the model batches.
    """
    defaults: Settings = {BATCH: min(4, max(model.max_batch_size, 1)), BATCHING: _ON, PREFERRED: "none", DELAY: 0}
    kind = _GPU if model.has_gpu and model.is_graph else _CPU
    return {
        PASSES: SPEC,
        **defaults,
        COUNT: 1 if model.has_gpu else 2,
        KIND: kind,
        **dict.fromkeys(_PARAMETERS, 0),
        LEVEL: 0,
    }


def common_settings(model: TunableModel) -> tuple[Settings, ...]:
    """Return settings that are often the best: an instance per core with one thread each, and one with all threads."""
    largest = max(model.max_batch_size, 1)
    batched: Settings = {BATCH: largest, BATCHING: _ON, PREFERRED: "none", DELAY: 0, MODE: 0, INTER: 0, LEVEL: 0}
    base = {**current_settings(model), **batched}
    return {**base, COUNT: model.cores, INTRA: 1}, {**base, COUNT: 1, INTRA: 0}


def with_settings(model: TunableModel, settings: Mapping[str, Choice]) -> TritonSpec:
    """Return the spec's section with other settings; what they do not change stays as it is.

    ``passes`` is not part of the section.
    """
    before = current_settings(model)
    changed = {name for name, value in settings.items() if before[name] != value}
    values = {**before, **settings}
    update: dict[str, object] = {}
    if BATCH in changed:
        update["max_batch_size"] = int(values[BATCH])
    relative = BATCH in changed and values[BATCHING] == _ON and values[PREFERRED] != "none"
    if relative or changed & {BATCHING, PREFERRED, DELAY}:
        update["dynamic_batching"] = _batching(model.triton, values)
    if changed & {COUNT, KIND}:
        group = model.triton.instance_group[0] if model.triton.instance_group else InstanceGroupSpec()
        update["instance_group"] = (group.model_copy(update={"count": values[COUNT], "kind": values[KIND]}),)
    if changed & set(_PARAMETERS):
        numbers = {name: values[name] for name in _PARAMETERS if name in changed}
        others = {name: value for name, value in model.triton.parameters.items() if name not in numbers}
        update["parameters"] = others | {name: value for name, value in numbers.items() if value}
    if LEVEL in changed:
        update["optimization"] = _optimization(model.triton, int(values[LEVEL]))
    return model.triton.model_copy(update=update)


def _batching_choices(model: TunableModel) -> dict[str, tuple[Choice, ...]]:
    if not model.batches:
        return {}
    smallest = max(model.batch, 1)
    sizes = [size for size in _powers(model.max_batch_size) if size >= smallest]
    base = model.triton.dynamic_batching
    # A section with priorities or queue policies is what the user needs, not what makes the model fast.
    required = (
        base is not None
        and base.model_copy(update={"preferred_batch_size": (), "max_queue_delay_microseconds": 0})
        != DynamicBatchingSpec()
    )
    return {
        BATCH: (*sizes, model.max_batch_size),
        BATCHING: (_ON,) if required else (_ON, _OFF),
        PREFERRED: _PREFERRED,
        DELAY: _DELAYS,
    }


def _instance_choices(model: TunableModel) -> dict[str, tuple[Choice, ...]]:
    groups = model.triton.instance_group
    if len(groups) > 1:
        return {}
    counts = {*_powers(min(_MAX_INSTANCES, max(2, 2 * model.cores))), min(_MAX_INSTANCES, model.cores)}
    choices: dict[str, tuple[Choice, ...]] = {COUNT: tuple(sorted(counts))}
    if model.has_gpu and model.is_graph and not (groups and groups[0].gpus):
        choices[KIND] = (_CPU, _GPU)
    return choices


def _graph_choices(model: TunableModel) -> dict[str, tuple[Choice, ...]]:
    if not model.is_graph:
        return {}
    threads = tuple(_powers(model.cores))
    return {INTRA: (0, *threads), MODE: (0, _PARALLEL), INTER: (0, *threads[1:]), LEVEL: _LEVELS}


def _powers(largest: int) -> Iterator[int]:
    """Yield the powers of two up to a number, and the number."""
    size = 1
    while size < largest:
        yield size
        size *= 2
    yield max(largest, 1)


def _largest(triton: TritonSpec, model: TunableModel) -> int:
    return model.max_batch_size if triton.max_batch_size == "auto" else triton.max_batch_size


def _default_group(model: TunableModel) -> InstanceGroupSpec:
    return InstanceGroupSpec(kind=_GPU if model.gpu_default and model.is_graph else _CPU)


def _automatic_count(model: TunableModel, kind: str) -> int:
    """Return the number of instances that Triton starts for a group without a count, on each device."""
    on_cpu = kind == _CPU or not model.has_gpu
    return 2 if on_cpu and model.is_graph else 1


def _integer(value: object) -> int:
    """Return the number of a parameter; Triton reads it from text."""
    try:
        return int(str(value))
    except ValueError:
        return 0


def _preferred(name: str, largest: int) -> tuple[int, ...]:
    """Return the preferred batch sizes of a choice.

    >>> [_preferred(name, 8) for name in ("none", "max", "half", "2,16")]
    [(), (8,), (4, 8), (2,)]
    """
    named = {"none": (), "max": (largest,), "half": (max(largest // 2, 1), largest)}
    sizes = named[name] if name in named else tuple(int(size) for size in name.split(","))
    return tuple(size for size in dict.fromkeys(sizes) if size <= largest)


def _preferred_name(sizes: tuple[int, ...], largest: int) -> str:
    names = (name for name in _PREFERRED if _preferred(name, largest) == sizes)
    return next(names, ",".join(map(str, sizes)))


def _batching(triton: TritonSpec, values: Mapping[str, Choice]) -> DynamicBatchingSpec | None:
    if values[BATCHING] == _OFF:
        return None
    update = {
        "preferred_batch_size": _preferred(str(values[PREFERRED]), int(values[BATCH])),
        "max_queue_delay_microseconds": int(values[DELAY]),
    }
    return (triton.dynamic_batching or DynamicBatchingSpec()).model_copy(update=update)


def _optimization(triton: TritonSpec, level: int) -> OptimizationSpec | None:
    section = (triton.optimization or OptimizationSpec()).model_copy(
        update={"graph": GraphSpec(level=level) if level else None}
    )
    return None if section == OptimizationSpec() else section

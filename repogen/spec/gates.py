"""``promotion:`` of a model: the gates that a version must pass before an alias is moved to it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Final, cast

from pydantic import AliasChoices, BaseModel, Field, StrictBool, create_model, model_validator

from repogen.errors import SpecError
from repogen.plugins import load_plugin, plugins
from repogen.triton_config.sections.base import Seconds, Section, Tolerance, must_be

if TYPE_CHECKING:
    from typing import Self

    from pydantic import GetJsonSchemaHandler, ModelWrapValidatorHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

GROUP: Final = "repogen.gates"
OLD_NAMES = {"holdout": "evaluation"}
"""Former names of gates, which the spec and ``--gate`` still accept."""

Positive = Annotated[float, Field(strict=True, gt=0, le=1e9, allow_inf_nan=False), must_be("a number > 0 and <= 1e9")]
Figure = Annotated[float, Field(strict=True, ge=-1e9, le=1e9, allow_inf_nan=False), must_be("a number")]


class SmokeGate(Section):
    """Every check of a smoke test on the target's Triton."""


class ParityGate(Section):
    """The largest difference from PyTorch, both in the build's measurements and in Triton's responses."""

    max_abs_diff: Tolerance | None = Field(default=None, description="Largest absolute difference")


class SizeGate(Section):
    """Size of the graph and its weights, or of the code; 1 MB is 2^20 bytes."""

    max_mb: Positive | None = Field(default=None, description="Largest size in MB")
    max_ratio: Positive | None = Field(default=None, description="Largest size relative to the current champion's")


class LatencyGate(Section):
    """Single-row requests, one after another, alternating with the champion."""

    p95_max_ms: Positive | None = Field(default=None, description="Largest 95th percentile, in milliseconds")
    max_ratio: Positive | None = Field(default=None, description="Largest median relative to the current champion's")


class ThroughputGate(Section):
    """Single-row requests, many at once, alternating with the champion."""

    min_ratio: Positive | None = Field(default=None, description="Lowest throughput relative to the current champion's")


class EvaluationGate(Section):
    """A metric that your code computes from Triton's responses; higher is better."""

    callable: str = Field(description='"file.py:callable" or "package.module:callable": (predict, data) -> value')
    data: str | None = Field(default=None, description="File passed to the callable, relative to the spec")
    metric: str | None = Field(default=None, min_length=1, description="Name of the metric, if there are several")
    min: Figure | None = Field(default=None, description="Smallest value that passes")
    max_drop: Tolerance | None = Field(default=None, description="Largest drop below the current champion's value")
    timeout_seconds: Seconds = Field(default=300.0, description="Time limit of the callable, including imports")


class GatesSpec(Section):
    """The gates of a promotion. Parity, smoke and size are measured by default.

    If parity, size or another gate has no limit, its measurement is only recorded, and cannot fail the promotion.
    """

    # A gate of a plug-in is a field of a subclass, which validation creates for the names that occur.
    parity: ParityGate = ParityGate()
    smoke: StrictBool = Field(default=True, description="Whether the version must pass every check of a smoke test")
    size: SizeGate | None = None
    latency: LatencyGate | None = None
    throughput: ThroughputGate | None = None
    evaluation: EvaluationGate | None = Field(
        default=None, validation_alias=AliasChoices("evaluation", *(old for old in OLD_NAMES))
    )

    @model_validator(mode="wrap")
    @classmethod
    def _accept_plugins(cls, value: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        others = set(value) - {*cls.model_fields, *OLD_NAMES} if isinstance(value, dict) else set()
        names = tuple(sorted(name for name in others if name in plugins(GROUP)))
        return cast("Self", _with_plugins(cls, names).model_validate(value)) if names else handler(value)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON Schema, with the gates of installed plug-ins."""
        schema = handler.resolve_ref_schema(handler(core))
        for name in gate_names():
            options = gate_options(name)
            if name not in cls.model_fields and options is not None:
                schema["properties"][name] = options.model_json_schema()
        return schema

    def active(self) -> dict[str, BaseModel]:
        """Return the options of every gate to be measured, by name, in the order of the report."""
        always: dict[str, BaseModel] = {"smoke": SmokeGate()} if self.smoke else {}
        always |= {"parity": self.parity, "size": self.size or SizeGate()}
        options = {name: getattr(self, name) for name in type(self).model_fields if name not in {*always, "smoke"}}
        return always | {name: value for name, value in options.items() if value is not None}


class PromotionSpec(Section):
    """How `repogen promote` decides; it does not affect a build."""

    gates: GatesSpec = GatesSpec()


def gate_names() -> list[str]:
    """Return the names of all gates, built-in ones first."""
    return [*GatesSpec.model_fields, *sorted(set(plugins(GROUP)) - set(GatesSpec.model_fields))]


def gate_options(name: str) -> type[BaseModel] | None:
    """Return the pydantic model of a gate's options, built-in or of a plug-in; None for an unknown gate.

    Raises:
        SpecError: The plug-in can't be imported, or does not define a gate.
    """
    name = OLD_NAMES.get(name, name)
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    if name not in plugins(GROUP):
        return None
    options = getattr(load_plugin(GROUP, name), "options", None)
    if not (isinstance(options, type) and issubclass(options, BaseModel)):
        raise SpecError(
            f"plug-in {name!r} of {GROUP} has no `options`, a pydantic model",
            "see repogen.registry.gates.interface.Gate",
            code="plugin.interface",
        )
    return options


_BUILT_IN: dict[str, type[BaseModel]] = {
    "smoke": SmokeGate,
    "parity": ParityGate,
    "size": SizeGate,
    "latency": LatencyGate,
    "throughput": ThroughputGate,
    "evaluation": EvaluationGate,
}


@cache
def _with_plugins(base: type[GatesSpec], names: tuple[str, ...]) -> type[GatesSpec]:
    """Return a subclass of ``GatesSpec`` with a field for each plug-in's gate."""
    options = {name: gate_options(name) for name in names}
    fields = {name: (model | None, None) for name, model in options.items() if model is not None}
    return create_model("GatesSpec", __base__=base, **fields)  # type: ignore[call-overload,no-any-return]

"""Renders config.pbtxt from a template, in a sandbox because a spec may have its own template."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import BaseLoader, ChoiceLoader, FileSystemLoader, StrictUndefined, TemplateNotFound, TemplateSyntaxError
from jinja2.exceptions import SecurityError
from jinja2.loaders import split_template_path
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import BaseModel

from repogen.artifacts.steps import EnsembleStep  # noqa: TC001 - pydantic decodes by these annotations
from repogen.errors import ConfigError, first_line
from repogen.resources import templates_dir
from repogen.triton_config.render.expected import instance_groups
from repogen.triton_config.render.template_files import read_template
from repogen.triton_config.render.tensors import declared_inputs, declared_outputs
from repogen.triton_config.sections.model import (  # noqa: TC001 - the same
    DynamicBatchingSpec,
    InstanceGroupSpec,
    VersionPolicySpec,
)
from repogen.triton_config.text.parse import empty_config, message_text, quoted
from repogen.triton_config.text.view import TensorView  # noqa: TC001 - the same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeAlias

    from jinja2 import Environment
    from jinja2.runtime import Context
    from tritonclient.grpc.model_config_pb2 import ModelConfig as Message

    from repogen.triton_config.render.model_facts import ModelFacts
    from repogen.triton_config.sections.model import TritonSpec

    Renderer: TypeAlias = Callable[["TemplateVariables", Path | None, str], str]

TEMPLATE = "config.pbtxt.j2"
ENSEMBLE_TEMPLATE = "ensemble.pbtxt.j2"

# Thousands of tensors need some hundred KiB; a longer text comes from an endless loop.
MAX_CHARACTERS = 2**20
_MAX_OPERAND = 2**31
# Fields that the templates write themselves.
_TEMPLATE_FIELDS = (
    "name", "backend", "platform", "max_batch_size", "input", "output", "instance_group", "version_policy",
    "ensemble_scheduling",
)  # fmt: skip


@dataclass(frozen=True)
class TemplateVariables:
    """The variables of a template, documented in docs/reference/config.md.

    Attributes:
        name: Model name.
        backend: ``onnxruntime`` or ``python``; empty for an ensemble.
        max_batch_size: 0 if the model does not batch.
        batch_origin: Origin of max_batch_size, for a comment.
        inputs: Tensors with Triton's data types and dims.
        outputs: Tensors with Triton's data types and dims.
        instance_groups: At least one; empty for an ensemble.
        instances_from_spec: Whether the spec sets ``instance_group``.
        dynamic_batching: None if not set.
        version_policy: None if not set; Triton then serves the latest version.
        steps: Steps of an ensemble, with ``model``, ``version`` (None for the newest), ``inputs`` and ``outputs``.
        extra_fields: Text of all other fields: optimization, parameters, warmups and so on.
        uses_graph: Whether ``extra_fields`` contains names, types or dims from the graph.
    """

    name: str
    backend: str
    max_batch_size: int
    batch_origin: str
    inputs: tuple[TensorView, ...]
    outputs: tuple[TensorView, ...]
    instance_groups: tuple[InstanceGroupSpec, ...]
    instances_from_spec: bool
    dynamic_batching: DynamicBatchingSpec | None
    version_policy: VersionPolicySpec | None
    steps: tuple[EnsembleStep, ...]
    extra_fields: str
    uses_graph: bool

    @property
    def more(self) -> str:
        """The former name of ``extra_fields``, for template overrides."""
        return self.extra_fields


class _Overrides(BaseLoader):
    """Loads the templates of a spec, also those that a template includes, imports or extends."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def get_source(self, environment: Environment, template: str) -> tuple[str, str, Callable[[], bool]]:  # noqa: ARG002 - Jinja's signature
        path = self._directory.joinpath(*split_template_path(template))
        if not os.path.lexists(path):
            raise TemplateNotFound(template)
        try:
            return read_template(path, self._directory), str(path), lambda: True
        except ValueError as error:
            raise ValueError(f"{template} {error}") from error


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, which limits ``range``; this one also limits products such as ``"a" * 10**9``."""

    intercepted_binops = frozenset({"*", "**"})

    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        """Return whether a template may read an attribute: of a model only its fields.

        The methods of pydantic's models read files and unpickle text.
        """
        is_field = not isinstance(obj, BaseModel) or attr in type(obj).model_fields
        return is_field and bool(super().is_safe_attribute(obj, attr, value))

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """Multiply small integers only."""
        for operand in (left, right):
            if not isinstance(operand, int) or abs(operand) > _MAX_OPERAND:
                raise SecurityError(f"`{operator}` supports only integers up to 2**31 here")
        if operator == "**":
            raise SecurityError("`**` is not available here")
        return super().call_binop(context, operator, left, right)


def template_variables(
    triton: TritonSpec, facts: ModelFacts, expected: Message, steps: Sequence[EnsembleStep]
) -> TemplateVariables:
    """Return the variables for the template of a model.

    Args:
        triton: The spec's section.
        facts: The facts about the model.
        expected: The config that the text must contain.
        steps: The steps of an ensemble.

    Raises:
        ConfigError: The section does not match the graph.
    """
    extra_message = empty_config()
    extra_message.CopyFrom(expected)
    for field in (*_TEMPLATE_FIELDS, *(["dynamic_batching"] if triton.dynamic_batching is not None else [])):
        extra_message.ClearField(field)
    return TemplateVariables(
        name=facts.name,
        backend=facts.backend,
        max_batch_size=facts.max_batch_size,
        batch_origin=_batch_origin(triton, facts),
        inputs=declared_inputs(triton, facts),
        outputs=declared_outputs(triton, facts),
        instance_groups=instance_groups(triton, facts),
        instances_from_spec=bool(triton.instance_group),
        dynamic_batching=triton.dynamic_batching,
        version_policy=triton.version_policy,
        steps=tuple(steps),
        extra_fields=message_text(extra_message),
        uses_graph=bool(triton.model_warmup or triton.sequence_batching or triton.batch_input or triton.batch_output),
    )


def _batch_origin(triton: TritonSpec, facts: ModelFacts) -> str:
    from_spec = triton.max_batch_size != "auto"
    if not facts.batch_measured:
        return "from the spec, not measured: Triton forms the batches itself"
    if not facts.batched:
        origin = "measured: rows are not independent" if facts.rows_compared else "not measured: see the build's notes"
        return "from the spec" if from_spec else origin
    rows = "rows of different lengths" if triton.ragged else "rows"
    return f"measured: {rows} are independent" + ("; size from the spec" if from_spec else "")


def render(variables: TemplateVariables, overrides: Path | None, template: str = TEMPLATE) -> str:
    """Return the text of config.pbtxt.

    The sandbox does not limit time and memory: repogen's process renders only repogen's own templates, and
    ``repogen.worker.template`` renders those of a spec.

    Args:
        variables: The template's variables.
        overrides: A directory; a template of this name in it replaces repogen's own.
        template: Name of the template.

    Raises:
        ConfigError: The template cannot be read, is invalid, uses an unknown variable, or writes too much text.
    """
    loaders = [*([] if overrides is None else [_Overrides(overrides)]), FileSystemLoader(templates_dir())]
    environment = _Sandbox(
        loader=ChoiceLoader(loaders),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["pbstr"] = quoted
    environment.filters["pblist"] = _list_text
    values = {field.name: getattr(variables, field.name) for field in fields(variables)}
    try:
        return _join_limited(environment.get_template(template).generate({**values, "more": variables.more}))
    except TemplateSyntaxError as error:
        raise template_error(f"{error.message}", f"{error.name}:{error.lineno}") from error
    except Exception as error:  # a template can cause any exception
        raise template_error(_reason(error), _line_in_template(error, overrides, template)) from error


def template_origin(overrides: Path | None, template: str) -> str:
    """Return the name, for messages, of the template that ``render`` uses."""
    if overrides is not None and (overrides / template).is_file():
        return f"{overrides.name}/{template}"
    return f"repogen's {template}"


def _join_limited(chunks: Iterable[str]) -> str:
    parts: list[str] = []
    length = 0
    for chunk in chunks:
        length += len(chunk)
        if length > MAX_CHARACTERS:
            raise SecurityError(f"the text is longer than {MAX_CHARACTERS} characters")
        parts.append(chunk)
    return "".join(parts)


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "templates or macros that contain each other are nested too deeply"
    if isinstance(error, MemoryError):
        return "it uses too much memory"
    if isinstance(error, TemplateNotFound):
        return f"the template {error.name} does not exist"
    return first_line(error)


def _line_in_template(error: BaseException, overrides: Path | None, template: str) -> str:
    """Return ``file:line`` of the innermost frame that Jinja maps to a template; the template's name without one."""
    place, trace = template, error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        for root in (overrides, templates_dir()):
            if root is not None and file.is_relative_to(root):
                place = f"{file.relative_to(root)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def template_error(reason: str, where: str) -> ConfigError:
    """Return the error of a template that fails.

    Args:
        reason: Why, as a part of a sentence.
        where: ``file:line`` in the template, or its name.
    """
    return ConfigError(
        f"the template {where} can't be rendered: {reason}",
        "the reference of config.pbtxt lists the variables and filters; start from repogen's own template",
        code="config.template",
        where=where,
    )


def _list_text(values: Iterable[int]) -> str:
    items = ", ".join(map(str, values))
    return f"[ {items} ]" if items else "[ ]"

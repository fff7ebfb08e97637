"""The template becomes text, in a sandbox, because a spec may bring a template of its own."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from jinja2 import FileSystemLoader, StrictUndefined, TemplateError, TemplateSyntaxError
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from repogen.errors import ConfigError
from repogen.resources import templates_dir
from repogen.triton_config.text.parse import message_text, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from jinja2.runtime import Context

    from repogen.triton_config.render.plan import EnsemblePlan, Plan

TEMPLATE = "config.pbtxt.j2"
ENSEMBLE_TEMPLATE = "ensemble.pbtxt.j2"

# The largest config.pbtxt one can mean is some hundred KiB (thousands of tensors); beyond this a loop ran away.
MAX_CHARACTERS = 2**20
_MAX_OPERAND = 2**31


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, which limits ``range`` by itself, and here also products such as ``"a" * 10**9``."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """Multiply small integers only; a config needs no more."""
        for operand in (left, right):
            if not isinstance(operand, int) or abs(operand) > _MAX_OPERAND:
                raise SecurityError(f"`{operator}` works on integers up to 2**31 here")
        if operator == "**":
            raise SecurityError("`**` is not available here")
        return super().call_binop(context, operator, left, right)


def render(plan: Plan | EnsemblePlan, overrides: Path | None, template: str = TEMPLATE) -> str:
    """Return config.pbtxt's text for ``plan``.

    Args:
        plan: The template's variables.
        overrides: A directory whose template of that name, if there is one, is used in place of repogen's.
        template: Its name.

    Raises:
        ConfigError: The template can't be read, is wrong, uses an unknown variable, or writes without end.
    """
    roots = [str(root) for root in (overrides, templates_dir()) if root is not None]
    environment = _Sandbox(
        loader=FileSystemLoader(roots),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["pbstr"] = quoted
    environment.filters["pblist"] = _listed
    variables = {field.name: getattr(plan, field.name) for field in fields(plan)}
    variables["more"] = message_text(plan.more)  # as text: a template has no business in a message's methods
    try:
        text = _bounded(environment.get_template(template).generate(variables))
    except TemplateSyntaxError as error:
        raise _wrong(f"{error.message}", f"{error.name}:{error.lineno}") from error
    except (TemplateError, TypeError, ValueError, ArithmeticError, AttributeError, LookupError, OSError) as error:
        raise _wrong(f"{error}", _line_in_template(error, template)) from error
    return text


def origin_of(overrides: Path | None, template: str = TEMPLATE) -> str:
    """Return the name, for messages, of the template that ``render`` takes."""
    if overrides is not None and (overrides / template).is_file():
        return f"{overrides.name}/{template}"
    return f"repogen's {template}"


def _bounded(chunks: Iterable[str]) -> str:
    taken: list[str] = []
    length = 0
    for chunk in chunks:
        length += len(chunk)
        if length > MAX_CHARACTERS:
            raise SecurityError(f"it writes more than {MAX_CHARACTERS} characters")
        taken.append(chunk)
    return "".join(taken)


def _line_in_template(error: BaseException, template: str) -> str:
    """Return ``file:line`` of the deepest frame that jinja maps to a template."""
    line, trace = "", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith(".j2"):
            line = f":{trace.tb_lineno}"
        trace = trace.tb_next
    return template + line


def _wrong(what: str, where: str) -> ConfigError:
    return ConfigError(
        f"the template {where} can't be rendered: {what}",
        "docs/config.md lists the variables and filters; repogen's own template is a start",
        code="config.template",
        where=where,
    )


def _listed(values: Iterable[int]) -> str:
    items = ", ".join(map(str, values))
    return f"[ {items} ]" if items else "[ ]"

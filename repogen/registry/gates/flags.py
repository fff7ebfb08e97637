"""``--gate``: changes the gates that the spec declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from repogen.errors import SpecError
from repogen.plugins import is_built_in, plugins
from repogen.spec.gates import GROUP, OLD_NAMES, GatesSpec, gate_options
from repogen.spec.problems import suggestion
from repogen.spec.scalars import ScalarError, resolve_plain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from repogen.spec.models import Spec
    from repogen.spec.scalars import Scalar

    Gates = dict[str, dict[str, object]]

_USAGE = """\
--gate GATE               measure the gate, without adding a limit
--gate GATE=VALUE         set its first option, such as parity=1e-3, size=500, evaluation=gates.py:accuracy
--gate GATE.OPTION=VALUE  set an option, such as latency.max_ratio=1.1; VALUE off removes it
--gate GATE=off           remove the gate"""
_SMOKE = "smoke"


def declared_gates(spec: Spec | None, name: str, *, required: bool) -> GatesSpec:
    """Return the gates that a spec declares for a model; without a spec, the defaults.

    Args:
        spec: The spec, if there is one.
        name: The model.
        required: Whether the model must be in the spec, because the user named the spec.

    Raises:
        SpecError: The model is required and not in the spec.
    """
    if spec is not None and name in spec.models:
        return spec.models[name].promotion.gates
    if spec is not None and required:
        raise SpecError(
            f"{spec.path.name} does not define a model {name!r}",
            suggestion([name], list(spec.models), f"it defines {', '.join(spec.models)}"),
            code="spec.no-such-model",
        )
    return GatesSpec()


def usage() -> str:
    """Return the syntax of ``--gate``, and the options of every built-in gate; plug-ins' gates by name."""
    names = sorted(plugins(GROUP), key=lambda name: (not is_built_in(GROUP, name), name))
    options = {
        name: (", ".join(_options(name)) or "(on or off)") if is_built_in(GROUP, name) else "(plug-in)"
        for name in names
    }
    return "\n".join([_USAGE, *(f"{name:11} {text}" for name, text in options.items())])


def with_flags(gates: GatesSpec, flags: Iterable[str]) -> GatesSpec:
    """Return ``gates`` changed by ``--gate`` flags, in order.

    Raises:
        SpecError: A flag has invalid syntax, or a value is invalid; the message has every invalid flag.
    """
    values: Gates = {
        name: dict(options) for name, options in gates.model_dump(exclude_none=True).items() if name != _SMOKE
    }
    smoke, problems = gates.smoke, list[str]()
    for flag in flags:
        try:
            if flag.partition("=")[0] == _SMOKE:
                smoke = _switch(flag)
            else:
                _apply(values, flag)
        except ValueError as error:
            problems.append(f"--gate {flag}: {error}")
    try:
        new_gates = GatesSpec.model_validate({**values, _SMOKE: smoke})
    except ValidationError as error:
        problems += [_problem(detail["loc"], detail["msg"]) for detail in error.errors(include_url=False)]
    if problems:
        raise SpecError("\n".join(problems), f"usage:\n{usage()}", code="promotion.gate-flag")
    return new_gates


def _options(gate: str) -> list[str]:
    """Return the names of a gate's options.

    Raises:
        ValueError: There is no such gate.
    """
    options = gate_options(gate)
    if options is None:
        raise ValueError(f"there is no gate {gate!r}")
    return list(options.model_fields)


def _apply(values: Gates, flag: str) -> None:
    """Change ``values`` by one flag.

    Raises:
        ValueError: Its syntax is invalid, or there is no such gate or option.
    """
    target, equals, text = flag.partition("=")
    gate, dot, option = target.partition(".")
    gate = OLD_NAMES.get(gate, gate)
    options = _options(gate)
    if dot and option not in options:
        raise ValueError(f"{gate} does not have an option {option!r}")
    if not equals:
        if dot:
            raise ValueError("an option needs a value")
        values.setdefault(gate, {})
        return
    value = _scalar(text)
    if value is not False:
        if not options:
            raise ValueError(f"{gate} does not have options")
        values.setdefault(gate, {})[option or options[0]] = value
    elif dot:
        values.get(gate, {}).pop(option, None)
    else:
        values.pop(gate, None)


def _switch(flag: str) -> bool:
    value = _scalar(flag.partition("=")[2]) if "=" in flag else True
    if not isinstance(value, bool):
        raise ValueError("smoke must be on or off")  # noqa: TRY004 - a value of the user
    return value


def _scalar(text: str) -> Scalar:
    """Return a value as YAML in the spec has it.

    Raises:
        ValueError: It is missing, or not a valid scalar.
    """
    try:
        value = resolve_plain(text.strip())
    except ScalarError as error:
        raise ValueError(f"{error.what}; {error.hint}".rstrip("; ")) from error
    if value is None:
        raise ValueError("the value is missing")
    return value


def _problem(loc: tuple[int | str, ...], message: str) -> str:
    message = "is required" if message == "Field required" else message
    return f"--gate {'.'.join(map(str, loc))}: {message}"

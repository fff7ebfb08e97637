"""``--gate``: what the command line adds to, or takes from, the gates that the spec declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from repogen.errors import SpecError
from repogen.spec.gates import GatesSpec
from repogen.spec.scalars import ScalarError, resolve_plain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from repogen.spec.models import Spec
    from repogen.spec.scalars import Scalar

    Gates = dict[str, dict[str, object]]

GRAMMAR = """\
--gate GATE                 measure it, without a limit
--gate GATE=VALUE           its first limit: parity=1e-3, size=500, latency=20, holdout=gates.py:accuracy
--gate GATE.LIMIT=VALUE     latency.max_ratio=1.1, holdout.min=0.95, ...; VALUE off drops the limit
--gate GATE=off             drop the gate
parity      max_abs_diff
smoke       (on or off)
size        max_mb, max_ratio
latency     p95_max_ms, max_ratio
throughput  min_ratio
holdout     callable, data, metric, min, max_drop, timeout_seconds"""
_LIMITS = {
    line.split()[0]: tuple(line.replace(",", "").split()[1:])
    for line in GRAMMAR.splitlines()[4:]
    if not line.startswith("smoke")
}  # the first limit of each is what `GATE=VALUE` means
_SMOKE = "smoke"


def declared_gates(spec: Spec | None, name: str, *, required: bool) -> GatesSpec:
    """Return the gates that a spec declares for a model; the default ones, smoke and a recorded parity, without any.

    Args:
        spec: The spec, if there is one.
        name: The model.
        required: Whether the spec was named, and so has to know the model.

    Raises:
        SpecError: It does not.
    """
    if spec is not None and name in spec.models:
        return spec.models[name].promotion.gates
    if spec is not None and required:
        raise SpecError(
            f"{spec.path.name} has no model {name!r}", f"it has {', '.join(spec.models)}", code="spec.no-such-model"
        )
    return GatesSpec()


def with_flags(gates: GatesSpec, flags: Iterable[str]) -> GatesSpec:
    """Return ``gates`` with what ``--gate`` says laid over them, in order; see ``GRAMMAR``.

    Raises:
        SpecError: A flag is not of the grammar, or its value is none for that limit; every wrong one is named.
    """
    values: Gates = {
        name: dict(limits) for name, limits in gates.model_dump(exclude_none=True).items() if name != _SMOKE
    }
    smoke, wrong = gates.smoke, list[str]()
    for flag in flags:
        try:
            if flag.partition("=")[0] == _SMOKE:
                smoke = _switch(flag)
            else:
                _lay(values, flag)
        except ValueError as error:
            wrong.append(f"--gate {flag}: {error}")
    try:
        made = GatesSpec.model_validate({**values, _SMOKE: smoke})
    except ValidationError as error:
        wrong += [_misfit(detail["loc"], detail["msg"]) for detail in error.errors(include_url=False)]
    if wrong:
        raise SpecError("\n".join(wrong), f"the grammar is\n{GRAMMAR}", code="promotion.gate-flag")
    return made


def _lay(values: Gates, flag: str) -> None:
    """Lay one flag over ``values``.

    Raises:
        ValueError: It is not of the grammar.
    """
    target, given, text = flag.partition("=")
    gate, dotted, limit = target.partition(".")
    if gate not in {*_LIMITS, _SMOKE}:
        raise ValueError(f"there is no gate {gate!r}")
    if dotted and limit not in _LIMITS.get(gate, ()):
        raise ValueError(f"{gate} has no limit {limit!r}")
    if not given:
        if dotted:
            raise ValueError("a limit needs a value")
        values.setdefault(gate, {})
        return
    value = _scalar(text)
    if value is not False:
        values.setdefault(gate, {})[limit or _LIMITS[gate][0]] = value
    elif dotted:
        values.get(gate, {}).pop(limit, None)
    else:
        values.pop(gate, None)


def _switch(flag: str) -> bool:
    value = _scalar(flag.partition("=")[2]) if "=" in flag else True
    if not isinstance(value, bool):
        raise ValueError("smoke is on or off")  # noqa: TRY004 - the value is the user's
    return value


def _scalar(text: str) -> Scalar:
    """Return a value as the spec's YAML would have it.

    Raises:
        ValueError: It would have none.
    """
    try:
        value = resolve_plain(text.strip())
    except ScalarError as error:
        raise ValueError(f"{error.what}; {error.hint}".rstrip("; ")) from error
    if value is None:
        raise ValueError("the value is missing")
    return value


def _misfit(place: tuple[int | str, ...], said: str) -> str:
    said = "is needed" if said == "Field required" else said
    return f"--gate {'.'.join(map(str, place))}: {said}"

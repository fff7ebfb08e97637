"""Base class, scalar types and key paths of the spec's models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, WrapValidator
from pydantic_core import PydanticCustomError, ValidationError

if TYPE_CHECKING:
    from pydantic import ValidatorFunctionWrapHandler


class Section(BaseModel):
    """A mapping of the spec; unknown keys are rejected."""

    # defer_build: the schema is built once, for SpecFile, instead of once for each class at import.
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), defer_build=True)


def must_be(what: str) -> WrapValidator:
    """Return a validator that raises one error for any invalid value, instead of one error for each union member."""

    def validate(value: object, handler: ValidatorFunctionWrapHandler) -> object:
        try:
            return handler(value)
        except ValidationError as error:
            raise PydanticCustomError("must_be", "must be {what}", {"what": what}) from error

    return WrapValidator(validate)


KeyPath: TypeAlias = tuple[str | int, ...]
"""Keys and indexes from a mapping to a value in it."""


def key_text(path: KeyPath) -> str:
    """Return ``path`` in the notation of messages.

    >>> key_text(("models", "digits", "outputs", 0))
    'models.digits.outputs[0]'
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


Seconds = Annotated[
    float, Field(strict=True, gt=0, le=86_400, allow_inf_nan=False), must_be("a number of seconds > 0 and <= 86400")
]
Tolerance = Annotated[float, Field(strict=True, ge=0, le=1e6, allow_inf_nan=False), must_be("a number >= 0")]
INT32_MAX = 2**31 - 1
# Without must_be: for members of a union, whose own must_be describes all members.
AnySize = Annotated[int, Field(strict=True, ge=1, le=INT32_MAX)]
AnyCount = Annotated[int, Field(strict=True, ge=0, le=INT32_MAX)]
Size = Annotated[AnySize, must_be("an integer >= 1")]
Count = Annotated[AnyCount, must_be("an integer >= 0")]
# Without control characters, line breaks, and characters that change the direction of text or have no width.
TensorName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=256,
        pattern=r"^[^\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+$",
    ),
    must_be("a string of 1 to 256 printable characters"),
]

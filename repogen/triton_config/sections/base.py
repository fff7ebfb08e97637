"""What the spec's models and scalars are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, WrapValidator
from pydantic_core import PydanticCustomError, ValidationError

if TYPE_CHECKING:
    from pydantic import ValidatorFunctionWrapHandler


class Section(BaseModel):
    """A mapping of the spec; unknown keys are refused."""

    # defer_build: the schema is made once, for SpecFile, and not once more for each class at import.
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), defer_build=True)


def must_be(what: str) -> WrapValidator:
    """Return a validator that answers every misfit with one sentence, instead of one error for each union member."""

    def validate(value: object, handler: ValidatorFunctionWrapHandler) -> object:
        try:
            return handler(value)
        except ValidationError as error:
            raise PydanticCustomError("must_be", "must be {what}", {"what": what}) from error

    return WrapValidator(validate)


KeyPath: TypeAlias = tuple[str | int, ...]
"""Keys and indexes from a mapping to a value in it."""

Seconds = Annotated[
    float, Field(strict=True, gt=0, le=86_400, allow_inf_nan=False), must_be("a number of seconds > 0 and <= 86400")
]
Tolerance = Annotated[float, Field(strict=True, ge=0, le=1e6, allow_inf_nan=False), must_be("a number >= 0")]
INT32_MAX = 2**31 - 1
# Without their sentence: for unions, which say it for both sides.
AnySize = Annotated[int, Field(strict=True, ge=1, le=INT32_MAX)]
AnyCount = Annotated[int, Field(strict=True, ge=0, le=INT32_MAX)]
Size = Annotated[AnySize, must_be("an integer >= 1")]
Count = Annotated[AnyCount, must_be("an integer >= 0")]
# Without control characters, line breaks, and what changes the direction of text or has no width.
TensorName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=256,
        pattern=r"^[^\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+$",
    ),
    must_be("a string of 1 to 256 printable characters"),
]

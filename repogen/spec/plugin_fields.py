"""Spec fields that name a plug-in, and the plug-in's options, which its own pydantic model validates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

from repogen.plugins import load_plugin, plugins

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema, ErrorDetails

    from repogen.plugins import Group

UNKNOWN_OPTION = "unknown_option"
"""Type of the error for an option that a plug-in does not have; ``known`` in its context lists its options."""

_ADVICE = "Input should be "


@dataclass(frozen=True)
class Registered:
    """Annotation of a string that names an entry point of a group.

    Attributes:
        group: The group.
        more: Other valid values, which come first.
    """

    group: Group
    more: tuple[str, ...] = ()

    def check(self, value: object) -> str:
        """Return the value if it is a valid name.

        Raises:
            PydanticCustomError: It is not.
        """
        if isinstance(value, str) and (value in self.more or value in plugins(self.group)):
            return value
        names = [*self.more, *sorted(plugins(self.group))]
        raise must_be_error(" or ".join(filter(None, [", ".join(names[:-1]), names[-1]])))

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Validate with ``check`` instead of an enumeration, so that no entry point is read at import."""
        return core_schema.no_info_before_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, object]:
        """Enumerate the registered names."""
        del schema, handler
        return {"type": "string", "enum": [*self.more, *sorted(plugins(self.group))]}


def must_be_error(what: str) -> PydanticCustomError:
    """Return the error that the spec reports as "must be WHAT, not VALUE"."""
    return PydanticCustomError("must_be", "must be {what}", {"what": what})


def plugin_options(group: Group, name: str) -> type[BaseModel] | None:
    """Return the ``options_model`` of a plug-in, which is imported; None if it has none.

    Raises:
        SpecError: The plug-in cannot be imported.
    """
    model = getattr(load_plugin(group, name), "options_model", None)
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None


def check_options(group: Group, name: str, options: Mapping[str, object], *, required: bool = False) -> None:
    """Validate options with the ``options_model`` of a plug-in.

    Args:
        group: The group.
        name: The plug-in.
        options: Its options.
        required: Whether it may have options without defaults. Otherwise it is imported only if there are options.

    Raises:
        ValidationError: The options are not valid.
        SpecError: The plug-in cannot be imported.
    """
    if not options and not required:
        return
    model = plugin_options(group, name)
    if model is None or not model.model_fields:
        if options:
            raise must_be_error(f"left out: {name} has no options")
        return
    try:
        model.model_validate(options)
    except ValidationError as error:
        option_names = [field.alias or key for key, field in model.model_fields.items()]
        details = [_convert(detail, option_names) for detail in error.errors(include_url=False)]
        raise ValidationError.from_exception_data(name, details) from error


def _convert(detail: ErrorDetails, option_names: list[str]) -> InitErrorDetails:
    """Return an error of a plug-in's model in the form that the spec reports."""
    kind, message = detail["type"], detail["msg"]
    reported: str | PydanticCustomError
    if kind == "missing":
        reported = kind
    elif kind == "extra_forbidden":
        reported = PydanticCustomError(UNKNOWN_OPTION, "unknown key", {"known": option_names})
    elif kind == "must_be":
        reported = must_be_error(str(detail.get("ctx", {})["what"]))
    else:
        reported = must_be_error(message.removeprefix(_ADVICE) if message.startswith(_ADVICE) else f"valid: {message}")
    return InitErrorDetails(type=reported, loc=detail["loc"], input=detail["input"])

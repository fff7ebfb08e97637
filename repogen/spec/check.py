"""``check:`` of the spec: settings of `repogen check`, which the build ignores."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool

from repogen.triton_config.sections.base import Section, must_be

_MAX_PATTERNS = 1_000
_MAX_PATTERN = 1_000
"""Characters; each pattern is compiled, and compared with the path of each finding."""

Codes = Annotated[
    tuple[Annotated[str, Field(pattern="^RG[0-9]*$")], ...], must_be("a list of codes, such as RG101 or RG1")
]


class CheckSpec(Section):
    """Settings of `repogen check`; options on the command line replace them."""

    target: str | None = Field(default=None, description="Triton release; that of the spec if omitted")
    select: Codes = Field(default=(), description="Report only these codes or families, such as RG1")
    ignore: Codes = Field(default=(), description="Do not report these codes or families")
    per_path_ignores: dict[Annotated[str, Field(max_length=_MAX_PATTERN)], Codes] = Field(
        default_factory=dict,
        max_length=_MAX_PATTERNS,
        description="Codes that are not reported for files whose paths, relative to this file, match a pattern",
    )
    strict: StrictBool = Field(default=False, description="Exit with code 1 on warnings as well")

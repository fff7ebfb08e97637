"""Names for what transformers leaves untyped."""

from __future__ import annotations

from typing import Any, TypeAlias

Config: TypeAlias = Any
"""A configuration; its attributes depend on the architecture."""

Model: TypeAlias = Any
"""A model, its class, or an auto class."""

Json: TypeAlias = Any
"""A value read from a file."""

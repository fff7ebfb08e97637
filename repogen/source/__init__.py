"""Spec entry -> SourceModel: the user's module, its signature and seeded example inputs. Runs in the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.source.built import BuiltStep
    from repogen.spec.models import ModelSpec
    from repogen.values.source import SourceModel


def load_source(
    model: ModelSpec,
    root: Path,
    fetched: Path | None = None,
    steps: Mapping[str, BuiltStep] | None = None,
    work_dir: Path | None = None,
) -> SourceModel:
    """Make the user's model; see ``repogen.source.load.load_source``.

    Raises:
        SourceError: It can't be made, or is not what the spec says.
    """
    from repogen.source.load import load_source as load  # noqa: PLC0415 - torch; `source.callables` does without

    return load(model, root, fetched, steps or {}, work_dir)

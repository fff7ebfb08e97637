"""The figure by which a lossy graph is judged: the user's code, run on the original and on the graph."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from repogen.artifacts.built_model import Quality
from repogen.errors import SourceError
from repogen.source.common.callables import RAISED, import_callable, user_error
from repogen.validate.figures import figures_of, select_figure
from repogen.validate.predict import Predict

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.source import Reference, SourceModel
    from repogen.spec.models import QualitySpec

_CODE = "source.quality"


@dataclass(frozen=True)
class QualityJudge:
    """Runs the user's code, on the original once.

    Attributes:
        spec: The ``quality:`` section.
        root: Directory of the spec.
        source: The original.
        max_batch_size: Largest number of rows in a call; 0 if the model does not batch.
    """

    spec: QualitySpec
    root: Path
    source: SourceModel
    max_batch_size: int

    @cached_property
    def reference(self) -> float:
        """The figure of the original.

        Raises:
            SourceError: The user's code fails, or does not return a number.
        """
        return self._figure(self.source.reference)

    def judge(self, published: Reference) -> Quality:
        """Return the figures of the original and of a graph.

        Raises:
            SourceError: The user's code fails, or does not return a number.
        """
        return Quality(self.reference, self._figure(published), self.spec.max_drop)

    def _figure(self, model: Reference) -> float:
        name = self.spec.callable
        code = import_callable(name, self.root)
        data = None if self.spec.data is None else self.root / self.spec.data
        try:
            returned = code(Predict(self.source.signature, self.max_batch_size, model), data)
        except RAISED as error:
            raise user_error(error, f"{name} failed", self.root, _CODE) from error
        try:
            figures = figures_of(returned)
        except ValueError as error:
            hint = "return a float, or a dict of floats by name"
            raise SourceError(f"{name} did not return a number: {error}", hint, code=_CODE, where=name) from error
        figure, reason = select_figure(figures, self.spec.metric, "quality.metric")
        if figure is None:
            raise SourceError(f"{name}: {reason}", code=_CODE, where=name)
        return figure

"""Compares the rows of a batch with the same rows alone, in another order, and together with others and copies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from repogen.errors import RepogenError
from repogen.validate.compare import difference, elementwise_difference, has_nan
from repogen.validate.tolerance import tolerances_of
from repogen.validate.variation import FACTORS, only_nan, scaled, with_nan, with_shared_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from repogen.artifacts.source import Reference
    from repogen.artifacts.tensors import Array, Arrays, Sizes
    from repogen.validate.sweep import SweepCase
    from repogen.validate.tolerance import Limit, Tolerances

Tensors: TypeAlias = "dict[str, Array]"

_MAX_SAMPLED_ROWS = 8
"""Rows of a large batch that are also computed alone."""
_MAX_JOINED = 16
"""Rows of a batch that is joined from other batches."""
_MAX_COPIED = 2
"""Rows whose rescaled copies fill a batch."""
_MAX_MIXED = 3
"""Rows whose copies fill a batch together."""
_MAX_SORTED = 4
"""Rows that are compared in ascending and in descending order."""
_MAX_RESCALED = 4
"""Copies of each of these in a batch."""
_KEPT_AND_OTHERS = ((1.0, (1.0, 0.0, 10.0, 1000.0, -1000.0)), (0.0, (0.0, 10.0)), (10.0, (1.0, 10.0)))
"""Factors of a row, and of the other rows in the batches that it is compared in."""
_AMPLIFICATION = 10.0
"""By how much larger inputs than the examples may amplify rounding, which depends on the size of a batch."""


@dataclass(frozen=True)
class _Row:
    """A row of a joined batch.

    Attributes:
        inputs: The row, as a batch of one.
        outputs: Its outputs alone.
        slack: Factor of the tolerances.
    """

    inputs: Tensors
    outputs: Arrays
    slack: float = 1.0


@dataclass(frozen=True)
class RecordedRow:
    """A row of a parity case.

    Attributes:
        inputs: The row, as a batch of one.
        outputs: Its outputs in the batch of the case: of the original, and of the published model.
    """

    inputs: Tensors
    outputs: tuple[Tensors, Tensors]


@dataclass(frozen=True)
class RecordedCase:
    """A parity case.

    Attributes:
        sizes: Sizes of the other dims; rows of cases with equal sizes can be joined.
        batch: Number of rows.
        rows: The first and the last row; one if they are the same.
    """

    sizes: Sizes
    batch: int
    rows: tuple[RecordedRow, ...]


@dataclass(frozen=True)
class RecordedBatch:
    """All rows of a parity case.

    Attributes:
        inputs: The rows.
        outputs: Outputs of the original, and of the published model.
    """

    inputs: Tensors
    outputs: tuple[Tensors, Tensors]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return _length(self.inputs)

    def varying(self, index: int) -> frozenset[str]:
        """Names of the outputs that are not the same for all rows; of the original (0) or the published model (1)."""
        outputs = self.outputs[index]
        return frozenset(name for name, array in outputs.items() if (array != array[:1]).any())


class RowRecorder:
    """Records the first and the last row of each parity case, and the cheapest of the largest batches.

    Args:
        batch_dim: The dim of axis 0 of all inputs; None if there is none.
        largest: The largest batch.
    """

    def __init__(self, batch_dim: str | None, largest: int = 0) -> None:
        """Start without rows."""
        self._dim = batch_dim
        self._largest = largest
        self.cases: list[RecordedCase] = []
        self.large: RecordedBatch | None = None

    def offer(self, case: SweepCase, inputs: Arrays, expected: Arrays, actual: Arrays) -> None:
        """Record rows if both models returned them on axis 0."""
        if self._dim is None or not actual:
            return
        size = case.sizes[self._dim]
        arrays = (*inputs.values(), *expected.values(), *actual.values())
        if any(array.shape[:1] != (size,) for array in arrays):
            return
        if size == self._largest and self.large is None:  # the cheapest cases come first
            self.large = RecordedBatch(dict(inputs), (dict(expected), dict(actual)))
        rows = []
        for index in dict.fromkeys((0, size - 1)):
            part = slice(index, index + 1)
            rows.append(RecordedRow(_rows(inputs, part), (_rows(expected, part), _rows(actual, part))))
        sizes = {name: other for name, other in case.sizes.items() if name != self._dim}
        self.cases.append(RecordedCase(sizes, size, tuple(rows)))


class RowProbe:
    """Compares rows in a batch with the same rows alone, in another order, and together with other rows and copies.

    Each method returns how the rows depend on each other; empty if they are independent.

    Args:
        model: The model.
        inputs: The rows.
        limits: How far each output may differ.
        allowed: The same at the magnitude of the outputs of the examples.
        max_size: Largest batch that the model supports.
    """

    def __init__(
        self, model: Reference, inputs: Arrays, limits: Mapping[str, Limit], allowed: Tolerances, max_size: int
    ) -> None:
        """Store the arguments."""
        self._model = model
        self._inputs = inputs
        self._limits = limits
        self._allowed = allowed
        self._max_joined = min(max_size, _MAX_JOINED)
        self._alone: dict[int, Tensors] = {}
        self._variants: dict[tuple[int, float], _Row | None] = {}

    def in_small_batches(self, sizes: list[int]) -> str:
        """Compare the first rows, in batches of several sizes."""
        for size in sizes:
            try:
                reason = self._in_batch(size)
            except RepogenError as error:
                reason = f"a batch of {size} fails: {error.message}"
            if reason:
                return reason
        reason = self._in_order()
        return f"rows have different outputs in another order: {reason}" if reason else ""

    def _in_order(self) -> str:
        """Compare rows in ascending order with the same rows in descending order.

        Every column is sorted: a model may expect rows that are sorted by one of them. If the model does not support
        these values, the rows are compared in reverse order with the same rows alone.
        """
        backward = slice(None, None, -1)
        ascending = {name: np.sort(array[:_MAX_SORTED], axis=0) for name, array in self._inputs.items()}
        try:
            expected, actual = self._model(_rows(ascending, backward)), self._model(ascending)
        except RepogenError:
            expected = _join([self._single(index) for index in range(_length(self._inputs))])
            actual = self._model(_rows(self._inputs, backward))
        return self._difference(expected, {name: array[::-1] for name, array in actual.items()})

    def _in_batch(self, size: int) -> str:
        """Compare one batch with its rows alone."""
        batch = self._single(0) if size == 1 else self._model(_rows(self._inputs, slice(size)))
        for name, array in batch.items():
            if array.ndim == 0 or array.shape[0] != size:
                return f"output {name!r} has shape {list(array.shape)} for a batch of {size}: axis 0 is not the batch"
        singles = [self._single(index) for index in range(size)]
        for name, array in batch.items():
            if any(row[name].shape != (1, *array.shape[1:]) for row in singles):
                return f"output {name!r} has a different shape for one row than in a batch of {size}"
        reason = self._difference(_join(singles), batch)
        return f"a row has a different output alone than in a batch of {size}: {reason}" if reason else ""

    @property
    def varying(self) -> frozenset[str]:
        """Names of the outputs that are not the same for the first two rows."""
        first, second = self._single(0), self._single(1)
        return frozenset(name for name in first if not np.array_equal(first[name], second[name]))

    def with_varied_rows(self) -> str:
        """Compare the first two rows together with negated and rescaled ones, which may reach other branches."""
        if self._max_joined == 1:
            return ""
        rows = [self._row(0), *self._varied(0, FACTORS[:1]), self._row(1)]
        rows += [*self._varied(1, FACTORS), *self._varied(0, FACTORS[2:3])]
        for start in range(0, len(rows), self._max_joined):
            chunk = rows[start : start + self._max_joined]
            if len(chunk) > 1 and (reason := self._joined(chunk)):
                return f"a row has a different output alone than together with negated and rescaled rows: {reason}"
        return ""

    def with_copies(self) -> str:
        """Compare rows with a batch of their copies: a model may drop duplicates, or limit how many rows are alike.

        The last batch has copies of several rows, and one row of larger values: a model may group equal rows, or limit
        values that are far from the mean of a batch, which only one of many rows can be.
        """
        if self._max_joined == 1:
            return ""
        try:
            batches = [[self._row(0)] * self._max_joined]
            for index in range(min(_length(self._inputs), _MAX_COPIED)):
                rows = self._varied(index, FACTORS[1::2])
                copies = min(self._max_joined // max(len(rows), 1), _MAX_RESCALED)
                batches.append([row for row in rows for _ in range(copies)])
            extreme = self._varied(1, FACTORS[1:2])
            ordinary = [self._row(index) for index in range(min(_length(self._inputs), _MAX_MIXED))]
            batches.append([*(ordinary * self._max_joined)[: self._max_joined - len(extreme)], *extreme])
        except RepogenError as error:
            return f"a batch of 1 fails: {error.message}"
        for batch in filter(None, batches):
            if reason := self._joined(batch):
                return f"a row has a different output alone than with copies of itself: {reason}"
        return ""

    def with_other_rows(self) -> str:
        """Compare a row between two other rows in batches in which only these change.

        Rounding depends on the size of a batch, but hardly on the values of other rows. The tolerance is therefore that
        of each single value, however large the others are: small values next to large ones count, too. Rows of zeros,
        such as silence or padding, are tried as well. The other rows are before and after the row: a model may smooth
        rows, or keep their maximum, in one direction.
        """
        if self._max_joined == 1:
            return ""
        more = [self._row(2)] if _length(self._inputs) > 2 else []  # noqa: PLR2004 - the third row
        for factor, others in _KEPT_AND_OTHERS:
            company = self._varied(1, others) + (more if factor == 1.0 else [])
            for row in self._varied(0, (factor,)):
                if reason := self._changed_by(row, [other.inputs for other in company]):
                    return f"a row has a different output if only the other rows change: {reason}"
        return ""

    def with_shared_values(self, flat: frozenset[str]) -> str:
        """Compare a row between rows that share some of its values with the same row between rows that share none.

        A model may count the rows of a batch that have the same card and another shop: neither random rows nor copies
        show it. It may count only those of an earlier hour, or of a larger amount, so that one of two rows affects the
        other: each of them is compared.

        Args:
            flat: Names of the inputs whose columns may be shared separately.
        """
        pairs = ((0, 1), (1, 0)) if self._max_joined > 1 else ()
        return next(filter(None, (self._next_to_similar(*pair, flat) for pair in pairs)), "")

    def _next_to_similar(self, index: int, other_index: int, flat: frozenset[str]) -> str:
        """Compare a row between variants of another one that share some of its values."""
        row, other = self._row(index), self._row(other_index).inputs
        most = max((self._max_joined - 1) // 2, 1)
        variants = with_shared_values(row.inputs, other, flat)
        without: dict[int, Tensors] = {}  # by number of other rows, which are the same in each of these batches
        for start in range(0, len(variants), most):
            company = variants[start : start + most]
            count = len(company)
            after = count if 2 * count < self._max_joined else 0
            if count not in without:
                without[count] = self._outputs_of([*[other] * count, row.inputs, *[other] * after])
            outputs = [without[count], self._outputs_of([*company, row.inputs, *company[:after]])]
            if reason := self._changed(row, [each for each in outputs if each], count, count + after + 1):
                return f"a row has a different output next to rows that share some of its values: {reason}"
        return ""

    def with_missing_values(self, seed: int) -> str:
        """Compare a row between two other rows in batches in which only these change, and some rows may have NaN.

        A model may drop rows with NaN, or fill the gaps with values of other rows, such as the row before.

        Args:
            seed: Seed of the places of NaN.
        """
        if self._max_joined == 1 or any(has_nan(self._row(index).inputs) for index in range(2)):
            return ""
        row, other = self._row(0), self._row(1)
        gaps = with_nan(row.inputs, seed)
        if gaps is None:
            return ""
        others = [other.inputs, with_nan(other.inputs, seed), only_nan(other.inputs)]
        finite = [other.inputs, scaled(other.inputs, _AMPLIFICATION)]
        for first, seconds in ((row.inputs, others), (gaps, finite)):
            if reason := self._changed_by(replace(row, inputs=first), [rows for rows in seconds if rows is not None]):
                return f"a row has a different output if only the other rows change, and one row has NaN: {reason}"
        return ""

    def _changed_by(self, row: _Row, others: Sequence[Arrays]) -> str:
        """Return how a row changes with the rows before and after it, which are the same; empty if it does not."""
        sides = ((1, 1),) if self._max_joined > 2 else ((0, 1), (1, 0))  # noqa: PLR2004 - three rows
        for before, after in sides:
            batches = (self._outputs_of([other] * before + [row.inputs] + [other] * after) for other in others)
            if reason := self._changed(row, [batch for batch in batches if batch], before, before + 1 + after):
                return reason
        return ""

    def _changed(self, row: _Row, batches: Sequence[Arrays], index: int, size: int) -> str:
        """Return how a row of batches of one size differs, at the magnitude of each value; empty if it does not."""
        if sizes := [len(array) for batch in batches for array in batch.values() if len(array) != size]:
            return f"a batch of {size} has {sizes[0]} output {'row' if sizes[0] == 1 else 'rows'}"
        for name, limit in self._limits.items():
            samples = [row.outputs[name], *(outputs[name] for outputs in self._alone.values())]
            versions = [batch[name][index : index + 1] for batch in batches]
            if reason := elementwise_difference(name, versions, samples, limit):
                return reason
        return ""

    def _outputs_of(self, rows: Sequence[Arrays]) -> Tensors:
        """Return the outputs of a batch; none if the model does not support it."""
        try:
            return self._model(_join(rows))
        except RepogenError:
            return {}

    def _single(self, index: int) -> Tensors:
        """Return the outputs of a row alone."""
        if index not in self._alone:
            self._alone[index] = self._model(_rows(self._inputs, slice(index, index + 1)))
        return self._alone[index]

    def _row(self, index: int) -> _Row:
        return _Row(_rows(self._inputs, slice(index, index + 1)), self._single(index))

    def _varied(self, index: int, factors: Sequence[float]) -> list[_Row]:
        """Return a row with each factor, except where the model does not support such values."""
        row = self._row(index)
        for factor in factors:
            if (index, factor) not in self._variants:
                self._variants[index, factor] = row if factor == 1.0 else self._rescaled(row.inputs, factor)
        variants = [self._variants[index, factor] for factor in factors]
        return [variant for variant in variants if variant is not None]

    def _rescaled(self, row: Arrays, factor: float) -> _Row | None:
        """Return a row with a factor, and its outputs; None if the model does not support it."""
        scaled_row = scaled(row, factor)
        try:
            outputs = None if scaled_row is None else self._model(scaled_row)
        except RepogenError:
            return None
        if scaled_row is None or outputs is None or has_nan(outputs):
            return None
        return _Row(scaled_row, outputs, _AMPLIFICATION if abs(factor) > 1 else 1.0)

    def across_cases(self, cases: Sequence[RecordedCase], index: int, example: Sizes) -> str:
        """Compare rows of the parity cases with the same rows alone, or in a batch that is joined from several cases.

        Where no more than one case has several rows, or where a row costs more than at the example sizes, the last row
        of the largest batch is computed alone.

        Args:
            cases: The cases.
            index: Index of the model among the outputs of each row.
            example: Example sizes of the other dims.
        """
        for sizes in _different([case.sizes for case in cases]):
            batches = [case for case in cases if case.sizes == sizes and case.batch > 1]
            if not batches:
                continue
            if len(batches) > 1 and prod(sizes.values()) <= prod(example.values()):
                reason = self._together([case for case in cases if case.sizes == sizes], index)
            else:
                reason = self._last_alone(max(batches, key=lambda case: case.batch), index)
            if reason:
                at = ", ".join(f"{name}={size}" for name, size in sizes.items())
                where, _, rest = reason.partition(": ")
                return f"{where}{f' at {at}' if at else ''}: {rest}"
        return ""

    def _together(self, cases: Sequence[RecordedCase], index: int) -> str:
        """Compare rows of several cases in one batch, and with negated ones, with the same rows in their cases."""
        largest_first = sorted(cases, key=lambda case: case.batch, reverse=True)
        rows = [row for case in largest_first for row in case.rows][: max(self._max_joined // 2, 1)][::-1]
        negated = [negated_row for row in rows if (negated_row := scaled(row.inputs, -1.0)) is not None]
        company = negated[: self._max_joined - len(rows)]
        if len(rows) + len(company) == 1:
            return ""
        reason = self._joined([_Row(row.inputs, row.outputs[index]) for row in rows], company)
        return f"a row has a different output together with rows of other cases: {reason}" if reason else ""

    def _last_alone(self, case: RecordedCase, index: int) -> str:
        """Compare the last row of a case with the same row alone."""
        row = case.rows[-1]
        try:
            alone = self._model(row.inputs)
        except RepogenError as error:
            return f"a batch of 1 fails: {error.message}"
        reason = self._difference(alone, row.outputs[index])
        return f"a row has a different output alone than in a batch of {case.batch}: {reason}" if reason else ""

    def _joined(self, rows: Sequence[_Row], company: Sequence[Tensors] = ()) -> str:
        """Compare rows in a batch, together with the inputs of others, with the same rows alone.

        A model that fails on the batch passes.
        """
        inputs = [*(row.inputs for row in rows), *company]
        try:
            batch = self._model(_join(inputs))
        except RepogenError:
            return ""
        if any(array.shape[:1] != (len(inputs),) for array in batch.values()):
            return f"its outputs do not have {len(inputs)} rows"
        for index, row in enumerate(rows):
            if reason := self._difference(row.outputs, _rows(batch, slice(index, index + 1)), row.slack):
                return reason
        return ""

    def in_large_batches(self, recorded: Tensors | None) -> str:
        """Compare a sample of the rows with the same rows alone, and all of them in another order.

        Args:
            recorded: Outputs of the batch; None if it has not been run. Its first half is then compared as well; it
                stands for the sizes between those of the parity cases.
        """
        inputs, size = self._inputs, _length(self._inputs)
        sample = sorted({round(i * (size - 1) / (_MAX_SAMPLED_ROWS - 1)) for i in range(_MAX_SAMPLED_ROWS)})
        try:
            batches = {size: self._model(inputs) if recorded is None else recorded}
            reversed_batch = self._model(_rows(inputs, slice(None, None, -1)))
            singles = {index: self._single(index) for index in sample}
            if recorded is None and size // 2 > 1:
                batches[size // 2] = self._model(_rows(inputs, slice(size // 2)))
        except RepogenError as error:
            return f"a batch of {size} fails: {error.message}"
        for rows, outputs in sorted(batches.items()):
            indices = [index for index in sample if index < rows]
            expected = _join([singles[index] for index in indices])
            if reason := self._difference(expected, {name: array[indices] for name, array in outputs.items()}):
                return f"a row has a different output alone than in a batch of {rows}: {reason}"
        reason = self._difference(batches[size], {name: array[::-1] for name, array in reversed_batch.items()})
        return f"rows have different outputs in another order in a batch of {size}: {reason}" if reason else ""

    def _difference(self, expected: Arrays, actual: Arrays, slack: float = 1.0) -> str:
        """Compare outputs; the tolerance grows with values that are larger than those of the examples."""
        own = tolerances_of(expected, self._limits)
        zeros = {name for name, array in expected.items() if not array.any()}
        larger = {name: limit if name in zeros else max(own[name], limit) for name, limit in self._allowed.items()}
        return difference(expected, actual, {name: (r * slack, a * slack) for name, (r, a) in larger.items()}).reason


def _different(candidates: Sequence[Sizes]) -> list[Sizes]:
    return list({tuple(sizes.items()): sizes for sizes in candidates}.values())


def _rows(inputs: Arrays, selection: slice) -> Tensors:
    return {name: np.ascontiguousarray(array[selection]) for name, array in inputs.items()}


def _join(rows: Sequence[Arrays]) -> Tensors:
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def _length(inputs: Arrays) -> int:
    return len(next(iter(inputs.values())))

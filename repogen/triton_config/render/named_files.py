"""The files that a config names: what they hold, and what they are called."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from repogen.artifacts.named_file import data_file, label_file
from repogen.errors import ConfigError
from repogen.triton_config.render.model_facts import Sample
from repogen.triton_config.render.tensors import controls_of, fed_by_triton

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from repogen.artifacts.named_file import NamedFile
    from repogen.artifacts.tensors import Array
    from repogen.triton_config.render.model_facts import Known
    from repogen.triton_config.sections.model import TritonSpec


GoldenInputs: TypeAlias = "Callable[[bool], Mapping[str, Array] | None]"
"""Returns the inputs of the first golden case, by name; given True, of the first one with at least one row."""


def with_files(
    known: Known, triton: TritonSpec, labels: Mapping[str, Sequence[str]], root: Path, golden_inputs: GoldenInputs
) -> tuple[Known, tuple[NamedFile, ...]]:
    """Return what is known with the names of the files that the config is to name, and those files.

    Args:
        known: What is known without them.
        triton: The spec's wishes.
        labels: Names of classes that the model brings, by output; what the spec says goes before.
        root: Directory that the spec's paths start from.
        golden_inputs: Returns the inputs of a golden case, with rows or without; None where there is none.

    Raises:
        ConfigError: A file can't be read, labels are not UTF-8, or there is no golden case.
    """
    classes = {name: label_file(lines) for name, lines in {**labels, **_labels(triton, root)}.items()}
    firsts = [file for path, file in triton.files.items() if path[0] == "sequence_batching"]
    states = {file: data_file("state", _bytes(root, file)) for file in firsts}
    golden: dict[str, NamedFile] = {}
    rows: dict[str, tuple[int, ...]] = {}
    if any(warmup.data == "golden" for warmup in triton.model_warmup):
        given = _golden_row(golden_inputs, known)
        for name in sorted(given.keys() - (fed_by_triton(triton) - controls_of(triton))):
            golden[name], rows[name] = data_file("warmup", _raw(given[name])), given[name].shape
    files = (*classes.values(), *states.values(), *golden.values())
    full = replace(
        known,
        labels={name: file.name for name, file in classes.items()},
        states=states,
        golden={name: Sample(rows[name], file.name) for name, file in golden.items()},
    )
    return full, tuple({file.name: file for file in files}.values())


def _labels(triton: TritonSpec, root: Path) -> dict[str, list[str]]:
    said = {name: extra.label_filename for name, extra in triton.output.items() if extra.label_filename is not None}
    return {name: _lines(_text(root, file)) for name, file in said.items()}


def _lines(text: str) -> list[str]:
    """Return lines as Triton tells them apart: by line feeds alone."""
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def no_golden_inputs(batched: bool) -> None:  # noqa: FBT001 - a ``GoldenInputs``
    """There are no golden cases."""


def _golden_row(golden_inputs: GoldenInputs, known: Known) -> dict[str, Array]:
    """Return the first row of the first golden case; Triton repeats it as often as a warmup's ``batch_size`` says."""
    arrays = golden_inputs(known.batched)
    if arrays is None:
        raise ConfigError(
            "a warmup wants golden tensors, and there are none",
            "use data: random",
            code="config.warmup",
            where=known.where("model_warmup"),
        )
    return {name: array[0] if known.batched else array for name, array in arrays.items()}


def _raw(array: Array) -> bytes:
    """Return values as Triton reads them: row-major, little-endian, each string behind its length in four bytes."""
    if array.dtype.kind in "USO":
        texts = [text.encode() if isinstance(text, str) else bytes(text) for text in array.ravel().tolist()]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def _text(root: Path, file: str) -> str:
    try:
        return _bytes(root, file).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8", "save it as UTF-8, a name a line", code="config.labels") from error


def _bytes(root: Path, file: str) -> bytes:
    try:
        return (root / file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} can't be read: {error.strerror}", code="config.unreadable") from error

"""The files that a config names: labels, initial states, and golden rows for warmups."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from typing import TYPE_CHECKING

from repogen.artifacts.named_file import data_file, label_file
from repogen.errors import ConfigError
from repogen.files import open_inside
from repogen.files.content import MAX_TEXT_BYTES, ContentError, read_stream
from repogen.triton_config.render.model_facts import GoldenRow
from repogen.triton_config.render.tensors import control_names, triton_fed

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from repogen.artifacts.named_file import NamedFile
    from repogen.artifacts.tensors import Array
    from repogen.triton_config.render.model_facts import GoldenInputs, ModelFacts, VerifiedModel
    from repogen.triton_config.sections.model import TritonSpec

_MAX_STATE_BYTES = 2**31  # no tensor of a request can be larger


def with_files(
    facts: ModelFacts, triton: TritonSpec, verified: VerifiedModel, root: Path
) -> tuple[ModelFacts, tuple[NamedFile, ...]]:
    """Return the facts completed with the names of the files that the config names, and these files.

    Args:
        facts: The facts without files.
        triton: The spec's section.
        verified: The source of labels and golden inputs; labels in the spec take precedence.
        root: Directory that the spec's paths are relative to.

    Raises:
        ConfigError: A file cannot be read, labels are not UTF-8, or a warmup needs a golden case and there is none.
    """
    labels = {name: label_file(lines) for name, lines in {**verified.labels, **_spec_labels(triton, root)}.items()}
    state_paths = [file for path, file in triton.files.items() if path[0] == "sequence_batching"]
    states = _states(root, state_paths)
    golden_files: dict[str, NamedFile] = {}
    golden_rows: dict[str, GoldenRow] = {}
    if any(warmup.data == "golden" for warmup in triton.model_warmup):
        row = _golden_row(verified.golden_inputs, facts, triton)
        for name in sorted(row.keys() - (triton_fed(triton) - control_names(triton))):
            golden_files[name] = data_file("warmup", _raw_bytes(row[name]))
            golden_rows[name] = GoldenRow(row[name].shape, golden_files[name].name)
    files = (*labels.values(), *states.values(), *golden_files.values())
    label_names = {name: file.name for name, file in labels.items()}
    completed = replace(facts, labels=label_names, states=states, golden=golden_rows)
    return completed, tuple({file.name: file for file in files}.values())


def _states(root: Path, files: Iterable[str]) -> dict[str, NamedFile]:
    """Return the files with initial states; a spec can name one file many times, as ``./a`` and ``././a``.

    Raises:
        ConfigError: One cannot be read, or they are too large together.
    """
    by_path: dict[str, NamedFile] = {}
    left = _MAX_STATE_BYTES
    states = {}
    for file in files:
        path = os.path.realpath(root / file)
        if path not in by_path:
            by_path[path] = data_file("state", _read_bytes(root, file, left))
            left -= len(by_path[path].content)
        states[file] = by_path[path]
    return states


def _spec_labels(triton: TritonSpec, root: Path) -> dict[str, list[str]]:
    files = {name: extra.label_filename for name, extra in triton.output.items() if extra.label_filename is not None}
    left = MAX_TEXT_BYTES
    labels = {}
    for name, file in files.items():
        text = _read_text(root, file, left)
        left -= len(text)
        labels[name] = _lines(text)
    return labels


def _lines(text: str) -> list[str]:
    """Return the lines of a text, which Triton separates by line feeds only."""
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def _golden_row(golden_inputs: GoldenInputs, facts: ModelFacts, triton: TritonSpec) -> dict[str, Array]:
    """Return the first row of the first golden case, which Triton repeats up to a warmup's ``batch_size``."""
    arrays = golden_inputs(facts.batched)
    if arrays is None:
        raise ConfigError(
            "a warmup uses golden tensors, but the model has none",
            "use data: random",
            code="config.warmup",
            where=facts.where("model_warmup"),
        )
    ragged = {name for name, settings in triton.input.items() if settings.allow_ragged_batch}
    return {name: array[0] if facts.batched and name not in ragged else array for name, array in arrays.items()}


def _raw_bytes(array: Array) -> bytes:
    """Return values in Triton's format: row-major, little-endian, each string after its length in four bytes."""
    if array.dtype.kind in "USO":
        texts = [text.encode() if isinstance(text, str) else bytes(text) for text in array.ravel().tolist()]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def _read_text(root: Path, file: str, limit: int) -> str:
    try:
        return _read_bytes(root, file, limit).decode()
    except UnicodeDecodeError as error:
        hint = "save it as UTF-8, with one name per line"
        raise ConfigError(f"{file} is not UTF-8", hint, code="config.labels") from error


def _read_bytes(root: Path, file: str, limit: int) -> bytes:
    try:
        with open_inside(root / file, root) as stream:
            return read_stream(stream, limit)
    except ContentError as error:
        raise ConfigError(f"{file} {error}", "name a smaller file", code="config.unreadable") from error
    except OSError as error:
        raise ConfigError(f"{file} can't be read: {error.strerror}", code="config.unreadable") from error

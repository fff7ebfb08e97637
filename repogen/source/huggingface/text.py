"""Text inputs: IDs of ordinary tokens in rows of different lengths, padded on the right as tokenizers do."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from repogen.artifacts.tensors import TensorSpec
from repogen.source.huggingface.inputs import ModalityInputs
from repogen.spec.models import DimSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repogen.artifacts.tensors import Array
    from repogen.source.common.call import Parameters
    from repogen.source.huggingface.checkpoint import Checkpoint
    from repogen.source.huggingface.configuration import Config
    from repogen.source.huggingface.tasks import Model

IDS, SEQUENCE = "input_ids", "sequence"
MAX_TOKENS = 512
"""Largest sequence unless the spec sets another: the cost of attention grows with its square."""

_MASK, _TYPES, _BOXES = "attention_mask", "token_type_ids", "bbox"
_SPECIAL_TOKENS = ("pad", "bos", "eos", "cls", "sep", "mask", "unk", "decoder_start")
_MIN_ORDINARY_TOKENS = 2
_DEFAULT_VOCABULARY = 128


@dataclass(frozen=True)
class TextSampler:
    """Draws text inputs; all inputs of one draw belong together, such as IDs and their mask.

    Attributes:
        specs: ``input_ids`` and the other inputs of the forward.
        vocabulary: Number of token IDs.
        special: IDs of special tokens.
        pad: ID of padding.
        end: ID of the last token in a row, which some models look for.
        types: Number of token types.
        page: Coordinates along one side of a page, for models that take bounding boxes; 0 for others.
    """

    specs: tuple[TensorSpec, ...]
    vocabulary: int
    special: frozenset[int]
    pad: int | None
    end: int | None
    types: int
    page: int

    def __call__(self, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Return one int64 array per input."""
        rows, length = (sizes[dim] if isinstance(dim, str) else dim for dim in self.specs[0].shape)
        rng = np.random.default_rng([seed, zlib.crc32(b"text")])
        mask = _mask(rows, length, rng)
        arrays = {IDS: self._ids(mask, rng), _MASK: mask, _TYPES: self._types(mask, rng)}
        if self.page:
            arrays[_BOXES] = self._boxes(mask, rng)
        return {spec.name: np.asarray(arrays[spec.name], np.int64) for spec in self.specs}

    def _ids(self, mask: Array, rng: np.random.Generator) -> Array:
        ordinary = np.setdiff1d(np.arange(self.vocabulary), sorted(self.special))
        if len(ordinary) < _MIN_ORDINARY_TOKENS:
            ordinary = np.arange(self.vocabulary)
        ids = rng.choice(ordinary, mask.shape)
        if self.end is not None:
            ids[np.arange(len(ids)), np.sum(mask, axis=1, dtype=np.int64) - 1] = self.end
        return ids if self.pad is None else np.where(mask == 1, ids, self.pad)

    def _boxes(self, mask: Array, rng: np.random.Generator) -> Array:
        """Return left, top, right and bottom of each token; zeros for padding."""
        corners = np.sort(rng.integers(0, self.page, (*mask.shape, 2, 2)), axis=-2)
        return np.where(mask[..., None] == 1, corners.reshape(*mask.shape, 4), 0)

    def _types(self, mask: Array, rng: np.random.Generator) -> Array:
        """Return the number of each token's segment; segments start at random positions."""
        # config.json may state any number of types; a row has at most as many segments as tokens
        count = min(max(self.types - 1, 1), mask.shape[1])
        starts = np.sort(rng.integers(1, mask.shape[1] + 1, (len(mask), count)))
        segments = np.sum(np.arange(mask.shape[1])[None, :, None] >= starts[:, None, :], axis=2)
        return np.asarray(np.where(mask == 1, np.minimum(segments, self.types - 1), 0), np.int64)


def _mask(rows: int, length: int, rng: np.random.Generator) -> Array:
    """Return ones followed by padding; rows have different lengths where possible, and the longest has no padding."""
    padding = np.resize(rng.permutation(length // 2 + 1), rows)
    padding -= padding.min()
    return np.asarray(np.arange(length)[None, :] < (length - padding)[:, None], np.int64)


def text_inputs(module: Model, parameters: Parameters, checkpoint: Checkpoint, batch: str) -> ModalityInputs:
    """Return the inputs of a text model, all int64 ``[batch, sequence]``; boxes have 4 values per token.

    ``parameters`` are those of its forward; the tokenizer's configuration can list fewer inputs.
    """
    config = getattr(module.config, "text_config", None) or module.config
    table = _embeddings(module)
    sizes = [size for size in (getattr(config, "vocab_size", None), getattr(table, "num_embeddings", None)) if size]
    vocabulary = int(min(sizes, default=_DEFAULT_VOCABULARY))
    types = int(getattr(config, "type_vocab_size", 0) or 0)
    page = int(getattr(config, "max_2d_position_embeddings", 0) or 0) if _BOXES in parameters else 0
    input_names = checkpoint.tokenizer.model_input_names
    optional = (name for name in (_MASK, _TYPES) if name in parameters and (input_names is None or name in input_names))
    names = [IDS, *optional]
    if types <= 1 and _TYPES in names:
        names.remove(_TYPES)
    specs = [TensorSpec(name, "int64", (batch, SEQUENCE)) for name in names]
    if page:
        specs.append(TensorSpec(_BOXES, "int64", (batch, SEQUENCE, 4)))
    ids = {token: _token_ids(config, token, vocabulary) for token in _SPECIAL_TOKENS}
    pad, end = next(iter(ids["pad"]), None), next(iter(ids["eos"]), None)
    sampler = TextSampler(
        specs=tuple(specs),
        vocabulary=vocabulary,
        special=frozenset(number for numbers in ids.values() for number in numbers),
        pad=pad,
        end=None if end == pad else end,
        types=types,
        page=page,
    )
    longest = min(_max_positions(module, config), MAX_TOKENS)
    return ModalityInputs(sampler.specs, sampler, {SEQUENCE: DimSpec(min=1, max=longest)})


def _embeddings(module: Model) -> Model:
    """Return the token embeddings; None when the model does not expose them."""
    try:
        text_model: Model = getattr(module, "text_model", module)
        return text_model.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        return None


def _token_ids(config: Config, token: str, vocabulary: int) -> list[int]:
    """Return the IDs of a special token that are in the vocabulary."""
    value = getattr(config, f"{token}_token_id", None)
    numbers = value if isinstance(value, list) else [value]
    return [number for number in numbers if isinstance(number, int) and 0 <= number < vocabulary]


def _max_positions(module: torch.nn.Module, config: Config) -> int:
    """Return the longest sequence that the position embeddings allow.

    RoBERTa's positions start after its padding index, and BART's are shifted by ``offset``: their tables have more
    entries than a sequence can have tokens.
    """
    values = [getattr(config, key, None) for key in ("max_position_embeddings", "n_positions")]
    limits = [size for size in values if isinstance(size, int) and size > 0]
    for name, table in module.named_modules():
        if isinstance(table, torch.nn.Embedding) and _is_position_table(name):
            offset = table.padding_idx + 1 if table.padding_idx is not None else int(getattr(table, "offset", 0))
            limits.append(table.num_embeddings - offset)
    return max(min(limits, default=MAX_TOKENS), 1)


def _is_position_table(path: str) -> bool:
    name = path.rpartition(".")[2]
    relative = any(part in name for part in ("relative", "rel_", "bias", "_x_", "_y_", "distance"))
    return ("position" in name or name == "wpe") and not relative and "vision" not in path

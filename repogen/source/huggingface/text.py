"""Tokens: ids of ordinary words in rows of different length, padded on the right as tokenizers pad."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from repogen.artifacts.tensors import TensorSpec
from repogen.spec.models import DimSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repogen.artifacts.tensors import Array
    from repogen.source.common.call import Parameters
    from repogen.source.huggingface.files import Checkpoint
    from repogen.source.huggingface.untyped import Config, Model

SEQUENCE = "sequence"
MOST_TOKENS = 512
"""Longer sequences are asked for by the spec: attention grows with their square."""

_SPECIAL = ("pad", "bos", "eos", "cls", "sep", "mask", "unk", "decoder_start")
_FEWEST_ORDINARY = 2
_BOXES = "bbox"


@dataclass(frozen=True)
class TextPart:
    """Inputs of a model of text.

    Attributes:
        specs: ``input_ids`` and what else the forward takes.
        bounds: Of the sequence.
        vocabulary: Number of ids.
        special: Ids that have a meaning of their own.
        pad: Id behind a row's end.
        end: Id at a row's end: some models look for it.
        types: Number of token types.
        page: Number of places along a side of the page that tokens lie on; 0 where the model does not ask.
        notes: What a person should know.
    """

    specs: tuple[TensorSpec, ...]
    bounds: Mapping[str, DimSpec]
    vocabulary: int
    special: frozenset[int]
    pad: int | None
    end: int | None
    types: int
    page: int = 0
    notes: tuple[str, ...] = ()

    def draw(self, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Return ids with their mask, all of one draw: a mask says where the ids are padding."""
        rows, length = (sizes[dim] if isinstance(dim, str) else dim for dim in self.specs[0].shape)
        rng = np.random.default_rng([seed, zlib.crc32(b"text")])
        mask = _mask(rows, length, rng)
        made = {"input_ids": self._ids(mask, rng), "attention_mask": mask, "token_type_ids": self._types(mask, rng)}
        if self.page:
            made[_BOXES] = self._boxes(mask, rng)
        return {spec.name: np.asarray(made[spec.name], np.int64) for spec in self.specs}

    def _ids(self, mask: Array, rng: np.random.Generator) -> Array:
        ordinary = np.setdiff1d(np.arange(self.vocabulary), sorted(self.special))
        if len(ordinary) < _FEWEST_ORDINARY:
            ordinary = np.arange(self.vocabulary)
        ids = rng.choice(ordinary, mask.shape)
        if self.end is not None:
            ids[np.arange(len(ids)), np.sum(mask, axis=1, dtype=np.int64) - 1] = self.end
        return ids if self.pad is None else np.where(mask == 1, ids, self.pad)

    def _boxes(self, mask: Array, rng: np.random.Generator) -> Array:
        """Return left, top, right and bottom of each token, zeros where there is none."""
        corners = np.sort(rng.integers(0, self.page, (*mask.shape, 2, 2)), axis=-2)
        return np.where(mask[..., None] == 1, corners.reshape(*mask.shape, 4), 0)

    def _types(self, mask: Array, rng: np.random.Generator) -> Array:
        """Return a first sentence and those after it."""
        starts = np.sort(rng.integers(1, mask.shape[1] + 1, (len(mask), max(self.types - 1, 1))))
        kinds = np.sum(np.arange(mask.shape[1])[None, :, None] >= starts[:, None, :], axis=2)
        return np.asarray(np.where(mask == 1, np.minimum(kinds, self.types - 1), 0), np.int64)


def _mask(rows: int, length: int, rng: np.random.Generator) -> Array:
    """Return ones, then padding: each row of another length as far as they go round, the longest with none."""
    choices = length // 2 + 1
    cut = np.resize(rng.permutation(choices), rows)
    cut -= cut.min()
    return np.asarray(np.arange(length)[None, :] < (length - cut)[:, None], np.int64)


def text_part(module: Model, parameters: Parameters, checkpoint: Checkpoint, batch: str) -> TextPart:
    """Return the inputs of a model of text.

    Args:
        module: The model; of one with an image beside it, the text model's configuration counts.
        parameters: Of its forward.
        checkpoint: Its tokenizer may say which inputs it makes.
        batch: Name of the first dim.
    """
    config = getattr(module.config, "text_config", None) or module.config
    table = _table(module)
    sizes = [size for size in (getattr(config, "vocab_size", None), getattr(table, "num_embeddings", None)) if size]
    vocabulary = int(min(sizes, default=128))
    types = int(getattr(config, "type_vocab_size", 0) or 0)
    names = [
        name
        for name in ("input_ids", "attention_mask", "token_type_ids")
        if name in parameters and _makes(checkpoint, name) and (name != "token_type_ids" or types > 1)
    ]
    special = frozenset(_ids_of(config, vocabulary))
    pad, end = _id(config, "pad", vocabulary), _id(config, "eos", vocabulary)
    longest = min(_longest(module, config), MOST_TOKENS)
    specs = [TensorSpec(name, "int64", (batch, SEQUENCE)) for name in names]
    page = int(getattr(config, "max_2d_position_embeddings", 0) or 0) if _BOXES in parameters else 0
    if page:
        specs.append(TensorSpec(_BOXES, "int64", (batch, SEQUENCE, 4)))
    return TextPart(
        specs=tuple(specs),
        bounds={SEQUENCE: DimSpec(min=1, max=longest)},
        vocabulary=vocabulary,
        special=special,
        pad=pad,
        end=None if end == pad else end,
        types=types,
        page=page,
    )


def _table(module: Model) -> Model:
    """Return the embeddings of the ids; None where a model does not tell."""
    try:
        inner: Model = getattr(module, "text_model", module)
        return inner.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        return None


def _makes(checkpoint: Checkpoint, name: str) -> bool:
    """Whether a model's tokenizer makes an input; one that is not there makes all."""
    made = checkpoint.json("tokenizer_config.json").get("model_input_names")
    return not isinstance(made, list) or name == "input_ids" or name in made


def _ids_of(config: Config, vocabulary: int) -> Iterator[int]:
    for kind in _SPECIAL:
        named = getattr(config, f"{kind}_token_id", None)
        yield from (n for n in (named if isinstance(named, list) else [named]) if isinstance(n, int) and n < vocabulary)


def _id(config: Config, kind: str, vocabulary: int) -> int | None:
    named = getattr(config, f"{kind}_token_id", None)
    first = named[0] if isinstance(named, list) and named else named
    return first if isinstance(first, int) and 0 <= first < vocabulary else None


def _longest(module: torch.nn.Module, config: Config) -> int:
    """Return how many positions a model has a table for.

    A RoBERTa's positions begin behind its padding index, and a BART's are moved by ``offset``: both tables are longer
    than what can be asked for.
    """
    named = [getattr(config, key, None) for key in ("max_position_embeddings", "n_positions")]
    limits = [size for size in named if isinstance(size, int) and size > 0]
    for name, table in module.named_modules():
        last = name.rpartition(".")[2]
        if isinstance(table, torch.nn.Embedding) and _counts_positions(last) and "vision" not in name:
            skipped = table.padding_idx + 1 if table.padding_idx is not None else int(getattr(table, "offset", 0))
            limits.append(table.num_embeddings - skipped)
    return max(min(limits, default=MOST_TOKENS), 1)


def _counts_positions(name: str) -> bool:
    wanted = "position" in name or name == "wpe"
    return wanted and not any(other in name for other in ("relative", "rel_", "bias", "_x_", "_y_", "distance"))

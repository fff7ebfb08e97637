"""Sound: samples of any length for models that take the wave, a spectrogram of the trained size for the others."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from repogen.artifacts.tensors import TensorSpec
from repogen.source.huggingface.files import PREPROCESSOR
from repogen.spec.models import DimSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repogen.artifacts.tensors import Array, Dim
    from repogen.source.common.call import Parameters
    from repogen.source.huggingface.files import Checkpoint
    from repogen.source.huggingface.untyped import Config, Model

SAMPLES, FRAMES = "samples", "frames"
_MASK = "attention_mask"
_SECONDS = 5
_RATE = 16_000
_EXAMPLE_FRAMES, _FEWEST_FRAMES = 16, 3
_MOST_FRAMES = 1024


@dataclass(frozen=True)
class AudioPart:
    """Inputs of a model of sound.

    Attributes:
        specs: The samples or the spectrogram, and a mask where the model wants one.
        bounds: Of their length.
        notes: What a person should know.
    """

    specs: tuple[TensorSpec, ...]
    bounds: Mapping[str, DimSpec]
    notes: tuple[str, ...] = ()

    def draw(self, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Return noise of deviation one, as feature extractors normalize; with a mask, silence where it says so."""
        main = self.specs[0]
        rng = np.random.default_rng([seed, zlib.crc32(main.name.encode())])
        shape = tuple(sizes[dim] if isinstance(dim, str) else dim for dim in main.shape)
        sound = np.asarray(rng.standard_normal(shape), main.dtype)
        if len(self.specs) == 1:
            return {main.name: sound}
        cut = np.resize(rng.permutation(4), shape[0])
        ends = shape[1] - (cut - cut.min()) * (shape[1] // 8)
        mask = np.asarray(np.arange(shape[1])[None, :] < ends[:, None], np.int64)
        padded = sound * mask.reshape(*mask.shape, *[1] * (len(shape) - 2))
        return {main.name: np.asarray(padded, main.dtype), _MASK: mask}


def audio_part(
    module: Model, parameters: Parameters, checkpoint: Checkpoint, main: str, named: tuple[str, ...]
) -> AudioPart:
    """Return the inputs of a model of sound.

    Args:
        module: The model.
        parameters: Of its forward.
        checkpoint: Its feature extractor says whether it makes a mask.
        main: ``input_values`` or ``input_features``.
        named: Dims that the spec names.
    """
    config = module.config
    dtype = str(module.dtype).removeprefix("torch.")
    shape, bounds = _shape(config, main, named)
    specs = [TensorSpec(main, dtype, shape)]
    masked = checkpoint.json(*PREPROCESSOR).get("return_attention_mask") is True
    if masked and _MASK in parameters and isinstance(shape[1], str):
        specs.append(TensorSpec(_MASK, "int64", shape[:2]))
    return AudioPart(tuple(specs), bounds)


def _shape(config: Config, main: str, named: tuple[str, ...]) -> tuple[tuple[Dim, ...], dict[str, DimSpec]]:
    bins = getattr(config, "num_mel_bins", None)
    positions = getattr(config, "max_source_positions", None)
    if main == "input_features" and isinstance(bins, int) and isinstance(positions, int):
        return ("batch", bins, 2 * positions), {}  # Whisper: its encoder takes this length and no other
    if main == "input_values" and isinstance(bins, int):
        frames = int(getattr(config, "max_length", _MOST_FRAMES))
        return ("batch", frames, bins), {}  # AST: a table of positions for just these patches
    if main == "input_features":
        known = (getattr(config, key, None) for key in ("feature_projection_input_dim", "input_feat_per_channel"))
        width = next((size for size in known if size), bins or 80)
        return ("batch", FRAMES, int(width)), {FRAMES: DimSpec(min=8, max=_MOST_FRAMES, example=_EXAMPLE_FRAMES * 2)}
    del named
    few, some = _field(config, _FEWEST_FRAMES), _field(config, _EXAMPLE_FRAMES)
    return ("batch", SAMPLES), {SAMPLES: DimSpec(min=few, max=max(_SECONDS * _RATE, some), example=some)}


def _field(config: Config, frames: int) -> int:
    """Return how many samples give so many frames, behind the convolutions that a wave goes through."""
    kernels, strides = getattr(config, "conv_kernel", None), getattr(config, "conv_stride", None)
    if not kernels or not strides:
        return frames * _RATE // 50
    for kernel, stride in zip(reversed(kernels), reversed(strides), strict=True):
        frames = (frames - 1) * stride + kernel
    return int(frames)

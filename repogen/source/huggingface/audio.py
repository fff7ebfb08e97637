"""Audio inputs: samples of any length for waveform models, spectrograms for the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from repogen.artifacts.tensors import TensorSpec
from repogen.source.common.dim_names import BATCH
from repogen.source.huggingface.inputs import ModalityInputs, normal_noise, precision
from repogen.spec.models import DimSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repogen.artifacts.tensors import Array, Dim
    from repogen.source.common.call import Parameters
    from repogen.source.huggingface.checkpoint import Checkpoint
    from repogen.source.huggingface.configuration import Config
    from repogen.source.huggingface.tasks import Model

SAMPLES, SPECTROGRAM = "input_values", "input_features"
"""Names of the main input of audio models."""

_MASK = "attention_mask"
_MAX_SECONDS = 5
_SAMPLE_RATE = 16_000
_FRAMES_PER_SECOND = 50
_MIN_FRAMES, _EXAMPLE_FRAMES, _MAX_FRAMES = 3, 16, 1024
_DEFAULT_BINS = 80


def audio_inputs(module: Model, parameters: Parameters, checkpoint: Checkpoint, main: str) -> ModalityInputs:
    """Return the inputs of an audio model: samples or a spectrogram, and a mask if its feature extractor makes one.

    ``parameters`` are those of its forward; ``main`` is its main input, ``input_values`` or ``input_features``.
    """
    shape, bounds = _shape(module.config, main)
    spec = TensorSpec(main, precision(module), shape)
    has_mask = checkpoint.preprocessor.return_attention_mask is True and _MASK in parameters
    if not has_mask or not isinstance(shape[1], str):
        return ModalityInputs((spec,), lambda sizes, seed: {main: normal_noise(spec, sizes, seed)[0]}, bounds)

    def draw(sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Draw rows of different lengths; padding is silence."""
        sound, rng = normal_noise(spec, sizes, seed)
        rows, length = sound.shape[:2]
        padding = np.resize(rng.permutation(4), rows)
        ends = length - (padding - padding.min()) * (length // 8)
        mask = np.asarray(np.arange(length)[None, :] < ends[:, None], np.int64)
        audible = np.asarray(mask.reshape(*mask.shape, *[1] * (sound.ndim - 2)), np.bool_)
        return {main: np.where(audible, sound, np.zeros_like(sound)), _MASK: mask}

    return ModalityInputs((spec, TensorSpec(_MASK, "int64", shape[:2])), draw, bounds)


def _shape(config: Config, main: str) -> tuple[tuple[Dim, ...], dict[str, DimSpec]]:
    bins = getattr(config, "num_mel_bins", None)
    positions = getattr(config, "max_source_positions", None)
    if main == SPECTROGRAM and isinstance(bins, int) and isinstance(positions, int):
        return (BATCH, bins, 2 * positions), {}  # Whisper: the encoder accepts only this length
    if main == SAMPLES and isinstance(bins, int):
        frames = int(getattr(config, "max_length", _MAX_FRAMES))
        return (BATCH, frames, bins), {}  # AST: its position embeddings fit only these patches
    if main == SPECTROGRAM:
        widths = (getattr(config, key, None) for key in ("feature_projection_input_dim", "input_feat_per_channel"))
        width = next((size for size in widths if size), bins or _DEFAULT_BINS)
        frame_bounds = DimSpec(min=8, max=_MAX_FRAMES, example=_EXAMPLE_FRAMES * 2)
        return (BATCH, "frames", int(width)), {"frames": frame_bounds}
    least, example = _samples(config, _MIN_FRAMES), _samples(config, _EXAMPLE_FRAMES)
    longest = max(_MAX_SECONDS * _SAMPLE_RATE, example)
    return (BATCH, "samples"), {"samples": DimSpec(min=least, max=longest, example=example)}


def _samples(config: Config, frames: int) -> int:
    """Return the number of samples that yield a number of frames after the model's convolutions."""
    kernels, strides = getattr(config, "conv_kernel", None), getattr(config, "conv_stride", None)
    if not kernels or not strides:
        return frames * _SAMPLE_RATE // _FRAMES_PER_SECOND
    for kernel, stride in zip(reversed(kernels), reversed(strides), strict=True):
        frames = (frames - 1) * stride + kernel
    return int(frames)

"""Pixels: the size that a model was trained on, channels fixed; only the batch is free unless the spec says more."""

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
    from repogen.source.huggingface.files import Checkpoint
    from repogen.source.huggingface.untyped import Config, Json, Model

HEIGHT, WIDTH = "height", "width"
# Their configuration's image_size is of no effect: they take any size, and the preprocessor knows which is usual.
_ANY_SIZE = frozenset({
    "bit", "convnext", "convnextv2", "cvt", "efficientnet", "focalnet", "glpn", "levit", "mobilenet_v1", "mobilenet_v2",
    "mobilevit", "mobilevitv2", "poolformer", "pvt_v2", "regnet", "resnet",
    "segformer", "swiftformer", "van", "upernet",
})  # fmt: skip
_USUAL = 224
_PARTS = ("vision_config", "backbone_config", "encoder", "encoder_config")


@dataclass(frozen=True)
class ImagePart:
    """Inputs of a model of images.

    Attributes:
        specs: ``pixel_values``.
        bounds: Of height and width, where the spec frees them.
        notes: What a person should know.
    """

    specs: tuple[TensorSpec, ...]
    bounds: Mapping[str, DimSpec]
    notes: tuple[str, ...] = ()

    def draw(self, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Return pixels as processors leave them: around zero, with a deviation of about one."""
        (spec,) = self.specs
        rng = np.random.default_rng([seed, zlib.crc32(spec.name.encode())])
        shape = tuple(sizes[dim] if isinstance(dim, str) else dim for dim in spec.shape)
        return {spec.name: np.asarray(rng.standard_normal(shape), spec.dtype)}


def image_part(module: Model, checkpoint: Checkpoint, batch: str, named: tuple[str, ...]) -> ImagePart:
    """Return the inputs of a model of images.

    Args:
        module: The model.
        checkpoint: Its preprocessor may know the size.
        batch: Name of the first dim.
        named: Dims that the spec names; ``height`` and ``width`` are free when they are among them.
    """
    config = module.config
    size, told = _size(config, checkpoint)
    free = {name: DimSpec(min=1, max=max(extent, 2)) for name, extent in zip((HEIGHT, WIDTH), size, strict=True)}
    axes: list[Dim] = [name if name in named else extent for name, extent in zip((HEIGHT, WIDTH), size, strict=True)]
    shape = (batch, _channels(config), *axes)
    return ImagePart(
        specs=(TensorSpec("pixel_values", _precision(module), shape),),
        bounds={name: bounds for name, bounds in free.items() if name in named},
        notes=(f"height and width are {size[0]} x {size[1]}, {told}; dims: {{height: …, width: …}} frees them",)
        if not {HEIGHT, WIDTH} & set(named)
        else (),
    )


def _precision(module: Model) -> str:
    return str(module.dtype).removeprefix("torch.")


def _channels(config: Config) -> int:
    return int(_find(config, "num_channels") or 3)


def _find(config: Config, key: str) -> Json:
    """Return a value of a configuration, or of the part of it that is about images; None where there is none."""
    places = (config, *(getattr(config, part, None) for part in _PARTS))
    values = (getattr(place, key, None) for place in places if place is not None and not isinstance(place, (str, dict)))
    return next((value for value in values if value), None)


def _size(config: Config, checkpoint: Checkpoint) -> tuple[tuple[int, int], str]:
    own = _pair(_find(config, "image_size"))
    prepared = _prepared(checkpoint)
    if prepared is not None and (own is None or _kind(config) in _ANY_SIZE):
        return prepared, "as the preprocessor makes them"
    if own is not None:
        return own, "as config.json says"
    return (_USUAL, _USUAL), "since neither configuration nor preprocessor names a size"


def _kind(config: Config) -> str:
    return str(getattr(config, "model_type", ""))


def _prepared(checkpoint: Checkpoint) -> tuple[int, int] | None:
    """Return what a preprocessor makes of any image: its crop, or else its size."""
    settings = checkpoint.json(*PREPROCESSOR)
    inner = settings.get("image_processor")
    settings = inner if isinstance(inner, dict) else settings
    cropped = _pair(settings.get("crop_size")) if settings.get("do_center_crop") else None
    return cropped or _pair(settings.get("size"))


def _pair(size: Json) -> tuple[int, int] | None:
    if isinstance(size, dict):
        edge = size.get("shortest_edge")
        return _pair([size.get("height", edge), size.get("width", edge)])
    if isinstance(size, int):
        return (size, size) if size > 0 else None
    two = 2
    if isinstance(size, (list, tuple)) and len(size) == two and all(isinstance(n, int) and n > 0 for n in size):
        return size[0], size[1]
    return None

"""Image inputs: fixed channels and the size that the model was trained on; the spec can free height and width."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from repogen.artifacts.tensors import TensorSpec
from repogen.source.huggingface.checkpoint import image_size
from repogen.source.huggingface.inputs import ModalityInputs, normal_noise, precision
from repogen.spec.models import DimSpec

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from repogen.artifacts.tensors import Array
    from repogen.source.huggingface.checkpoint import Checkpoint
    from repogen.source.huggingface.configuration import Config
    from repogen.source.huggingface.tasks import Model

PIXELS = "pixel_values"
HEIGHT, WIDTH = "height", "width"
# These architectures accept any size and ignore image_size in config.json; the preprocessor has the usual size.
_ANY_SIZE = frozenset({
    "bit", "convnext", "convnextv2", "cvt", "efficientnet", "focalnet", "glpn", "levit", "mobilenet_v1", "mobilenet_v2",
    "mobilevit", "mobilevitv2", "poolformer", "pvt_v2", "regnet", "resnet",
    "segformer", "swiftformer", "van", "upernet",
})  # fmt: skip
_DEFAULT_SIZE = 224
_DEFAULT_CHANNELS = 3
_NESTED_CONFIGS = ("vision_config", "backbone_config", "encoder", "encoder_config")


def image_inputs(module: Model, checkpoint: Checkpoint, batch: str, dims: Collection[str]) -> ModalityInputs:
    """Return the inputs of an image model: pixels ``[batch, channels, height, width]``.

    ``batch`` is the name of the batch dim; ``height`` and ``width`` are dynamic when ``dims`` has them.
    """
    config = module.config
    (height, width), source = _size(config, checkpoint)
    sizes = {HEIGHT: height, WIDTH: width}
    channels = int(_config_value(config, "num_channels") or _DEFAULT_CHANNELS)
    axes = (name if name in dims else size for name, size in sizes.items())
    spec = TensorSpec(PIXELS, precision(module), (batch, channels, *axes))
    notes: tuple[str, ...] = ()
    if not {HEIGHT, WIDTH} & set(dims):
        size = f"height and width are {height} x {width} ({source})"
        notes = (f"{size}; dims: {{height: …, width: …}} makes them dynamic",)

    def draw(dim_sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        pixels, _ = normal_noise(spec, dim_sizes, seed)
        return {spec.name: pixels}

    bounds = {name: DimSpec(min=1, max=max(size, 2)) for name, size in sizes.items() if name in dims}
    return ModalityInputs((spec,), draw, bounds, notes)


def _config_value(config: Config, key: str) -> Any:  # noqa: ANN401 - a JSON value
    """Return a value from a configuration or its vision part; None when both lack it."""
    parts = (config, *(getattr(config, name, None) for name in _NESTED_CONFIGS))
    values = (getattr(part, key, None) for part in parts if part is not None and not isinstance(part, (str, dict)))
    return next((value for value in values if value), None)


def _size(config: Config, checkpoint: Checkpoint) -> tuple[tuple[int, int], str]:
    """Return height and width, and which file specifies them."""
    trained = image_size(_config_value(config, "image_size"))
    preprocessed = checkpoint.preprocessor.image_size
    if preprocessed is not None and (trained is None or getattr(config, "model_type", "") in _ANY_SIZE):
        return preprocessed, "from the preprocessor configuration"
    if trained is not None:
        return trained, "from config.json"
    return (_DEFAULT_SIZE, _DEFAULT_SIZE), "the default: no configuration file specifies a size"

"""``model_warmup`` as messages: requests that feed every input, with zeros, random values or a golden row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.errors import ConfigError
from repogen.triton_config.render.tensors import controls_of, declared_inputs, view_of
from repogen.triton_config.text.dims import client_dims

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig as Message

    from repogen.artifacts.tensors import TensorSpec
    from repogen.triton_config.render.model_facts import Known
    from repogen.triton_config.sections.model import TritonSpec, WarmupSpec
    from repogen.triton_config.text.view import TensorView


def add_warmups(message: Message, triton: TritonSpec, known: Known) -> None:
    """Add ``model_warmup`` to a config; each request feeds what clients send, and a sequence's controls.

    Raises:
        ConfigError: A dynamic dim has no size.
    """
    controls = controls_of(triton)
    views = {view.name: view for view in declared_inputs(triton, known)}
    views |= {spec.name: view_of(spec, known) for spec in known.signature.inputs if spec.name in controls}
    for index, warmup in enumerate(triton.model_warmup):
        sample = message.model_warmup.add(name=warmup.name, batch_size=warmup.batch_size, count=warmup.count)
        for spec in known.signature.inputs:
            if spec.name not in views:
                continue
            fed = sample.inputs[spec.name]
            fed.data_type = f"TYPE_{views[spec.name].dtype}"
            if warmup.data == "golden":
                fed.dims.extend(client_dims(views[spec.name], known.golden[spec.name].shape))
                fed.input_data_file = known.golden[spec.name].file
            else:
                fed.dims.extend(_dims(warmup, spec, views[spec.name], known, known.where(f"model_warmup[{index}]")))
                setattr(fed, f"{warmup.data}_data", True)


def _dims(warmup: WarmupSpec, spec: TensorSpec, view: TensorView, known: Known, where: str) -> tuple[int, ...]:
    sizes = {**known.sizes, **warmup.sizes}
    shape = spec.shape[1:] if known.batched and not view.allow_ragged_batch else spec.shape
    if missing := [dim for dim in shape if isinstance(dim, str) and dim not in sizes]:
        raise ConfigError(
            f"warmup {warmup.name!r} needs a size for dim {missing[0]!r} of input {spec.name!r}",
            f"sizes: {{{missing[0]}: …}}",
            code="config.warmup",
            where=where,
        )
    return client_dims(view, [sizes[dim] if isinstance(dim, str) else dim for dim in shape])

"""The ModelConfig that a rendered config.pbtxt must contain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf import json_format

from repogen.triton_config.render.config_sections import merge_extra, section_config
from repogen.triton_config.render.graph_sections import complete_from_graph
from repogen.triton_config.render.tensors import declared_inputs, declared_outputs
from repogen.triton_config.sections.model import InstanceGroupSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tritonclient.grpc.model_config_pb2 import ModelConfig as Message
    from tritonclient.grpc.model_config_pb2 import ModelInput, ModelOutput

    from repogen.artifacts.steps import EnsembleStep
    from repogen.triton_config.render.model_facts import ModelFacts
    from repogen.triton_config.sections.model import TritonSpec
    from repogen.triton_config.text.view import TensorView

# Without an instance_group, Triton starts two CPU instances, or one per GPU; the config contains the tested one.
_ON_CPU = (InstanceGroupSpec(),)
_ON_GPU = (InstanceGroupSpec(kind="KIND_GPU"),)


def instance_groups(triton: TritonSpec, facts: ModelFacts) -> tuple[InstanceGroupSpec, ...]:
    """Return the instance groups of the spec, or the default; empty for an ensemble."""
    if not facts.backend:
        return ()
    return triton.instance_group or (_ON_GPU if facts.gpu else _ON_CPU)


def expected_config(triton: TritonSpec, facts: ModelFacts, steps: Sequence[EnsembleStep] = ()) -> Message:
    """Return the config of a model as a message, built without the template.

    Args:
        triton: The spec's section.
        facts: The facts about the model.
        steps: The steps of an ensemble.

    Raises:
        ConfigError: The section does not match the graph.
    """
    message = section_config(triton.model_copy(update={"instance_group": instance_groups(triton, facts)}))
    message.name, message.backend, message.max_batch_size = facts.name, facts.backend, facts.max_batch_size
    if steps:
        message.platform = "ensemble"
    for view in declared_inputs(triton, facts):
        _set_tensor(message.input.add(), view)
    for view in declared_outputs(triton, facts):
        _set_tensor(message.output.add(), view)
    for step in steps:
        message_step = message.ensemble_scheduling.step.add(model_name=step.model, model_version=step.version or -1)
        message_step.input_map.update(step.inputs)
        message_step.output_map.update(step.outputs)
    complete_from_graph(message, triton, facts)
    merge_extra(message, triton.extra, facts.where("extra"))
    return message


def _set_tensor(tensor: ModelInput | ModelOutput, view: TensorView) -> None:
    settings = {key: getattr(view, key) for key in ("label_filename", "format", "allow_ragged_batch", "optional")}
    fields = {key: value for key, value in settings.items() if value}
    fields |= {"name": view.name, "data_type": f"TYPE_{view.dtype}", "dims": list(view.dims)}
    json_format.ParseDict(fields, tensor)
    if view.reshape is not None:
        tensor.reshape.SetInParent()
        tensor.reshape.shape.extend(view.reshape)

"""``batch_input`` and ``batch_output`` as messages: tensors that Triton makes from what a batch is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf import json_format

from repogen.artifacts.tensors import DTYPES
from repogen.triton_config.render.find_tensor import found

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig as Message

    from repogen.triton_config.render.model_facts import Known
    from repogen.triton_config.sections.model import TritonSpec


def add_batch_tensors(message: Message, triton: TritonSpec, known: Known) -> None:
    """Add ``batch_input`` and ``batch_output`` to a config; a type that the spec leaves out is the graph's.

    Raises:
        ConfigError: The graph has no such tensor.
    """
    for index, made in enumerate(triton.batch_input):
        where = known.where(f"batch_input[{index}]")
        spec = found(known.signature.inputs, made.target_name[0], "batch_input", where)
        found(known.signature.inputs, made.source_input[0], "source_input", where)
        said = {"data_type": f"TYPE_{DTYPES[spec.dtype].triton}", **made.model_dump(mode="json", exclude_none=True)}
        json_format.ParseDict(said, message.batch_input.add())
    for index, cut in enumerate(triton.batch_output):
        where = known.where(f"batch_output[{index}]")
        found(known.signature.outputs, cut.target_name[0], "batch_output", where)
        found(known.signature.inputs, cut.source_input[0], "source_input", where)
        json_format.ParseDict(cut.model_dump(mode="json"), message.batch_output.add())

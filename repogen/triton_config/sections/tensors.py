"""What ``triton:`` may say of a tensor beyond what the graph says, and of tensors that Triton makes of a batch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool

from repogen.triton_config.sections.base import Section, TensorName, must_be

_Dim = Annotated[int, Field(strict=True, ge=-1, le=2**63 - 1)]
Dims = Annotated[
    tuple[_Dim, ...], Field(min_length=1), must_be("a list of dims without the batch, -1 for a dynamic one (RG106)")
]
OneName = Annotated[tuple[TensorName], must_be("a list of one tensor's name (RG125)")]


class ReshapeSpec(Section):
    """The shape that the model itself sees: the graph's, and so without need to be said."""

    shape: tuple[_Dim, ...]


class InputExtraSpec(Section):
    """What config.pbtxt says of an input beyond its signature."""

    format: Literal["FORMAT_NONE", "FORMAT_NHWC", "FORMAT_NCHW"] | None = None
    allow_ragged_batch: StrictBool = False
    optional: StrictBool = False
    dims: Dims | None = Field(default=None, description="What clients send, where it is reshaped to the graph's")
    reshape: ReshapeSpec | None = Field(default=None, description="As in config.pbtxt; it must be the graph's shape")


class OutputExtraSpec(Section):
    """What config.pbtxt says of an output beyond its signature."""

    label_filename: Annotated[str, Field(min_length=1, max_length=4096)] | None = Field(
        default=None, description="Names of classes, one a line; relative to the spec, and published with the model"
    )
    dims: Dims | None = Field(default=None, description="What clients get, where the graph's is reshaped to it")
    reshape: ReshapeSpec | None = Field(default=None, description="As in config.pbtxt; it must be the graph's shape")


class BatchInputSpec(Section):
    """An input of the graph that Triton makes from what a batch is."""

    kind: Literal[
        "BATCH_ELEMENT_COUNT",
        "BATCH_ACCUMULATED_ELEMENT_COUNT",
        "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO",
        "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE",
        "BATCH_ITEM_SHAPE",
        "BATCH_ITEM_SHAPE_FLATTEN",
    ]
    target_name: OneName
    source_input: OneName
    data_type: Annotated[Literal["TYPE_INT32", "TYPE_FP32"], must_be("TYPE_INT32 or TYPE_FP32 (RG125)")] | None = Field(
        default=None, description="The graph's when left out"
    )


class BatchOutputSpec(Section):
    """An output of the graph that Triton cuts up by what a batch is."""

    kind: Literal["BATCH_SCATTER_WITH_INPUT_SHAPE"] = "BATCH_SCATTER_WITH_INPUT_SHAPE"
    target_name: OneName
    source_input: OneName

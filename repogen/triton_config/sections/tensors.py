"""Tensors in ``triton:``: settings that the graph does not have, and tensors that Triton derives from a batch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool

from repogen.triton_config.sections.base import Section, TensorName, must_be

_Dim = Annotated[int, Field(strict=True, ge=-1, le=2**63 - 1)]
Dims = Annotated[
    tuple[_Dim, ...], Field(min_length=1), must_be("a list of dims without the batch, -1 for a dynamic one (RG106)")
]
OneName = Annotated[tuple[TensorName], must_be("a list with one tensor name (RG125)")]


class ReshapeSpec(Section):
    """The shape that the model receives or returns; it must be the graph's shape, so it can be omitted."""

    shape: tuple[_Dim, ...] = Field(description="Shape in the graph, without the batch")


class InputExtraSpec(Section):
    """Settings of an input in addition to its signature."""

    format: Literal["FORMAT_NONE", "FORMAT_NHWC", "FORMAT_NCHW"] | None = Field(
        default=None, description="Layout of an image"
    )
    allow_ragged_batch: StrictBool = Field(
        default=False, description="Whether the requests of a batch may differ in shape"
    )
    optional: StrictBool = Field(
        default=False,
        description="Whether clients may omit the input; only for Python code: a graph requires every input",
    )
    dims: Dims | None = Field(default=None, description="Dims that clients send, if reshaped to the graph's")
    reshape: ReshapeSpec | None = Field(default=None, description="As in config.pbtxt; it must be the graph's shape")


class OutputExtraSpec(Section):
    """Settings of an output in addition to its signature."""

    label_filename: Annotated[str, Field(min_length=1, max_length=4096)] | None = Field(
        default=None, description="File of class names, one per line; relative to the spec, published with the model"
    )
    dims: Dims | None = Field(default=None, description="Dims that clients receive, if reshaped from the graph's")
    reshape: ReshapeSpec | None = Field(default=None, description="As in config.pbtxt; it must be the graph's shape")


class BatchInputSpec(Section):
    """An input of the graph that Triton derives from the batch."""

    kind: Literal[
        "BATCH_ELEMENT_COUNT",
        "BATCH_ACCUMULATED_ELEMENT_COUNT",
        "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO",
        "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE",
        "BATCH_ITEM_SHAPE",
        "BATCH_ITEM_SHAPE_FLATTEN",
    ] = Field(description="What Triton computes from the batch")
    target_name: OneName = Field(description="Name of the graph's input, in a list")
    source_input: OneName = Field(description="Name of the input that it is computed from, in a list")
    data_type: Annotated[Literal["TYPE_INT32", "TYPE_FP32"], must_be("TYPE_INT32 or TYPE_FP32 (RG125)")] | None = Field(
        default=None, description="Data type; the graph's if omitted"
    )


class BatchOutputSpec(Section):
    """An output of the graph that Triton splits by request."""

    kind: Literal["BATCH_SCATTER_WITH_INPUT_SHAPE"] = Field(
        default="BATCH_SCATTER_WITH_INPUT_SHAPE", description="How Triton splits the output"
    )
    target_name: OneName = Field(description="Name of the graph's output, in a list")
    source_input: OneName = Field(description="Name of the input whose shape determines the split, in a list")

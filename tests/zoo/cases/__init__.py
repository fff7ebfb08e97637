"""All cases of the zoo, in the order of the issue: architectures, our own modules, sources."""

from __future__ import annotations

from tests.zoo.cases import (
    answers,
    architectures,
    archives,
    calls,
    custom,
    faults,
    huggingface,
    layers,
    onnx_files,
    precisions,
    rows,
)

ROOMS = (
    architectures,
    huggingface,
    answers,
    calls,
    precisions,
    layers,
    rows,
    custom,
    faults,
    archives,
    onnx_files,
)
CASES = tuple(case for room in ROOMS for case in room.CASES)
BY_NAME = {case.name: case for case in CASES}

if len(BY_NAME) != len(CASES):  # two cases of one name would share a directory
    raise ValueError("two cases have the same name")

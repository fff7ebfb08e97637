"""All cases of the conformance suite: architectures, our own modules, sources."""

from __future__ import annotations

from tests.conformance.cases import (
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
    set12a,
    set12b,
    set13a,
    set13b,
    set14a,
    set14b,
    set15,
    verdicts,
)

GROUPS = (
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
    verdicts,
    set12a,
    set12b,
    set13a,
    set13b,
    set14a,
    set14b,
    set15,
)
CASES = tuple(case for group in GROUPS for case in group.CASES)
BY_NAME = {case.name: case for case in CASES}

if len(BY_NAME) != len(CASES):  # two cases of one name would share a directory
    raise ValueError("two cases have the same name")

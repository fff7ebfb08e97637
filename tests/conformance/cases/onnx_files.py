"""ONNX files: valid, damaged and hostile."""

from __future__ import annotations

from typing import Any

from tests.conformance.case import Case, Entry, signature, written


def _case(name: str, expected: str, why: str, *writer: Any, reference: str = "", entry: Entry | None = None) -> Case:
    source = {"kind": "onnx", "path": f"{name}/model.onnx", **({"reference": reference} if reference else {})}
    return Case(name, {"source": source, **(entry or {})}, expected, why, written("onnx_files", *writer))


_SNAPSHOT = f"models--team--layer/snapshots/{'0123456789' * 4}"
_DATA = "rejected:source.onnx-external-data"
_TYPE = "rejected:source.onnx-type"
_BROKEN = "rejected:source.onnx"
_UNRUNNABLE = "rejected:source.onnx|validate.checker|parity.load"

CASES = (
    _case("onnx", "batch", "rows are processed independently", "dynamic"),
    _case(
        "onnx_answers", "batch", "it agrees with the stored outputs", "dynamic", reference="onnx_answers/answers.npz"
    ),
    _case("onnx_reference", "batch", "it agrees with the module", "from_torch", reference="calls.py:seeded"),
    _case("onnx_half", "batch", "float16 in and out", "half"),
    _case("onnx_ids", "batch", "an embedding lookup", "lookup", entry=signature(ids="int64 batch sequence 0..19")),
    _case(
        "onnx_largest_id",
        "batch",
        "ONNX Runtime's maximum of int64 is wrong for some rows",
        "largest_id",
        entry=signature(ids=f"int64 batch 9 0..{1 << 40}"),
        reference="verdicts.py:LargestId",
    ),
    _case("onnx_newer_opset", "batch", "converted down to the target's opset", "newer_opset", 23),
    _case("onnx_newer_ir", "batch", "the same graph in the target's IR version", "newer_ir", 11),
    _case("onnx_external_data", "batch", "external data in its directory", "external"),
    Case(
        "onnx_hub_cache",
        {"source": {"kind": "onnx", "path": f"onnx_hub_cache/{_SNAPSHOT}/model.onnx"}},
        "batch",
        "links in a Hugging Face cache are followed and copied",
        written("onnx_files", "in_hub_cache"),
    ),
    _case("onnx_linked_data", _DATA, "its data is a link to a file elsewhere", "linked"),
    _case("onnx_fixed", "single", "a fixed batch of 2", "fixed", 2),
    _case("onnx_mixing", "single", "the batch's mean is subtracted", "mixing"),
    _case("onnx_attention", "single", "attention between rows: axis 0 is dynamic but not a batch", "attention"),
    _case(
        "onnx_wrong_answers",
        "rejected:parity.drift",
        "it disagrees with the stored outputs",
        "dynamic",
        reference="onnx_wrong_answers/wrong.npz",
    ),
    _case(
        "onnx_other_reference",
        "rejected:parity.drift",
        "it disagrees with the module",
        "from_torch",
        reference="calls.py:seeded_otherwise",
    ),
    _case(
        "onnx_baked",
        "rejected:parity.runtime|source.declared-size|export.specialized-dim|parity.drift",
        "its batch is dynamic in name only: it reshapes to two rows",
        "baked",
    ),
    _case("onnx_noisy", "rejected:source.random", "RandomNormalLike at inference", "noisy"),
    _case(
        "onnx_dropout",
        "rejected:source.random",
        "Dropout in training mode, which ONNX Runtime's optimizer removes",
        "dropout",
    ),
    _case(
        "onnx_ids_undeclared",
        "batch",
        "an embedding lookup without a range; 0 and 1 are valid IDs in any table",
        "lookup",
    ),
    _case(
        "onnx_new_operator",
        "rejected:export.opset|RG301",
        "the target does not support RMSNormalization of opset 23, and it has no conversion",
        "new_operator",
    ),
    _case("onnx_truncated", _BROKEN, "half of a file", "truncated"),
    _case("onnx_empty", _BROKEN, "no bytes", "empty"),
    _case("onnx_not_fetched", _BROKEN, "a Git LFS pointer", "pointer"),
    _case("onnx_data_above", _DATA, "data outside of the model's directory", "external_at", "../outside.data"),
    _case("onnx_data_passwd", _DATA, "data at ../../etc/passwd", "external_at", "../../etc/passwd"),
    _case("onnx_data_absolute", _DATA, "data at an absolute path", "external_at", "/etc/passwd"),
    _case("onnx_data_missing", _DATA, "data that does not exist", "external_at", "nowhere.data"),
    _case("onnx_sequence", _TYPE, "a sequence as output", "sequence"),
    _case("onnx_maps", _TYPE, "a sequence of maps as output", "maps"),
    _case("onnx_bf16", _TYPE, "bf16 in and out", "of_type", "BFLOAT16"),
    _case("onnx_float8", _TYPE, "float8 in and out", "of_type", "FLOAT8E4M3FN"),
    _case("onnx_unknown_operator", _UNRUNNABLE, "an operator of an unknown domain", "unknown_operator"),
    _case("onnx_dangling", _UNRUNNABLE, "a node reads a value that no node writes", "dangling"),
    _case(
        "onnx_endless",
        "rejected:worker.timeout",
        "an infinite Loop",
        "endless",
        entry={"limits": {"timeout_seconds": 25}},
    ),
)

"""ONNX files as they are, good ones and those that no server should get."""

from __future__ import annotations

from typing import Any

from tests.conformance.case import Case, Entry, signature, written


def _case(name: str, expected: str, why: str, *writer: Any, reference: str = "", entry: Entry | None = None) -> Case:
    source = {"kind": "onnx", "path": f"{name}/model.onnx", **({"reference": reference} if reference else {})}
    return Case(name, {"source": source, **(entry or {})}, expected, why, written("onnx_files", *writer))


_SNAPSHOT = f"models--team--layer/snapshots/{'0123456789' * 4}"
_DATA = "refused:source.onnx-external-data"
_TYPE = "refused:source.onnx-type"
_BROKEN = "refused:source.onnx"
_UNRUNNABLE = "refused:source.onnx|validate.checker|parity.load"

CASES = (
    _case("onnx", "batch", "rows are answered one by one", "dynamic"),
    _case(
        "onnx_answers", "batch", "it agrees with the stored answers", "dynamic", reference="onnx_answers/answers.npz"
    ),
    _case("onnx_reference", "batch", "it agrees with the module", "from_torch", reference="calls.py:seeded"),
    _case("onnx_half", "batch", "float16 in and out", "half"),
    _case("onnx_ids", "batch", "a look-up", "lookup", entry=signature(ids="int64 batch sequence 0..19")),
    _case("onnx_newer_opset", "batch", "converted down to the target's opset", "newer_opset", 23),
    _case("onnx_newer_ir", "batch", "the same graph in the target's IR version", "newer_ir", 11),
    _case("onnx_external_data", "batch", "its data lie beside it", "external"),
    Case(
        "onnx_hub_cache",
        {"source": {"kind": "onnx", "path": f"onnx_hub_cache/{_SNAPSHOT}/model.onnx"}},
        "batch",
        "links of a hub's cache are followed and copied",
        written("onnx_files", "in_hub_cache"),
    ),
    _case("onnx_linked_data", _DATA, "its data is a link to a file elsewhere", "linked"),
    _case("onnx_fixed", "single", "its batch is 2, and nothing else", "fixed", 2),
    _case("onnx_mixing", "single", "the batch's mean is subtracted", "mixing"),
    _case("onnx_attention", "single", "rows look at each other: axis 0 is dynamic, and no batch", "attention"),
    _case(
        "onnx_wrong_answers",
        "refused:parity.drift",
        "it disagrees with the stored answers",
        "dynamic",
        reference="onnx_wrong_answers/wrong.npz",
    ),
    _case(
        "onnx_other_reference",
        "refused:parity.drift",
        "it disagrees with the module",
        "from_torch",
        reference="calls.py:seeded_otherwise",
    ),
    _case(
        "onnx_baked",
        "refused:parity.runtime|source.declared-size|export.specialized-dim|parity.drift",
        "its batch is dynamic by name only: it reshapes for two rows",
        "baked",
    ),
    _case("onnx_noisy", "refused:source.random", "RandomNormalLike at inference", "noisy"),
    _case("onnx_ids_undeclared", "batch", "the same; 0 and 1 are ids of any table", "lookup"),
    _case(
        "onnx_new_operator",
        "refused:export.opset|validate.opset",
        "RMSNormalization of opset 23 is unknown to the target, and has no conversion",
        "new_operator",
    ),
    _case("onnx_truncated", _BROKEN, "half of a file", "truncated"),
    _case("onnx_empty", _BROKEN, "no bytes", "empty"),
    _case("onnx_not_fetched", _BROKEN, "a git-LFS pointer", "words"),
    _case("onnx_data_above", _DATA, "data outside of the model's directory", "external_at", "../outside.data"),
    _case("onnx_data_passwd", _DATA, "data at ../../etc/passwd", "external_at", "../../etc/passwd"),
    _case("onnx_data_absolute", _DATA, "data at an absolute path", "external_at", "/etc/passwd"),
    _case("onnx_data_missing", _DATA, "data that is not there", "external_at", "nowhere.data"),
    _case("onnx_sequence", _TYPE, "it answers a sequence", "sequence"),
    _case("onnx_maps", _TYPE, "it answers a sequence of maps", "maps"),
    _case("onnx_bf16", _TYPE, "bf16 in and out", "of_type", "BFLOAT16"),
    _case("onnx_float8", _TYPE, "float8 in and out", "of_type", "FLOAT8E4M3FN"),
    _case("onnx_unknown_operator", _UNRUNNABLE, "an operator of a domain that nobody has", "unknown_operator"),
    _case("onnx_dangling", _UNRUNNABLE, "a node reads what nothing writes", "dangling"),
    _case(
        "onnx_endless",
        "refused:worker.timeout",
        "a Loop that never ends",
        "endless",
        entry={"limits": {"timeout_seconds": 25}},
    ),
)

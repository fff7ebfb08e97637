"""Archives: `.pt2` of torch.export, `.pt` of TorchScript, and other files with these names."""

from __future__ import annotations

from typing import Any

from tests.conformance.case import Case, Entry, signature, written

_X = signature(x="float32 batch 4")
_SEPARATE = "rows are processed independently"


def _pt2(name: str, expected: str, why: str, *writer: Any, twin: Entry = _X, **more: Any) -> Case:
    entry = {"source": {"kind": "torch_export", "path": f"{name}/model.pt2"}, **more}
    return Case(name, entry, expected, why, written(*writer), twin)


def _script(name: str, expected: str, why: str, *writer: Any, entry: Entry = _X) -> Case:
    source = {"kind": "torchscript", "path": f"{name}/model.pt"}
    return Case(name, {"source": source, **entry}, expected, why, written(*writer))


_TEXT = signature(
    {"batch": (1, 16), "sequence": (2, 32)},
    input_ids="int64 batch sequence 3..98",
    attention_mask="int64 batch sequence 1..1",
)
_NOT_ONE = "rejected:source.archive"

CASES = (
    _pt2("pt2", "batch", "the dynamic batch is part of the program", "archives", "exported", "plain"),
    _pt2("pt2_dict", "batch", "its outputs have names", "archives", "exported", "dict"),
    _pt2("pt2_meta", "batch", "a layer has the name of an attribute of GraphModule", "archives", "exported", "meta"),
    _pt2(
        "pt2_two_dims",
        "batch",
        "a dynamic batch, and a length from 2 to 32",
        "archives",
        "exported_steps",
        twin=signature({"steps": (2, 32)}, x="float32 batch steps 4"),
    ),
    _pt2("pt2_text", "batch", "called by keyword", "archives", "exported_text", "logits", twin=_TEXT, **_TEXT),
    _pt2(
        "pt2_model_output",
        "batch",
        "its output is a transformers type, which must be imported before loading",
        "archives",
        "exported_text",
        "whole",
        twin=_TEXT,
        **_TEXT,
    ),
    _pt2(
        "pt2_fixed",
        "single",
        "exported for two rows",
        "archives",
        "exported_fixed",
        2,
        twin=signature(x="float32 2 4"),
    ),
    _pt2("pt2_mixing", "single", "the batch's mean is subtracted", "archives", "exported", "centred"),
    _pt2("pt2_truncated", _NOT_ONE, "half of an archive", "archives", "truncated"),
    _pt2("pt2_is_script", _NOT_ONE, "a TorchScript archive named .pt2", "archives", "script_as_pt2"),
    _pt2("pt2_bomb", _NOT_ONE, "a pickle that would run code", "bait", "bomb", "model.pt2"),
    _script("script_traced", "batch", _SEPARATE, "archives", "traced", "plain"),
    _script("script_dict", "batch", "outputs in a dict", "archives", "traced", "dict"),
    _script(
        "script_lists",
        "batch",
        "a loop that appends to a list, and outputs in a dict",
        "archives",
        "scripted",
        "lists",
        entry=signature(x="float32 batch time 4"),
    ),
    _script(
        "script_loop",
        "batch",
        "a loop over time, exported as a loop",
        "archives",
        "scripted",
        "loop",
        entry=signature(x="float32 batch time 4"),
    ),
    _script(
        "script_cell",
        "batch",
        "a loop over time with a GRUCell",
        "archives",
        "scripted",
        "cell",
        entry=signature(x="float32 batch time 4"),
    ),
    _script("script_if", "single", "one branch for the whole batch, chosen by its sum", "archives", "scripted", "if"),
    _script("script_early_exit", "single", "dicts in both branches of an if", "archives", "scripted", "early"),
    _script("script_mixing", "single", "the batch's mean is subtracted", "archives", "traced", "centred"),
    _script("script_is_module", _NOT_ONE, "a pickled module", "archives", "whole_module"),
    _script("script_is_weights", _NOT_ONE, "weights without code", "archives", "state_dict"),
    _script("script_is_noise", _NOT_ONE, "random bytes", "archives", "noise", "model.pt"),
    _script("script_bomb", _NOT_ONE, "a pickle that would run code", "bait", "bomb", "model.pt"),
    _script("script_bare_bomb", _NOT_ONE, "a bare pickle that would run code", "bait", "bare_bomb", "model.pt"),
)

"""Inputs of every form, and wrapped modules."""

from __future__ import annotations

from tests.conformance.case import Case, Entry, of_factory, ranges, signature, written

_SEPARATE = "rows are processed independently"
_X = "float32 batch 4"


def _case(name: str, factory: str, entry: Entry | None = None, why: str = _SEPARATE) -> Case:
    return Case(name, of_factory(f"calls.py:{factory}", entry), "batch", why)


def _examples(function: str, *dims: str) -> Entry:
    return {"examples": f"calls.py:{function}", **ranges("batch", *dims)}


def _stored(name: str, *files: str) -> Entry:
    paths = [f"{name}/{file}" for file in files]
    return {"examples": paths if len(paths) > 1 else paths[0]}


CASES = (
    _case("keyword_only", "KeywordOnly", signature(x=_X, shift="float32 batch 3")),
    _case("optional_given", "Optional", signature(x=_X, mask="float32 batch")),
    _case("optional_left_out", "Optional", signature(x=_X), "an undeclared input is always None"),
    _case("unused_input", "Unused", signature(x=_X, position="int64 batch 3 0..9"), "it remains an input of the model"),
    _case("dict_input", "OfDict", _examples("of_dict")),
    _case("tuple_input", "OfTuple", _examples("of_tuple")),
    _case("list_input", "OfList", _examples("of_list")),
    _case("any_number_of_inputs", "TakesAll", signature(first=_X, second=_X)),
    _case("python_numbers_default", "Settings", signature(x=_X), "defaults become constants, not inputs"),
    _case("python_numbers_given", "Settings", _examples("settings"), "numbers and None become constants"),
    _case("compiled", "compiled"),
    _case("data_parallel", "data_parallel"),
    _case("compiled_data_parallel", "compiled_data_parallel"),
    _case("script_module", "scripted"),
    _case("traced_module", "traced"),
    _case("forward_hook", "hooked"),
    _case(
        "transformer_fast_path",
        "Encoder",
        {
            **signature(x="float32 batch sequence 16", padding="bool batch sequence"),
            "examples": "calls.py:padded",
        },
        "padding is masked within each row",
    ),
    _case("examples_only_tensor", "plain", _examples("tensor")),
    _case("examples_only_dims", "Encoder", _examples("padded", "sequence"), "both dims are derived from the examples"),
    Case(
        "examples_of_two_files",
        of_factory("calls.py:plain", _stored("examples_of_two_files", "two.npz", "five.npz")),
        "batch",
        "files with 2 and 5 rows determine the batch axis",
        written("examples", "two_files", "npz"),
        signature(input=_X),
    ),
    Case(
        "examples_of_safetensors",
        of_factory("calls.py:plain", {**_stored("examples_of_safetensors", "two.safetensors"), **signature(input=_X)}),
        "batch",
        _SEPARATE,
        written("examples", "two_files", "safetensors"),
    ),
)

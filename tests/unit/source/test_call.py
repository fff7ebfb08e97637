"""Tests for deriving the call of a forward: names of its input tensors, and constants."""

from __future__ import annotations

import inspect
from collections import UserDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from repogen.errors import SourceError
from repogen.source.common.call import Call, Placeholder, capture_call, named_call
from repogen.source.common.examples import is_tensor

A, B, C = np.zeros(1), np.zeros(2), np.zeros(3)


class Pair(NamedTuple):
    """A named tuple as an argument."""

    left: Any
    right: Any


@dataclass
class Batch:
    """A dataclass as an argument."""

    ids: Any
    mask: Any


def parameters(signature: str) -> Any:
    """Return the parameters of a function with this signature."""
    names: dict[str, Any] = {}
    exec(f"def forward({signature}): ...", names)  # noqa: S102 - signatures are the subject
    return inspect.signature(names["forward"]).parameters


def flat_lambda(x: Any) -> Any:
    """Stand for an object that is not a tensor."""
    return x


@pytest.mark.parametrize(
    ("signature", "examples", "names"),
    [
        ("x", A, ["x"]),
        ("x, y", (A, B), ["x", "y"]),
        ("*xs", (A, B), ["xs_0", "xs_1"]),
        ("x, *rest", (A, B), ["x", "rest_0"]),
        ("x, *, mask", ((A,), {"mask": B}), ["x", "mask"]),
        ("x, y", ([A, B], {"z": C}), ["x_0", "x_1", "y_z"]),
        ("ids, mask=None", {"ids": A, "mask": B}, ["ids", "mask"]),
        ("ids, mask=None", UserDict({"ids": A, "mask": None}), ["ids"]),
        ("**named", {"anything": A}, ["anything"]),
        ("x, y", {"a": A, "b": B}, ["x", "y"]),
        ("batch", {"ids": A, "mask": B}, ["batch_ids", "batch_mask"]),
        ("pair", (Pair(A, [B, C]),), ["pair_left", "pair_right_0", "pair_right_1"]),
        ("batch", (Batch(A, B),), ["batch_ids", "batch_mask"]),
        ("x, n=0, flag=True", (A, 3), ["x"]),
        ("x", ([[1.0, 2.0], [3.0, 4.0]],), ["x"]),
    ],
)
def test_tensors_are_named_after_their_position(signature: str, examples: Any, names: list[str]) -> None:
    """Containers are flattened, and filling in the tensors restores them."""
    captured = capture_call(examples, parameters(signature), is_tensor, "m.py:examples")
    assert list(captured.tensors) == names
    args, kwargs = captured.call.fill(tuple(captured.tensors.values()))
    again = capture_call((args, kwargs), parameters("*args, **kwargs"), is_tensor, "m.py:examples")
    assert [id(tensor) for tensor in again.tensors.values()] == [id(tensor) for tensor in captured.tensors.values()]


def test_constants_are_recorded() -> None:
    """``logits_to_keep=0`` is not an input of the graph; None is not worth a note."""
    examples = {"ids": A, "logits_to_keep": 0, "mode": "fast", "past": None}
    captured = capture_call(examples, parameters("**named"), is_tensor, "m.py:examples")
    assert captured.constants == ("logits_to_keep=0", "mode='fast'")
    assert captured.call.fill((B,)) == ((), {"ids": B, "logits_to_keep": 0, "mode": "fast", "past": None})


@pytest.mark.parametrize(
    ("examples", "words"),
    [
        (3, "a value of type int that contains no tensor"),
        ({}, "a value of type dict that contains no tensor"),
        ((A, flat_lambda), "a value of type function for y"),
        ({"x": A, "y": {"deep": object()}}, "a value of type object for y_deep"),
    ],
)
def test_examples_without_tensors_are_rejected(examples: Any, words: str) -> None:
    """The message has the position among the arguments."""
    with pytest.raises(SourceError) as caught:
        capture_call(examples, parameters("x, y"), is_tensor, "m.py:examples")
    assert (caught.value.code, words in caught.value.message) == ("source.examples-type", True)


def test_declared_inputs_are_passed_by_name_or_position() -> None:
    """By name if all are parameters, by position if none is."""
    assert named_call(parameters("a, b"), ("b", "a")) == Call((), {"b": Placeholder(0), "a": Placeholder(1)})
    assert named_call(parameters("a, b"), ("x", "y")) == Call((Placeholder(0), Placeholder(1)), {})
    assert named_call(parameters("*, a"), ("a",)) == Call((), {"a": Placeholder(0)})


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("input_id", "attention_mask"), "parameter 'input_id' (did you mean 'input_ids'?)"),
        (("input_ids", "x"), "parameter 'x'"),
        (("input_ids", "input_id"), "parameter 'input_id'"),
        (("input_id", "attention_mask", "x"), "parameters 'input_id' (did you mean 'input_ids'?), 'x'"),
    ],
)
def test_names_that_are_not_parameters(names: tuple[str, ...], words: str) -> None:
    """The message has them, each with the similar parameter that no input uses."""
    with pytest.raises(SourceError) as caught:
        named_call(parameters("input_ids, attention_mask"), names)
    assert caught.value.code == "source.inputs-mixed"
    assert caught.value.message == f"forward(input_ids, attention_mask) has no {words}"


def test_forward_of_any_keywords_gets_inputs_by_name() -> None:
    """``forward(**batch)`` has no parameter of that name."""
    parameters = inspect.signature(lambda **batch: batch).parameters
    assert named_call(parameters, ("x", "mask")) == Call((), {"x": Placeholder(0), "mask": Placeholder(1)})

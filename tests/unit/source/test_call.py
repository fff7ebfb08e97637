"""Arguments of a forward: which tensors are its inputs, how they are called, and what is baked in."""

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
    """A tuple with names."""

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
    """Stand in for an object that is no tensor."""
    return x


@pytest.mark.parametrize(
    ("signature", "made", "names"),
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
def test_tensors_are_named_after_their_place(signature: str, made: Any, names: list[str]) -> None:
    """Whatever they are packed in; and filled in again, they are what was made."""
    taken = capture_call(made, parameters(signature), is_tensor, "m.py:examples")
    assert list(taken.tensors) == names
    args, kwargs = taken.call.fill(tuple(taken.tensors.values()))
    again = capture_call((args, kwargs), parameters("*args, **kwargs"), is_tensor, "m.py:examples")
    assert [id(tensor) for tensor in again.tensors.values()] == [id(tensor) for tensor in taken.tensors.values()]


def test_constants_are_kept_and_said() -> None:
    """``logits_to_keep=0`` is no input of the graph; None is nothing to speak of."""
    made = {"ids": A, "logits_to_keep": 0, "mode": "fast", "past": None}
    taken = capture_call(made, parameters("**named"), is_tensor, "m.py:examples")
    assert taken.constants == ("logits_to_keep=0", "mode='fast'")
    assert taken.call.fill((B,)) == ((), {"ids": B, "logits_to_keep": 0, "mode": "fast", "past": None})


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (3, "a value of type int, in which there is no tensor"),
        ({}, "a value of type dict, in which there is no tensor"),
        ((A, flat_lambda), "a value of type function for y"),
        ({"x": A, "y": {"deep": object()}}, "a value of type object for y_deep"),
    ],
)
def test_what_is_made_of_no_tensors_is_refused(made: Any, words: str) -> None:
    """With its place among the arguments."""
    with pytest.raises(SourceError) as caught:
        capture_call(made, parameters("x, y"), is_tensor, "m.py:examples")
    assert (caught.value.code, words in caught.value.message) == ("source.examples-type", True)


def test_declared_inputs_go_by_name_or_by_position() -> None:
    """By name when all are parameters, by position when none is."""
    assert named_call(parameters("a, b"), ("b", "a")) == Call((), {"b": Placeholder(0), "a": Placeholder(1)})
    assert named_call(parameters("a, b"), ("x", "y")) == Call((Placeholder(0), Placeholder(1)), {})
    assert named_call(parameters("*, a"), ("a",)) == Call((), {"a": Placeholder(0)})

"""Outputs other than a single tensor."""

from __future__ import annotations

from tests.conformance.case import Case, of_factory

_ALL = "every output tensor has the batch on axis 0"


def _case(name: str, factory: str, why: str = _ALL, expected: str = "batch") -> Case:
    return Case(name, of_factory(f"answers.py:{factory}"), expected, why)


CASES = (
    _case("nested_answers", "Nested"),
    _case("dict_answer", "Dict"),
    _case("dataclass_answer", "AsDataclass"),
    _case("model_output", "AsModelOutput"),
    _case("named_tuple", "AsNamedTuple"),
    _case("numbers_and_none", "NumbersAndNone", "constants that are not tensors are left out"),
    _case("same_tensor_twice", "SameTwice", "one tensor under two names is two outputs"),
    _case("input_among_outputs", "Echo"),
    _case("integer_answers", "Integers", "classes, indices and booleans of each row"),
    _case("one_number_each", "OneNumberEach", "an output of rank 1 is declared with dims: [1] and a reshape"),
    _case("constant_output", "Constant", "the anchors have no batch on axis 0", "single"),
    _case("scalar_output", "Scalar", "one number for the whole batch", "single"),
    _case("logits_and_loss", "LogitsAndLoss", "the penalty is one number for the whole batch", "single"),
)

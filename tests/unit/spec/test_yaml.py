"""YAML that a spec must not contain, with position, key path and message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Problems = Callable[[str | bytes], list[tuple[str, str, str]]]

HEAD = """\
models:
  m:
    source: {factory: "models.py:build"}
"""
INPUTS = """\
    inputs: {x: {dtype: float32, shape: [batch, 4]}}
    dims: {batch: {max: 8}}
"""
GOOD = HEAD + INPUTS

TAB = "is not valid YAML: found character that cannot start any token (indent with spaces: YAML does not allow tabs)"
REFUSED: dict[str, tuple[str | bytes, tuple[str, str, str]]] = {
    "duplicate key": (
        GOOD + "    dims: {}\n",
        ("6:5", "models.m.dims", "duplicate key, first on line 5 (keep one of the two)"),
    ),
    "boolean name": (
        GOOD.replace("  m:", "  no:"),
        ("2:3", "models.no", 'a key must be a string, but YAML reads no as false (quote it: "no")'),
    ),
    "float name": (
        GOOD.replace("  m:", "  1e3:"),
        ("2:3", "models.1e3", 'a key must be a string, but YAML reads 1e3 as 1000.0 (quote it: "1e3")'),
    ),
    "integer name": (
        GOOD.replace("  m:", "  12:"),
        ("2:3", "models.12", 'a key must be a string, but YAML reads 12 as 12 (quote it: "12")'),
    ),
    "date name": (
        GOOD.replace("  m:", "  2024-10-01:"),
        (
            "2:3",
            "models.2024-10-01",
            'a key must be a string, but YAML reads 2024-10-01 as a date (quote it: "2024-10-01")',
        ),
    ),
    "list as a key": (
        GOOD + "    ? [a]\n    : 1\n",
        ("6:7", "models.m.?", "a list as a key is not allowed (keys are strings)"),
    ),
    "merge key": (
        GOOD + "    <<: {}\n",
        ("6:5", "models.m.<<", "merge keys are not allowed (put settings that models share under defaults:)"),
    ),
    "second document": (
        GOOD + "---\nmodels: {}\n",
        ("6:1", "", "a second document starts here (a spec is one document; remove the ---)"),
    ),
    "python tag": (
        GOOD + "    examples: !!python/object/apply:os.system [ls]\n",
        (
            "6:15",
            "models.m.examples",
            "the tag !!python/object/apply:os.system is not allowed (a spec contains plain data only; remove the tag)",
        ),
    ),
    "tag of a scalar": (
        GOOD + "    examples: !!binary aGk=\n",
        (
            "6:15",
            "models.m.examples",
            "the tag !!binary is not allowed (a spec contains plain data only; remove the tag)",
        ),
    ),
    "false tag": (
        GOOD + "    parity: {seed: !!int a}\n",
        ("6:20", "models.m.parity.seed", "does not match its tag !!int"),
    ),
    "beyond int64": (
        GOOD + "    parity: {seed: 9223372036854775808}\n",
        (
            "6:20",
            "models.m.parity.seed",
            "is beyond the range of int64 (integers are between -9223372036854775808 and 9223372036854775807)",
        ),
    ),
    "NaN": (GOOD + "    parity: {rtol: .nan}\n", ("6:20", "models.m.parity.rtol", ".nan is not a finite number")),
    "infinity": (
        GOOD + "    parity: {rtol: -.inf}\n",
        ("6:20", "models.m.parity.rtol", "-.inf is not a finite number"),
    ),
    "too large a float": (
        GOOD + "    parity: {rtol: 1e999}\n",
        ("6:20", "models.m.parity.rtol", "is too large for a float"),
    ),
    "octal of 1.1": (
        GOOD + "    parity: {seed: 010}\n",
        (
            "6:20",
            "models.m.parity.seed",
            "010 is octal to some YAML readers and decimal to others (drop the leading zero)",
        ),
    ),
    "base 60": (
        GOOD + "    examples: 1:30\n",
        (
            "6:15",
            "models.m.examples",
            'some YAML readers read 1:30 as a number in base 60 (quote it: "1:30")',
        ),
    ),
    "unknown alias": (
        GOOD + "    optimize: *gone\n",
        ("6:15", "models.m.optimize", "the alias *gone refers to an anchor that is not defined before it"),
    ),
    "recursive alias": (
        GOOD + "    outputs: &a [*a]\n",
        ("6:18", "models.m.outputs[0]", "the alias *a refers to an anchor that is not defined before it"),
    ),
    "too deep": (
        GOOD + "    outputs: " + "[" * 40 + "]" * 40,
        ("6:43", "models.m.outputs" + "[0]" * 29, "is nested deeper than 32 levels"),
    ),
    "syntax": (
        GOOD + "    outputs: [a\n",
        ("7:1", "", "is not valid YAML: did not find expected ',' or ']'"),
    ),
    "tab": (
        GOOD + "\toutputs: [a]\n",
        ("6:1", "", TAB),
    ),
    "not UTF-8": (b"models:\n  \xe9: 1\n", ("2:3", "", "is not UTF-8: byte 0xe9 (save the file as UTF-8)")),
    "UTF-16": (GOOD.encode("utf-16"), ("1:1", "", "is not UTF-8: byte 0xff (save the file as UTF-8)")),
    "control character": (
        GOOD + "# \x07\n",
        ("6:3", "", "contains the control character U+0007 (remove it)"),
    ),
    "empty": ("", ("1:1", "", "the spec is empty (create one with `repogen init`)")),
    "comments only": ("# nothing\n", ("1:1", "", "the spec is empty (create one with `repogen init`)")),
    "a list": (
        "\n- models\n",
        ("2:1", "", "the spec must be a mapping with models: (create one with `repogen init`)"),
    ),
}


@pytest.mark.parametrize(("text", "expected"), REFUSED.values(), ids=REFUSED)
def test_each_mistake_is_one_problem(text: str | bytes, expected: tuple[str, str, str], problems: Problems) -> None:
    """Each mistake gives exactly one problem with line, column, key path and message."""
    assert [expected] == problems(text)


def test_nested_aliases_are_limited(problems: Problems) -> None:
    """Exponentially nested aliases are counted without being expanded."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    expected = (
        "5:",
        "the file has more than 20000 values after aliases are expanded (split the spec, or use fewer aliases)",
    )
    (place, _, what), *_ = problems("\n".join(lines))
    assert expected == (place[:2], what)


def test_alias_chains_are_limited(problems: Problems) -> None:
    """A chain of aliases cannot bypass the nesting limit."""
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 100))]
    assert problems("\n".join(lines)) == [("31:12", "a30[0]", "its aliases nest deeper than 32 levels")]


def test_long_values_are_truncated(problems: Problems) -> None:
    """A hundred thousand digits are truncated in the message."""
    ((_, path, long),) = problems(GOOD + f"    parity: {{seed: {'1:' * 50_000}1}}\n")
    assert path == "models.m.parity.seed"
    assert len(long) < 1000


def test_control_characters_are_escaped(problems: Problems) -> None:
    """A control character in a key is printed escaped."""
    ((_, path, _),) = problems(GOOD + '    "\\e[2J": 1\n')
    expected = r"models.m.\x1b[2J"
    assert expected == path

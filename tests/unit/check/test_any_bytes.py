"""Property tests: for any config.pbtxt, `check` returns findings with bounded work and never raises."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from repogen.api.check import check
from repogen.triton_config.text.parse import empty_config
from tests.unit.check.conftest import CONFIG, add_model
from tests.unit.check.test_ensembles import ENSEMBLE
from tests.unit.triton_config.rules.test_rules import ENSEMBLE as PIPELINE
from tests.unit.triton_config.rules.test_rules import PARTS, SEQUENCE

if TYPE_CHECKING:
    from google.protobuf.message import Message

REAL = [
    CONFIG,
    ENSEMBLE,
    *("\n".join(parts.values()) for parts in (PARTS, SEQUENCE, PIPELINE)),
    (Path(__file__).parents[3] / "model_repository" / "digits_cnn" / "config.pbtxt").read_text(encoding="utf-8"),
]
_DEEPEST = 4
_SCALARS: dict[int, st.SearchStrategy[object]] = {
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 9),
    FieldDescriptor.CPPTYPE_INT64: st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 9),
    FieldDescriptor.CPPTYPE_UINT32: st.integers(0, 2**32 - 1) | st.integers(0, 9),
    FieldDescriptor.CPPTYPE_UINT64: st.integers(0, 2**64 - 1) | st.integers(0, 9),
    FieldDescriptor.CPPTYPE_DOUBLE: st.floats(),
    FieldDescriptor.CPPTYPE_FLOAT: st.floats(width=32),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_STRING: st.sampled_from(
        ["", "x", "y", "m", "onnxruntime", "ensemble", "../x", "/etc/passwd"]
    )
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
}


def codes(repository: Path) -> list[str]:
    """Return the codes of a repository's findings."""
    return [finding.code for finding in check(repository)]


@st.composite
def configs(draw: st.DrawFn) -> str:
    """Draw any ModelConfig, as text."""
    message = empty_config()
    _fill(draw, message, 0)
    return text_format.MessageToString(message)


def _fill(draw: st.DrawFn, message: Message, depth: int) -> None:
    fields: list[Any] = list(message.DESCRIPTOR.fields)
    if not fields:
        return
    for field in draw(st.lists(st.sampled_from(fields), max_size=6 if depth else 10, unique_by=lambda f: f.name)):
        nested = field.message_type
        if nested is not None and nested.GetOptions().map_entry:
            continue
        if nested is not None and depth < _DEEPEST:
            for _ in range(draw(st.integers(1, 2)) if field.is_repeated else 1):
                child = getattr(message, field.name)
                child = child.add() if field.is_repeated else child
                child.SetInParent()
                _fill(draw, child, depth + 1)
        elif nested is None:
            kind = field.enum_type
            values = st.sampled_from(list(kind.values_by_number)) if kind is not None else _SCALARS[field.cpp_type]
            if field.is_repeated:
                getattr(message, field.name).extend(draw(st.lists(values, max_size=3)))
            else:
                setattr(message, field.name, draw(values))


def mutated(draw: st.DrawFn) -> bytes:
    """Draw a real config with some bytes changed, removed or repeated."""
    content = bytearray(draw(st.sampled_from(REAL)).encode())
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(content)))
        length = draw(st.integers(0, 12))
        instead = draw(
            st.binary(max_size=4) | st.sampled_from([b"{", b"}", b"[", b"]", b'"', b"-", b"999999999999", b"#"])
        )
        content[at : at + length] = instead if draw(st.booleans()) else content[at : at + length] * 2
    return bytes(content)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository whose config.pbtxt is rewritten for each example."""
    repository = tmp_path_factory.mktemp("any") / "repository"
    add_model(repository, "m", CONFIG)
    return repository


SOME = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(SOME, max_examples=10_000)


@SOME
@given(text=configs())
def test_any_config_is_checked(shared: Path, text: str) -> None:
    """Every message of the schema, with values of every kind, is checked without an exception."""
    (shared / "m" / "config.pbtxt").write_text(text, encoding="utf-8")
    assert all(code.startswith("RG") for code in codes(shared))


@SOME
@given(content=st.composite(mutated)())
def test_changed_bytes_are_checked(shared: Path, content: bytes) -> None:
    """Real configs with changed bytes are checked without an exception."""
    (shared / "m" / "config.pbtxt").write_bytes(content)
    assert all(code.startswith("RG") for code in codes(shared))


@pytest.mark.full
@MANY
@given(text=configs())
def test_ten_thousand_configs(shared: Path, text: str) -> None:
    """Ten thousand configs are checked without an exception."""
    (shared / "m" / "config.pbtxt").write_text(text, encoding="utf-8")
    assert all(code.startswith("RG") for code in codes(shared))


@pytest.mark.full
@MANY
@given(content=st.composite(mutated)())
def test_ten_thousand_mutations(shared: Path, content: bytes) -> None:
    """Ten thousand changed configs are checked without an exception."""
    (shared / "m" / "config.pbtxt").write_bytes(content)
    assert all(code.startswith("RG") for code in codes(shared))

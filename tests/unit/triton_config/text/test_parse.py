"""Parsing of config.pbtxt, and the protobuf classes without gRPC."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from repogen.check.config_text import read_config
from repogen.triton_config.text.parse import PbtxtError, parse, parse_file, read_config_text

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ('name: "m"\n  nmae: "m"', (2, 3)),
        ("max_batch_size: 99999999999", (1, 17)),
        ('name: "m"\nname: "n"', (2, 7)),
        ("input [ { dims: [ 1 }", (1, 21)),
        ('\N{BYTE ORDER MARK}name: "m"', (1, 1)),
        ('data_type: "x', (1, 1)),
    ],
)
def test_error_names_the_position(text: str, position: tuple[int, int]) -> None:
    """The error contains file, line and column."""
    with pytest.raises(PbtxtError) as caught:
        parse(text, "digits/config.pbtxt")
    assert position == (caught.value.line, caught.value.column)
    assert f"digits/config.pbtxt:{position[0]}:{position[1]}" == caught.value.where


@pytest.mark.parametrize("end", ["\r", "\x85", "\u2028"])
def test_only_a_line_feed_ends_a_comment(tmp_path: Path, end: str) -> None:
    """As in Triton's parser: otherwise, repogen would check a config that Triton does not read."""
    file = tmp_path / "config.pbtxt"
    text = f'# comment{end}backend: "python"\nname: "m"\r\nmax_batch_size: 4'
    file.write_bytes(text.encode())
    assert read_config_text(file, "m/config.pbtxt") == text
    config = parse_file(file, "m/config.pbtxt")
    assert (config.name, config.backend, config.max_batch_size) == ("m", "", 4)
    report = read_config(file, "24.10")
    assert report.config == config
    assert report.fields.position("max_batch_size").line == 3


def test_parsing_does_not_import_grpc() -> None:
    """The classes are those that tritonclient imports later."""
    code = """
import sys
from repogen.triton_config.text.parse import empty_config, parse
config = parse('name: "m"', "test")
assert not {"grpc", "numpy", "tritonclient"} & sys.modules.keys()
from tritonclient.grpc.model_config_pb2 import ModelConfig
assert type(config) is ModelConfig
assert type(empty_config()) is ModelConfig
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("max_batchsize: 1", "did you mean max_batch_size?"),
        ("instance_group { x: 1 }", "its fields are name, kind, count"),
        ("input { data_type: TYPE_FP23 }", "did you mean TYPE_FP32?"),
        ("input { data_type: fp32 }", "did you mean TYPE_FP32?"),
        ('input { data_type: "TYPE_FP32" }', "did you mean TYPE_FP32?"),
        ("instance_group { kind: X }", "its values are KIND_AUTO, KIND_GPU, KIND_CPU, KIND_MODEL"),
        ("max_batch_size: x", "see Triton's model_configuration.md"),
    ],
)
def test_unknown_name_has_a_hint(text: str, hint: str) -> None:
    """The closest name, or all; the message contains the line, which may contain text like that of a message."""
    for comment in ("", ' # Message type "x" has no field named "x".', ' # Enum type "x" has no value named x.'):
        with pytest.raises(PbtxtError) as caught:
            parse(text + comment, "c")
        assert caught.value.hint.startswith(hint)


def test_number_of_an_enum_that_is_out_of_range() -> None:
    """The parser does not check it, and the message class raises another error."""
    with pytest.raises(PbtxtError, match="Value out of range: 999999999999"):
        parse('input { name: "x" data_type: 999999999999 dims: 1 }', "m/config.pbtxt")


@pytest.mark.parametrize(
    "text",
    [
        "input { dims: [ %s ] }",
        "output { reshape { shape: [ %s ] } }",
        'model_warmup { inputs { key: "x" value { dims: [ %s ] } } }',
        "sequence_batching { state { dims: [ %s ] } }",
        "sequence_batching { state { initial_state { dims: [ %s ] } } }",
    ],
)
def test_tensor_with_very_many_dims(text: str) -> None:
    """The dims of one tensor are compared with those of thousands of others: a file of 100 KB took a minute."""
    parse(text % ", ".join("1" * 1000), "c")
    with pytest.raises(PbtxtError, match="1001 dims"):
        parse(text % ", ".join("1" * 1001), "c")

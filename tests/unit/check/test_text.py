"""config.pbtxt as text: what Triton's parser rejects, with line numbers, and suppressing comments."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import pytest

from repogen.api.check import check
from tests.support import graphs
from tests.unit.check.conftest import CONFIG, findings_in


def external_model(location: str) -> onnx.ModelProto:
    """Return a graph whose weights are in another file."""
    proto = graphs.matmul()
    (tensor,) = proto.graph.initializer
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return proto


def rewritten(repository: Path, content: str | bytes) -> Path:
    """Write the model's config."""
    data = content if isinstance(content, bytes) else content.encode()
    (repository / "m" / "config.pbtxt").write_bytes(data)
    return repository


def test_valid_repository_has_no_findings(repository: Path) -> None:
    """A valid repository has no findings."""
    assert check(repository) == []


@pytest.mark.parametrize(
    ("content", "code", "line"),
    [
        (CONFIG + "max_batchsize: 3\n", "RG001", 6),
        (CONFIG + "dynamic_batching {\n", "RG001", 6),
        (CONFIG.replace("TYPE_FP32", "TYPE_FLOAT", 1), "RG001", 4),
        (CONFIG.replace("8", "99999999999"), "RG001", 3),
        (CONFIG + "max_batch_size: 4\n", "RG001", 6),
        (CONFIG + "model_metrics { }\n", "RG002", 6),
        ("\ufeff" + CONFIG, "RG003", 1),
        (CONFIG.replace("8", "${BATCH}"), "RG004", 3),
        (CONFIG.replace("8", "{{ batch }}"), "RG004", 3),
        (CONFIG + "{% if gpu %}\n", "RG004", 6),
        (CONFIG + 'parameters { key: "k" value { string_value: "${HOME}" } }\n', "RG004", 6),
        (CONFIG.encode() + b"# caf\xe9\n", "RG005", 0),
        (b"#" * (2**20 + 1), "RG005", 0),
    ],
)  # fmt: skip
def test_invalid_text(repository: Path, content: str | bytes, code: str, line: int) -> None:
    """Each error is one finding with its line."""
    findings = [entry for entry in findings_in(rewritten(repository, content)) if entry[0] != "RG128"]
    assert findings == [(code, "m/config.pbtxt", line)]


def test_template_syntax_in_a_comment_is_ignored(repository: Path) -> None:
    """Comments are not parsed."""
    assert check(rewritten(repository, CONFIG + "# ${BATCH} {{ x }}\n")) == []


def test_field_of_a_newer_release(repository: Path) -> None:
    """The message names the release that added it, and a newer target accepts it."""
    rewritten(repository, CONFIG + "model_metrics { }\n")
    (finding,) = check(repository)
    assert finding.message == "model_metrics of ModelConfig is unknown to Triton 24.10: it was added in 24.11"
    assert check(repository, target="24.11") == []


@pytest.mark.parametrize("kind", ["directory", "pipe", "dangling"])
def test_config_that_is_not_a_file(repository: Path, kind: str) -> None:
    """It is reported, and check does not block on a pipe."""
    path = repository / "m" / "config.pbtxt"
    path.unlink()
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("nowhere")
    assert ("RG005", "m/config.pbtxt", 0) in findings_in(repository)


@pytest.mark.parametrize(
    ("comment", "left"),
    [
        ("  # repogen: ignore[RG207]", 0),
        ("  # repogen: ignore[RG2]", 0),
        ("  # repogen: ignore[RG101, RG207] for the demo", 0),
        ("  # repogen: ignore[RG101]", 1),
        ("  # repogen: ignore[]", 1),
    ],
)
def test_comment_suppresses_findings_of_its_line(repository: Path, comment: str, left: int) -> None:
    """By code or family, and no other findings."""
    rewritten(repository, CONFIG.replace("dims: [ 3 ] }", "dims: [ 4 ] }" + comment))
    assert len(check(repository)) == left


def test_comment_on_its_own_line_suppresses_the_next_line_or_the_file(repository: Path) -> None:
    """Depending on its keyword."""
    bad = CONFIG.replace("dims: [ 3 ]", "dims: [ 4 ]").replace('name: "m"', 'name: "other"')
    rewritten(repository, bad.replace("output", "# repogen: ignore[RG207]\noutput"))
    assert [code for code, *_ in findings_in(repository)] == ["RG101"]
    rewritten(repository, "# repogen: ignore-file[RG2,RG101]\n" + bad)
    assert check(repository) == []


_CODE = 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "$$TRITON_MODEL_DIRECTORY/env" } }\n'
_CACHE = (
    "optimization { execution_accelerators { gpu_execution_accelerator {\n"
    'name: "tensorrt" parameters { key: "trt_engine_cache_path" value: "/tmp/x" } } } }\n'
)
_LABELS = CONFIG.replace("dims: [ 3 ]", 'dims: [ 3 ] label_filename: "labels"')
SECURITY = [
    ("RG001", CONFIG + "x: 1\n", {}),
    ("RG210", CONFIG, {"1/model.onnx": b"x" * 100}),
    ("RG211", CONFIG, {"1/model.onnx": external_model("../../secret").SerializeToString()}),
    ("RG404", CONFIG + 'default_model_filename: "../2/model.onnx"\n', {}),
    ("RG405", _LABELS.replace("labels", "../labels"), {}),
    ("RG405", _LABELS, {"labels": Path("/etc/passwd")}),
    ("RG405", CONFIG + _CACHE, {}),
    ("RG406", CONFIG, {"link": Path("/etc")}),
    ("RG406", CONFIG, {"link": Path("nowhere")}),
    ("RG407", CONFIG, {"1/manifest.json": b"{}"}),
    ("RG410", CONFIG + _CODE, {}),
]


@pytest.mark.parametrize("comment", ["ignore-file[{}]", "ignore-file[RG]"])
@pytest.mark.parametrize(("code", "config", "files"), SECURITY)
def test_comments_do_not_suppress_findings_about_security(
    repository: Path, code: str, config: str, files: dict[str, bytes | Path], comment: str
) -> None:
    """A hostile repository could hide with its own comment that Triton would run its code; the user's settings can."""
    for name, content in files.items():
        path = repository / "m" / name
        path.unlink(missing_ok=True)
        if isinstance(content, Path):
            path.symlink_to(content)
        else:
            path.write_bytes(content)
    rewritten(repository, f"# repogen: {comment.format(code)}\n{config}")
    assert code in {finding.code for finding in check(repository)}
    assert code not in {finding.code for finding in check(repository, ignore=[code])}


def test_comments_suppress_other_findings_of_the_same_rules(repository: Path) -> None:
    """A file that is missing is added later, for example."""
    rewritten(repository, _LABELS)
    assert [code for code, *_ in findings_in(repository)] == ["RG405"]
    rewritten(repository, "# repogen: ignore-file[RG405,RG404]\n" + _LABELS)
    (repository / "m" / "1" / "model.onnx").unlink()
    assert check(repository) == []


@pytest.mark.parametrize("piece", ["${", "{{", "{%", "<%", '"\\', "'\\", "# repogen: ignore[RG1]\n", "a: ", "{ ", "[ "])
def test_time_grows_with_the_length_of_a_config(repository: Path, piece: str) -> None:
    """Searching for an end from each of 24,000 beginnings would take minutes."""
    rewritten(repository, piece * 24_000)
    assert any(code in {"RG001", "RG004"} for code, _, _ in findings_in(repository)) or piece.startswith("#")


@pytest.mark.parametrize(
    "fields",
    [
        "version_policy { specific { versions: [ 1" + ", 2" * 30_000 + " ] } }",
        "input { dims: [ 1" + ", 1" * 30_000 + " ] }",
        "input { }" * 20_000,
        "instance_group { }" * 20_000,
    ],
)
def test_config_with_very_many_values_is_one_finding(repository: Path, fields: str) -> None:
    """Rules compare each value with others, and each can have a finding: 1 MiB of values took minutes."""
    rewritten(repository, CONFIG + fields)
    (finding,) = check(repository)
    assert (finding.code, finding.severity) == ("RG005", "error")
    assert finding.message == "config.pbtxt has more than 50,000 tokens (words, punctuation and strings)"


def test_long_strings_and_comments_do_not_count(repository: Path) -> None:
    """Only their number does."""
    assert check(rewritten(repository, CONFIG + "# , , ,\n" * 50_000)) == []


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x85", "\u2028"])
def test_line_numbers_are_those_of_the_parser(repository: Path, separator: str) -> None:
    """Only a line feed ends a line of a config."""
    rewritten(repository, f"# {separator}\n" + CONFIG.replace("8", "${BATCH}"))
    assert findings_in(repository) == [("RG004", "m/config.pbtxt", 4)]


def test_template_syntax_after_a_string_with_a_number_sign(repository: Path) -> None:
    """Neither the # in the string nor the end of the string hides it, and a comment after it does."""
    rewritten(repository, CONFIG + 'default_model_filename: "#${A}" ${B} # ${C}\n')
    findings = [(finding.severity, finding.column) for finding in check(repository) if finding.code == "RG004"]
    assert findings == [("warning", 27), ("error", 33)]


def test_comment_does_not_hide_a_file_that_cannot_be_parsed(repository: Path) -> None:
    """What is after the template syntax is not checked; in a string, the file is parsed."""
    comment = "  # repogen: ignore[RG004]\n# repogen: ignore-file[RG0]\n"
    rewritten(repository, CONFIG.replace("8", f"${{BATCH}}{comment}"))
    assert [code for code, _, _ in findings_in(repository)] == ["RG004"]
    rewritten(repository, CONFIG + f'parameters {{ key: "k" value {{ string_value: "${{A}}" }} }}{comment}')
    assert "RG004" not in [code for code, _, _ in findings_in(repository)]


def test_long_name_of_a_field(repository: Path) -> None:
    """It would be in the path of each field below it: a config of 1 MB took more than 12 GB of memory."""
    for name in ("a" * 101, f'"{"a" * 101}"'):
        config = repository / "m" / "config.pbtxt"
        config.write_text(f"{CONFIG}{name} {{ b1: 1 b2: 1 }}", encoding="utf-8")
        (finding,) = check(repository)
        assert (finding.code, finding.line, len(finding.message) < 200) == ("RG001", 6, True)

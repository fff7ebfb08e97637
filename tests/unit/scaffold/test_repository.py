"""`init --from` a Triton repository that was written by hand."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any, ClassVar

import onnx
import pytest
import yaml
from onnx import helper

from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.errors import SpecError
from repogen.scaffold import repository as scaffold_repository
from repogen.scaffold.config_section import triton_section
from repogen.scaffold.describe import describe
from repogen.scaffold.files import scaffold_from
from repogen.spec.load import load_spec
from repogen.triton_config.text.parse import empty_config, parse
from tests.support import graphs
from tests.support.swapping import swap_when_opened
from tests.unit.check.conftest import CONFIG, add_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

GROUP = "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
TENSORRT = 'name: "tensorrt" parameters { key: "precision_mode" value: "FP16" }'
ZEROS = 'key: "x" value { data_type: TYPE_FP32 dims: 4 zero_data: true }'
FILE = 'key: "x" value { data_type: TYPE_FP32 dims: 4 input_data_file: "f" }'
PYTHON = """\
backend: "python"
max_batch_size: 4
input [ { name: "IN" data_type: TYPE_INT64 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
parameters { key: "threshold" value { string_value: "0.5" } }
"""
ENSEMBLE = """\
platform: "ensemble"
max_batch_size: 4
input [ { name: "A" data_type: TYPE_INT64 dims: [ -1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ 3 ] } ]
ensemble_scheduling {
  step { model_name: "p" model_version: -1 input_map { key: "IN" value: "A" } output_map { key: "OUT" value: "t" } }
  step { model_name: "m" model_version: 1 input_map { key: "x" value: "t" } output_map { key: "y" value: "B" } }
}
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository with an ensemble of Python code and an ONNX model."""
    monkeypatch.chdir(tmp_path)
    add_model(tmp_path / "repo", "m", CONFIG + GROUP)
    for name, config in (("p", PYTHON), ("e", ENSEMBLE)):
        (tmp_path / "repo" / name / "1").mkdir(parents=True)
        (tmp_path / "repo" / name / "config.pbtxt").write_text(config)
    (tmp_path / "repo" / "p" / "1" / "model.py").write_text("import numpy, torch\n")
    (tmp_path / "repo" / "p" / "1" / "vocab.txt").write_text("a")
    return tmp_path / "repo"


def spec_of(path: Path) -> tuple[str, dict[str, Any]]:
    """Write the spec; return its text and its models. repogen must accept it."""
    directory = path.parent / "spec" if (path.parent / "repo").exists() else path.parent.parent / "spec"
    scaffold_from(describe(str(path), directory), directory, force=True)
    text = (directory / "repogen.yaml").read_text()
    load_spec(directory / "repogen.yaml")
    document = yaml.safe_load(text)
    assert document["repository"] == "../repo"
    models: dict[str, Any] = document["models"]
    return text, models


def test_model_without_a_config(repository: Path) -> None:
    """A build measures the batch; there is no config that the spec could differ from."""
    (repository / "m" / "config.pbtxt").unlink()
    text, models = spec_of(repository / "m")
    assert "m has no config.pbtxt: Triton assumes that a dynamic first axis is the batch" in text
    assert "CHECK the batch size" in text
    assert "Different from config.pbtxt" not in text
    assert models["m"]["triton"] == {"instance_group": [{"kind": "KIND_AUTO", "count": "auto"}]}
    assert "max_batch_size: 0" not in text


def test_repository(repository: Path) -> None:
    """All models; the spec renders the same configs, so nothing is left over."""
    text, models = spec_of(repository)
    assert list(models) == ["e", "m", "p"]
    assert "Different from config.pbtxt" not in text
    assert models["m"] == {
        "source": {"kind": "onnx", "path": "../repo/m/1/model.onnx"},
        "dims": {"N": {"min": 1, "max": 8}},
        "triton": {"max_batch_size": 8, "instance_group": [{"kind": "KIND_CPU", "count": 1}]},
    }
    assert models["p"] == {
        "source": {"kind": "python", "path": "../repo/p/1/model.py", "data": ["model_files/p/1/vocab.txt"]},
        "inputs": {"IN": {"dtype": "int64", "shape": ["batch", "IN_0"], "range": [0, 1]}},
        "outputs": {"OUT": {"dtype": "float32", "shape": ["batch", 4]}},
        "dims": {"batch": {"min": 1, "max": 4}, "IN_0": {"min": 1, "max": 16}},
        "triton": {
            "max_batch_size": 4,
            "instance_group": [{"kind": "KIND_CPU", "count": 1}],
            "parameters": {"threshold": "0.5"},
        },
    }
    assert "imports torch, which is not in requirements" in text
    assert (
        "    source:\n      kind: ensemble\n      steps:\n      - {model: p, inputs: {IN: A}, outputs: {OUT: t}}\n"
        in text
    )
    assert models["e"]["source"]["steps"][1] == {
        "model": "m",
        "version": 1,
        "inputs": {"x": "t"},
        "outputs": {"y": "B"},
    }


def test_packed_packages(repository: Path) -> None:
    """The source is the user's file, not the generated model.py; the packages are listed as not expressed."""
    (repository / "p" / "1" / "packed_model.py").write_text("import numpy, torch\n")
    (repository / "p" / "1" / "packages").mkdir()
    text, models = spec_of(repository)
    assert models["p"]["source"] == {
        "kind": "python",
        "path": "../repo/p/1/packed_model.py",
        "data": ["model_files/p/1/vocab.txt"],
    }
    assert "the directory packages/ next to model.py" in text


def test_requirements(repository: Path) -> None:
    """They are not data, whose copy would have a name that repogen uses; a package need not be installed here."""
    version = repository / "p" / "1"
    (version / "model.py").write_text("import numpy, no_such_package, torch\n")
    (version / "requirements.txt").write_text("# Ours.\nno-such-package==1.2  # pinned\ntorch>=2\n-r more.txt\n")
    text, models = spec_of(repository / "p")
    assert models["p"]["source"] == {
        "kind": "python",
        "path": "../repo/p/1/model.py",
        "data": ["model_files/p/1/vocab.txt"],
        "requirements": ["no-such-package==1.2"],
    }
    assert "CHECK: requirements must be NAME==VERSION; these lines of requirements.txt are not: torch>=2, -r m" in text
    assert "imports torch, which is not in requirements" in text


def test_files_of_a_build_are_not_data(repository: Path) -> None:
    """Next to a manifest, the files with repogen's names are its own; elsewhere, they are the user's."""
    version = repository / "p" / "1"
    (version / "golden.npz").touch()
    assert describe(str(repository / "p"), repository.parent).models[0].source["data"] == [
        "repo/p/1/golden.npz",
        "repo/p/1/vocab.txt",
    ]
    for name in ("manifest.json", "config.pbtxt", "attestation.json", "sbom.cdx.json", "model.sig", "golden.json"):
        (version / name).touch()
    assert spec_of(repository / "p")[1]["p"]["source"]["data"] == ["model_files/p/1/vocab.txt"]


def test_sizes_of_a_warmup(repository: Path) -> None:
    """The dims of a warmup's request that are dynamic in the model; without them, the spec cannot be built."""
    request = 'inputs { key: "IN" value { data_type: TYPE_INT64 dims: 7 zero_data: true } }'
    warmup = f'model_warmup {{ name: "w" batch_size: 1 count: 1 {request} }}'
    (repository / "p" / "config.pbtxt").write_text(PYTHON + warmup)
    text, models = spec_of(repository / "p")
    assert models["p"]["triton"]["model_warmup"] == [
        {"name": "w", "batch_size": 1, "data": "zero", "count": 1, "sizes": {"IN_0": 7}}
    ]
    assert "Different from config.pbtxt" not in text


def test_only_guesses_are_to_be_checked(repository: Path) -> None:
    """Bounds of dynamic dims, and values of integers; packages and models with the same problem share a line."""
    (repository / "p" / "1" / "model.py").write_text("import numpy, torch, transformers\n")
    for name in ("t1", "t2"):
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text('platform: "tensorrt_plan"\n')
        (repository / name / "1" / "model.plan").write_text("")
    text, _ = spec_of(repository)
    assert "# CHECK the bounds of IN_0: config.pbtxt does not specify them.\n" in text
    assert "# CHECK the range of IN: config.pbtxt does not specify it.\n" in text
    assert "imports torch and transformers, which are not in requirements: they must be installed" in text
    assert "t1, t2: platform tensorrt_plan is not supported" in describe(str(repository), repository.parent).omitted
    config = PYTHON.replace("TYPE_INT64 dims: [ -1 ]", "TYPE_FP32 dims: [ 3 ]")
    (repository / "p" / "config.pbtxt").write_text(config)
    assert "CHECK the" not in spec_of(repository / "p")[0]


def test_model_of_a_repository(repository: Path) -> None:
    """An ensemble comes with the models of its steps; another model alone."""
    assert list(spec_of(repository / "e")[1]) == ["e", "p", "m"]
    assert list(spec_of(repository / "m")[1]) == ["m"]
    assert describe(str(repository / "e"), repository.parent).adopt == ("e", "p", "m")


@pytest.mark.parametrize(
    ("config", "section"),
    [
        ("dynamic_batching { preferred_batch_size: 4 max_queue_delay_microseconds: 9 }",
         {"dynamic_batching": {"preferred_batch_size": [4], "max_queue_delay_microseconds": 9}}),
        ("dynamic_batching { }", {"dynamic_batching": {}}),
        ("version_policy { specific { versions: [ 1, 3 ] } }", {"version_policy": {"specific": [1, 3]}}),
        ("version_policy { all { } }", {"version_policy": {"all": True}}),
        ("response_cache { enable: false }", {"response_cache": {"enable": False}}),
        ("optimization { graph { level: 1 } input_pinned_memory { } }",
         {"optimization": {"graph": {"level": 1}, "input_pinned_memory": {"enable": False}}}),
        (f"optimization {{ execution_accelerators {{ gpu_execution_accelerator {{ {TENSORRT} }} }} }}",
         {"optimization": {"execution_accelerators": {"gpu_execution_accelerator": [
             {"name": "tensorrt", "parameters": {"precision_mode": "FP16"}}]}}}),
        ("sequence_batching { max_sequence_idle_microseconds: 7 oldest { max_candidate_sequences: 4 } }",
         {"sequence_batching": {"max_sequence_idle_microseconds": 7, "oldest": {"max_candidate_sequences": 4}}}),
        ('metric_tags { key: "team" value: "search" }', {"metric_tags": {"team": "search"}}),
        (('parameters { key: "1e3" value { string_value: "\\342\\200\\250" } } '
         'parameters { key: "01:20" value { string_value: "\\342\\200\\256x\\302\\205" } }'),
         {"parameters": {"01:20": "\u202ex\x85", "1e3": "\u2028"}}),
        ("model_transaction_policy { }", {"extra": "model_transaction_policy {\n}\n"}),
        ("instance_group { kind: KIND_GPU gpus: 1 }",
         {"instance_group": [{"kind": "KIND_CPU", "count": 1}, {"kind": "KIND_GPU", "gpus": [1], "count": "auto"}]}),
        (f'model_warmup {{ name: "w" batch_size: 2 count: 3 inputs {{ {ZEROS} }} }}',
         {"model_warmup": [{"name": "w", "batch_size": 2, "data": "zero", "count": 3}]}),
    ],
)  # fmt: skip
def test_sections(repository: Path, config: str, section: dict[str, object]) -> None:
    """Each section of a config has its key in the spec; others go into `extra`."""
    (repository / "m" / "config.pbtxt").write_text(f"{CONFIG}{GROUP}{config}\n")
    text, models = spec_of(repository / "m")
    assert "Different from config.pbtxt" not in text
    assert section.items() <= models["m"]["triton"].items()


def test_controls_of_a_sequence(repository: Path) -> None:
    """CONTROL_SEQUENCE_START is protobuf's default; the inputs that Triton fills are not declared."""
    floats = {name: graphs.value(name, ["N", 1]) for name in ("START", "READY")}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Sum", ["p", *floats], ["y"])]
    inputs = [graphs.value("x", ["N", 4]), *floats.values()]
    model = graphs.model(nodes, inputs, [graphs.value("y", ["N", 3])], w=graphs.WEIGHT)
    onnx.save_model(model, repository / "m" / "1" / "model.onnx")
    controls = "".join(
        f'control_input {{ name: "{name}" control {{ kind: CONTROL_SEQUENCE_{name} fp32_false_true: [ 0, 1 ] }} }}'
        for name in floats
    )
    config = f"{CONFIG}{GROUP}sequence_batching {{ direct {{ }} {controls} }}\n"
    (repository / "m" / "config.pbtxt").write_text(config)
    text, models = spec_of(repository / "m")
    assert "Different from config.pbtxt" not in text
    kinds = [entry["control"][0]["kind"] for entry in models["m"]["triton"]["sequence_batching"]["control_input"]]
    assert kinds == ["CONTROL_SEQUENCE_START", "CONTROL_SEQUENCE_READY"]


def test_labels_and_reshape(repository: Path) -> None:
    """A label file is used from where it is; dims for clients stay."""
    (repository / "m" / "labels.txt").write_text("a\nb\nc\n")
    config = CONFIG.replace("dims: [ 3 ]", 'dims: [ 3, 1 ] reshape { shape: [ 3 ] } label_filename: "labels.txt"')
    (repository / "m" / "config.pbtxt").write_text(config + GROUP)
    text, models = spec_of(repository / "m")
    assert "Different from config.pbtxt" not in text
    assert models["m"]["triton"]["output"] == {"y": {"label_filename": "model_files/m/labels.txt", "dims": [3, 1]}}


@pytest.mark.parametrize(
    ("before", "after", "note"),
    [
        ("dims: [ 3 ]", "dims: [ -1 ]", "output[0].dims: config.pbtxt has [-1], the spec writes [3]"),
        ('name: "y"', 'name: "z"', "output[0].name: config.pbtxt has 'z', the spec writes 'y'"),
        (GROUP, f'{GROUP}model_warmup {{ name: "w" inputs {{ {FILE} }} }}', "model_warmup: config.pbtxt has "),
        (GROUP, f'{GROUP}cc_model_filenames {{ key: "8.0" value: "m.onnx" }}', "cc_model_filenames is not in the spec"),
        (GROUP, f'{GROUP}model_operations {{ op_library_filename: "/ops.so" }}', "model_operations is not in the spec"),
    ],
)  # fmt: skip
def test_what_cannot_be_expressed(repository: Path, before: str, after: str, note: str) -> None:
    """The difference is a comment; the spec is valid."""
    (repository / "m" / "config.pbtxt").write_text((CONFIG + GROUP).replace(before, after))
    text, _ = spec_of(repository / "m")
    assert "# Different from config.pbtxt:" in text
    assert note in text


@pytest.mark.parametrize(
    ("before", "after", "expected", "note"),
    [
        (
            GROUP,
            'instance_group [ { name: "g" count: 1 kind: KIND_CPU }, { name: "g" count: 2 kind: KIND_CPU } ]\n',
            {"instance_group": [{"kind": "KIND_CPU", "name": "g", "count": 1}, {"kind": "KIND_CPU", "count": 2}]},
            "instance_group.1.name: several instance groups are named 'g'",
        ),
        (
            "max_batch_size: 8",
            "max_batch_size: 0\ndynamic_batching { }",
            {"max_batch_size": 0},
            "dynamic_batching: ",
        ),
        (
            GROUP,
            f'{GROUP}parameters {{ key: "intra_op_thread_count" value {{ string_value: "many" }} }}',
            {},
            "parameters.intra_op_thread_count: ",
        ),
    ],
)
def test_what_a_build_rejects_is_left_out(
    repository: Path, before: str, after: str, expected: dict[str, object], note: str
) -> None:
    """Triton loads such a config and ignores the setting, or does not load it; the spec can be built as it is."""
    (repository / "m" / "config.pbtxt").write_text((CONFIG + GROUP).replace(before, after))
    text, models = spec_of(repository / "m")
    assert f"# - {note}" in text
    assert expected.items() <= models["m"]["triton"].items()
    assert "dynamic_batching" not in models["m"]["triton"]
    assert not models["m"]["triton"].get("parameters")


def test_instances_that_triton_chooses(repository: Path) -> None:
    """Without an instance_group, or with one without a count, Triton still chooses the device and the number."""
    for group, expected in (
        ("", {"kind": "KIND_AUTO", "count": "auto"}),
        ("instance_group { kind: KIND_CPU }", {"kind": "KIND_CPU", "count": "auto"}),
        ("instance_group { count: -1 }", {"kind": "KIND_AUTO", "count": "auto"}),
    ):
        for name, config in (("m", CONFIG + group), ("p", PYTHON.replace(GROUP, group))):
            (repository / name / "config.pbtxt").write_text(config)
            text, models = spec_of(repository / name)
            assert models[name]["triton"]["instance_group"] == [expected]
            assert "Different from config.pbtxt" not in text


def test_ensemble_of_two_versions_is_omitted(repository: Path) -> None:
    """A spec has one version of each model in a step."""
    config = repository / "e" / "config.pbtxt"
    step = 'step { model_name: "m" model_version: 2 input_map { key: "x" value: "t" } }'
    config.write_text(ENSEMBLE.replace("ensemble_scheduling {", f"ensemble_scheduling {{ {step}"))
    text, models = spec_of(repository)
    assert (list(models), "e: it uses two versions of m" in text) == (["m", "p"], True)


def test_decoupled_models_are_omitted(repository: Path) -> None:
    """Only one response per request can be compared; ensembles of the model are omitted as well."""
    (repository / "p" / "config.pbtxt").write_text(PYTHON + "model_transaction_policy { decoupled: true }\n")
    description = describe(str(repository), repository.parent / "spec")
    assert [model.name for model in description.models] == ["m"]
    assert "p: it is decoupled, and repogen does not build models that return several responses" in description.omitted


def test_unsupported_models(repository: Path) -> None:
    """They are named with the reason; the others are described."""
    other_file = 'backend: "onnxruntime" default_model_filename: "/etc/passwd"'
    for name, config in (("trt", 'backend: "tensorrt"'), ("broken", "what"), ("a b", ""), ("o", other_file)):
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "1" / "model.plan").touch()
        (repository / name / "config.pbtxt").write_text(config)
    (repository / "m" / "1" / "model.onnx").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    description = describe(str(repository), repository.parent / "spec")
    assert [model.name for model in description.models] == ["p"]
    reasons = dict(line.split(": ", 1) for line in description.omitted)
    assert reasons["trt"] == "backend tensorrt is not supported"
    assert reasons["o"] == "'/etc/passwd' is not an .onnx file in the directory of the served version"
    assert "Git LFS pointer" in reasons["m"]
    assert "cannot be the name of a model" in reasons["a b"]
    assert reasons["e"] == "its step m cannot be described"
    assert set(reasons) == {"trt", "broken", "a b", "m", "e", "o"}
    with pytest.raises(SpecError, match="no model that a spec can describe: trt: backend tensorrt is not supported"):
        describe(str(repository / "trt"), repository.parent / "spec")


@pytest.mark.parametrize(
    ("before", "after", "missing"),
    [
        ("TYPE_INT64", "TYPE_STRING", "add examples: to p"),
        (PYTHON[PYTHON.index("input") : PYTHON.index("output")], "", "declare inputs: and outputs: of p"),
    ],
)
def test_what_only_the_user_knows(repository: Path, before: str, after: str, missing: str) -> None:
    """It is not guessed: the command says what to add."""
    (repository / "p" / "config.pbtxt").write_text(PYTHON.replace(before, after))
    description = describe(str(repository / "p"), repository.parent / "spec")
    assert description.missing.startswith(missing)


def test_spec_inside_of_the_repository(repository: Path) -> None:
    """Triton would take the directories next to it for models."""
    with pytest.raises(SpecError, match="contains the spec"):
        describe(str(repository), repository)


@pytest.mark.parametrize("step", ["..", "../outside"])
def test_step_outside_of_the_repository_is_not_read(repository: Path, step: str) -> None:
    """The ensemble is omitted, as with a step that does not exist."""
    add_model(repository.parent, "outside", CONFIG)
    config = repository / "e" / "config.pbtxt"
    config.write_text(config.read_text().replace('model_name: "m"', f'model_name: "{step}"'))
    description = describe(str(repository), repository.parent / "spec")
    assert [model.name for model in description.models] == ["m", "p"]
    assert f"{step}: it is not in the repository" in description.omitted


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "cannot be read"), (b"# " + b"x" * 2**20, "is larger than 1 MiB"), (b'name: "\xff"', "is not UTF-8")],
    ids=["fifo", "large", "latin-1"],
)
def test_config_that_is_not_a_config(repository: Path, content: bytes | None, reason: str) -> None:
    """It is read as every command reads it: without waiting for a writer, and up to a size."""
    file = repository / "m" / "config.pbtxt"
    file.unlink()
    if content is None:
        os.mkfifo(file)
    else:
        file.write_bytes(content)
    omitted = describe(str(repository), repository.parent).omitted
    assert [line for line in omitted if line.startswith("m: ") and reason in line] != []


def name_labels(repository: Path) -> None:
    """Name class names in the config of a model."""
    config = PYTHON.replace('{ name: "OUT"', '{ name: "OUT" label_filename: "labels.txt"')
    (repository / "p" / "config.pbtxt").write_text(config)
    (repository / "p" / "labels.txt").write_text("a\nb\n")


def link_to_secret(repository: Path, secret: Path) -> None:
    """Link a data file to another file."""
    (repository / "p" / "1" / "vocab2.txt").symlink_to(secret)


def link_to_code(repository: Path, secret: Path) -> None:
    """Link the code to another file."""
    (repository / "p" / "1" / "model.py").unlink()
    (repository / "p" / "1" / "model.py").symlink_to(secret)


def name_secret(repository: Path, secret: Path) -> None:
    """Name another file as the class names of an output."""
    label = os.path.relpath(secret, repository / "p")
    config = PYTHON.replace('{ name: "OUT"', f'{{ name: "OUT" label_filename: "{label}"')
    (repository / "p" / "config.pbtxt").write_text(config)


def name_nul(repository: Path, secret: Path) -> None:
    """Name a file whose name is not possible."""
    assert secret.exists()
    config = PYTHON.replace('{ name: "OUT"', '{ name: "OUT" label_filename: "a\\000b"')
    (repository / "p" / "config.pbtxt").write_text(config)


def name_link_to_parent(repository: Path, secret: Path) -> None:
    """Name a file in the model's directory whose name leads out of it without the link."""
    (repository / "p" / "a" / "b").mkdir(parents=True)
    (repository / "p" / "link").symlink_to("a/b")
    (repository / "p" / "secret").write_bytes(secret.read_bytes())
    config = PYTHON.replace('{ name: "OUT"', '{ name: "OUT" label_filename: "link/../../secret"')
    (repository / "p" / "config.pbtxt").write_text(config)


def warm_up_with_secret(repository: Path, secret: Path) -> None:
    """Name another file as the data of a warmup input."""
    name = os.path.relpath(secret, repository / "p" / "warmup")
    (repository / "p" / "warmup").mkdir()
    sample = f'data_type: TYPE_INT64 dims: [ 1 ] input_data_file: "{name}"'
    warmup = f'model_warmup {{ name: "w" inputs {{ key: "IN" value {{ {sample} }} }} }}\n'
    (repository / "p" / "config.pbtxt").write_text(PYTHON + warmup)


@pytest.mark.parametrize(
    "plant", [link_to_secret, link_to_code, name_secret, name_nul, name_link_to_parent, warm_up_with_secret]
)
def test_files_outside_of_the_model_are_not_copied(
    repository: Path, tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    """Neither is read, nor written to the same place relative to the spec; a build would publish it."""
    secret = tmp_path / "secret"
    secret.write_text("import secret\n")
    plant(repository, secret)
    directory = tmp_path / "a" / "b" / "c"
    description = describe(str(repository), directory)
    assert [model.name for model in description.models] == ["m"]
    assert "is not in the model's directory, or is a link out of it" in description.omitted[0]
    scaffold_from(description, directory, force=False)
    assert [path.name for path in (tmp_path / "a").rglob("*") if path.is_file()] == ["repogen.yaml"]


@pytest.mark.parametrize("replaced", ["p/labels.txt", "p/1/vocab.txt", "p/1", "p"])
def test_link_that_replaces_a_file_before_it_is_copied(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: str
) -> None:
    """Another user who can write to the repository does not get a copy of a private file."""
    name_labels(repository)
    secret = tmp_path / "secret"
    shutil.copytree(repository, secret)
    opened = repository / ("p/labels.txt" if replaced == "p" else "p/1/vocab.txt" if replaced == "p/1" else replaced)
    directory = tmp_path / "a" / "b"
    description = describe(str(repository), directory)
    swap_when_opened(monkeypatch, opened, repository / replaced, secret / replaced)
    with pytest.raises(SpecError, match="leads out of"):
        scaffold_from(description, directory, force=False)
    assert [path for path in directory.rglob("*") if path.is_file()] == []


def test_link_that_replaces_a_model_before_its_config_is_read(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its config.pbtxt could otherwise name the files of another directory."""
    name_labels(repository)
    shutil.copytree(repository / "p", tmp_path / "secret")
    swap_when_opened(monkeypatch, repository / "p", repository / "p", tmp_path / "secret")
    assert any(line.startswith("p: ") for line in describe(str(repository), tmp_path / "a" / "b").omitted)


@pytest.mark.parametrize("force", [True, False])
def test_copies_are_in_a_directory_of_their_own(repository: Path, tmp_path: Path, *, force: bool) -> None:
    """The author of a repository chooses the names of models and label files, such as ``scripts/deploy.sh``."""
    (repository / "p").rename(repository / "scripts")
    config = PYTHON.replace('"p"', '"scripts"').replace('{ name: "OUT"', '{ name: "OUT" label_filename: "deploy.sh"')
    (repository / "scripts" / "config.pbtxt").write_text(config)
    (repository / "scripts" / "deploy.sh").write_text("theirs")
    directory = tmp_path / "project"
    (directory / "scripts").mkdir(parents=True)
    (directory / "scripts" / "deploy.sh").write_text("mine")
    scaffold_from(describe(str(repository / "scripts"), directory), directory, force=force)
    assert [path.name for path in (directory / "scripts").rglob("*")] == ["deploy.sh"]
    assert (directory / "scripts" / "deploy.sh").read_text() == "mine"
    assert (directory / "model_files" / "scripts" / "deploy.sh").read_text() == "theirs"


@pytest.mark.parametrize("name", [".git/config", ".git", "sub/.git", "HEAD", "sub/head", ".envrc", "a/.hg/hgrc"])
def test_files_of_git_are_not_copied(repository: Path, tmp_path: Path, name: str) -> None:
    """Git runs commands that the config of a repository names, if the repository belongs to the user."""
    config = PYTHON.replace('{ name: "OUT"', f'{{ name: "OUT" label_filename: "{name}"')
    (repository / "p" / "config.pbtxt").write_text(config)
    (repository / "p" / name).parent.mkdir(parents=True, exist_ok=True)
    (repository / "p" / name).write_text("theirs")
    description = describe(str(repository), tmp_path / "project")
    assert [model.name for model in description.models] == ["m"]
    assert "and would be copied next to the spec" in description.omitted[0]


@pytest.mark.parametrize("name", ["HEAD", ".git"])
def test_data_with_names_of_git_is_not_copied(repository: Path, tmp_path: Path, name: str) -> None:
    """Files next to model.py are copied as well."""
    (repository / "p" / "1" / name).write_text("gitdir: /theirs")
    description = describe(str(repository), tmp_path / "project")
    assert f"p/1/{name} has a name that Git uses, and would be copied" in description.omitted[0]


def test_model_that_is_a_link_is_copied(repository: Path, tmp_path: Path) -> None:
    """Its name is that of the link."""
    name_labels(repository)
    (repository / "p").rename(tmp_path / "elsewhere")
    (repository / "p").symlink_to(tmp_path / "elsewhere")
    directory = tmp_path / "a" / "b"
    scaffold_from(describe(str(repository), directory), directory, force=False)
    assert (directory / "model_files" / "p" / "labels.txt").read_text() == "a\nb\n"


def test_config_that_is_a_link_out_of_the_model_is_not_read(repository: Path, tmp_path: Path) -> None:
    """The spec would contain values of a private config."""
    config = repository / "p" / "config.pbtxt"
    config.rename(tmp_path / "private")
    config.symlink_to(tmp_path / "private")
    description = describe(str(repository), tmp_path)
    assert any("leads out of" in line for line in description.omitted)
    assert "p" not in {model.name for model in description.models}


def test_file_behind_a_link_of_another_user(tmp_path: Path) -> None:
    """The spec would have the names and shapes of a private graph."""
    onnx.save_model(graphs.matmul(), tmp_path / "private.onnx")
    (tmp_path / "m.onnx").symlink_to("private.onnx")
    os.chown(tmp_path / "m.onnx", 65534, 65534, follow_symlinks=False)
    with pytest.raises(SpecError) as caught:
        describe(str(tmp_path / "m.onnx"), tmp_path)
    assert caught.value.code == "foreign-link"


@pytest.mark.parametrize("link", ["p", "p/1", "m/1/model.onnx"])
def test_model_behind_a_link_of_another_user_is_omitted(repository: Path, tmp_path: Path, link: str) -> None:
    """Its files could be private."""
    name_labels(repository)
    (repository / link).rename(tmp_path / "private")
    (repository / link).symlink_to(tmp_path / "private")
    os.chown(repository / link, 65534, 65534, follow_symlinks=False)
    omitted = describe(str(repository), tmp_path / "a" / "b").omitted
    assert any("is a symlink of another user" in line for line in omitted)


def test_large_files_are_not_copied(repository: Path, tmp_path: Path) -> None:
    """The files of a model can have any size; nothing is written."""
    for number in range(3):
        with (repository / "p" / "1" / f"{number}.bin").open("wb") as stream:
            stream.truncate(2**30)
    with pytest.raises(SpecError, match="the limit is 2147483648"):
        scaffold_from(describe(str(repository), tmp_path / "spec"), tmp_path / "spec", force=False)
    assert not (tmp_path / "spec").exists()
    content = bytes(range(256)) * 10_000
    for number in range(3):
        (repository / "p" / "1" / f"{number}.bin").write_bytes(content)
    scaffold_from(describe(str(repository), tmp_path / "spec"), tmp_path / "spec", force=False)
    assert (tmp_path / "spec" / "model_files" / "p" / "1" / "0.bin").read_bytes() == content


@pytest.mark.parametrize("code", ["-" * 200_000 + "1", "a." * 200_000 + "a", "x = 1\n" * 500_000, "\0"])
def test_code_that_cannot_be_parsed(repository: Path, code: str) -> None:
    """Code that Python cannot parse, or that is larger than 2 MB, is described without its imports."""
    (repository / "p" / "1" / "model.py").write_text(code)
    assert "CHECK: the code cannot be parsed: " in spec_of(repository / "p")[0]


def test_syntax_error_has_the_name_of_the_file(repository: Path) -> None:
    """And not `<unknown>`, as `ast.parse` without a name."""
    (repository / "p" / "1" / "model.py").write_text("x = = 1")
    note = "CHECK: the code cannot be parsed: invalid syntax (model.py, line 1)"
    assert note in spec_of(repository / "p")[0]


@pytest.mark.parametrize(
    ("code", "note"),
    [
        (
            "def f(self):\n    return pb_utils.InferenceRequest(model_name='m').async_exec()\n",
            "calls other models (BLS)",
        ),
        ("def f(self, request):\n    request.get_response_sender()\n", "sends decoupled responses"),
    ],
)
def test_code_that_a_build_rejects(repository: Path, code: str, note: str) -> None:
    """It is named before the build."""
    (repository / "p" / "1" / "model.py").write_text(code)
    assert f"CHECK: the code {note}, which a build rejects" in spec_of(repository / "p")[0]


def test_failed_write_removes_the_new_files(repository: Path, tmp_path: Path) -> None:
    """A file that cannot be written, here because of a file in place of its directory."""
    directory = tmp_path / "spec"
    directory.mkdir()
    (directory / "model_files").write_text("mine")
    with pytest.raises(SpecError, match="cannot write"):
        scaffold_from(describe(str(repository), directory), directory, force=False)
    assert [path.name for path in directory.iterdir()] == ["model_files"]


@pytest.mark.parametrize("name", ["__init__.py", "native.cpython-311-x86_64-linux-gnu.so", "start.pth"])
def test_code_is_not_copied_next_to_the_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A model could have the name of a package, which the user's code would then import from the copy."""
    monkeypatch.chdir(tmp_path)
    config = CONFIG.replace("dims: [ 3 ]", f'dims: [ 3 ] label_filename: "{name}"')
    (add_model(tmp_path / "repo", "timm", config) / name).touch()
    add_model(tmp_path / "repo", "m", CONFIG)
    description = describe("repo", tmp_path / "spec")
    assert [model.name for model in description.models] == ["m"]
    assert f"timm/{name} has the name of a Python file" in description.omitted[0]
    scaffold_from(description, tmp_path / "spec", force=False)
    assert not (tmp_path / "spec" / "timm").exists()


class CountedInputs(tuple[TensorSpec, ...]):
    """Inputs that count how often they are read."""

    __slots__ = ()
    reads: ClassVar[list[int]] = []

    def __iter__(self) -> Iterator[TensorSpec]:
        """Count."""
        self.reads.append(1)
        return super().__iter__()


def test_warmups_of_a_graph_with_many_inputs() -> None:
    """16,000 empty warmups, each compared with the 100,000 inputs of a graph, took hours."""
    inputs = CountedInputs([TensorSpec("x", "float32", ("batch", "length")), TensorSpec("y", "float32", (4,))])
    value = 'inputs { key: "x" value { data_type: TYPE_FP32 dims: [ 2, 5 ] zero_data: true } }'
    config = parse(
        'name: "m"' + 'model_warmup { name: "w" }' * 100 + f'model_warmup {{ name: "w" batch_size: 1 {value} }}', "c"
    )
    CountedInputs.reads.clear()
    _, spec, _ = triton_section(config, "m", Signature(inputs, ()))
    assert len(CountedInputs.reads) < 10
    assert [warmup.sizes for warmup in spec.model_warmup[-1:]] == [{"batch": 2, "length": 5}]


def test_states_that_link_to_one_file_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand links to a file of 16 MB needed 16 GB."""
    monkeypatch.setattr(scaffold_repository, "MAX_TEXT_BYTES", 100)
    (tmp_path / "initial_state").mkdir()
    (tmp_path / "initial_state" / "f").write_bytes(bytes(60))
    for name in ("a", "b"):
        (tmp_path / "initial_state" / name).symlink_to("f")
    existing = scaffold_repository._Existing(tmp_path, empty_config(), True, tmp_path, tmp_path)  # noqa: FBT003, SLF001 - as below
    files = scaffold_repository._state_files(existing, {"m/a": "a", "m/b": "b"})  # noqa: SLF001 - of a whole model, many other limits apply
    assert next(files)[0] == "m/a"
    with pytest.raises(OSError, match="larger than 40 bytes"):
        next(files)

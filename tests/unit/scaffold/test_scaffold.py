"""``repogen init``: for an example model, for an existing model, and the GitHub workflow."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
import yaml
from pydantic import ValidationError

from repogen.errors import SpecError
from repogen.scaffold import model_files
from repogen.scaffold.describe import describe, describe_model
from repogen.scaffold.files import scaffold, scaffold_from
from repogen.scaffold.pipelines import NO_PIPELINES, Pipelines
from repogen.spec.load import load_spec
from repogen.targets import newest_target
from repogen.version import __version__
from tests.support import graphs
from tests.support.swapping import swap_when_opened


def test_workflow_is_written_to_the_repository_root(tmp_path: Path) -> None:
    """GitHub reads workflows only there; the path of the spec is relative to it."""
    (tmp_path / ".git").mkdir()
    directory = tmp_path / 'it\'s: a "model"'
    written = [
        path.resolve().relative_to(tmp_path).as_posix() for path in scaffold(directory, force=False, github=True)
    ]
    assert written == [
        *(f"{directory.name}/{name}" for name in ("models.py", "repogen.yaml")),
        *(".github/workflows/repogen.yml", f"{directory.name}/.gitignore"),
    ]
    job = _workflow(tmp_path)["jobs"]["models"]
    assert job["uses"] == f"triton-repogen/repogen/.github/workflows/repogen.yml@v{__version__}"
    assert job["with"]["spec"] == f"{directory.name}/repogen.yaml"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, b"build/\nmlflow.db\nmlartifacts/\n"),
        (b"", b"build/\nmlflow.db\nmlartifacts/\n"),
        (b"*.pyc\n# build\n", b"*.pyc\n# build\nbuild/\nmlflow.db\nmlartifacts/\n"),
        (b"*.pyc", b"*.pyc\nbuild/\nmlflow.db\nmlartifacts/\n"),
        (b"\xff\r\n", b"\xff\r\nbuild/\r\nmlflow.db\r\nmlartifacts/\r\n"),
        (b"/build\n", b"/build\nmlflow.db\nmlartifacts/\n"),
        (b"mlartifacts\nbuild/", b"mlartifacts\nbuild/\nmlflow.db\n"),
        (b"/build\n/mlflow.db\n/mlartifacts/\n", b"/build\n/mlflow.db\n/mlartifacts/\n"),
    ],
)
def test_outputs_are_ignored_in_a_git_repository(before: bytes | None, after: bytes, tmp_path: Path) -> None:
    """The other lines stay as they are, and only what no pattern covers is added."""
    (tmp_path / ".git").mkdir()
    file = tmp_path / "project" / ".gitignore"
    file.parent.mkdir()
    if before is not None:
        file.write_bytes(before)
    written = scaffold(file.parent, force=False)
    assert file.read_bytes() == after
    assert (file in written) == (before != after)
    assert file not in scaffold(file.parent, force=True)


def test_only_reports_are_ignored_without_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds are then not tracked."""
    monkeypatch.setattr("repogen.scaffold.files.can_track", lambda: False)
    (tmp_path / ".git").mkdir()
    scaffold(tmp_path, force=False)
    assert (tmp_path / ".gitignore").read_bytes() == b"build/\n"


def test_files_that_are_not_changed_to_ignore_outputs(tmp_path: Path) -> None:
    """Outside of git; with a pattern in a directory above; and behind a link, which git does not follow."""
    outside, inside = tmp_path / "outside", tmp_path / "git" / "project"
    scaffold(outside, force=False)
    (tmp_path / "git" / ".git").mkdir(parents=True)
    (tmp_path / "git" / ".gitignore").write_text("build/\nmlflow.db\nmlartifacts/\n")
    scaffold(inside, force=False)
    assert not any((path / ".gitignore").exists() for path in (outside, inside))
    (tmp_path / "profile").touch()
    (outside / ".gitignore").symlink_to(tmp_path / "profile")
    scaffold(outside, force=True)
    assert (tmp_path / "profile").read_bytes() == b""


def test_git_repository_of_another_user_above_is_not_used(tmp_path: Path) -> None:
    """Another user can create .git in a directory such as /tmp."""
    (tmp_path / ".git").mkdir()
    os.chown(tmp_path / ".git", 65534, 65534)
    project = tmp_path / "project"
    scaffold(project, force=False, github=True)
    assert (project / ".github").is_dir()
    assert not (tmp_path / ".github").exists()


def test_existing_spec_is_kept(tmp_path: Path) -> None:
    """With an existing spec only the workflow is written; `force` applies to the workflow."""
    (tmp_path / "repogen.yaml").write_text("mine", encoding="utf-8")
    (tmp_path / "models.py").write_text("mine", encoding="utf-8")
    for force in (False, True):
        written = scaffold(tmp_path, force=force, github=True)
        assert [path.name for path in written] == ["repogen.yml"]
    assert (tmp_path / "repogen.yaml").read_text(encoding="utf-8") == "mine"
    assert (tmp_path / "models.py").read_text(encoding="utf-8") == "mine"


def test_existing_workflow_is_not_overwritten(tmp_path: Path) -> None:
    """Without force nothing is written; with force, everything."""
    workflow = tmp_path / ".github" / "workflows" / "repogen.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text("mine", encoding="utf-8")
    with pytest.raises(SpecError, match=r"already exists: .*workflows/repogen\.yml; nothing was written"):
        scaffold(tmp_path, force=False, github=True)
    assert workflow.read_text(encoding="utf-8") == "mine"
    assert not (tmp_path / "repogen.yaml").exists()
    scaffold(tmp_path, force=True, github=True)
    assert _workflow(tmp_path)["name"] == "models"


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("with_spec", [False, True])
def test_code_is_never_overwritten(here: Path, *, force: bool, with_spec: bool) -> None:
    """The user's models.py stays, also with force; the hint is the command for the user's own model."""
    code = "class Net: ...\ndef build(): return Net()\n"
    (here / "models.py").write_text(code, encoding="utf-8")
    if with_spec:
        (here / "repogen.yaml").write_text("mine", encoding="utf-8")
    with pytest.raises(SpecError, match=r"models\.py, which `repogen init` never overwrites") as caught:
        scaffold(Path(), force=force)
    assert "repogen init --from models.py:NAME`, where NAME is Net or build" in caught.value.hint
    assert "--force" not in caught.value.hint
    assert (here / "models.py").read_text(encoding="utf-8") == code
    assert (here / "repogen.yaml").exists() == with_spec


def test_force_writes_the_spec_again_beside_the_example(here: Path) -> None:
    """The example's own models.py is not in the way."""
    scaffold(here, force=False)
    (here / "repogen.yaml").write_text("mine", encoding="utf-8")
    assert [path.name for path in scaffold(here, force=True)] == ["repogen.yaml"]


def test_spec_that_is_overwritten_keeps_its_mode(here: Path) -> None:
    """A spec that only its owner may read is not made readable for others."""
    scaffold(here, force=False)
    (here / "repogen.yaml").chmod(0o600)
    scaffold(here, force=True)
    assert (here / "repogen.yaml").stat().st_mode & 0o777 == 0o600


def test_failed_write_loses_nothing(here: Path) -> None:
    """If a file cannot be written, the files that would be overwritten stay, and new ones are removed."""
    scaffold(here, force=False)
    (here / "repogen.yaml").write_text("mine", encoding="utf-8")
    (here / "models.py").unlink()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2500, limits[1]))  # models.py is smaller, the spec is larger
    try:
        with pytest.raises(SpecError, match="cannot write the files: File too large") as caught:
            scaffold(here, force=True, kubernetes=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.code == "init.unwritable"
    assert (here / "repogen.yaml").read_text(encoding="utf-8") == "mine"
    assert [path.name for path in here.rglob("*") if path.is_file()] == ["repogen.yaml"]


@pytest.mark.parametrize("link", [".github", "project/kubernetes", "project/repogen.yaml"])
def test_nothing_is_written_through_links(tmp_path: Path, link: str) -> None:
    """Another user could have planted one that leads to a directory of keys, for example."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "elsewhere").mkdir()
    directory = tmp_path / "project"
    directory.mkdir()
    (tmp_path / link).symlink_to(tmp_path / "elsewhere" / ("file" if link.endswith(".yaml") else ""))
    with pytest.raises(SpecError, match="is a link") as caught:
        scaffold(directory, force=True, github=True, kubernetes=True)
    assert caught.value.code == "init.exists"
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_workflow_passes_actionlint(tmp_path: Path) -> None:
    """The generated workflow passes the same check as the project's workflows."""
    (tmp_path / ".git").mkdir()
    (workflow,) = (path for path in scaffold(tmp_path, force=False, github=True) if path.suffix == ".yml")
    command = [str(Path(sys.executable).parent / "actionlint"), str(workflow.resolve())]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (run.returncode, run.stdout) == (0, "")


def test_workflow_is_optional(tmp_path: Path) -> None:
    """Without `github`, only the spec and the example model are written."""
    assert [path.name for path in scaffold(tmp_path, force=False)] == ["models.py", "repogen.yaml"]
    assert not (tmp_path / ".github").exists()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def from_model(path: str, directory: Path = Path()) -> tuple[str, Any]:
    """Write the spec for a model; return its text and its only model."""
    scaffold_from(describe(path, directory), directory, force=False)
    text = (directory / "repogen.yaml").read_text(encoding="utf-8")
    (model,) = yaml.safe_load(text)["models"].values()
    return text, model


def test_from_an_onnx_file(here: Path) -> None:
    """Comments show the signature, nothing is left to fill in, and paths are relative to the spec."""
    (here / "nets").mkdir()
    onnx.save_model(graphs.lookup(), here / "nets" / "word lookup.onnx")
    text, model = from_model("nets/word lookup.onnx", here / "spec")
    assert model == {"source": {"kind": "onnx", "path": "../nets/word lookup.onnx"}}
    assert "#   in  ids: int64 [batch, seq]\n" in text
    assert "# CHECK the range of integer inputs" in text
    assert list(load_spec(here / "spec" / "repogen.yaml").models) == ["word_lookup"]


def test_names_from_a_file_stay_in_their_comment(here: Path) -> None:
    """Tensor names can contain any characters."""
    graph = graphs.matmul()
    graph.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N\nmodels: {}"
    graph.producer_name = "x\u2028y: z"
    onnx.save_model(graph, here / "net.onnx")
    assert from_model("net.onnx")[1] == {"source": {"kind": "onnx", "path": "net.onnx"}}


def test_from_a_hugging_face_directory(here: Path) -> None:
    """Only config.json is read; a comment reports that the model has its own code."""
    (here / "tiny-bert").mkdir()
    config = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "auto_map": {"AutoModel": "m.M"}}
    (here / "tiny-bert" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    description = describe_model("tiny-bert", here)
    assert description.missing == "put the weights into tiny-bert"
    (here / "tiny-bert" / "model.safetensors").touch()
    text, model = from_model("tiny-bert")
    assert model == {"source": {"kind": "huggingface", "model": "tiny-bert"}}
    assert "Model type bert, architecture BertForMaskedLM (config.json)." in text
    assert "trust_remote_code: true" in text


def test_from_a_program(here: Path) -> None:
    """The signature and the bounds are read without torch."""
    document = {
        "graph_module": {
            "graph": {"tensor_values": {"x": {"dtype": 7, "sizes": [
                {"as_expr": {"expr_str": "Symbol('s7', positive=True, integer=True)"}}, {"as_int": 4}]}}},
            "signature": {"input_specs": [{"parameter": {}}, {"user_input": {"arg": {"as_tensor": {"name": "x"}}}}]},
        },
        "range_constraints": {"s7": {"min_val": 1, "max_val": 16}, "s8": {"min_val": 0, "max_val": None}},
        "torch_version": "2.13.0",
    }  # fmt: skip
    with zipfile.ZipFile(here / "net.pt2", "w") as archive:
        archive.writestr("net/models/model.json", json.dumps(document))
    text, model = from_model("net.pt2")
    assert model == {"source": {"kind": "torch_export", "path": "net.pt2"}}
    assert "#   in  x: float32 [batch, 4]\n" in text
    assert "#   batch is 1 to 16\n" in text
    assert "# dims: {batch: {min: 1, max: 16}}   # narrower bounds" in text
    assert "#   s8 is 1 or more\n" in text


def test_dims_of_a_graph_without_names(here: Path) -> None:
    """They have the names that a build gives them, so that the proposed lines work."""
    a, b = (graphs.value(name, [dim, None]) for name, dim in (("a", "unk__1"), ("b", "unk__2")))
    onnx.save(
        graphs.model([onnx.helper.make_node("Add", ["a", "b"], ["y"])], [a, b], [graphs.value("y", ["N", "M"])]),
        here / "m.onnx",
    )
    text, _ = from_model("m.onnx")
    assert "# dims: {batch: {min: 1, max: 32}}" in text


@pytest.mark.parametrize(
    ("limits", "sizes", "line"),
    [
        ({"min_val": 2, "max_val": None}, ["s7", 4], "# dims: {batch: {min: 2, max: 16}}"),
        ({"min_val": 20, "max_val": 30}, [4, "s7"], "# dims: {x_axis1: {min: 20, max: 30}}"),
        ({"min_val": 0, "max_val": 8}, ["s7*2", 4], ""),
        (None, [4], ""),
    ],
)
def test_bounds_that_a_program_allows(
    here: Path, limits: dict[str, int | None] | None, sizes: list[str | int], line: str
) -> None:
    """The example of `dims:` does not violate the bounds of the program; a fixed size has none."""
    texts = {"s7": "Symbol('s7')", "s7*2": "Symbol('s7')*2"}
    shape = [{"as_int": size} if size == 4 else {"as_expr": {"expr_str": texts[str(size)]}} for size in sizes]
    document = {
        "graph_module": {
            "graph": {"tensor_values": {"x": {"dtype": 7, "sizes": shape}}},
            "signature": {"input_specs": [{"user_input": {"arg": {"as_tensor": {"name": "x"}}}}]},
        },
        "range_constraints": {} if limits is None else {"s7": limits},
    }
    with zipfile.ZipFile(here / "net.pt2", "w") as archive:
        archive.writestr("net/models/model.json", json.dumps(document))
    text, _ = from_model("net.pt2")
    assert (line in text, "# dims:" in text) == (True, bool(line))


@pytest.mark.parametrize(
    ("inputs", "tensors"),
    [(["x"] * 10_000, {}), ([{}] * 100_001, {}), ([], {str(number): "x" for number in range(10_000)}),
     ([{"user_input": {"arg": {"as_tensor": {"name": "y"}}}}], {"y": {"dtype": 7, "sizes": ["x"] * 10_000}})],
    ids=["wrong inputs", "very many inputs", "wrong tensors", "wrong sizes"],
)  # fmt: skip
def test_program_with_very_many_values(here: Path, inputs: list[object], tensors: dict[str, object]) -> None:
    """Validation keeps an error of a kilobyte for each value of a wrong type, and a program may have 256 MiB."""
    document = {
        "graph_module": {
            "graph": {"tensor_values": {"x": "wrong"} | tensors},
            "signature": {"input_specs": [*inputs, {"user_input": {"arg": {"as_tensor": {"name": "x"}}}}]},
        }
    }
    with zipfile.ZipFile(here / "net.pt2", "w") as archive:
        archive.writestr("net/models/model.json", json.dumps(document))
    with pytest.raises(SpecError, match="cannot be read as") as caught:
        describe_model("net.pt2", here)
    assert isinstance(caught.value.__cause__, ValidationError)
    assert caught.value.__cause__.error_count() == 1


@pytest.mark.parametrize("text", [f"[{'0,' * 20}0]", f"{'[' * 20}{']' * 20}", 20 * '{"a":' + "0" + 20 * "}"])
def test_program_with_millions_of_values(here: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """It is not decoded; lists in lists have no commas, and each needs 300 bytes."""
    monkeypatch.setattr(model_files, "_MAX_PROGRAM_VALUES", 10)
    with zipfile.ZipFile(here / "net.pt2", "w") as archive:
        archive.writestr("net/models/model.json", text)
    with pytest.raises(SpecError) as caught:
        describe_model("net.pt2", here)
    assert "more than 10 values" in str(caught.value.__cause__)


def test_inputs_that_are_one_tensor(here: Path) -> None:
    """A tensor of many sizes would be described for each of many inputs."""
    inputs = [{"user_input": {"arg": {"as_tensor": {"name": "x"}}}}] * 2
    tensors = {"x": {"dtype": 7, "sizes": [{"as_int": 4}]}}
    document = {"graph_module": {"graph": {"tensor_values": tensors}, "signature": {"input_specs": inputs}}}
    with zipfile.ZipFile(here / "net.pt2", "w") as archive:
        archive.writestr("net/models/model.json", json.dumps(document))
    with pytest.raises(SpecError) as caught:
        describe_model("net.pt2", here)
    assert "two inputs are the same tensor" in str(caught.value.__cause__)


@pytest.mark.parametrize("first", ["self", "s"])
def test_from_a_torchscript_archive(here: Path, first: str) -> None:
    """The parameters of forward are read from the code; their shapes must be filled in."""
    parameters = f"{first}: __torch__.m.Net,\n    x: Tensor,\n    d: Dict[str, Tensor]"
    code = f"class Net(Module):\n  def forward({parameters}) -> Tensor:"
    with zipfile.ZipFile(here / "net.pt", "w") as archive:
        archive.writestr("net/constants.pkl", b"")
        archive.writestr("net/data.pkl", b"\x80\x02c__torch__.m\nNet\nq\x00.")
        archive.writestr("net/code/__torch__/m.py", code)
    description = describe_model("net.pt", here)
    assert description.comments == ("forward(x: Tensor, d: Dict[str, Tensor])",)
    assert "#   x: {dtype: DTYPE, shape: [batch, SIZE]}" in description.keys
    assert description.missing == "declare inputs: and dims: in it"


def test_torchscript_archive_with_a_long_type(here: Path) -> None:
    """The time to search for the parameters does not grow with the length of the type before them."""
    with zipfile.ZipFile(here / "net.pt", "w") as archive:
        archive.writestr("net/constants.pkl", b"")
        archive.writestr("net/data.pkl", b"\x80\x02c__torch__.m\nNet\nq\x00.")
        archive.writestr("net/code/__torch__/m.py", f"class Net(Module):\n  def forward(self: {'a' * 2**23}")
    assert describe_model("net.pt", here).comments == ("forward(parameters unknown)",)


def test_from_a_callable_with_examples(here: Path) -> None:
    """An examples function in the file is used; a file that cannot be imported is described from its text."""
    code = """\
        raise SystemExit("imported")
        class Net(nn.Module):
            def __init__(self, width): ...
            def forward(self, x, mask=None): ...
        def build(width, *, depth=2): return Net(width)
        def small(): return Net(2)
        def examples(batch): ...
        """
    (here / "nets.py").write_text(textwrap.dedent(code), encoding="utf-8")
    text, model = from_model("nets.py:small")
    assert model == {"source": {"factory": "nets.py:small"}, "examples": "nets.py:examples"}
    assert "forward(x, mask)" in text
    assert describe_model("nets.py:build", here).missing == "fill in source.kwargs (width)"
    assert describe_model("nets:Net", here).source == {"factory": "nets:Net"}


def test_from_a_callable_without_examples(here: Path) -> None:
    """Each required parameter of forward gets a placeholder."""
    code = "class Net:\n    def forward(self, x, ids, mask=None): ...\ndef build():\n    return Net()\n"
    (here / "nets.py").write_text(code, encoding="utf-8")
    description = describe_model("nets.py:build", here)
    assert description.missing == "fill in inputs: and dims:"
    assert [line for line in description.keys if line.startswith("#   ")] == [
        "#   x: {dtype: DTYPE, shape: [batch, SIZE]}",
        "#   ids: {dtype: DTYPE, shape: [batch, SIZE]}",
    ]


def test_from_a_callable_that_accepts_a_dict(here: Path) -> None:
    """A dict is not an input: the comments show how examples with its keys are written."""
    body = 'return batch["tokens"] * batch["mask"] + batch["tokens"][0]'
    code = f"class Net:\n    def forward(self, batch: dict): {body}\ndef build():\n    return Net()\n"
    (here / "nets.py").write_text(code, encoding="utf-8")
    description = describe_model("nets.py:build", here)
    assert description.missing == "fill in examples:"
    assert '# def examples(batch): return {"batch": {"tokens": …, "mask": …}}' in description.keys
    assert not any("inputs:" in line for line in description.keys)


@pytest.mark.parametrize("source", ["repository/other/model.onnx", "repository/other"])
def test_file_that_another_user_replaces_while_it_is_read(
    here: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """The spec, which others can read, would contain the names of tensors in a private file."""
    graph = graphs.matmul()
    other, private = here / "repository" / "other", here / "private.onnx"
    model = other / "model.onnx" if source.endswith(".onnx") else other / "1" / "model.onnx"
    model.parent.mkdir(parents=True)
    for path in (model, private):
        onnx.save(graph, path)
        path.chmod(0o600)
    (other / "config.pbtxt").write_text('backend: "onnxruntime"')
    (here / "out").mkdir()
    assert describe(source, here / "out").models
    for path in (other, *other.rglob("*")):
        os.chown(path, 65534, 65534)
    assert describe(source, here / "out").models
    opened = Path(source) if source.endswith(".onnx") else model
    swap_when_opened(monkeypatch, opened, model, private)
    with pytest.raises(SpecError, match="changed while it was read, and another user can replace its files") as caught:
        describe(source, here / "out")
    assert caught.value.code == "init.from"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nothing.onnx", "nothing.onnx does not exist"),
        ("empty.onnx", "cannot be read as ONNX: it is empty"),
        ("cut.onnx", "cannot be read as ONNX"),
        ("nets.py", "name the callable that returns the model, as in nets.py:build"),
        ("nets.py:other", "has no 'other'"),
        ("instance.py:NET", "NET in instance.py is a Net, not a callable that returns one"),
        ("syntax.py:build", "syntax.py:2: invalid syntax"),
        ("null.py:build", "null bytes"),
        ("absent:build", "module not found: absent"),
        ("nets.absent:build", "module not found: nets.absent"),
        ("weights.safetensors", "contains only weights"),
        ("folder", "has no config.json"),
        ("damaged", "config.json is not valid: architectures"),
        ("damaged.pt2", "cannot be read as a torch.export program"),
        ("notes.txt", "is not a supported model format"),
    ],
)
def test_unsupported_paths(here: Path, path: str, message: str) -> None:
    """The message says what the path is; the hint lists what --from accepts or what the file defines."""
    for name, content in {"empty.onnx": b"", "cut.onnx": b"\x08\x08:\xff", "weights.safetensors": b"x",
                          "notes.txt": b"x", "nets.py": b"def build(): ...",
                          "syntax.py": b"x = 1\nx = = 2\n", "null.py": b"\0",
                          "instance.py": b"class Net:\n    def forward(self): ...\nNET = Net()"}.items():  # fmt: skip
        (here / name).write_bytes(content)
    for directory in ("folder", "damaged"):
        (here / directory).mkdir()
    (here / "damaged" / "config.json").write_text('{"model_type": "bert", "architectures": 3}', encoding="utf-8")
    with zipfile.ZipFile(here / "damaged.pt2", "w") as archive:
        archive.writestr("net/models/model.json", '{"graph_module": []}')
    with pytest.raises(SpecError) as caught:
        describe_model(path, here)
    assert message in caught.value.message
    assert caught.value.code == "init.from"
    assert caught.value.hint


@pytest.mark.parametrize(
    "path", ["nets.py::build", "nets.py:build:x", "nets.py:", "nets.py.build", "nets.py:build()", "nets.py:0"]
)
def test_misspelled_callable(here: Path, path: str) -> None:
    """If the path starts with a Python file, the hint says how to name a callable in it."""
    (here / "nets.py").write_text("def build(): ...", encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        describe_model(path, here)
    assert caught.value.message == f"{path} does not name a callable in nets.py"
    assert caught.value.hint == "write nets.py:CALLABLE, where CALLABLE is build"
    (here / "nets.py").write_text("", encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        describe_model(path, here)
    assert caught.value.hint == "write nets.py:CALLABLE, such as nets.py:build"
    with pytest.raises(SpecError, match=r"does not exist"):
        describe_model(f"other{path}", here)


@pytest.mark.parametrize("is_archive", [True, False], ids=["archive", "legacy"])
def test_file_of_torch_save(here: Path, *, is_archive: bool) -> None:
    """A pickled module is not called weights: a build rejects it, because loading it would run code."""
    module = torch.nn.Sequential(torch.nn.Linear(4, 3))
    values: dict[str, object] = {
        "module.pt": module,
        "checkpoint.pt": {"model": module},
        "weights.pt": module.state_dict(),
        "training.pt": {"model": module.state_dict(), "epoch": 3, "seen": {1}, "size": torch.Size([2])},
    }
    for name, value in values.items():
        torch.save(value, here / name, _use_new_zipfile_serialization=is_archive)
        with pytest.raises(SpecError) as caught:
            describe_model(name, here)
        class_name = "torch.nn.modules.container.Sequential"
        expected = (
            f"{name} contains {class_name}, and loading it would run code"
            if name in {"module.pt", "checkpoint.pt"}
            else f"{name} contains only weights"
        )
        assert caught.value.message.startswith(expected)


def test_existing_spec_is_not_overwritten(here: Path) -> None:
    """It is overwritten only with force."""
    onnx.save_model(graphs.matmul(), here / "net.onnx")
    (here / "repogen.yaml").write_text("mine", encoding="utf-8")
    with pytest.raises(SpecError, match=r"already exists: repogen\.yaml; nothing was written"):
        from_model("net.onnx")
    assert (here / "repogen.yaml").read_text(encoding="utf-8") == "mine"
    scaffold_from(describe("net.onnx", here), here, force=True)
    assert list(load_spec(here / "repogen.yaml").models) == ["net"]


def _workflow(root: Path) -> Any:
    text = (root / ".github" / "workflows" / "repogen.yml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


def test_new_specs_target_the_newest_release(tmp_path: Path) -> None:
    """The default target of older specs is not chosen for new ones."""
    scaffold(tmp_path / "new", force=False)
    assert load_spec(tmp_path / "new" / "repogen.yaml").release == newest_target().release
    onnx.save(graphs.matmul(), tmp_path / "model.onnx")
    scaffold_from(describe(str(tmp_path / "model.onnx"), tmp_path), tmp_path, force=False)
    assert load_spec(tmp_path / "repogen.yaml").release == newest_target().release
    assert "# CHECK: the release of your servers" in (tmp_path / "repogen.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("pipelines", [NO_PIPELINES, Pipelines(matrix=True)])
def test_name_of_a_directory_is_not_an_expression(tmp_path: Path, pipelines: Pipelines) -> None:
    """GitHub would evaluate one, such as a token; the path that it computes is that of the spec."""
    directory = tmp_path / "a${{ github.token }}"
    directory.mkdir()
    (tmp_path / ".git").mkdir()
    scaffold(directory, force=False, github=True, pipelines=pipelines)
    document = yaml.safe_load((tmp_path / ".github" / "workflows" / "repogen.yml").read_text(encoding="utf-8"))
    spec = document["env"]["SPEC"] if pipelines.matrix else document["jobs"]["models"]["with"]["spec"]
    assert spec == "a${{ '${{' }} github.token }}/repogen.yaml"

"""`init --from file.py:callable` with examples, weights and a name: the model is loaded to find its inputs."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from repogen.errors import SpecError
from repogen.scaffold.describe import describe
from repogen.scaffold.description import Hints
from repogen.scaffold.files import scaffold_from
from repogen.spec.load import load_spec

CODE = """\
    import torch
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(10, 4)
        def forward(self, ids, scale):
            return self.table(ids).mean(1) * scale
    def build():
        return Net()
    def inputs(batch):
        return {"ids": torch.zeros(batch, 7, dtype=torch.int64), "scale": torch.ones(batch, 1)}
    """


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a working directory with a model in a subdirectory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "nets.py").write_text(textwrap.dedent(CODE), encoding="utf-8")
    return tmp_path


def spec_of(hints: Hints) -> dict[str, Any]:
    """Write the spec next to the code and return its models; repogen must accept it."""
    scaffold_from(describe("code/nets.py:build", Path("code"), hints), Path("code"), force=True)
    load_spec(Path("code/repogen.yaml"))
    models: dict[str, Any] = yaml.safe_load(Path("code/repogen.yaml").read_text())["models"]
    return models


def test_inputs_are_those_of_the_examples(here: Path) -> None:
    """Real names, dtypes and shapes; paths are relative to the spec."""
    torch.save({"table.weight": torch.zeros(10, 4)}, here / "code" / "w.pt")
    models = spec_of(Hints(weights="code/w.pt", examples="code/nets.py:inputs", name="words"))
    assert models == {
        "words": {
            "source": {"factory": "nets.py:build", "weights": "w.pt"},
            "examples": "nets.py:inputs",
            "inputs": {
                "ids": {"dtype": "int64", "shape": ["batch", 7]},
                "scale": {"dtype": "float32", "shape": ["batch", 1]},
            },
            "dims": {"batch": {"min": 1, "max": 32}},
        }
    }


def test_model_that_cannot_be_loaded(here: Path) -> None:
    """The spec is written, with the reason."""
    with (here / "code" / "nets.py").open("a") as stream:
        stream.write("def broken(batch): raise ValueError('no data here')\n")
    assert spec_of(Hints(examples="code/nets.py:broken"))["nets"]["examples"] == "nets.py:broken"
    text = Path("code/repogen.yaml").read_text()
    assert "# CHECK: the model could not be loaded with these examples:" in text
    assert "no data here" in text
    assert "Before you build: correct what CHECK reports." in text


def test_without_examples_nothing_is_run_or_invented(here: Path) -> None:
    """The user fills in dtypes and sizes."""
    (here / "code" / "nets.py").write_text("raise SystemExit\n" + textwrap.dedent(CODE))
    description = describe("code/nets.py:build", Path("code"))
    assert description.missing == "fill in inputs: and dims:"
    assert not [line for line in description.models[0].keys if "batch, 3" in line]


def test_spec_in_a_new_directory(here: Path) -> None:
    """Paths with `..` are valid before the directory exists."""
    assert here.is_dir()
    description = describe("code/nets.py:build", Path("new/spec"), Hints(examples="code/nets.py:inputs"))
    assert "inputs: # derived from the examples; names are dynamic dims" in description.models[0].keys


@pytest.mark.parametrize(
    ("path", "hints", "message"),
    [
        ("code/nets.py:build", Hints(weights="absent.pt"), "file not found: absent.pt"),
        ("code/nets.py:build", Hints(examples="absent.py:inputs"), "file not found: absent.py"),
        ("code/net.onnx", Hints(weights="w.pt"), "--weights cannot be used for a model in a file"),
    ],
)
def test_hints_that_do_not_apply(here: Path, path: str, hints: Hints, message: str) -> None:
    """They are an error before anything is written."""
    (here / "code" / "net.onnx").touch()
    with pytest.raises(SpecError, match=message):
        describe(path, Path("code"), hints)


def test_examples_of_one_size_show_a_batch(here: Path) -> None:
    """If the model accepts another size of their first axis; the spec says to check it."""
    np.savez(here / "rows.npz", ids=np.zeros((20, 7), np.int64), scale=np.ones((20, 1), np.float32))
    model = spec_of(Hints(examples="rows.npz"))["nets"]
    assert model["inputs"]["ids"]["shape"] == ["batch", 7]
    assert model["dims"] == {"batch": {"min": 1, "max": 32}}
    assert "# CHECK batch: the examples have one size" in Path("code/repogen.yaml").read_text()


def test_examples_of_one_size_keep_a_fixed_axis(here: Path) -> None:
    """If the model accepts no other size."""
    code = here / "code" / "nets.py"
    text = code.read_text(encoding="utf-8").replace(".mean(1)", ".reshape(20, 7, 4).mean(1)")
    code.write_text(text, encoding="utf-8")
    np.savez(here / "rows.npz", ids=np.zeros((20, 7), np.int64), scale=np.ones((20, 1), np.float32))
    model = spec_of(Hints(examples="rows.npz"))["nets"]
    assert (model["inputs"]["ids"]["shape"], "dims" in model) == ([20, 7], False)


def test_parameters_of_examples_are_dims(here: Path) -> None:
    """With bounds to check, because they are guesses."""
    with (here / "code" / "nets.py").open("a") as stream:
        stream.write(
            "def series(batch, steps, seed):\n"
            "    return {'ids': torch.zeros(batch, steps, dtype=torch.int64), 'scale': torch.ones(batch, 1)}\n"
        )
    model = spec_of(Hints(examples="code/nets.py:series"))["nets"]
    assert model["inputs"]["ids"]["shape"] == ["batch", "steps"]
    assert model["dims"] == {"steps": {"min": 1, "max": 64}, "batch": {"min": 1, "max": 32}}
    assert "# CHECK the bounds of steps" in Path("code/repogen.yaml").read_text()


@pytest.mark.parametrize(("file", "name"), [("model.py", "Net"), ("fraud.py", "fraud")])
def test_name_of_a_factory(here: Path, file: str, name: str) -> None:
    """The class says more than a file named `model.py` and a function named `build`."""
    (here / "code" / file).write_text((here / "code" / "nets.py").read_text(encoding="utf-8"), encoding="utf-8")
    (description,) = describe(f"code/{file}:build", Path("code")).models
    assert description.name == name

"""Models from MLflow are loaded by their flavor; pickles are loaded only when trusted."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

import onnx
import pytest
import torch
import yaml
from torch import nn

from repogen.artifacts.source import Eager, OnnxFile, Program, Script, SourceModel
from repogen.errors import SourceError
from repogen.source.load import load_source
from repogen.spec.models import ModelSpec
from tests.support import graphs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

URI = "models:/tiny/3"


class Bomb(nn.Module):
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        """Set the path of the file."""
        super().__init__()
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        """Make the unpickler run a command."""
        return os.system, (f"touch {self.marker}",)


def write_model(directory: Path, flavors: dict[str, Any], **more: Any) -> Path:
    """Write a file MLmodel as MLflow does."""
    directory.mkdir(exist_ok=True)
    (directory / "MLmodel").write_text(yaml.safe_dump({"flavors": flavors, **more}), encoding="utf-8")
    return directory


def pytorch(directory: Path, module: object, **more: Any) -> Path:
    """Write a pickled model of the pytorch flavor."""
    write_model(directory, {"pytorch": {"model_data": "data"}, "python_function": {}}, **more)
    (directory / "data").mkdir()
    torch.save(module, directory / "data" / "model.pth")
    return directory


def load(fetched: Path, **spec: Any) -> SourceModel:
    """Load a downloaded directory."""
    source = {"kind": "mlflow", "uri": URI, **spec.pop("source", {})}
    return load_source(ModelSpec.model_validate({"source": source, **spec}), fetched.parent, fetched)


def rejection(fetched: Path, **spec: Any) -> SourceError:
    """Return the error of loading a directory."""
    with pytest.raises(SourceError) as caught:
        load(fetched, **spec)
    assert caught.value.where == URI
    return caught.value


def test_the_onnx_flavor(tmp_path: Path) -> None:
    """It is loaded as an ONNX file; the version identifies it, so its files do not affect later builds."""
    fetched = write_model(tmp_path / "model", {"onnx": {"data": "graph.onnx"}, "python_function": {}})
    graphs.with_external(fetched / "graph.onnx")
    source = load(fetched)
    assert source.origin == OnnxFile(fetched / "graph.onnx")
    assert (source.files, source.notes[0]) == ((), f"downloaded from MLflow: {URI}")


def test_onnx_file_without_mlmodel(tmp_path: Path) -> None:
    """An artifact of a run can be an ONNX file without an MLmodel."""
    (tmp_path / "artifact").mkdir()
    onnx.save_model(graphs.matmul(), tmp_path / "artifact" / "net.onnx")
    assert isinstance(load(tmp_path / "artifact").origin, OnnxFile)


def test_program_in_the_pytorch_flavor(tmp_path: Path) -> None:
    """MLflow writes this format by default."""
    fetched = write_model(tmp_path / "model", {"pytorch": {"model_data": "data"}})
    (fetched / "data").mkdir()
    batch = torch.export.Dim("batch", min=1, max=8)
    program = torch.export.export(nn.Linear(4, 2), (torch.randn(3, 4),), dynamic_shapes=({0: batch},))
    torch.export.save(program, fetched / "data" / "model.pt2")
    assert isinstance(load(fetched).origin, Program)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_script_in_the_pytorch_flavor(tmp_path: Path) -> None:
    """A TorchScript archive contains no pickled Python code, even when it is named model.pth."""
    fetched = pytorch(tmp_path / "model", None)
    torch.jit.save(torch.jit.script(nn.Linear(4, 2)), fetched / "data" / "model.pth")
    spec = {"inputs": {"input": {"dtype": "float32", "shape": ["batch", 4]}}, "dims": {"batch": {"max": 4}}}
    assert isinstance(load(fetched, **spec).origin, Script)


def test_untrusted_pickle_is_not_loaded(tmp_path: Path) -> None:
    """The message gives the reason, the hint the alternatives."""
    marker = tmp_path / "ran"
    error = rejection(pytorch(tmp_path / "model", Bomb(marker)))
    assert error.code == "source.weights-unsafe"
    assert error.message == f"{URI} is a pickled module, and loading it can run any code"
    assert "serialization_format='pt2'" in error.hint
    assert "trust_pickle: true" in error.hint
    assert not marker.exists()


def test_trusted_pickle_with_a_logged_signature(tmp_path: Path) -> None:
    """Tensors of the logged signature become the inputs; -1 is a dynamic dim."""
    tensor = '[{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 4]}}]'
    fetched = pytorch(tmp_path / "model", nn.Linear(4, 2), signature={"inputs": tensor, "outputs": None})
    source = load(fetched, source={"trust_pickle": True})
    assert isinstance(source.origin, Eager)
    assert [(spec.name, spec.shape) for spec in source.signature.inputs] == [("input", ("batch", 4))]
    assert "unpickled, as source.trust_pickle allows" in source.notes[1]


def test_trusted_pickle_without_a_signature(tmp_path: Path) -> None:
    """The spec must then declare the inputs."""
    fetched = pytorch(tmp_path / "model", nn.Linear(4, 2))
    with pytest.raises(SourceError, match="inputs are unknown") as caught:
        load(fetched, source={"trust_pickle": True})
    assert caught.value.code == "source.inputs-missing"
    declared = {"inputs": {"x": {"dtype": "float32", "shape": [2, 4]}}}
    assert load(fetched, source={"trust_pickle": True}, **declared).signature.outputs[0].shape == (2, 2)


def test_trusted_pickle_that_is_not_a_module(tmp_path: Path) -> None:
    """A state_dict was logged instead of a module."""
    assert rejection(pytorch(tmp_path / "model", {"a": 1}), source={"trust_pickle": True}).code == "source.return-type"


@pytest.mark.parametrize(
    ("flavors", "message"),
    [
        ({"sklearn": {}, "python_function": {}}, "it has python_function, sklearn"),
        ({"onnx": {"data": "../../etc/passwd"}}, "leads out of the model's directory"),
        ({"onnx": {"data": "/etc/passwd"}}, "leads out of the model's directory"),
        ({"pytorch": {}}, "data has no model.pth"),
        ({"onnx": 3}, "cannot be read: flavors.onnx"),
        ({"onnx": {"data": 3}}, "cannot be read: flavors.onnx.data"),
        ({"pytorch": ["model_data"]}, "cannot be read: flavors.pytorch"),
    ],
)
def test_unusable_flavors(tmp_path: Path, flavors: dict[str, Any], message: str) -> None:
    """The message has the available flavors or the damaged key."""
    error = rejection(write_model(tmp_path / "model", flavors))
    assert error.code == "source.mlflow"
    assert message in error.message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("flavors: [", "is not valid YAML"),
        ("[" * 5000, "cannot be read"),
        ("just text", "cannot be read: content"),
        ("flavors:\n  onnx: {data: 2001-99-99}", "cannot be read"),
    ],
)
def test_damaged_mlmodel(tmp_path: Path, content: str, message: str) -> None:
    """A file MLmodel that is not YAML, or has another structure, is reported as such."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "MLmodel").write_text(content, encoding="utf-8")
    error = rejection(tmp_path / "model")
    assert error.code == "source.mlflow"
    assert message in error.message


@pytest.mark.parametrize("inputs", ["{", "3", '[{"type": "tensor"}, 4]', '[{"tensor-spec": {"dtype": "float32"}}]'])
def test_damaged_signature(tmp_path: Path, inputs: str) -> None:
    """A logged signature that is not valid is reported with its key."""
    error = rejection(
        pytorch(tmp_path / "model", nn.Linear(4, 2), signature={"inputs": inputs}), source={"trust_pickle": True}
    )
    assert (error.code, "signature.inputs" in error.message) == ("source.mlflow", True)


def test_directory_that_is_not_a_model(tmp_path: Path) -> None:
    """An artifact of a run can be something other than a model."""
    (tmp_path / "model").mkdir()
    assert "it has no file MLmodel" in rejection(tmp_path / "model").message


BOMB = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{below}'] * 8)}]\n" for below, name in itertools.pairwise("abcdefgh")
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BOMB + "flavors: {onnx: *h}", "more than 20000 values after aliases are expanded"),
        ("flavors: " + "[" * 100_000, "nested deeper than 32 levels"),
        ("flavors: [onnx]", "flavors: Input should be a valid dictionary"),
        ("flavors: {onnx: {data: 1}}", "flavors.onnx.data: Input should be a valid string"),
        ('flavors: {onnx: {data: "a\\0b"}}', "is not the path of a file"),
        (f"flavors: {{pytorch: {{model_data: {'x' * 300}}}}}", "is not the path of a file"),
        (f"flavors: {{onnx: {{data: d/{'x' * 300}}}}}", "is not the path of a file"),
        ("flavors: &f {onnx: *f}", "an anchor that is not defined before it"),
        ("a: 1\n" + " " * 2**22, "is larger than 4 MiB"),
        ("", "content: Input should be"),
    ],
)
def test_hostile_mlmodel(tmp_path: Path, text: str, reason: str) -> None:
    """Its size, depth and aliases are limited."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "MLmodel").write_text(text, encoding="utf-8")
    assert reason in rejection(tmp_path / "model").message


def test_values_that_a_spec_could_not_contain(tmp_path: Path) -> None:
    """MLflow writes large numbers and dates; repogen does not need them."""
    fetched = write_model(tmp_path / "model", {"onnx": {"data": "graph.onnx"}}, model_size_bytes=2**40)
    with (fetched / "MLmodel").open("a", encoding="utf-8") as file:
        file.write("utc_time_created: 2026-01-01 00:00:00.000000\nmodel_uuid: 1e100000000000\n010: x\n")
    graphs.with_external(fetched / "graph.onnx")
    assert load(fetched).origin == OnnxFile(fetched / "graph.onnx")


@pytest.mark.parametrize("size", [2**40, 10**400, 0])
def test_logged_size_that_is_not_a_size(tmp_path: Path, size: int) -> None:
    """The examples of such an input cannot be made."""
    tensor = f'[{{"type": "tensor", "tensor-spec": {{"dtype": "float32", "shape": [-1, {size}]}}}}]'
    fetched = pytorch(tmp_path / "model", nn.Linear(4, 2), signature={"inputs": tensor})
    with pytest.raises(SourceError) as caught:
        load(fetched, source={"trust_pickle": True})
    assert caught.value.code == "source.dim-size"
    assert len(caught.value.message) < 600

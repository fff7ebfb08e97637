"""A model that MLflow kept is loaded by its flavor, and a pickle only by somebody who trusts it."""

from __future__ import annotations

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
    """Writes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        """Keep where."""
        super().__init__()
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        """Ask the unpickler to run a command."""
        return os.system, (f"touch {self.mark}",)


def kept(directory: Path, flavors: dict[str, Any], **more: Any) -> Path:
    """Write the file MLmodel as MLflow does."""
    directory.mkdir(exist_ok=True)
    (directory / "MLmodel").write_text(yaml.safe_dump({"flavors": flavors, **more}), encoding="utf-8")
    return directory


def pytorch(directory: Path, module: object, **more: Any) -> Path:
    """Write a model of the pytorch flavor, pickled."""
    kept(directory, {"pytorch": {"model_data": "data"}, "python_function": {}}, **more)
    (directory / "data").mkdir()
    torch.save(module, directory / "data" / "model.pth")
    return directory


def load(fetched: Path, **spec: Any) -> SourceModel:
    """Load what was fetched."""
    source = {"kind": "mlflow", "uri": URI, **spec.pop("source", {})}
    return load_source(ModelSpec.model_validate({"source": source, **spec}), fetched.parent, fetched)


def refused(fetched: Path, **spec: Any) -> SourceError:
    """Return the error of a model that must be refused."""
    with pytest.raises(SourceError) as caught:
        load(fetched, **spec)
    assert caught.value.where == URI
    return caught.value


def test_the_onnx_flavor(tmp_path: Path) -> None:
    """It is an ONNX file like others, and its files are no inputs of the next build: the version is."""
    fetched = kept(tmp_path / "model", {"onnx": {"data": "graph.onnx"}, "python_function": {}})
    graphs.with_external(fetched / "graph.onnx")
    source = load(fetched)
    assert source.origin == OnnxFile(fetched / "graph.onnx")
    assert (source.files, source.notes[0]) == ((), f"downloaded from MLflow: {URI}")


def test_an_onnx_file_by_itself(tmp_path: Path) -> None:
    """As a run's artifact it may have no MLmodel beside it."""
    (tmp_path / "artifact").mkdir()
    onnx.save_model(graphs.matmul(), tmp_path / "artifact" / "net.onnx")
    assert isinstance(load(tmp_path / "artifact").origin, OnnxFile)


def test_a_program_in_the_pytorch_flavor(tmp_path: Path) -> None:
    """What MLflow writes by itself today."""
    fetched = kept(tmp_path / "model", {"pytorch": {"model_data": "data"}})
    (fetched / "data").mkdir()
    batch = torch.export.Dim("batch", min=1, max=8)
    program = torch.export.export(nn.Linear(4, 2), (torch.randn(3, 4),), dynamic_shapes=({0: batch},))
    torch.export.save(program, fetched / "data" / "model.pt2")
    assert isinstance(load(fetched).origin, Program)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_script_in_the_pytorch_flavor(tmp_path: Path) -> None:
    """It holds no Python code, whatever it is called."""
    fetched = pytorch(tmp_path / "model", None)
    torch.jit.save(torch.jit.script(nn.Linear(4, 2)), fetched / "data" / "model.pth")
    spec = {"inputs": {"input": {"dtype": "float32", "shape": ["batch", 4]}}, "dims": {"batch": {"max": 4}}}
    assert isinstance(load(fetched, **spec).origin, Script)


def test_a_pickle_is_not_loaded(tmp_path: Path) -> None:
    """Not without trust_pickle; the message says why, and what else there is."""
    mark = tmp_path / "ran"
    error = refused(pytorch(tmp_path / "model", Bomb(mark)))
    assert error.code == "source.weights-unsafe"
    assert error.message == f"{URI} is a pickled module, and loading it runs whatever code is in it"
    assert "serialization_format='pt2'" in error.hint
    assert "trust_pickle: true" in error.hint
    assert not mark.exists()


def test_a_trusted_pickle_with_mlflow_s_own_signature(tmp_path: Path) -> None:
    """Tensors of the logged signature become the inputs; -1 is a dynamic dim."""
    tensor = '[{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 4]}}]'
    fetched = pytorch(tmp_path / "model", nn.Linear(4, 2), signature={"inputs": tensor, "outputs": None})
    source = load(fetched, source={"trust_pickle": True})
    assert isinstance(source.origin, Eager)
    assert [(spec.name, spec.shape) for spec in source.signature.inputs] == [("input", ("batch", 4))]
    assert "unpickled, as source.trust_pickle allows" in source.notes[1]


def test_a_trusted_pickle_without_a_signature(tmp_path: Path) -> None:
    """Then the spec has to declare the inputs."""
    fetched = pytorch(tmp_path / "model", nn.Linear(4, 2))
    with pytest.raises(SourceError, match="inputs are not known") as caught:
        load(fetched, source={"trust_pickle": True})
    assert caught.value.code == "source.inputs-missing"
    declared = {"inputs": {"x": {"dtype": "float32", "shape": [2, 4]}}}
    assert load(fetched, source={"trust_pickle": True}, **declared).signature.outputs[0].shape == (2, 2)


def test_a_trusted_pickle_that_is_no_module(tmp_path: Path) -> None:
    """A state_dict was logged."""
    assert refused(pytorch(tmp_path / "model", {"a": 1}), source={"trust_pickle": True}).code == "source.return-type"


@pytest.mark.parametrize(
    ("flavors", "message"),
    [
        ({"sklearn": {}, "python_function": {}}, "it has python_function, sklearn"),
        ({"onnx": {"data": "../../etc/passwd"}}, "lies outside of it"),
        ({"onnx": {"data": "/etc/passwd"}}, "lies outside of it"),
        ({"pytorch": {}}, "there is no model.pth in data"),
    ],
)
def test_flavors_that_can_t_be_used(tmp_path: Path, flavors: dict[str, Any], message: str) -> None:
    """What is there is named."""
    error = refused(kept(tmp_path / "model", flavors))
    assert error.code == "source.mlflow"
    assert message in error.message


def test_a_directory_that_is_no_model(tmp_path: Path) -> None:
    """As when a run's artifact is named that is something else."""
    (tmp_path / "model").mkdir()
    assert "it has no file MLmodel" in refused(tmp_path / "model").message

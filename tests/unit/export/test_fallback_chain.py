"""Both exporters on real modules: names, dims, opsets, and errors."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

import onnx
import pytest
import torch
from torch import nn

from repogen.artifacts.source import Eager, OnnxFile
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.errors import ExportError
from repogen.export.fallback_chain import check_dims, export_with, fallback_chain
from repogen.onnx_graph.normalize import NormalizeOptions
from repogen.spec.models import ExportSpec
from repogen.targets import targets
from repogen.validate.structure import check_structure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from repogen.artifacts.built_model import OnnxArtifact
    from repogen.artifacts.source import SourceModel

BOTH = pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])


class Net(nn.Module):
    """Two inputs, two outputs."""

    def __init__(self) -> None:
        """Create a layer."""
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return floats and integers."""
        y = self.linear(x) * scale
        return {"logits": y, "label": y.argmax(-1)}


class Inverted(nn.Module):
    """Inverts complex matrices."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the absolute values of an inverse."""
        inverse: torch.Tensor = torch.linalg.inv(torch.complex(x, 2 * x).reshape(-1, 2, 2))
        return inverse.abs()


class Listed(nn.Module):
    """Has a layer in a Python list, which PyTorch does not register."""

    def __init__(self) -> None:
        """Create the layer."""
        super().__init__()
        self.layers = [nn.Linear(4, 2)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call it."""
        result: torch.Tensor = self.layers[0](x)
        return result


class Spectral(nn.Module):
    """Computes with complex numbers, and a function of real numbers that ONNX does not have."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return sums."""
        result: torch.Tensor = torch.complex(x, x).abs() + torch.special.zeta(x, x)
        return result


class Forces(nn.Module):
    """Returns the gradient of an energy."""

    def __init__(self) -> None:
        """Create the layers."""
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return forces."""
        with torch.enable_grad():
            position = x.detach().clone().requires_grad_()
            distance = (position - torch.linspace(0, 4, 4)).square()
            return -torch.autograd.grad(self.energy(distance).sum(), position)[0]


class LastState(nn.Module):
    """A GRU over packed rows whose output is not used."""

    def __init__(self) -> None:
        """Create the GRU."""
        super().__init__()
        self.gru = nn.GRU(4, 3, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the final state."""
        lengths = torch.full((x.shape[0],), 2)
        state: torch.Tensor = self.gru(nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True))[1]
        return state[0]


class NarrowRange(nn.Module):
    """Fake quantization with a range that ONNX's operator does not have."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Quantize to -127 to 127."""
        return torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -127, 127)


class Baked(nn.Module):
    """Supports one batch size only."""

    def __init__(self) -> None:
        """Create a layer for rows of 4."""
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Reshape with a literal."""
        result: torch.Tensor = self.linear(x.reshape(2, -1))
        return result


def export(source: SourceModel, directory: Path, release: str = "24.10", **spec: object) -> OnnxArtifact:
    """Export with the first exporter of the spec."""
    chosen = ExportSpec.model_validate(spec)
    exporter = fallback_chain(source.origin, chosen)[0]
    options = NormalizeOptions(source.signature, targets()[release], external_data=False, exporter=exporter.name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations of torch and onnxscript, as in the worker
        return export_with(exporter, source, chosen, options, directory)


def test_auto_tries_dynamo_then_torchscript() -> None:
    """A name selects one exporter and its variants."""
    plain, attentive = Eager(torch.nn.Identity()), Eager(torch.nn.Identity(), attention=True)
    assert [e.name for e in fallback_chain(plain, ExportSpec())] == ["dynamo", "torchscript"]
    assert [e.name for e in fallback_chain(plain, ExportSpec(exporter="torchscript"))] == ["torchscript"]
    assert [e.name for e in fallback_chain(attentive, ExportSpec())] == [
        "dynamo",
        "torchscript",
        "dynamo-eager",
        "torchscript-eager",
    ]


def test_unsupported_source_is_rejected(tmp_path: Path) -> None:
    """An ONNX file has no module for dynamo."""
    with pytest.raises(ExportError, match="dynamo does not support this kind of source"):
        fallback_chain(OnnxFile(tmp_path), ExportSpec(exporter="dynamo"))


@BOTH
@pytest.mark.parametrize(("shape", "scale"), [(["batch", 4], []), ([3, 4], [1]), (["batch", "time", 4], [])])
def test_names_dims_and_types_match_the_spec(
    as_source: Callable[..., SourceModel],
    tmp_path: Path,
    exporter: str,
    shape: list[int | str],
    scale: list[int | str],
) -> None:
    """With no dim, one or several, a scalar input, and integer outputs."""
    source = as_source(Net(), {"x": shape, "scale": scale})
    artifact = export(source, tmp_path, exporter=exporter)
    assert artifact.signature.inputs == source.signature.inputs
    assert [(s.name, s.dtype) for s in artifact.signature.outputs] == [("logits", "float32"), ("label", "int64")]
    assert (artifact.exporter, artifact.opset, artifact.external_data) == (exporter, 20, False)
    onnx.checker.check_model(artifact.path, full_check=True)
    assert str(tmp_path).encode() not in artifact.path.read_bytes()


@BOTH
@pytest.mark.parametrize(("release", "opset"), [("23.08", 19), ("24.10", 20), ("26.08", 20)])
def test_target_supports_the_opset(
    as_source: Callable[..., SourceModel], tmp_path: Path, exporter: str, release: str, opset: int
) -> None:
    """Both exporters can write the opset and IR version of the oldest release."""
    source = as_source(Net(), {"x": ["batch", 4], "scale": []})
    artifact = export(source, tmp_path, release, exporter=exporter)
    assert artifact.opset == opset
    check_structure(artifact, targets()[release])


def test_dynamo_rejects_a_specialized_dim(as_source: Callable[..., SourceModel], tmp_path: Path) -> None:
    """The exporter's error is converted to one with the name of the dim."""
    with pytest.raises(ExportError, match=r"dim 'batch' \(axis 0 of input 'x'\)") as caught:
        export(as_source(Baked()), tmp_path, exporter="dynamo")
    assert caught.value.code == "export.specialized-dim"
    assert "inputs: {x: {dtype: float32, shape: [2, 4]}}" in caught.value.hint


@pytest.mark.filterwarnings("ignore")
@BOTH
def test_gradients_are_named(as_source: Callable[..., SourceModel], tmp_path: Path, exporter: str) -> None:
    """Exporters report only what they could not trace."""
    with pytest.raises(ExportError, match="computes gradients"):
        export(as_source(Forces()), tmp_path, exporter=exporter)


def test_complex_numbers_are_named(as_source: Callable[..., SourceModel], tmp_path: Path) -> None:
    """The exporter's own message has an operator only."""
    with pytest.raises(ExportError, match="complex64") as caught:
        export(replace(as_source(Inverted()), complex="complex64"), tmp_path, exporter="dynamo")
    assert caught.value.code == "export.no-translation"


def test_weights_that_are_not_registered_are_explained(as_source: Callable[..., SourceModel], tmp_path: Path) -> None:
    """The exporter's message is about constants."""
    with pytest.raises(ExportError) as caught:
        export(as_source(Listed()), tmp_path, exporter="torchscript")
    assert "nn.ModuleList" in caught.value.hint


def test_complex_numbers_elsewhere_are_not_the_cause(as_source: Callable[..., SourceModel], tmp_path: Path) -> None:
    """The operator without a translation computes with real numbers."""
    with pytest.raises(ExportError, match="zeta") as caught:
        export(replace(as_source(Spectral()), complex="complex64"), tmp_path, exporter="dynamo")
    assert "complex" not in caught.value.message


@BOTH
def test_unknown_opset_is_rejected(as_source: Callable[..., SourceModel], tmp_path: Path, exporter: str) -> None:
    """Even if the exporter silently writes another opset."""
    source = as_source(Net(), {"x": ["batch", 4], "scale": []})
    with pytest.raises(ExportError) as caught:
        export(source, tmp_path, exporter=exporter, opset=99)
    assert "opset" in caught.value.message
    assert str(tmp_path) not in caught.value.message


def signature(dtype: str, *shape: int | str) -> Signature:
    """Return a signature of one input."""
    return Signature((TensorSpec("x", dtype, shape),), ())


@pytest.mark.parametrize(
    ("graph", "declared", "code", "message"),
    [
        (signature("float32", 2, 4), signature("float32", "batch", 4), "export.specialized-dim", "fixes it to 2"),
        (
            signature("float32", "batch", "n"),
            signature("float32", "batch", 4),
            "export.generalized-dim",
            "axis 1 of input 'x' is declared 4, but is 'n'",
        ),
        (
            signature("float32", "batch", 5),
            signature("float32", "batch", 4),
            "export.generalized-dim",
            "declared 4, but is 5",
        ),
        (signature("int64", "batch"), signature("int32", "batch"), "export.input-type", "is int64"),
        (signature("float32", "batch"), signature("float32", "batch", 4), "export.input-type", "['batch']"),
    ],
)
def test_graph_that_differs_from_the_declaration_is_rejected(
    graph: Signature, declared: Signature, code: str, message: str
) -> None:
    """Dynamic dims must be dynamic in the graph, fixed dims fixed."""
    with pytest.raises(ExportError) as caught:
        check_dims(graph, declared)
    assert caught.value.code == code
    assert message in caught.value.message


def test_graph_that_matches_the_declaration_is_accepted() -> None:
    """A dynamic dim may have another name."""
    assert check_dims(signature("float32", "s0", 4), signature("float32", "batch", 4)) is None  # type: ignore[func-returns-value]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("module", "shape"), [(LastState(), ["batch", 3, 4]), (NarrowRange(), ["batch", 4])])
def test_models_that_crash_the_exporter_are_exported(
    as_source: Callable[..., SourceModel], tmp_path: Path, module: nn.Module, shape: list[int | str]
) -> None:
    """The last state of packed rows, and a range that QuantizeLinear does not have."""
    assert export(as_source(module, {"x": shape}), tmp_path, exporter="torchscript").nodes

"""``len`` of a tensor and distributions in the code of a model."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any

import onnxruntime
import pytest
import torch
from torch import nn

from repogen.export.python_code import _istft, _only_calls, exportable_python
from repogen.export.symbolics import register_symbolics

if TYPE_CHECKING:
    from pathlib import Path


class Points(nn.Module):
    """Adds the positions of every second row of its input, and a number."""

    def forward(self, x: torch.Tensor) -> Any:
        """Return one row for every two rows."""
        pooled = nn.functional.avg_pool1d(x.T[None], 3, 2, 1)[0].T
        positions = torch.arange(pooled.shape[0]).float()
        return pooled + positions[:, None].expand(len(positions), 3) + len([x])


class Density(nn.Module):
    """The log-density of a normal distribution."""

    def __init__(self) -> None:
        """Create the distribution."""
        super().__init__()
        self.base = torch.distributions.Normal(torch.zeros(3), torch.ones(3))

    def forward(self, x: torch.Tensor) -> Any:
        """Return a density per value."""
        density: Any = self.base
        return density.log_prob(x)


class Resized(nn.Module):
    """Resizes its rows to a share of their number, which Python computes."""

    def forward(self, x: torch.Tensor) -> Any:
        """Return two thirds of the rows."""
        rows: int = int(x.shape[0] * 2 / 3)
        return nn.functional.interpolate(x.T[None], size=rows, mode="linear")


class Coordinates(nn.Module):
    """Adds coordinates from -1 to 1."""

    def forward(self, x: torch.Tensor) -> Any:
        """Return the rows with their coordinates, and those in the other direction."""
        return x + torch.linspace(-1, 1, x.shape[0])[:, None] + torch.linspace(2.5, 1, steps=x.shape[0] - 1).sum()


class Means(nn.Module):
    """Divides sums by their number, by its square root, and by tensors of sizes."""

    def forward(self, x: torch.Tensor) -> Any:
        """Return one value per column."""
        half, rest = divmod(x.shape[0], 2)
        sums = x.sum(0) / torch.as_tensor([(half, 1), (rest, 4)]).sum() * torch.as_tensor([1.0, 2.0, 3.0])
        return sums + x.sum(0) / float(x.shape[0]) + x.sum(0) / math.sqrt(x.shape[0]) + float("0.5") + math.sqrt(4)


class Tapered(nn.Module):
    """Multiplies its rows by windows."""

    def forward(self, x: torch.Tensor) -> Any:
        """Return the rows, which become smaller toward the first and the last one."""
        windows = torch.hann_window(x.shape[0]) + torch.hamming_window(x.shape[0] - 1, periodic=False).sum()
        return x * (windows + torch.blackman_window(x.shape[0]))[:, None] * torch.hann_window(3)


class Logarithms(nn.Module):
    """Multiplies its rows by functions of their number."""

    def forward(self, x: torch.Tensor) -> Any:
        """Return one factor for each row."""
        n = x.shape[0]
        factors = math.log(n), math.log(n, 3), math.log2(n) + math.log10(n * 0.5), math.log1p(n), math.exp(-n)
        windows = torch.kaiser_window(n, periodic=False, beta=8.0) + torch.bartlett_window(n)
        return x * sum(factors) + windows[:, None] + math.log(2) + math.sin(n) * round(n / 4)


@pytest.mark.filterwarnings("ignore")
def test_functions_of_sizes() -> None:
    """They stay dynamic."""
    with exportable_python(Logarithms()):
        shapes: Any = ({0: torch.export.Dim("n", min=1, max=9)},)
        program: Any = torch.export.export(Logarithms(), (torch.randn(5, 3),), dynamic_shapes=shapes, strict=False)
    for rows in (1, 2, 7):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(program.module()(x), Logarithms()(x))


class Halved(nn.Module):
    """Returns half of the columns."""

    def forward(self, x: torch.Tensor) -> Any:
        """Scale them by the logarithm of their number."""
        half = round(x.shape[1] * 0.5)
        return x.mT[:half] * math.log(x.shape[1]) * round(2.46, 1)


@pytest.mark.filterwarnings("ignore")
def test_functions_of_sizes_in_a_trace() -> None:
    """Sizes are tensors there, which ``round`` does not accept; the exporter has no translation of ``mT``."""
    content: Any = io.BytesIO()  # buffers work, though not declared
    register_symbolics(20)
    axes: Any = {"input_names": ["x"], "dynamic_axes": {"x": [1]}, "opset_version": 20, "dynamo": False}
    with exportable_python(Halved()):
        torch.onnx.export(Halved(), (torch.randn(2, 8),), content, **axes)
    session = onnxruntime.InferenceSession(content.getvalue())
    for columns in (5, 7, 8):  # 2.5 and 3.5 are rounded to even numbers
        x = torch.randn(2, columns)
        torch.testing.assert_close(torch.tensor(session.run(None, {"x": x.numpy()})[0]), Halved()(x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rows", [2, 7])
@pytest.mark.parametrize("kind", [Resized, Coordinates, Means, pytest.param(Tapered, marks=pytest.mark.full)])
def test_sizes_that_python_computes(kind: Any, rows: int) -> None:
    """They stay dynamic, also if a range has one value."""
    model = kind().eval()
    with exportable_python(model):
        shapes: Any = ({0: "n"},)
        program: Any = torch.onnx.export(model, (torch.randn(5, 3),), dynamo=True, dynamic_shapes=shapes, verbose=False)
    assert not {"int", "float"} & globals().keys()
    assert not hasattr(math.sqrt, "__closure__")
    x = torch.randn(rows, 3)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    torch.testing.assert_close(torch.tensor(session.run(None, {"x": x.numpy()})[0]), model(x))


@pytest.mark.parametrize(
    ("options", "length"),
    [
        ({}, None),
        ({"hop_length": 8}, 645),
        ({"win_length": 27, "normalized": True}, 333),
        ({"center": False, "hop_length": 4, "window": torch.ones(32)}, None),
        ({"onesided": False}, 640),
    ],
)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_istft_agrees_with_pytorch(options: dict[str, Any], length: int | None, batch: tuple[int, ...]) -> None:
    """It replaces PyTorch's where the number of frames or the length is dynamic."""
    window = torch.hann_window(options.get("win_length", 32))
    options = {"window": window, "n_fft": 32, **options}
    spectrum: Any = torch.stft(torch.randn(*batch, 645), return_complex=True, **options)
    expected = torch.istft(spectrum, length=length, **options)
    torch.testing.assert_close(_istft(spectrum, length=length, **options), expected)


@pytest.mark.parametrize("name", ["hann_window", "hamming_window", "blackman_window"])
def test_windows_with_options_are_those_of_pytorch(name: str) -> None:
    """Only dynamic lengths need a replacement."""
    window = getattr(torch, name)
    with exportable_python(nn.Identity()):
        replaced = getattr(torch, name)
    for options in ({}, {"periodic": False}, {"dtype": torch.float64}):
        torch.testing.assert_close(replaced(7, **options), window(7, **options))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def f(x: int) -> int:\n    y: list[int] = []\n    return int(x / 2)\n", True),
        ("def f(x):\n    return isinstance(x, int) and int(x)\n", False),
        ("def f(x):\n    return int(x, 16)\n", False),
        ("def f(x):\n    return [*map(int, x)]\n", False),
    ],
)
def test_int_is_replaced_only_where_it_is_called(code: str, *, expected: bool, tmp_path: Path) -> None:
    """As a type, it must stay a type."""
    path = tmp_path / "code.py"
    path.write_text(code, encoding="utf-8")
    assert _only_calls({"__file__": str(path)}, "int") is expected


class Best(nn.Module):
    """Sums the largest values of each column between an integer and a float, at most five of them."""

    def forward(self, x: torch.Tensor) -> Any:
        """Return one row; the number of values does not change its size."""
        number = min(5, x.shape[0]) + max(x.shape[0] * 3, 12) - min((x.shape[0] * 3, 12)) + max([2, 1])
        largest = x.topk(min(5, x.shape[0]), dim=0).values.clamp(-1, 1.5) + x.clip(max=2.5, min=0).mean()
        return largest.sum(0, keepdim=True) + number * min(1.0, 0.5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize("kind", [Points, Density, Best])
def test_python_code_is_exported(kind: Any, *, dynamo: bool) -> None:
    """The graph agrees at another size, and nothing remains changed."""
    model = kind().eval()
    torch.distributions.Distribution.set_default_validate_args(True)  # torch.compile in other tests sets False
    content: Any = io.BytesIO()
    options: Any = {"dynamic_shapes": ({0: "n"},)} if dynamo else {"dynamic_axes": {"x": {0: "n"}}}
    with exportable_python(model):
        program: Any = torch.onnx.export(
            model, (torch.randn(4, 3),), None if dynamo else content, dynamo=dynamo, input_names=["x"], verbose=False,
            **options,
        )  # fmt: skip
    if dynamo:
        program.save(content)
    assert not {"len", "min"} & globals().keys()
    assert torch.distributions.Normal(0.0, 1.0)._validate_args  # noqa: SLF001
    x = torch.randn(7, 3)
    session = onnxruntime.InferenceSession(content.getvalue(), providers=["CPUExecutionProvider"])
    (actual,) = session.run(None, {"x": x.numpy()})
    torch.testing.assert_close(torch.from_numpy(actual), model(x))

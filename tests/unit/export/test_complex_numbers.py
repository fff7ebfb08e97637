"""Complex arithmetic becomes arithmetic of real tensors."""

from __future__ import annotations

from typing import Any

import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional

from repogen.export.complex_numbers import with_real_pairs
from repogen.export.guards import recorded_programs
from repogen.onnx_graph.kernel_gaps import fill_kernel_gaps

pytestmark = pytest.mark.filterwarnings("ignore")


class Spectral(nn.Module):
    """A layer of a Fourier neural operator: multiplies the lowest modes of a signal with complex weights."""

    def __init__(self, modes: int = 3) -> None:
        """Create the weights."""
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(2, 4, modes, dtype=torch.complex64, generator=draw))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return four signals of the same length."""
        spectrum = torch.fft.rfft(x)
        out = torch.zeros(len(x), 4, spectrum.shape[-1], dtype=torch.complex64)
        out[:, :, : self.modes] = torch.einsum("bix,iox->box", spectrum[:, :, : self.modes], self.weight)
        signal: torch.Tensor = torch.fft.irfft(out, n=x.shape[-1])
        return signal


class Spectral2d(nn.Module):
    """The same for images, with two corners of the spectrum."""

    def __init__(self) -> None:
        """Create the weights."""
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.weights = nn.Parameter(torch.randn(2, 1, 4, 3, 3, 2, generator=draw))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return four images of the same size."""
        low, high = torch.view_as_complex(self.weights)
        spectrum = torch.fft.rfft2(x, norm="ortho")
        out = torch.zeros(len(x), 4, *spectrum.shape[-2:], dtype=spectrum.dtype)
        out[:, :, :3, :3] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :3, :3], low)
        out[:, :, -3:, :3] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, -3:, :3], high)
        image: torch.Tensor = torch.fft.irfft2(out, s=x.shape[-2:], norm="ortho")
        return image


class Rotary(nn.Module):
    """Rotates pairs of values, as the attention of many language models does."""

    def __init__(self) -> None:
        """Create the angles."""
        super().__init__()
        angles = torch.outer(torch.arange(16).float(), torch.tensor([1.0, 0.1]))
        self.register_buffer("rotation", torch.polar(torch.ones_like(angles), angles))
        self.rotation: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return vectors of the same shape."""
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.rotation[: x.shape[1]]).flatten(2)


class Arithmetic(nn.Module):
    """Operators of complex tensors, of a complex and a real tensor, and of a complex tensor and a number."""

    def numbers(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return complex tensors by name; ``x`` has three columns."""
        z = torch.complex(x, x.flip(1) + 1)
        assigned: Any = torch.zeros(len(x), 5, dtype=torch.complex64)
        assigned[:, 1:4] = z
        assigned[:, 0] = 1j
        square = z.unsqueeze(-1) * z.unsqueeze(-2)
        return {
            "add": z + 1,
            "add_real": x + z,
            "alpha": torch.add(z, z, alpha=3),
            "subtract": 2 - z,
            "multiply": z * z.conj() * 2,
            "multiply_real": z * x,
            "multiply_imaginary": x * 1j,
            "divide": z / (z * z + 3),
            "divide_real": z / (x * x + 1),
            "reciprocal": 1 / z,
            "exponential": torch.exp(z * 1j),
            "polar": torch.polar(x, x) * z,
            "cast": x.to(torch.complex64) + z,
            "negative": -z,
            "pad": functional.pad(z, (1, 2)),
            "pad_value": functional.pad(z, (1, 0), value=2.0),
            "concatenate": torch.cat([z, x, z], 1),
            "stack": torch.stack([z, z.flip(1)], 1),
            "where": torch.where(x > 0, z, 0),
            "fill": z.masked_fill(x > 0, 1 + 2j),
            "columns": z[:, [2, 0]],
            "gather": z.gather(1, torch.zeros(len(x), 2, dtype=torch.int64)),
            "expand": z[:, None].expand(-1, 2, -1),
            "unbind": z.unbind(1)[1],
            "split": torch.split(z, [1, 2], dim=1)[1],
            "roll": z.roll(1, 1),
            "sum": z.sum(1),
            "mean": z.mean(1, keepdim=True),
            "cumsum": z.cumsum(1),
            "transpose": z.T @ z,
            "matrix": square @ z.unsqueeze(-1),
            "einsum": torch.einsum("bij,bj,bi->bi", square, z, z),
            "addmm": torch.addmm(z, z, z.new_zeros(3, 3) + 1),
            "ones": torch.ones(3, dtype=torch.complex64) + z,
            "full": torch.full((3,), 1 - 1j) * z,
            "like": torch.zeros_like(z) + torch.ones_like(z),
            "assigned": assigned,
        }

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return them as real tensors, and two that are real."""
        numbers = self.numbers(x)
        return *(torch.view_as_real(number) for number in numbers.values()), numbers["add"].abs(), numbers["add"].real


def outputs(module: nn.Module, x: torch.Tensor, *sizes: str) -> list[torch.Tensor]:
    """Export with a part of the batch and dynamic sizes, and run ONNX Runtime on all of it."""
    with recorded_programs(with_real_pairs):
        program = torch.onnx.export(
            module.eval(), (x[:3],), dynamo=True, dynamic_shapes=(dict(enumerate(sizes)),), verbose=False
        )
    assert program is not None
    fill_kernel_gaps(program.model)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    return [torch.tensor(output) for output in session.run(None, {session.get_inputs()[0].name: x.numpy()})]


@pytest.mark.full
def test_arithmetic() -> None:
    """Every operator agrees with PyTorch for another batch size."""
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    module = Arithmetic()
    names = [*module.numbers(x), "absolute", "real"]
    for name, actual, expected in zip(names, outputs(module, x, "batch"), module(x), strict=True):
        torch.testing.assert_close(actual, expected, msg=name)


@pytest.mark.parametrize(
    ("module", "shape", "sizes"),
    [
        (Spectral(), (5, 2, 16), ("batch",)),
        pytest.param(Spectral(), (5, 2, 15), ("batch",), marks=pytest.mark.full),
        pytest.param(Spectral2d(), (5, 1, 16, 12), ("batch",), marks=pytest.mark.full),
        pytest.param(Rotary(), (5, 7, 4), ("batch", "time"), marks=pytest.mark.full),
    ],
)
def test_layers(module: nn.Module, shape: tuple[int, ...], sizes: tuple[str, ...]) -> None:
    """Complex weights, assignments to slices, and transforms between real and complex tensors."""
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(1))
    (actual,) = outputs(module, x, *sizes)
    torch.testing.assert_close(actual, module(x).detach(), atol=1e-5, rtol=1e-4)


def test_real_programs_are_not_changed() -> None:
    """They do not have to be decomposed."""
    program = torch.export.export(nn.Linear(3, 2), (torch.ones(2, 3),))
    assert with_real_pairs(program) is program


def test_parts_are_not_selected_from_numbers_that_were_created_from_them() -> None:
    """Between two operators, there is neither a join nor a selection."""

    class Chain(nn.Module):
        """Multiplies several times."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """Return the real part."""
            z = torch.complex(x, x)
            return (z * z * z * z).real + 1

    graph: Any = with_real_pairs(torch.export.export(Chain(), (torch.ones(2),))).graph
    assert not {"complex", "view_as_real"} & {
        str(node.target).split(".")[1] for node in graph.nodes if node.op[:4] == "call"
    }

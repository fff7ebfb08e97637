"""Archives of torch.jit and torch.export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.export import Dim

from tests.conformance.models import answers, architectures, calls, rows

if TYPE_CHECKING:
    from pathlib import Path


class _Loop(nn.Module):
    """A loop over time, which only TorchScript can export as a loop."""

    def __init__(self) -> None:
        """Create the layer."""
        super().__init__()
        self.step = nn.Linear(9, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Return the last state."""
        state = x[:, 0, :1].expand(-1, 5) * 0
        for i in range(x.shape[1]):
            state = torch.tanh(self.step(torch.cat([x[:, i], state], dim=1)))
        return state


class _Cell(nn.Module):
    """The same with a PyTorch cell."""

    def __init__(self) -> None:
        """Create the cell."""
        super().__init__()
        self.cell = nn.GRUCell(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Return the last state."""
        state = torch.zeros(x.shape[0], 5)
        for i in range(x.shape[1]):
            state = self.cell(x[:, i], state)
        return state


class _Meta(nn.Module):
    """A layer whose name is an attribute of torch's GraphModule."""

    def __init__(self) -> None:
        super().__init__()
        self.meta = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.meta(x))


class _Lists(nn.Module):
    """A loop that appends to a list, and a dict of its results."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Return all states, and the last one."""
        states = [x[:, 0]]
        for i in range(1, x.shape[1]):
            states.append(torch.tanh(states[-1] + x[:, i]))
        return {"states": torch.stack(states, 1), "last": states[-1]}


class _If(nn.Module):
    """Chooses a branch for the whole batch by its sum."""

    def __init__(self) -> None:
        """Create the layer."""
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Return one of two results."""
        scored: Tensor = self.linear(x)
        if bool(scored.sum() > 0):  # noqa: SIM108 - TorchScript exports the statement as an If
            result = scored * 2
        else:
            result = scored - 1
        return result


class _EarlyExit(nn.Module):
    """Stops after the first layer if it is sure about every row, and returns a dict in both cases."""

    def __init__(self) -> None:
        """Create the layers."""
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Return scores, and the largest of each row."""
        early = torch.softmax(self.first(x), 1)
        if bool(early.amax(1).min() > 0.45):
            return {"scores": early, "best": early.amax(1)}
        late = torch.softmax(self.second(early), 1)
        return {"scores": late, "best": late.amax(1)}


_MODULES: dict[str, Any] = {
    "plain": calls.seeded,
    "loop": _Loop,
    "lists": _Lists,
    "meta": _Meta,
    "cell": _Cell,
    "if": _If,
    "early": _EarlyExit,
    "dict": answers.Dict,
    "centred": rows.centred,
    "classes": answers.Integers,
}


def traced(directory: Path, name: str) -> None:
    """Write a traced archive; its example has a batch of 3."""
    torch.manual_seed(0)
    module = _MODULES[name]().eval()
    trace: Any = torch.jit.trace
    trace(module, (torch.randn(3, 4),), strict=False).save(directory / "model.pt")


def scripted(directory: Path, name: str) -> None:
    """Write a scripted archive."""
    torch.manual_seed(0)
    torch.jit.script(_MODULES[name]().eval()).save(directory / "model.pt")


def whole_module(directory: Path) -> None:
    """Write a pickled module, as `torch.save(model)` does, under a TorchScript archive's name."""
    torch.save(calls.plain(), directory / "model.pt")


def state_dict(directory: Path) -> None:
    """Write only weights under a TorchScript archive's name."""
    torch.save(calls.plain().state_dict(), directory / "model.pt")


def noise(directory: Path, name: str) -> None:
    """Write bytes that have no format."""
    (directory / name).write_bytes(bytes(range(256)) * 16)


def exported(directory: Path, name: str) -> None:
    """Write a ``.pt2`` with a dynamic batch."""
    torch.manual_seed(0)
    module = _MODULES[name]().eval()
    program = torch.export.export(module, (torch.randn(3, 4),), dynamic_shapes=({0: Dim("batch", min=1, max=16)},))
    torch.export.save(program, directory / "model.pt2")


def exported_fixed(directory: Path, batch: int) -> None:
    """Write a ``.pt2`` with no dynamic dim."""
    torch.export.save(torch.export.export(calls.seeded(), (torch.randn(batch, 4),)), directory / "model.pt2")


def exported_steps(directory: Path) -> None:
    """Write a ``.pt2`` with a dynamic batch and a dynamic length of at least 2."""
    torch.manual_seed(0)
    dims = {0: Dim("batch", min=1, max=16), 1: Dim("steps", min=2, max=32)}
    program = torch.export.export(layers_over_time().eval(), (torch.randn(3, 7, 4),), dynamic_shapes=(dims,))
    torch.export.save(program, directory / "model.pt2")


def layers_over_time() -> nn.Module:
    """Return layers that are applied to each step."""
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


class _Logits(nn.Module):
    """BERT that returns only its logits."""

    def __init__(self) -> None:
        """Create the model."""
        super().__init__()
        self.model = architectures.build("bert")

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        """Return [batch, classes]."""
        return self.model(input_ids=input_ids, attention_mask=attention_mask).logits


def exported_text(directory: Path, output: str) -> None:
    """Write BERT as a ``.pt2`` with keyword arguments; with ``whole``, its output is a transformers type."""
    module = architectures.build("bert") if output == "whole" else _Logits().eval()
    inputs = {name: torch.from_numpy(array) for name, array in architectures.text(3, 7).items()}
    batch, sequence = Dim("batch", min=1, max=16), Dim("sequence", min=2, max=32)
    shapes = {name: {0: batch, 1: sequence} for name in inputs}
    program = torch.export.export(module, (), inputs, dynamic_shapes=shapes)
    torch.export.save(program, directory / "model.pt2")


def truncated(directory: Path) -> None:
    """Write the first half of a ``.pt2``."""
    exported(directory, "plain")
    path = directory / "model.pt2"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def script_as_pt2(directory: Path) -> None:
    """Write a TorchScript archive under the name of a ``.pt2``."""
    traced(directory, "plain")
    (directory / "model.pt").rename(directory / "model.pt2")


def other_weights(directory: Path) -> None:
    """Write weights of another module."""
    torch.save(nn.Linear(7, 2).state_dict(), directory / "weights.pt")


def lazy_weights(directory: Path) -> None:
    """Write the weights of ``verdicts.Lazy`` after its first forward."""
    layers = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    save_file({f"layers.{key}": value for key, value in layers.state_dict().items()}, directory / "weights.safetensors")


class _Bfloat16(nn.Module):
    """Has a layer in bfloat16."""

    def __init__(self) -> None:
        """Create the layer."""
        super().__init__()
        self.layer = nn.Linear(4, 3).bfloat16()

    def forward(self, x: Tensor) -> Tensor:
        """Return float32."""
        scores: Tensor = self.layer(x.to(torch.bfloat16)).float()
        return scores


def bf16_script(directory: Path) -> None:
    """Write a scripted archive that computes in bfloat16."""
    torch.manual_seed(0)
    archive: Any = torch.jit.script(_Bfloat16().eval())
    archive.save(directory / "model.pt")


def bf16_program(directory: Path) -> None:
    """Write a program of torch.export that computes in bfloat16."""
    torch.manual_seed(0)
    shapes = {"x": {0: Dim("batch", min=1, max=8)}}
    program = torch.export.export(_Bfloat16().eval(), (torch.randn(3, 4),), dynamic_shapes=shapes)
    torch.export.save(program, directory / "model.pt2")

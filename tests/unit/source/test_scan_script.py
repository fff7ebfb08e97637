"""TorchScript archives that read or write files of the user are rejected before anything in them runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from repogen.errors import SourceError
from repogen.source.load import load_source
from repogen.spec.models import ModelSpec

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit


class _OfFile(nn.Module):
    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path


class Writer(_OfFile):
    """Writes a file."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Write it."""
        torch.ops.aten.save(x, self.path)
        return x


class Reader(_OfFile):
    """Reads a file in a branch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Read it, and create it if it does not exist."""
        if x.shape[0] > 0:
            x = x + torch.from_file(self.path, True, 4)  # noqa: FBT003 - TorchScript
        return x


class Nested(_OfFile):
    """Writes a file in a method of another module, in a task."""

    def __init__(self, path: str) -> None:
        """Create the other module."""
        super().__init__(path)
        self.inner = Writer(path)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Write it."""
        result: torch.Tensor = torch.jit.wait(torch.jit.fork(self.inner, x))  # type: ignore[no-untyped-call]
        return result


class Restored(_OfFile):
    """Writes a file when it is loaded."""

    @torch.jit.export
    def __getstate__(self) -> tuple[str, bool]:
        """Return the state."""
        return self.path, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[str, bool]) -> None:
        """Restore it."""
        self.path = state[0]
        self.training = state[1]
        torch.ops.aten.save(torch.zeros(1), self.path)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the input."""
        return x


@pytest.mark.parametrize("kind", [Writer, Reader, Nested, Restored])
def test_file_operators(tmp_path: Path, kind: type[_OfFile]) -> None:
    """They are found in branches, tasks and other modules, and where they would run while the archive is loaded."""
    mark = tmp_path / "mark"
    script: Any = torch.jit.script(kind(str(mark)))
    torch.jit.save(script, tmp_path / "model.pt")
    inputs = {"x": {"dtype": "float32", "shape": ["batch", 4]}}
    source = {"kind": "torchscript", "path": "model.pt"}
    spec = {"source": source, "inputs": inputs, "dims": {"batch": {"max": 4}}}
    with pytest.raises(SourceError) as caught:
        load_source(ModelSpec.model_validate(spec), tmp_path)
    assert caught.value.code == "source.archive"
    assert "could read or write any of your files" in caught.value.message
    assert not mark.exists()

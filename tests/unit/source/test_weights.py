"""Weights: strict, without running code, tied ones included."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from repogen.errors import SourceError
from repogen.source.weights import load_weights


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        """Keep the path."""
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        """Make unpickling touch the path."""
        return Path.touch, (self.path,)


class Tied(nn.Module):
    """An embedding whose weights are the decoder's."""

    def __init__(self) -> None:
        """Tie them."""
        super().__init__()
        self.embedding = nn.Embedding(3, 2)
        self.decoder = nn.Linear(2, 3, bias=False)
        self.decoder.weight = self.embedding.weight


def refused(module: nn.Module, path: Path) -> SourceError:
    """Return the error of weights that must be refused; it names the file, not its directory."""
    with pytest.raises(SourceError) as caught:
        load_weights(module, path)
    assert path.name in caught.value.message
    assert str(path.parent) not in caught.value.message
    return caught.value


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt", "nested.pt"])
def test_weights_come_from_safetensors_and_pt(tmp_path: Path, name: str) -> None:
    """Also from a checkpoint that holds the state_dict among others."""
    state = {"weight": torch.tensor([[2.0, 3.0]]), "bias": torch.tensor([1.0])}
    if name == "w.safetensors":
        save_file(state, tmp_path / name)
    else:
        torch.save({"state_dict": state, "epoch": 3} if name == "nested.pt" else state, tmp_path / name)
    module = nn.Linear(2, 1)
    load_weights(module, tmp_path / name)
    assert module(torch.ones(1, 2)).item() == 6.0


@pytest.mark.parametrize("zipped", [False, True])
def test_code_in_a_pt_file_is_refused_and_does_not_run(tmp_path: Path, *, zipped: bool) -> None:
    """A pickle that wants to run something is an error with the safe way out, in both formats of torch.save."""
    torch.save({"weight": Bomb(tmp_path / "ran")}, tmp_path / "w.pt", _use_new_zipfile_serialization=zipped)
    error = refused(nn.Linear(2, 1), tmp_path / "w.pt")
    assert error.code == "source.weights-unsafe"
    assert "save_file" in error.hint
    assert not (tmp_path / "ran").exists()


def test_the_bomb_is_live(tmp_path: Path) -> None:
    """The test above would see it: plain pickle runs it."""
    pickle.loads(pickle.dumps(Bomb(tmp_path / "ran")))  # noqa: S301 - our own bomb
    assert (tmp_path / "ran").exists()


def test_tied_weights_may_be_stored_once(tmp_path: Path) -> None:
    """A safetensors file keeps one copy of shared tensors; the other name is no gap."""
    save_file({"embedding.weight": torch.full((3, 2), 5.0)}, tmp_path / "w.safetensors")
    module = Tied()
    load_weights(module, tmp_path / "w.safetensors")
    assert module.decoder.weight.flatten().tolist() == [5.0] * 6


def test_every_mismatch_is_listed_at_once(tmp_path: Path) -> None:
    """Missing, unexpected and misshapen tensors in one message."""
    save_file({"weight": torch.zeros(1, 3), "extra": torch.zeros(1)}, tmp_path / "w.safetensors")
    error = refused(nn.Linear(2, 1), tmp_path / "w.safetensors")
    assert error.message == (
        "w.safetensors does not match the model; missing: bias; unexpected: extra; "
        "other shape: weight: file [1, 3], model [1, 2]"
    )
    assert "source.kwargs" in error.hint


def test_long_lists_are_cut(tmp_path: Path) -> None:
    """A wrong file does not fill the screen."""
    save_file({f"k{i}": torch.zeros(1) for i in range(9)}, tmp_path / "w.safetensors")
    assert "k4 and 4 more" in refused(nn.Identity(), tmp_path / "w.safetensors").message


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
@pytest.mark.parametrize("content", [None, b"", b"\x80\x02cut"])
def test_files_that_cannot_be_read_are_refused(tmp_path: Path, name: str, content: bytes | None) -> None:
    """Absent, empty and cut files."""
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert refused(nn.Linear(2, 1), tmp_path / name).code in {"source.weights-unreadable", "source.weights-unsafe"}


def test_what_is_no_state_dict_is_refused(tmp_path: Path) -> None:
    """A list of tensors has no names."""
    torch.save([torch.zeros(1)], tmp_path / "w.pt")
    assert refused(nn.Linear(2, 1), tmp_path / "w.pt").code == "source.weights-type"

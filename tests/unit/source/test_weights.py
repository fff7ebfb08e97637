"""Weights: strict, without running code, tied ones included."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from repogen.errors import SourceError
from repogen.source.torch.weights import load_weights


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
    assert load_weights(module, tmp_path / name) == ()
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
def test_a_file_that_is_not_there_is_refused(tmp_path: Path, name: str) -> None:
    """It may vanish after the spec was read."""
    assert refused(nn.Linear(2, 1), tmp_path / name).code == "source.weights-unreadable"


@pytest.mark.parametrize("kept", [0.6, 0.9])
@pytest.mark.parametrize("name", ["w.safetensors", "w.pt", "old.pt"])
def test_files_that_are_cut_are_refused(tmp_path: Path, name: str, kept: float) -> None:
    """As by a download that broke off; no advice to load it unsafely."""
    if name == "w.safetensors":
        save_file(nn.Linear(2, 1).state_dict(), tmp_path / name)
    else:
        torch.save(nn.Linear(2, 1).state_dict(), tmp_path / name, _use_new_zipfile_serialization=name == "w.pt")
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: int(len(content) * kept)])
    error = refused(nn.Linear(2, 1), tmp_path / name)
    assert error.code == ("source.weights-format" if name == "w.pt" else "source.weights-unreadable")
    assert error.hint == "save it again, or download it again"
    assert "weights_only" not in error.message
    assert "weights_only" not in error.hint


def test_a_pickled_model_is_named(tmp_path: Path) -> None:
    """The commonest of unsafe files: torch.save(model)."""
    torch.save(nn.Linear(2, 1), tmp_path / "w.pt")
    error = refused(nn.Linear(2, 1), tmp_path / "w.pt")
    assert error.message == (
        "w.pt holds more than tensors (torch.nn.modules.linear.Linear), and loading it would run its code"
    )


@pytest.mark.parametrize(
    ("content", "words", "hint"),
    [
        ([torch.zeros(1)], "it holds a value of type list", "save model.state_dict()"),
        ({"weight": torch.zeros(1), "epoch": 3}, "under 'epoch' it holds a value of type int", "model.state_dict()"),
        (
            {"model_state_dict": {"weight": torch.zeros(1)}, "epoch": 3, "optimizer": {"state": {}}},
            "it is a checkpoint, and the weights lie under 'model_state_dict'",
            "torch.save(torch.load('w.pt')['model_state_dict'], 'weights.pt')",
        ),
        (
            {"model": {"weight": torch.zeros(1)}, "ema": {"weight": torch.zeros(1)}},
            "the weights lie under 'model' or 'ema'",
            "torch.load('w.pt')['model']",
        ),
    ],
)
def test_what_is_no_state_dict_is_refused(tmp_path: Path, content: object, words: str, hint: str) -> None:
    """It is said what it is instead, and where the weights are."""
    torch.save(content, tmp_path / "w.pt")
    error = refused(nn.Linear(2, 1), tmp_path / "w.pt")
    assert (error.code, words in error.message, hint in error.hint) == ("source.weights-type", True, True)


@pytest.mark.parametrize(
    ("rename", "hint"),
    [
        ("module.{}", "begin with 'module.' (nn.DataParallel wrapped the model): save model.module.state_dict(), or"),
        ("_orig_mod.{}", "(torch.compile wrapped the model): save model._orig_mod.state_dict()"),
        ("net.body.{}", "k.removeprefix('net.body.'): v for k, v in state.items() if k.startswith('net.body.')"),
    ],
)
def test_a_prefix_before_every_key_is_seen(tmp_path: Path, rename: str, hint: str) -> None:
    """Also when the file holds other tensors beside them."""
    state = {rename.format(key): value for key, value in Tied().state_dict().items()}
    torch.save({**state, "loss.scale": torch.ones(1)}, tmp_path / "w.pt")
    assert hint in refused(Tied(), tmp_path / "w.pt").hint


def test_a_prefix_that_only_the_model_has_is_seen(tmp_path: Path) -> None:
    """The weights of a part, or of the module that the model wraps."""
    torch.save(nn.Linear(2, 1).state_dict(), tmp_path / "w.pt")
    whole = refused(nn.Sequential(nn.Linear(2, 1)), tmp_path / "w.pt").hint
    assert "those of model.0 alone" in whole
    assert "{'0.' + k: v for k, v in state.items()}" in whole
    part = refused(nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 1)), tmp_path / "w.pt").hint
    assert part == "the keys of w.pt are those of model.0 alone: save the state_dict of the whole model"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_another_precision_is_cast_and_said(tmp_path: Path, dtype: torch.dtype) -> None:
    """Weights of half precision go into a float32 model, and a note counts them."""
    save_file({"weight": torch.ones(1, 2, dtype=dtype), "bias": torch.ones(1)}, tmp_path / "w.safetensors")
    module = nn.Linear(2, 1)
    name = str(dtype).removeprefix("torch.")
    assert load_weights(module, tmp_path / "w.safetensors") == (
        f"1 of 2 tensors are {name} in w.safetensors and float32 in the model: they were cast",
    )
    assert module(torch.ones(1, 2)).item() == 3.0


class Counts(nn.Module):
    """Holds one buffer.

    Args:
        buffer: The buffer.
    """

    def __init__(self, buffer: torch.Tensor) -> None:
        """Register it."""
        super().__init__()
        self.register_buffer("counts", buffer)


@pytest.mark.parametrize(
    ("have", "want"),
    [
        (torch.ones(2, dtype=torch.int8), torch.zeros(2)),
        (torch.ones(2), torch.zeros(2, dtype=torch.int64)),
        (torch.ones(2, dtype=torch.complex64), torch.zeros(2)),
        (torch.ones(2, dtype=torch.bool), torch.zeros(2)),
        (torch.tensor([1, 2**40]), torch.zeros(2, dtype=torch.int32)),
    ],
)
def test_a_cast_that_changes_values_is_refused(tmp_path: Path, have: torch.Tensor, want: torch.Tensor) -> None:
    """Whole numbers for real ones, as of quantized weights, and numbers that do not fit."""
    save_file({"counts": have}, tmp_path / "w.safetensors")
    error = refused(Counts(want), tmp_path / "w.safetensors")
    kinds = [str(tensor.dtype).removeprefix("torch.") for tensor in (have, want)]
    assert error.message.endswith(f"other dtype: counts: file {kinds[0]}, model {kinds[1]}")
    assert "a cast would change these values" in error.hint


def test_whole_numbers_that_fit_are_cast(tmp_path: Path) -> None:
    """As an old mask of bytes for one of booleans."""
    save_file({"counts": torch.tensor([0, 1], dtype=torch.uint8)}, tmp_path / "w.safetensors")
    module = Counts(torch.zeros(2, dtype=torch.bool))
    assert len(load_weights(module, tmp_path / "w.safetensors")) == 1
    assert module.get_buffer("counts").tolist() == [False, True]

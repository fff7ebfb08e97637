"""Tests for loading weights: strictly, without running pickled code, with tied weights."""

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
    """Creates a file when unpickled."""

    def __init__(self, path: Path) -> None:
        """Store the path."""
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        """Let unpickling create the file."""
        return Path.touch, (self.path,)


class Tied(nn.Module):
    """An embedding and a decoder that share their weights."""

    def __init__(self) -> None:
        """Share the weights."""
        super().__init__()
        self.embedding = nn.Embedding(3, 2)
        self.decoder = nn.Linear(2, 3, bias=False)
        self.decoder.weight = self.embedding.weight


def rejected(module: nn.Module, path: Path) -> SourceError:
    """Return the error for invalid weights, which must name the file without its directory."""
    with pytest.raises(SourceError) as caught:
        load_weights(module, path)
    assert path.name in caught.value.message
    assert str(path.parent) not in caught.value.message
    return caught.value


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt", "nested.pt"])
def test_weights_load_from_safetensors_and_pt(tmp_path: Path, name: str) -> None:
    """A checkpoint may also contain the state_dict under a key."""
    state = {"weight": torch.tensor([[2.0, 3.0]]), "bias": torch.tensor([1.0])}
    if name == "w.safetensors":
        save_file(state, tmp_path / name)
    else:
        torch.save({"state_dict": state, "epoch": 3} if name == "nested.pt" else state, tmp_path / name)
    module = nn.Linear(2, 1)
    assert load_weights(module, tmp_path / name) == ()
    assert module(torch.ones(1, 2)).item() == 6.0


@pytest.mark.parametrize("zipped", [False, True])
def test_pickled_code_is_rejected_and_not_run(tmp_path: Path, *, zipped: bool) -> None:
    """The hint names a safe format; both formats of torch.save are covered."""
    torch.save({"weight": Bomb(tmp_path / "ran")}, tmp_path / "w.pt", _use_new_zipfile_serialization=zipped)
    error = rejected(nn.Linear(2, 1), tmp_path / "w.pt")
    assert error.code == "source.weights-unsafe"
    assert "save_file" in error.hint
    assert not (tmp_path / "ran").exists()


def test_bomb_runs_when_unpickled(tmp_path: Path) -> None:
    """Without this, the test above would prove nothing."""
    pickle.loads(pickle.dumps(Bomb(tmp_path / "ran")))  # noqa: S301 - this test's own pickle
    assert (tmp_path / "ran").exists()


def test_tied_weights_can_be_stored_once(tmp_path: Path) -> None:
    """A safetensors file has one copy of shared tensors, so the other name is not missing."""
    save_file({"embedding.weight": torch.full((3, 2), 5.0)}, tmp_path / "w.safetensors")
    module = Tied()
    load_weights(module, tmp_path / "w.safetensors")
    assert module.decoder.weight.flatten().tolist() == [5.0] * 6


def test_all_mismatches_are_reported_together(tmp_path: Path) -> None:
    """One message lists missing and unexpected tensors, and tensors of a different shape."""
    save_file({"weight": torch.zeros(1, 3), "extra": torch.zeros(1)}, tmp_path / "w.safetensors")
    error = rejected(nn.Linear(2, 1), tmp_path / "w.safetensors")
    assert error.message == (
        "w.safetensors does not match the model; missing: bias; unexpected: extra; "
        "different shape: weight: file [1, 3], model [1, 2]"
    )
    assert "source.kwargs" in error.hint


def test_long_lists_are_shortened(tmp_path: Path) -> None:
    """The message stays short for an unrelated file."""
    save_file({f"k{i}": torch.zeros(1) for i in range(9)}, tmp_path / "w.safetensors")
    assert "k4 and 4 more" in rejected(nn.Identity(), tmp_path / "w.safetensors").message


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
def test_missing_file_is_rejected(tmp_path: Path, name: str) -> None:
    """The file may be deleted after the spec was loaded."""
    assert rejected(nn.Linear(2, 1), tmp_path / name).code == "source.weights-unreadable"


@pytest.mark.parametrize("fraction", [0.6, 0.9])
@pytest.mark.parametrize("name", ["w.safetensors", "w.pt", "old.pt"])
def test_truncated_files_are_rejected(tmp_path: Path, name: str, fraction: float) -> None:
    """The error must not suggest loading the file unsafely."""
    if name == "w.safetensors":
        save_file(nn.Linear(2, 1).state_dict(), tmp_path / name)
    else:
        torch.save(nn.Linear(2, 1).state_dict(), tmp_path / name, _use_new_zipfile_serialization=name == "w.pt")
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: int(len(content) * fraction)])
    error = rejected(nn.Linear(2, 1), tmp_path / name)
    assert error.code == ("source.weights-format" if name == "w.pt" else "source.weights-unreadable")
    assert error.hint == "save it again, or download it again"
    assert "weights_only" not in error.message
    assert "weights_only" not in error.hint


def test_pickled_model_is_reported(tmp_path: Path) -> None:
    """The most common unsafe file: torch.save(model)."""
    torch.save(nn.Linear(2, 1), tmp_path / "w.pt")
    error = rejected(nn.Linear(2, 1), tmp_path / "w.pt")
    assert error.message == ("w.pt contains torch.nn.modules.linear.Linear, and loading it would run code")


@pytest.mark.parametrize(
    ("content", "words", "hint"),
    [
        ([torch.zeros(1)], "it contains a value of type list", "save model.state_dict()"),
        ({"weight": torch.zeros(1), "epoch": 3}, "'epoch' is a value of type int", "model.state_dict()"),
        (
            {"model_state_dict": {"weight": torch.zeros(1)}, "epoch": 3, "optimizer": {"state": {}}},
            "it is a checkpoint with the weights under 'model_state_dict'",
            "torch.save(torch.load('w.pt')['model_state_dict'], 'weights.pt')",
        ),
        (
            {"model": {"weight": torch.zeros(1)}, "ema": {"weight": torch.zeros(1)}},
            "with the weights under 'model' or 'ema'",
            "torch.load('w.pt')['model']",
        ),
    ],
)
def test_file_without_state_dict_is_rejected(tmp_path: Path, content: object, words: str, hint: str) -> None:
    """The message describes the content, and the hint says where the weights are."""
    torch.save(content, tmp_path / "w.pt")
    error = rejected(nn.Linear(2, 1), tmp_path / "w.pt")
    assert (error.code, words in error.message, hint in error.hint) == ("source.weights-type", True, True)


@pytest.mark.parametrize(
    ("rename", "hint"),
    [
        ("module.{}", "start with 'module.' (nn.DataParallel wrapped the model): save model.module.state_dict(), or"),
        ("_orig_mod.{}", "(torch.compile wrapped the model): save model._orig_mod.state_dict()"),
        ("net.body.{}", "k.removeprefix('net.body.'): v for k, v in state.items() if k.startswith('net.body.')"),
    ],
)
def test_prefix_of_the_file_is_detected(tmp_path: Path, rename: str, hint: str) -> None:
    """The file may contain other tensors as well."""
    state = {rename.format(key): value for key, value in Tied().state_dict().items()}
    torch.save({**state, "loss.scale": torch.ones(1)}, tmp_path / "w.pt")
    assert hint in rejected(Tied(), tmp_path / "w.pt").hint


def test_prefix_of_the_model_is_detected(tmp_path: Path) -> None:
    """The file has the weights of a submodule, or of the module inside a wrapper."""
    torch.save(nn.Linear(2, 1).state_dict(), tmp_path / "w.pt")
    whole = rejected(nn.Sequential(nn.Linear(2, 1)), tmp_path / "w.pt").hint
    assert "those of model.0 only" in whole
    assert "{'0.' + k: v for k, v in state.items()}" in whole
    part = rejected(nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 1)), tmp_path / "w.pt").hint
    assert part == "the keys of w.pt are those of model.0 only: save the state_dict of the whole model"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_another_precision_is_cast_with_a_note(tmp_path: Path, dtype: torch.dtype) -> None:
    """The note has the number of tensors and both dtypes."""
    save_file({"weight": torch.ones(1, 2, dtype=dtype), "bias": torch.ones(1)}, tmp_path / "w.safetensors")
    module = nn.Linear(2, 1)
    name = str(dtype).removeprefix("torch.")
    assert load_weights(module, tmp_path / "w.safetensors") == (
        f"cast 1 of 2 tensors from {name} in w.safetensors to float32 as in the model",
    )
    assert module(torch.ones(1, 2)).item() == 3.0


class Counts(nn.Module):
    """A module with one buffer.

    Args:
        buffer: The buffer.
    """

    def __init__(self, buffer: torch.Tensor) -> None:
        """Register the buffer."""
        super().__init__()
        self.register_buffer("counts", buffer)


@pytest.mark.parametrize(
    ("stored", "buffer"),
    [
        (torch.ones(2, dtype=torch.int8), torch.zeros(2)),
        (torch.ones(2), torch.zeros(2, dtype=torch.int64)),
        (torch.ones(2, dtype=torch.complex64), torch.zeros(2)),
        (torch.ones(2, dtype=torch.bool), torch.zeros(2)),
        (torch.tensor([1, 2**40]), torch.zeros(2, dtype=torch.int32)),
    ],
)
def test_cast_that_changes_values_is_rejected(tmp_path: Path, stored: torch.Tensor, buffer: torch.Tensor) -> None:
    """Integers for floats, as in quantized weights, and integers that do not fit."""
    save_file({"counts": stored}, tmp_path / "w.safetensors")
    error = rejected(Counts(buffer), tmp_path / "w.safetensors")
    kinds = [str(tensor.dtype).removeprefix("torch.") for tensor in (stored, buffer)]
    assert error.message.endswith(f"different dtype: counts: file {kinds[0]}, model {kinds[1]}")
    assert "a cast would change the values" in error.hint


def test_integers_that_fit_are_cast(tmp_path: Path) -> None:
    """For example a mask of bytes for a buffer of booleans."""
    save_file({"counts": torch.tensor([0, 1], dtype=torch.uint8)}, tmp_path / "w.safetensors")
    module = Counts(torch.zeros(2, dtype=torch.bool))
    assert len(load_weights(module, tmp_path / "w.safetensors")) == 1
    assert module.get_buffer("counts").tolist() == [False, True]


def lazy() -> nn.Sequential:
    """Return a model whose input sizes are unknown before the first forward."""
    return nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d(), nn.Linear(3, 2))


def test_lazy_modules_have_the_shapes_of_the_file(tmp_path: Path) -> None:
    """No forward is necessary before weights are loaded."""
    trained = lazy()
    trained(torch.randn(4, 5))
    save_file(trained.state_dict(), tmp_path / "w.safetensors")
    module = lazy()
    assert load_weights(module, tmp_path / "w.safetensors") == ()
    x = torch.randn(2, 5)
    assert torch.equal(module.eval()(x), trained.eval()(x))


def test_weights_without_those_of_a_lazy_module_are_rejected(tmp_path: Path) -> None:
    """They stay uninitialized; a first forward would draw random values."""
    save_file(
        {f"2.{name}": tensor for name, tensor in nn.Linear(3, 2).state_dict().items()}, tmp_path / "w.safetensors"
    )
    error = rejected(lazy(), tmp_path / "w.safetensors")
    assert error.code == "source.weights-mismatch"
    assert "missing: 0.weight" in error.message


def test_tensor_with_more_elements_than_the_file(tmp_path: Path) -> None:
    """A file of 1 KB can contain a tensor of any shape, all of whose elements are one: it was converted first."""
    module = nn.BatchNorm1d(2)
    state = dict(module.state_dict())
    state["num_batches_tracked"] = torch.zeros(1, dtype=torch.int32).expand(2**50)
    torch.save(state, tmp_path / "w.pt")
    assert "num_batches_tracked: file [1125899906842624], model []" in rejected(module, tmp_path / "w.pt").message

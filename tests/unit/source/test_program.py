"""Tests for ``kind: torch_export``: signature and dims of a ``.pt2`` file, and rejecting code in it."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

from repogen.artifacts.source import DimRange, Eager, Program, SourceModel
from repogen.errors import SourceError
from repogen.source.load import load_source
from repogen.source.torch import exported_program, loader
from repogen.source.torch.scan_program import scan_program
from repogen.spec.models import ModelSpec

if TYPE_CHECKING:
    from collections.abc import Callable


SELF = "__self__"
"""An attribute of functions."""


class Tagger(nn.Module):
    """Accepts floats, integers, a number and a dict; returns a dict that contains a tuple."""

    def __init__(self) -> None:
        """Create two layers."""
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 3)

    def forward(
        self, x: torch.Tensor, ids: torch.Tensor, scale: int = 2, *, extra: dict[str, torch.Tensor] | None = None
    ) -> dict[str, object]:
        """Return logits and a pair of tensors."""
        y = self.head(x + self.embed(ids).mean(1)) * scale
        if extra is not None:
            y = y + extra["shift"]
        return {"logits": y, "pair": (y.sum(-1), y * 2)}


def saved(path: Path, **options: Any) -> Path:
    """Write a program with a batch of 1 to 16 and a sequence of 2 to 32."""
    torch.manual_seed(0)
    module = Tagger().eval()
    batch, sequence = Dim("batch", min=1, max=16), Dim("sequence", min=2, max=32)
    kwargs = {"extra": {"shift": torch.randn(3, 3)}} if options.get("extra") else {}
    shapes: dict[str, Any] = {"x": {0: batch}, "ids": {0: batch, 1: sequence}, "scale": None}
    if kwargs:
        shapes["extra"] = {"shift": {0: batch}}
    arguments = (torch.randn(3, 4), torch.randint(0, 10, (3, 5)), 3)
    program = torch.export.export(module, arguments, kwargs, dynamic_shapes=shapes)
    torch.export.save(program, path)
    return path


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a program once."""
    return saved(tmp_path_factory.mktemp("program") / "tagger.pt2", extra=True)


def load(path: Path, **spec: Any) -> SourceModel:
    """Load a program."""
    source = {"kind": "torch_export", "path": path.name}
    return load_source(ModelSpec.model_validate({"source": source, **spec}), path.parent)


def rejected(path: Path, **spec: Any) -> SourceError:
    """Return the error for an invalid program."""
    with pytest.raises(SourceError) as caught:
        load(path, **spec)
    return caught.value


def test_signature_comes_from_the_program(program: Path) -> None:
    """Tensors are flattened in order, constants stay in the graph, and unnamed dims get names."""
    source = load(program)
    assert [(spec.name, spec.dtype, spec.shape) for spec in source.signature.inputs] == [
        ("x", "float32", ("batch", 4)),
        ("ids", "int64", ("batch", "ids_axis1")),
        ("extra_shift", "float32", ("batch", 3)),
    ]
    assert [spec.name for spec in source.signature.outputs] == ["logits", "pair_output_0", "pair_output_1"]
    assert source.dims == {"batch": DimRange(1, 16, 2), "ids_axis1": DimRange(2, 32, 16)}
    assert isinstance(source.origin, Program)


def test_stored_example_inputs_are_used(program: Path) -> None:
    """Integers need no range then."""
    source = load(program)
    examples = source.examples({"batch": 3, "ids_axis1": 5}, 0)
    assert examples["ids"].shape == (3, 5)
    assert examples["ids"].max() < 10
    assert source.reference(examples)["logits"].shape == (3, 3)


def test_spec_can_name_and_narrow_dims(program: Path) -> None:
    """The spec sets the name of a dim, a range and narrower bounds."""
    inputs = {"ids": {"dtype": "int64", "shape": ["batch", "words"], "range": [7, 9]}}
    source = load(program, inputs=inputs, dims={"batch": {"max": 4}, "words": {"min": 3, "max": 9}})
    assert source.dims == {"batch": DimRange(1, 4, 2), "words": DimRange(3, 9, 9)}
    assert source.examples({"batch": 2, "words": 3}, 0)["ids"].min() >= 7


def test_bounds_wider_than_the_program_are_rejected(program: Path) -> None:
    """The message has both ranges."""
    error = rejected(program, dims={"ids_axis1": {"min": 1, "max": 32}})
    assert error.code == "source.declared-size"
    assert error.message == "dims.ids_axis1 is 1 to 32, but the file allows 2 to 32"


def test_program_that_returns_numbers_is_exported_as_a_module(tmp_path: Path) -> None:
    """torch.onnx.export does not accept such a program."""

    class Two(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
            return x * 2, 3

    torch.export.save(torch.export.export(Two(), (torch.randn(2, 3),)), tmp_path / "two.pt2")
    source = load(tmp_path / "two.pt2")
    assert isinstance(source.origin, Eager)
    assert "was omitted" in source.notes[0]


class _Named(nn.Module):
    """Has layers whose names a program's own module cannot have."""

    def __init__(self) -> None:
        super().__init__()
        self.meta, self.meta_ = nn.Linear(4, 3), nn.Linear(4, 3)
        self.graph = nn.BatchNorm1d(3)
        self.heads = nn.ModuleDict({"class": nn.Linear(3, 2)})
        self.register_buffer("code", torch.rand(3))

    def forward(self, x: torch.Tensor) -> Any:
        return self.heads["class"](self.graph(self.meta(x) - self.meta_(x)) * self.code)


def test_weights_with_names_of_graph_modules(tmp_path: Path) -> None:
    """torch.export accepts such names, but its ExportedProgram.module fails."""
    module, rows = _Named().eval(), torch.rand(3, 4)
    path = tmp_path / "model.pt2"
    exported = torch.export.export(module, (rows,), dynamic_shapes={"x": {0: Dim("batch", min=1, max=8)}})
    torch.export.save(exported, path)
    output: Any = load(path).reference({"x": rows.numpy()})["output"]
    np.testing.assert_allclose(output, module(rows).detach().numpy(), rtol=1e-6)


def test_weights_without_values_are_rejected(program: Path, tmp_path: Path) -> None:
    """An archive may place them on the meta device."""

    def on_meta(name: str, content: bytes) -> bytes:
        return content.replace(b'"cpu"', b'"meta"') if name.endswith("weights_config.json") else content

    error = rejected(_rewritten(program, tmp_path / "bad.pt2", on_meta))
    assert (error.code, "is on the meta device: it has no values" in error.message) == ("source.archive", True)


def test_program_of_which_torch_makes_no_module(tmp_path: Path) -> None:
    """An error of torch becomes one of the source: the name of the layer is one that torch sets itself."""
    module = nn.Sequential()
    module.add_module("_in_spec", nn.Linear(4, 3))
    torch.export.save(torch.export.export(module.eval(), (torch.rand(3, 4),)), tmp_path / "model.pt2")
    error = rejected(tmp_path / "model.pt2")
    assert error.code == "source.archive"
    assert "cannot convert the program to a module: TypeError" in error.message


def test_program_in_training_mode_is_rejected(tmp_path: Path) -> None:
    """The hint is to call eval() before the export."""
    exported = torch.export.export(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2)), (torch.randn(3, 4),))
    torch.export.save(exported, tmp_path / "train.pt2")
    error = rejected(tmp_path / "train.pt2")
    assert (error.code, error.hint) == ("source.training-mode", "call model.eval() before torch.export.export")


def test_derived_dim_is_rejected(tmp_path: Path) -> None:
    """A size that is twice another one cannot vary independently."""

    class Half(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + y[::2]

    size = Dim("size", min=2, max=8)
    shapes = ({0: size}, {0: 2 * size})
    exported = torch.export.export(Half(), (torch.randn(3), torch.randn(6)), dynamic_shapes=shapes)
    torch.export.save(exported, tmp_path / "half.pt2")
    assert rejected(tmp_path / "half.pt2").code == "source.derived-dim"


@pytest.mark.parametrize(("dtype", "words"), [("bfloat16", "PyTorch and TorchScript modules"), ("complex64", "Triton")])
def test_input_of_a_dtype_that_is_not_served_is_rejected(tmp_path: Path, dtype: str, words: str) -> None:
    """The graph of a program is not changed, so a BF16 input cannot be cast to what its operators support."""
    program = torch.export.export(nn.Identity(), (torch.ones(2, 3, dtype=getattr(torch, dtype)),))
    torch.export.save(program, tmp_path / "typed.pt2")
    error = rejected(tmp_path / "typed.pt2")
    assert (error.code, words in error.message) == ("source.dtype", True)


def test_minimum_batch_of_two_gets_a_note(tmp_path: Path) -> None:
    """Dim.AUTO excludes a batch of one row; the note says how to allow it."""
    exported = torch.export.export(nn.Linear(4, 2), (torch.randn(3, 4),), dynamic_shapes=({0: Dim.AUTO},))
    torch.export.save(exported, tmp_path / "auto.pt2")
    source = load(tmp_path / "auto.pt2")
    assert source.dims["batch"].min == 2
    assert source.notes[0].startswith("the program requires batch >= 2")


class _Bomb:
    """Creates a file when unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.mark}",)


def _pickled(mark: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save(((_Bomb(mark),), {}), buffer)
    return buffer.getvalue()


def _rewritten(program: Path, target: Path, change: Callable[[str, bytes], bytes], **more: bytes) -> Path:
    with zipfile.ZipFile(program) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
        for name, content in more.items():
            new.writestr(f"{program.stem}/{name}", content)
    return target


def _replacing(old: str, new: str) -> Callable[[str, bytes], bytes]:
    def change(name: str, content: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return content
        text = content.decode()
        assert old in text
        return text.replace(old, new).encode()

    return change


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("torch.ops.aten.linear.default", "torch.os.system", "calls 'torch.os.system'"),
        ("torch.ops.aten.linear.default", "torch.ops.load_library", "calls 'torch.ops.load_library'"),
        ("torch.ops.aten.linear.default", f"torch.ops.load_library.{SELF}.load_library", f"{SELF}.load_library'"),
        ("torch.ops.aten.linear.default", f"torch.ops.load_library.{SELF}.import_module", f"{SELF}.import_module'"),
        ("torch.ops.aten.linear.default", "torch.ops.aten.__dict__.pop", "calls 'torch.ops.aten.__dict__.pop'"),
        ("torch.ops.aten.linear.default", "torch.ops.aten.from_file.default", "which reads or writes files"),
        ("torch.ops.aten.linear.default", "torch.ops.aten.save.default", "which reads or writes files"),
        ("torch.ops.aten.linear.default", "torch.ops.image.write_file.default", "which reads or writes files"),
        (
            "torch.ops.aten.linear.default",
            "torch.ops.inductor._reinterpret_tensor.default",
            "not an operator",
        ),
        (
            "torch.ops.aten.linear.default",
            "torch.ops.aten._reshape_alias.default",
            "does not check the bounds",
        ),
        ("Symbol('s", "__import__('os').system('s", "which is not an arithmetic expression"),
        ('"name": "x"', '"name": "x=print(1)"', "uses the name 'x=print(1)'"),
    ],
)
def test_graph_that_would_run_code_is_rejected(program: Path, tmp_path: Path, old: str, new: str, message: str) -> None:
    """Targets, sizes and names are checked as text before torch reads the graph."""
    error = rejected(_rewritten(program, tmp_path / "bad.pt2", _replacing(old, new)))
    assert error.code == "source.archive"
    assert message in error.message


def test_operator_as_an_argument_is_checked(tmp_path: Path) -> None:
    """A control-flow operator calls it: a function of `torch.ops` imports a module, and loads a library."""
    mark = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(mark)!r}, 'w').close()")

    class Plus(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    program = tmp_path / "plus.pt2"
    shapes = {"x": {0: Dim("batch", min=1, max=8)}}
    torch.export.save(torch.export.export(Plus(), (torch.randn(3, 4),), dynamic_shapes=shapes), program)

    def change(name: str, content: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return content
        document = json.loads(content)
        graph = document["graph_module"]["graph"]
        output = graph["nodes"][0]["outputs"][0]["as_tensor"]["name"]
        graph["tensor_values"]["more"] = graph["tensor_values"][output]
        arguments = [{"as_operator": f"torch.ops.load_library.{SELF}.import_module"}, {"as_string": "evil"}]
        node = {
            **graph["nodes"][0],
            "target": "torch.ops.higher_order.wrap",
            "inputs": [{"name": "", "arg": argument, "kind": 1} for argument in arguments],
            "outputs": [{"as_tensor": {"name": "more"}}],
            "name": "more",
        }
        graph["nodes"].insert(0, node)
        return json.dumps(document).encode()

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        error = rejected(_rewritten(program, tmp_path / "bad.pt2", change))
    assert "which is not a PyTorch operator" in error.message
    assert not mark.exists()


def test_members_under_another_case_are_scanned(program: Path, tmp_path: Path) -> None:
    """PyTorch finds the example inputs under any case, and unpickles them."""
    mark = tmp_path / "ran"
    target = tmp_path / "bad.pt2"
    with zipfile.ZipFile(program) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            if "sample_inputs" not in name:
                new.writestr(name, old.read(name))
        new.writestr(f"{program.stem}/DATA/SAMPLE_INPUTS/MODEL.PT", _pickled(mark))
    assert "contains more than tensors" in rejected(target).message
    assert not mark.exists()


def test_pickle_outside_of_its_folder_is_rejected(program: Path, tmp_path: Path) -> None:
    """PyTorch would read a different member from the scan: it joins the name to the folder, as paths are joined."""
    mark = tmp_path / "ran"
    tensor = io.BytesIO()
    torch.save(torch.zeros(1), tensor)

    def change(name: str, content: bytes) -> bytes:
        if not name.endswith("model_weights_config.json"):
            return content
        config = json.loads(content)
        next(iter(config["config"].values())).update(path_name="/evil", use_pickle=True)
        return json.dumps(config).encode()

    members = {"data/weights//evil": tensor.getvalue(), "/evil": _pickled(mark)}
    error = rejected(_rewritten(program, tmp_path / "bad.pt2", change, **members))
    assert "has a payload with the name '/evil'" in error.message
    assert not mark.exists()


def test_pickles_in_a_program_are_rejected(program: Path, tmp_path: Path) -> None:
    """Example inputs, weights and constants that contain more than tensors are not unpickled."""
    mark = tmp_path / "ran"

    def samples(name: str, content: bytes) -> bytes:
        return _pickled(mark) if "sample_inputs" in name else content

    def weights(name: str, content: bytes) -> bytes:
        if name.endswith("model_weights_config.json"):
            config = json.loads(content)
            for payload in config["config"].values():
                payload["use_pickle"] = True
            return json.dumps(config).encode()
        return _pickled(mark) if name.endswith("weight_0") else content

    def constants(name: str, content: bytes) -> bytes:
        payload = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
        listed = name.endswith("model_constants_config.json")
        return json.dumps({"config": {"c": payload}}).encode() if listed else content

    for change in (samples, weights):
        error = rejected(_rewritten(program, tmp_path / "bad.pt2", change))
        assert "contains more than tensors" in error.message
    member = {"data/constants/opaque_obj_0": _pickled(mark)}
    error = rejected(_rewritten(program, tmp_path / "bad.pt2", constants, **member))
    assert "contains a Python object (opaque_obj_0)" in error.message
    error = rejected(_rewritten(program, tmp_path / "bad.pt2", lambda _, c: c, **{"data/aotinductor/m/lib.so": b"x"}))
    assert "contains a compiled library (lib.so)" in error.message
    assert not mark.exists()


def test_guards_are_not_run(program: Path, tmp_path: Path) -> None:
    """Guards are Python code in the file; the size sweep tests the same conditions."""
    mark = tmp_path / "ran"

    def change(name: str, content: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return content
        document = json.loads(content)
        document["guards_code"] = [f"__import__('os').system('touch {mark}') == 0"]
        return json.dumps(document).encode()

    source = load(_rewritten(program, tmp_path / "guards.pt2", change))
    assert source.reference(source.examples(source.example_sizes, 0))["logits"].shape == (2, 3)
    assert not mark.exists()


def test_valid_programs_pass_the_scan(program: Path, tmp_path: Path) -> None:
    """Control flow, derived sizes and masks are allowed."""

    class Sized(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = torch.cond(x.sum() > 0, lambda t: t + 1, lambda t: t - 1, (x,))
            split = y.reshape(y.shape[0] // 2, 2, -1)[:, :, : x.shape[1] // 2]
            return split.masked_fill(torch.zeros((), dtype=torch.bool), 0.0)

    rows, columns = Dim("rows", min=1, max=8), Dim("columns", min=2, max=32)
    exported = torch.export.export(Sized(), (torch.randn(6, 8),), dynamic_shapes=({0: 2 * rows, 1: 2 * columns},))
    torch.export.save(exported, tmp_path / "sized.pt2")
    scan_program(tmp_path / "sized.pt2")
    scan_program(program)


def test_reference_matches_the_module(program: Path) -> None:
    """The loaded program returns the same values as the exported module."""
    source = load(program)
    inputs = source.examples(source.example_sizes, 0)
    torch.manual_seed(0)
    module = Tagger().eval()
    with torch.no_grad():
        shift = torch.from_numpy(inputs["extra_shift"])
        expected = module(torch.from_numpy(inputs["x"]), torch.from_numpy(inputs["ids"]), 3, extra={"shift": shift})
    logits: Any = source.reference(inputs)["logits"]
    np.testing.assert_allclose(logits, np.asarray(expected["logits"]), rtol=1e-5)


def test_file_of_another_user_that_cannot_be_read(tmp_path: Path) -> None:
    """It is opened before the archive is examined, for a private copy."""
    path = tmp_path / "m.pt2"
    tmp_path.chmod(0o777)
    os.mkfifo(path)
    error = rejected(path)
    assert (error.code, error.message) == ("source.archive", "m.pt2 cannot be read: not a regular file")


@pytest.mark.parametrize("kind", ["torch_export", "torchscript"])
def test_private_copy_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The archive is not damaged."""
    path = saved(tmp_path / "m.pt2") if kind == "torch_export" else tmp_path / "m.pt"
    if kind == "torchscript":
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            torch.jit.save(torch.jit.script(nn.ReLU()), path)
    for module in (exported_program, loader):
        monkeypatch.setattr(module, "private_file", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    spec = ModelSpec.model_validate(
        {"source": {"kind": kind, "path": path.name}, "inputs": {"x": {"dtype": "float32", "shape": [2]}}}
    )
    with pytest.raises(OSError, match="No space left on device"):
        load_source(spec, tmp_path)


def test_file_that_is_exchanged_after_the_scan(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user may rename files in the directory; what was scanned is loaded."""
    mark = tmp_path / "ran"
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    path = Path(shutil.copy(program, shared))
    other = _rewritten(program, shared / "other.pt2", lambda name, old: _pickled(mark) if "sample" in name else old)

    def scan(scanned: Path) -> None:
        scan_program(scanned)
        other.replace(path)

    monkeypatch.setattr(exported_program, "scan_program", scan)
    assert len(load(path).signature.inputs) == 3
    assert not mark.exists()

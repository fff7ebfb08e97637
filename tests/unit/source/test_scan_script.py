"""TorchScript archives that read or write files of the user are rejected before anything in them runs."""

from __future__ import annotations

import base64
import pickle
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.ao.quantization import quantize_fx

from repogen.errors import SourceError
from repogen.source.load import load_source
from repogen.source.torch import scan_script
from repogen.source.torch.scan_script import load_script, unsafe_operator
from repogen.spec.models import ModelSpec

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


def load(root: Path) -> Any:
    """Load model.pt in a directory, as a build does."""
    inputs = {"x": {"dtype": "float32", "shape": ["batch", 4]}}
    source = {"kind": "torchscript", "path": "model.pt"}
    spec = {"source": source, "inputs": inputs, "dims": {"batch": {"max": 4}}}
    return load_source(ModelSpec.model_validate(spec), root)


class OutOfBounds(nn.Module):
    """Returns memory behind a tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Read it."""
        memory: torch.Tensor = torch.ops.inductor._reinterpret_tensor(x, [200_000], [1], 0)  # noqa: SLF001 - of TorchScript
        return memory


class SparseOutOfBounds(nn.Module):
    """Writes behind a tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Write it."""
        indices = torch.full([1, 1], 2**27)
        return x + torch.sparse_coo_tensor(indices, torch.ones(1), [10]).to_dense()[:4]


class OutOfBoundsWhenLoaded(OutOfBounds):
    """Reads memory behind a tensor when it is loaded."""

    @torch.jit.export
    def __getstate__(self) -> tuple[torch.Tensor, bool]:
        """Return the state."""
        return torch.zeros(1), self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[torch.Tensor, bool]) -> None:
        """Read the memory."""
        memory = torch.ops.aten._reshape_alias(state[0], [200_000], [1])  # noqa: SLF001 - of TorchScript
        self.training = bool(memory.sum() > 0) and state[1]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the input."""
        return x


@pytest.mark.parametrize("kind", [Writer, Reader, Nested, Restored])
def test_file_operators(tmp_path: Path, kind: type[_OfFile]) -> None:
    """They are found in branches, tasks and other modules, and where they would run while the archive is loaded."""
    mark = tmp_path / "mark"
    script: Any = torch.jit.script(kind(str(mark)))
    torch.jit.save(script, tmp_path / "model.pt")
    with pytest.raises(SourceError) as caught:
        load(tmp_path)
    assert caught.value.code == "source.archive"
    assert "could read or write any of your files" in caught.value.message
    assert not mark.exists()


def test_archive_that_is_exchanged_after_the_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user may rename files in the directory; what was scanned is loaded."""
    mark = tmp_path / "mark"
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    for name, module in (("model.pt", nn.Linear(4, 4)), ("other.pt", Restored(str(mark)))):
        script: Any = torch.jit.script(module.eval())
        torch.jit.save(script, shared / name)
    scan_members = scan_script._scan_members  # noqa: SLF001 - between it and the load, the archive is exchanged

    def scan(path: Path) -> None:
        scan_members(path)
        (shared / "other.pt").replace(shared / "model.pt")

    monkeypatch.setattr(scan_script, "_scan_members", scan)
    load(shared)
    assert not mark.exists()


@pytest.mark.parametrize("kind", [OutOfBounds, SparseOutOfBounds, OutOfBoundsWhenLoaded])
def test_operators_that_do_not_check_bounds(tmp_path: Path, kind: type[nn.Module]) -> None:
    """They are rejected before they run: what a model returns could be secrets in the memory of the process."""
    torch.jit.save(torch.jit.script(kind()), tmp_path / "model.pt")
    with pytest.raises(SourceError) as caught:
        load(tmp_path)
    assert caught.value.code == "source.archive"


def test_every_namespace_of_torch_is_known() -> None:
    """An upgrade of torch that adds a namespace fails here: decide whether models need its operators."""
    code = "import torch\nfor schema in torch._C._jit_get_all_schemas(): print(schema.name)"
    names = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    namespaces = {name.partition("::")[0] for name in names}
    accepted = {name for name in namespaces if not unsafe_operator(f"{name}::relu")}
    needed = {"aten", "export", "mkl", "mkldnn", "mkldnn_prepacked", "onednn", "onnx", "prim", "prims", "profiler"}
    quantized = {"_quantized", "quantized", "quantization", "quantized_decomposed", "sparse"}
    assert accepted - needed - quantized == set()


@pytest.mark.parametrize(
    "name",
    [
        "ops.aten.save",
        'getattr(torch, "save")',
        'getattr(torch, "sa" "ve")',
        'getattr(torch, "s\\141ve")',
        "getattr(ops.aten, 'sa' 've')",
        'getattr(getattr(ops, "aten"), "sa" "ve")',
        'getattr((getattr(ops, "aten")), "sa" "ve")',
        'getattr(torch, """sa""" """ve""")',
        'getattr(torch, "sa"\\\n"ve")',
    ],
)
def test_name_that_is_hidden_from_a_search(tmp_path: Path, name: str) -> None:
    """TorchScript decodes and joins strings; the archive runs code of its own while it is loaded."""
    mark, path = tmp_path / "mark", tmp_path / "model.pt"
    script: Any = torch.jit.script(Restored(str(mark)))
    torch.jit.save(script, path)
    rewrite(path, b"torch.save", name.encode())
    torch.jit.load(path)  # type: ignore[no-untyped-call]  # the attack works
    mark.unlink()
    with pytest.raises(SourceError, match=r"__setstate__ and the text '(getattr|save)'"):
        load(tmp_path)
    assert not mark.exists()


def test_names_of_users(tmp_path: Path) -> None:
    """Attributes, methods and messages may have the names of operators."""

    class Saved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.save = nn.Linear(4, 4)

        def sparse_gate(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
            return x * scale

        def forward(self, x: torch.Tensor, sizes: list[int] | None = None) -> dict[str, torch.Tensor]:
            if sizes is not None:
                raise ValueError("use getattr(torch, 'save') (with defaults)")
            return {"save": self.sparse_gate(self.save(x))}

    torch.jit.save(torch.jit.script(Saved()), tmp_path / "model.pt")
    assert load(tmp_path).signature.outputs


@pytest.mark.parametrize(
    "default",
    [
        "torch.save([1], 'MARK')",
        "torch . save([1], 'MARK')",
        "torch.\\\n save([1], 'MARK')",
        "getattr(torch, 'save')([1], 'MARK')",
        'getattr(torch, "sa" "ve")([1], "MARK")',
        "ops.aten.save([1], 'MARK')",
        "__torch__.save_it('MARK')",
    ],
)
def test_default_values(tmp_path: Path, default: str) -> None:
    """They run while an archive is loaded, and are in no graph."""
    mark, path = tmp_path / "mark", tmp_path / "model.pt"

    class WithDefault(nn.Module):
        def forward(self, x: torch.Tensor, y: int = 3) -> torch.Tensor:
            return x * y

    torch.jit.save(torch.jit.script(WithDefault()), path)
    load_script(path)
    rewrite(path, b"y: int=3", f"y: Tuple[()]={default.replace('MARK', str(mark))}".encode())
    with pytest.raises(SourceError, match=r"has a default value with the text '(getattr|save|__torch__)"):
        load_script(path)
    assert not mark.exists()


def rewrite(path: Path, old: bytes, new: bytes) -> None:
    """Replace text in the code of an archive."""
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    code = {name: content for name, content in members.items() if name.endswith(".py")}
    assert any(old in content for content in code.values())
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (members | {name: content.replace(old, new) for name, content in code.items()}).items():
            archive.writestr(name, content)


class Checked(nn.Module):
    """Raises an error whose message torch writes with an escape, or runs another module."""

    def __init__(self, inner: nn.Module) -> None:
        """Keep the other module."""
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run it."""
        if x.dim() != 4:
            raise ValueError("the dims don't match")
        result: torch.Tensor = self.inner(x)
        return result


def quantized(kind: str, x: torch.Tensor) -> Any:
    """Return a quantized TorchScript module whose layers have numbers as names; convolutions define __setstate__."""
    quantization: Any = torch.ao.quantization
    model: Any = nn.Sequential(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), nn.Conv2d(4, 2, 1)).eval()
    if kind == "fx":
        prepared = quantize_fx.prepare_fx(model, quantization.get_default_qconfig_mapping("fbgemm"), (x,))
        prepared(x)
        model = quantize_fx.convert_fx(prepared)
    else:
        model = nn.Sequential(quantization.QuantStub(), model, quantization.DeQuantStub())
        model.qconfig = quantization.get_default_qconfig("fbgemm")
        quantization.prepare(model, inplace=True)
        model(x)
        quantization.convert(model, inplace=True)
    return torch.jit.trace(model, x) if kind == "traced" else torch.jit.script(Checked(model))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("kind", ["eager", "traced", "fx"])
@pytest.mark.filterwarnings("ignore")
def test_quantized_archive(tmp_path: Path, kind: str) -> None:
    """It runs code when it is loaded, and is accepted: its strings are not names."""
    x = torch.randn(1, 3, 8, 8)
    script = quantized(kind, x)
    torch.jit.save(script, tmp_path / "model.pt")
    with zipfile.ZipFile(tmp_path / "model.pt") as archive:
        code = b"".join(archive.read(name) for name in archive.namelist() if name.endswith(".py"))
    assert (b"__setstate__" in code, b"getattr(" in code) == (True, True)
    assert (b"\\" in code) == (kind != "traced")
    torch.testing.assert_close(load_script(tmp_path / "model.pt")(x), script(x))


class _Code:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        """Return the call."""
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["data.pkl", "DATA.PKL", "constants.pkl"])
@pytest.mark.parametrize("class_name", [b"aten\nOpaqueObject", b"dist_rpc\nWorkerInfo"])
def test_objects_that_are_restored_by_code(tmp_path: Path, name: str, class_name: bytes) -> None:
    """The state of an OpaqueObject of PyTorch is a pickle, which may run any code while the archive is loaded."""
    ran, saved, path = tmp_path / "ran", tmp_path / "saved.pt", tmp_path / "hostile.pt"
    torch.jit.save(torch.jit.script(nn.Identity()), str(saved))
    state = base64.b64encode(pickle.dumps(_Code(ran)))
    hostile = b"c__torch__.torch.classes." + class_name + b"\n)\x81X" + struct.pack("<I", len(state)) + state + b"b"
    with zipfile.ZipFile(saved) as source, zipfile.ZipFile(path, "w") as target:
        for member in source.namelist():
            content = source.read(member)
            if member.endswith("/data.pkl") and name.lower() == "data.pkl":
                start = content.index(b"(", content.index(b"}")) + 1  # of the module's attributes
                content = content[:start] + b"X\x02\0\0\0zz" + hostile + content[start:]
                member = f"{member.rpartition('/')[0]}/{name}"  # noqa: PLW2901 - torch ignores the case
            elif member.endswith(f"/{name}"):
                content = b"\x80\x02(" + hostile + b"t."
            target.writestr(member, content)
    with pytest.raises(SourceError, match=r"has an object of 'torch\.classes\."):
        load_script(path)
    assert not ran.exists()

"""Inputs to start with: valid files, and hostile ones that readers once failed on."""

from __future__ import annotations

import base64
import io
import json
import struct
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from repogen.artifacts.built_model import FileRecord
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.artifacts.versions import Manifest, ModelConfig, Provenance, StagedVersion
from repogen.repository.manifest import manifest_to_json

# Imports are in the functions: each target imports only what its reader needs.
# ruff: noqa: PLC0415

CORPUS = Path(__file__).with_name("corpus")
SIGNED = "place/repository/m/1"
WHEEL = "p-1.0-py3-none-any.whl"
_ROOT = Path(__file__).resolve().parents[2]
CONFIG = """\
name: "m"
backend: "onnxruntime"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 3 ] }
"""
GOLDEN_JSON = json.dumps({
    "schema": 1,
    "cases": [{
        "name": "batch=2", "batch": 2, "inputs": [{"name": "x", "key": "0.in.0"}],
        "outputs": [{"name": "y", "key": "0.out.0"}],
    }],
    "tolerances": {"y": {"rtol": 0.001, "atol": 1e-05}},
})  # fmt: skip


def corpus(folder: str) -> list[bytes]:
    """Return the files of a folder of the corpus."""
    return [path.read_bytes() for path in sorted((CORPUS / folder).iterdir())]


def manifest() -> Manifest:
    """Return the manifest of a model."""
    signature = Signature((TensorSpec("x", "float32", ("batch", 4)),), (TensorSpec("y", "float32", ("batch", 3)),))
    provenance = Provenance({"torch": "2"}, "", "", {"spec": "0"}, "24.10", "dynamo", 20, 10, 1, 1, 1, 0.0, 0.0)
    return Manifest("m", 8, signature, (FileRecord("model.onnx", "0" * 64, 1),), provenance)


def staged_version(repository: Path) -> StagedVersion:
    """Return a staged version of the model."""
    return StagedVersion("m", repository, 1, ModelConfig("m", CONFIG, 8, manifest().signature), manifest())


def write_model(repository: Path, name: str) -> Path:
    """Write a model with one version; return its directory."""
    model = repository / name
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(CONFIG.replace('"m"', f'"{name}"'), encoding="utf-8")
    (model / "1" / "config.pbtxt").write_text(CONFIG.replace('"m"', f'"{name}"'), encoding="utf-8")
    (model / "1" / "model.onnx").write_bytes(onnx_files()[0])
    (model / "1" / "manifest.json").write_text(manifest_to_json(manifest()), encoding="utf-8")
    return model


def specs() -> list[bytes]:
    """Return specs."""
    return [*corpus("spec"), *(path.read_bytes() for path in sorted((_ROOT / "examples").glob("*/repogen.yaml")))]


def configs() -> list[bytes]:
    """Return texts of config.pbtxt."""
    return [
        CONFIG.encode(),
        *corpus("config"),
        (_ROOT / "model_repository" / "digits_cnn" / "config.pbtxt").read_bytes(),
    ]


def records() -> list[bytes]:
    """Return manifests, golden cases, owners and journals."""
    owner = b'{"schema": 1, "kind": "synced", "aliases": ["champion"]}'
    journal = b'{"before": "0", "after": "1"}'
    return [manifest_to_json(manifest()).encode(), GOLDEN_JSON.encode(), owner, journal, *corpus("records")]


def golden_arrays() -> bytes:
    """Return the arrays of ``GOLDEN_JSON``."""
    import numpy as np

    return _npz({"0.in.0": np.ones((2, 4), np.float32), "0.out.0": np.ones((2, 3), np.float32)})


def arrays() -> list[bytes]:
    """Return ``.npz`` files."""
    import numpy as np

    rows = {"x": np.arange(8, dtype=np.float32).reshape(2, 4), "s": np.array(["a", "b"])}
    packed = {"0.in.0": np.frombuffer(b"ab", np.uint8), "0.in.0.ends": np.array([1, 2])}
    compressed = io.BytesIO()
    np.savez_compressed(compressed, x=np.zeros((100, 4), np.float32))
    return [golden_arrays(), _npz(rows), _npz(packed), compressed.getvalue(), b"", b"PK\x05\x06" + bytes(18)]


def _npz(arrays: dict[str, Any]) -> bytes:
    import numpy as np

    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def onnx_files() -> list[bytes]:
    """Return ONNX files."""
    from onnx import TensorProto, helper

    from tests.support import graphs

    external = graphs.matmul()
    weight = external.graph.initializer[0]
    weight.data_location = TensorProto.EXTERNAL
    weight.ClearField("raw_data")
    for key, value in (("location", "model.onnx.data"), ("offset", "0"), ("length", "48")):
        weight.external_data.add(key=key, value=value)
    huge = graphs.matmul()
    huge.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 2**40
    models = [graphs.matmul(), graphs.lookup(), external, huge, helper.make_model(helper.make_graph([], "g", [], []))]
    return [bytes(model.SerializeToString()) for model in models]


def mlmodels() -> list[bytes]:
    """Return files MLmodel."""
    return corpus("mlmodel")


def tags() -> list[bytes]:
    """Return tags of a registry."""
    return corpus("registry")


def safetensors() -> list[bytes]:
    """Return safetensors files."""
    import numpy as np
    from safetensors.numpy import save

    arrays: dict[str, Any] = {
        "w": np.ones((2, 3), np.float32),
        "b": np.zeros((0, 2), np.int64),
        "s": np.array(1, np.float16),
    }
    return [save(arrays), save({}), save(arrays, {"format": "pt"})]


def weights() -> list[bytes]:
    """Return files of ``torch.save``."""
    import torch

    state = {"w": torch.ones(2, 3), "b": torch.zeros(0), "n": torch.tensor(1, dtype=torch.int64)}
    nested = {"state_dict": state, "epoch": 3}
    return [*(_saved(value, zipped=True) for value in (state, nested)), _saved(state, zipped=False)]


def _saved(value: object, *, zipped: bool) -> bytes:
    import torch

    buffer = io.BytesIO()
    torch.save(value, buffer, _use_new_zipfile_serialization=zipped)
    return buffer.getvalue()


def programs() -> list[bytes]:
    """Return ``.pt2`` files."""
    import torch

    batch = torch.export.Dim("batch", min=1, max=8)
    buffer = io.BytesIO()
    with torch.no_grad():
        program = torch.export.export(torch.nn.Linear(4, 2), (torch.randn(3, 4),), dynamic_shapes=({0: batch},))
    torch.export.save(program, buffer)
    return [buffer.getvalue()]


def scripts() -> list[bytes]:
    """Return TorchScript archives; one has an object whose state is a pickle, which would end the process."""
    import torch

    buffer = io.BytesIO()
    torch.jit.save(torch.jit.trace(torch.nn.Linear(4, 2), torch.randn(3, 4)), buffer)  # type: ignore[no-untyped-call]
    return [buffer.getvalue(), _with_opaque_object(buffer.getvalue())]


def _with_opaque_object(archive: bytes) -> bytes:
    """Return a TorchScript archive whose module has one more attribute, ``zz``."""
    state = base64.b64encode(b"cos\nabort\n)R.")
    opaque = b"c__torch__.torch.classes.aten\nOpaqueObject\n)\x81X" + struct.pack("<I", len(state)) + state + b"b"
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(buffer, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith("/data.pkl"):
                start = content.index(b"(", content.index(b"}")) + 1  # of the module's attributes
                content = content[:start] + b"X\x02\0\0\0zz" + opaque + content[start:]
            target.writestr(name, content)
    return buffer.getvalue()


def checkpoint_files() -> dict[str, bytes]:
    """Return the files of a small transformers model."""
    from tests.unit.source import checkpoints

    with tempfile.TemporaryDirectory() as folder:
        directory = checkpoints.save("text-classification", Path(folder))
        return {path.name: path.read_bytes() for path in directory.iterdir()}


def checkpoint_configs() -> list[bytes]:
    """Return texts of config.json."""
    return [checkpoint_files()["config.json"]]


def checkpoint_companions() -> list[bytes]:
    """Return the other files of checkpoints."""
    return corpus("huggingface")


def texts() -> list[bytes]:
    """Return Python code, class names and requirements."""
    return corpus("text")


def plans() -> list[bytes]:
    """Return plans, and recorded costs."""
    return corpus("plan")


def results() -> list[bytes]:
    """Return what build, bench and tune measured of model ``m``; other names and texts are hostile."""
    from dataclasses import asdict, replace

    from repogen.reporting.json import as_dict
    from tests.unit.reporting import test_html as reports

    build = replace(reports.BUILD, models=(replace(reports.MODEL, name="m"),))
    bench = replace(reports.BENCH, models=(replace(reports.BENCH.models[0], name="m"),))
    documents: list[Any] = [as_dict(build), as_dict(bench), asdict(replace(reports.TUNING, model="m"))]
    # JSON with half of a surrogate pair is not decoded
    return [json.dumps(document).replace("\\udc80", "?").encode() for document in documents]


def tasks() -> list[bytes]:
    """Return results of an executor's tasks."""
    from pydantic_core import to_json

    from repogen.artifacts.built_model import (
        BatchReport,
        BuildDiagnostics,
        BuiltModel,
        ExportAttempt,
        ImportedCode,
        OnnxArtifact,
        ParityReport,
    )
    from repogen.artifacts.serving import Latency, SmokeCheck, SmokeReport
    from repogen.build.order import Result
    from repogen.errors import ExportError

    signature, batch = manifest().signature, BatchReport(batchable=True, max_batch_size=8)
    artifact = OnnxArtifact(Path("model.onnx"), False, signature, 20, 10, 1, "dynamo")  # noqa: FBT003 - external_data
    built = BuiltModel(
        *(artifact, Path(), 1, ParityReport(()), batch, ImportedCode({"models.py": "0" * 64}, {"torch": "2"})),
        {"vocab.txt": Path("companion-0")},
        {"y": ("a", "b")},
    )
    attempt = ExportAttempt("dynamo", ok=False, reason="no", seconds=1.0)
    diagnostics = BuildDiagnostics(("note",), (attempt,), (), {"export": 1.0}, 5)
    smoke = SmokeReport("m", 1, "embedded", "2.51.0", "", (SmokeCheck("x", passed=True),), (), Latency(1, 2, 3, 9))
    values = (Result(diagnostics, built, smoke, "0" * 64), Result(error=ExportError("no", "hint").record))
    return [to_json(value, by_alias=True, inf_nan_mode="constants") for value in values]


def settings() -> list[bytes]:
    """Return settings of ``check``, in TOML and YAML."""
    return corpus("settings")


def servers() -> list[bytes]:
    """Return lists of servers."""
    return corpus("servers")


def attestations() -> list[bytes]:
    """Return statements on how a version was built."""
    from repogen.artifacts.attestation import BuildRun
    from repogen.attestation.statement import statement

    run = BuildRun("urn:repogen:local", "run", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z")
    return [statement(manifest(), run, "0" * 64).encode()]


def signed_version(root: Path) -> tuple[Path, Any]:
    """Publish and sign a version at ``SIGNED``; return its directory, and the signer. Only the signature is random."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    from repogen.artifacts.attestation import SigningKey, TrustedSigner
    from repogen.attestation.signature import sign_version
    from tests.support.published import Publisher

    key, pem = ec.derive_private_key(12345, ec.SECP256R1()), serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    (root / "key.pem").write_bytes(private)
    (root / "key.pub").write_bytes(public)
    Publisher(root / "place" / "repository").publish()
    sign_version(root / SIGNED, SigningKey(root / "key.pem"))
    return root / SIGNED, TrustedSigner(public_key=root / "key.pub")


def signatures() -> list[bytes]:
    """Return signatures of that version."""
    with tempfile.TemporaryDirectory() as folder:
        version, _ = signed_version(Path(folder))
        return [(version / "model.sig").read_bytes()]


def messages() -> list[bytes]:
    """Return what other processes send."""
    return corpus("messages")


def layers() -> list[bytes]:
    """Return layers of images."""
    import gzip
    import tarfile

    contents = {"models/m/config.pbtxt": CONFIG.encode(), "models/m/1/model.onnx": b"w", "etc/passwd": b"root"}
    contents |= {f"models/m/1/{'x' * 150}": b"long", "models/m/1/\u00e9": b"x"}
    written = []
    for kind in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=kind) as archive:
            for name in ("models", "models/m", "models/m/1"):
                folder = tarfile.TarInfo(name)
                folder.type = tarfile.DIRTYPE
                archive.addfile(folder)
            for name, content in contents.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        written += [buffer.getvalue(), gzip.compress(buffer.getvalue())]
    return written


def search_plan() -> tuple[Any, Any]:
    """Return what ``studies`` searches for, and a test bed."""
    from tests.unit.tune.test_search import Synthetic, plan

    return plan(4), Synthetic()


def studies() -> list[bytes]:
    """Return databases with the trials of a search; pages of 512 bytes keep them small."""
    import sqlite3
    from contextlib import closing

    from repogen.tune.search import Search, open_study

    search, bed = search_plan()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "study.db")
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA page_size = 512")
            database.execute("VACUUM")
        with open_study(path) as study:
            Search(study, search, bed).run()
        return [path.read_bytes()]


def wheels() -> list[bytes]:
    """Return wheels."""
    metadata = (
        b"Metadata-Version: 2.1\nName: p\nVersion: 1.0\nRequires-Dist: q[a]>=1,<2; extra == 'extra'\n"
        b"Requires-Dist: r (==1.0); python_version < '3.13'\n\ntext\n"
    )
    members = {"p/__init__.py": b"", "p-1.0.dist-info/METADATA": metadata, "p-1.0.data/purelib/x.py": b"1"}
    long_number = metadata.replace(b",<2", b",<" + b"9" * 5000)
    return [zipped(members), *(zipped({"p-1.0.dist-info/METADATA": content}) for content in (metadata, long_number))]


def zipped(members: dict[str, bytes]) -> bytes:
    """Return a zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()

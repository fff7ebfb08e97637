"""The readers to fuzz: every reader of a file that repogen did not write in the same run."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from repogen.errors import RepogenError
from tests.fuzz import seeds
from tests.fuzz.engine import PROGRESS, Target, words
from tests.fuzz.mutations import (
    array_mutator,
    bytes_mutator,
    database_mutator,
    header_mutator,
    json_mutator,
    message_mutator,
    tar_mutator,
    yaml_mutator,
    zip_mutator,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import onnx

    from repogen.artifacts.registry import RegistryEntry
    from repogen.artifacts.sync import SyncOptions
    from repogen.registry.sync.plan import Step
    from tests.fuzz.engine import Read

# Imports are in the functions: each target imports only what its reader needs.
# ruff: noqa: PLC0415


def _read_all(*readers: Callable[[], object]) -> None:
    """Call readers; then raise the first of their errors."""
    errors = []
    for reader in readers:
        try:
            reader()
        except RepogenError as error:
            errors.append(error)
    if errors:
        raise next((error for error in errors if error.exit_code == error.exit_code.BUG), errors[0])


def _outcomes(*readers: Callable[[], object]) -> str:
    """Call readers, none of which accepts what another one does; return the outcome of each."""
    outcomes = []
    for reader in readers:
        try:
            outcomes.append(str(reader()))
        except RepogenError as error:
            if error.exit_code == error.exit_code.BUG:
                raise
            outcomes.append(f"{error.code} {words(error.message)}")
    return "; ".join(outcomes)


def _version_commands(repository: Path) -> tuple[Callable[[], object], ...]:
    """Return the commands on the versions of model ``m``, without changes."""
    import repogen

    return (
        lambda: repogen.as_dict(repogen.versions(repository=repository)),
        lambda: repogen.as_dict(repogen.verify(repository)),
        lambda: repogen.rollback("m", 1, repository=repository, dry_run=True),
        lambda: repogen.rollback("m", repository=repository, release=True, dry_run=True),
        lambda: repogen.prune(keep=0, repository=repository, dry_run=True),
    )


def _spec(directory: Path) -> Read:
    from repogen.spec.load import load_spec

    for name in ("models.py", "model.onnx", "weights.safetensors", "examples.npz"):
        (directory / name).write_bytes(b"")
    return load_spec


def _config(directory: Path) -> Read:
    from repogen.artifacts.serving import Endpoint
    from repogen.check.checker import Selection, check
    from repogen.check.fix import fix
    from repogen.repository.ensembles import unfit, unfit_users
    from repogen.repository.mirror import served_from
    from repogen.repository.version_policy import serving_only
    from repogen.scaffold.repository import describe_repository
    from repogen.smoke.preparation import prepare_published
    from repogen.targets import DEFAULT_RELEASE

    repository = directory / "repository"
    seeds.write_model(repository, "m")
    seeds.write_model(repository, "n")
    staged = seeds.staged_version(directory / "stage")
    endpoint = Endpoint("127.0.0.1:1", "", "", "embedded", "2.51.0", "none", sees_files=True, has_gpu=False)

    def read(path: Path) -> None:
        text = path.read_bytes().decode(errors="replace")
        _read_all(
            lambda: check(repository),
            lambda: served_from(path.parent),
            lambda: prepare_published(endpoint, path.parent).requirements(),
            lambda: serving_only(text, 2**40),
            lambda: unfit_users(repository, staged, ()),
            lambda: unfit(text, "m", repository),
            lambda: describe_repository(repository, directory / "spec"),
            *_version_commands(repository),
            lambda: fix([repository], DEFAULT_RELEASE, Selection(), unsafe=True),
        )

    return read


def _plan(repository: Path, options: SyncOptions, name: str, entry: RegistryEntry) -> list[Step]:
    """Return the plan of a model as a sync makes it, or one failed step."""
    from repogen.registry.sync.plan import Step, failed, plan

    try:
        return plan(repository, options, name, entry)
    except (RepogenError, OSError) as error:
        return [Step(failed(name, entry, error))]


def _records(directory: Path) -> Read:
    """Fuzz manifest.json, golden.json, repogen.json and a journal, which have the same contents."""
    from repogen.artifacts.registry import EntryState, RegistryEntry
    from repogen.artifacts.sync import DesiredVersion, SyncOptions
    from repogen.build.incremental import _report, newest_version
    from repogen.check.files import manifest_findings
    from repogen.reporting.json import as_dict
    from repogen.repository.golden import first_golden_inputs
    from repogen.repository.manifest import manifest_to_json, read_manifest
    from repogen.repository.mirror import inspect_model
    from repogen.repository.ownership import read_owner
    from repogen.repository.recovery import recover
    from repogen.serving.commands import recorded_target

    repository = directory / "repository"
    version = seeds.write_model(repository, "m") / "1"
    (version / "golden.npz").write_bytes(seeds.golden_arrays())
    entry = RegistryEntry("m", 1, EntryState.PUBLISHED, "", "", 1, "", "24.10", {}, ("champion",))

    def report() -> None:
        current = newest_version(repository, "m")
        if not isinstance(current, str):
            as_dict(_report("m", *current, 0.1))

    def read(path: Path) -> None:
        for other in (repository / "repogen.json", version / "golden.json", repository / ".repogen.m.pending.json"):
            other.write_bytes(path.read_bytes())
        _read_all(
            lambda: manifest_to_json(read_manifest(version)),
            lambda: list(manifest_findings(version)),
            lambda: inspect_model(repository, DesiredVersion("m", 1, "")),
            lambda: _plan(repository, SyncOptions("champion"), "m", entry),
            lambda: recorded_target(repository),
            report,
            lambda: first_golden_inputs(version, batched=True),
            lambda: read_owner(repository),
            *_version_commands(repository),
            lambda: recover(repository, "m"),
        )

    return read


def _arrays(directory: Path) -> Read:
    """Fuzz examples in ``.npz`` files, and golden.npz, which have the same contents."""
    from repogen.artifacts.tensors import TensorSpec
    from repogen.repository.golden import first_golden_inputs
    from repogen.smoke.deployed_model import read_deployed_model
    from repogen.smoke.preparation import PreparedModel
    from repogen.source.common.examples import StoredExamples, load_data
    from repogen.triton_config.text.parse import parse

    model = PreparedModel(directory, (1,), parse(seeds.CONFIG, "config.pbtxt"))
    specs = (TensorSpec("x", "float32", ("batch", 4)), TensorSpec("s", "string", ("batch",)))
    (directory / "1").mkdir()
    (directory / "1" / "golden.json").write_text(seeds.GOLDEN_JSON, encoding="utf-8")

    def read(path: Path) -> None:
        path.with_name("golden.npz").write_bytes(path.read_bytes())
        client: Any = None
        _read_all(
            lambda: StoredExamples((load_data(path),), "e.npz", specs)({"batch": 3}, 1),
            lambda: first_golden_inputs(path.parent, batched=True),
            lambda: read_deployed_model(client, model, path.parent, seeds.manifest()),
        )

    return read


def _onnx(directory: Path) -> Read:
    """Fuzz an ONNX file as ``check``, ``diff``, ``init --from`` and a build read it, up to where it is run."""
    from repogen.check.checker import check
    from repogen.reporting.diff_text import diff_markdown
    from repogen.scaffold.describe import describe
    from repogen.source.onnx import read as onnx_file
    from repogen.versions.difference import compare

    repository = directory / "repository"
    seeds.write_model(repository, "m")

    def load(path: Path) -> None:
        proto = onnx_file.read_onnx(path)
        onnx_file.external_files(proto, path)
        onnx_file.check_operators(proto, path)
        onnx_file.check_standard(proto, path)
        onnx_file.check_outputs(proto, ())
        onnx_file.graph_inputs(proto)
        onnx_file.random_nodes(proto)

    def read(path: Path) -> None:
        _read_all(
            lambda: check(repository),
            lambda: load(path),
            lambda: describe(str(path), directory),
            lambda: diff_markdown(compare("m", (repository, 1), (repository, 1))),
        )

    return read


def _load(directory: Path, source: dict[str, Any], **spec: Any) -> Read:
    """Return a function that loads a source as a worker does."""
    import torch

    from repogen.source.load import load_source
    from repogen.spec.models import ModelSpec

    torch.set_num_threads(1)
    model = ModelSpec.model_validate({"source": source, **spec})
    return lambda _: load_source(model, directory, directory)


def _onnx_source(directory: Path) -> Read:
    return _load(directory, {"kind": "onnx", "path": "model.onnx"})


def _mlmodel(directory: Path) -> Read:
    import torch

    (directory / "data").mkdir()
    (directory / "model.onnx").write_bytes(seeds.onnx_files()[0])
    torch.save(torch.nn.Linear(4, 2), directory / "data" / "model.pth")
    return _load(directory, {"kind": "mlflow", "uri": "models:/m/1", "trust_pickle": True})


def _registry(directory: Path) -> Read:
    """Fuzz the tags of a registered model and of its version."""
    from types import SimpleNamespace

    from repogen.artifacts.promotion import History
    from repogen.artifacts.sync import SyncOptions
    from repogen.errors import ExitCode
    from repogen.registry.mlflow.entries import entry_of, moves_of
    from repogen.registry.promotion.alias_history import periods, rollback_target
    from repogen.reporting.json import as_dict

    seeds.write_model(directory / "repository", "m")

    def read(path: Path) -> None:
        try:
            tags = json.loads(path.read_bytes())
        except (ValueError, RecursionError):
            return
        if not isinstance(tags, dict):
            return
        texts = {str(key)[:250]: value if isinstance(value, str) else json.dumps(value) for key, value in tags.items()}
        version: Any = SimpleNamespace(name="m", version=texts.get("version", "1"), tags=texts)
        entry = entry_of(version, ("champion",))
        steps = _plan(directory / "repository", SyncOptions("champion", prune=True), "m", entry)
        errors = [step.result.error for step in steps if step.result.error is not None]
        moves = moves_of(texts, {"champion": 2})
        versions = {2, *(move.old for move in moves), *(move.new for move in moves)}
        target = rollback_target(moves, 2)
        history = History("m", periods("champion", moves, 2))
        json.dumps(as_dict(history))
        assert target != 2 and target in {None, *versions}  # noqa: PT018 - the place of the failure names the check
        assert {period.version for period in history.periods} <= versions
        assert sum(period.present for period in history.periods) == 1
        assert ExitCode.BUG not in {error.exit_code for error in errors}

    return read


def _safetensors(_: Path) -> Read:
    from repogen.source.common.examples import load_data
    from repogen.source.torch.weights import read_state

    return lambda path: _read_all(lambda: read_state(path), lambda: load_data(path))


def _weights(_: Path) -> Read:
    from repogen.source.torch.weights import read_state

    return read_state


def _described(directory: Path, load: Read) -> Read:
    """Return a function that reads a model like ``load``, and like ``init --from``."""
    from repogen.scaffold.describe import describe

    def read(path: Path) -> None:
        model = path.parent if path.name == "config.json" else path
        _read_all(lambda: load(path), lambda: describe(str(model), directory))

    return read


def _program(directory: Path) -> Read:
    return _described(directory, _load(directory, {"kind": "torch_export", "path": "model.pt2"}))


def _torchscript(directory: Path) -> Read:
    inputs = {"x": {"dtype": "float32", "shape": ["batch", 4]}}
    source = {"kind": "torchscript", "path": "model.pt"}
    return _described(directory, _load(directory, source, inputs=inputs, dims={"batch": {"max": 4}}))


def _huggingface(directory: Path) -> Read:
    """Fuzz config.json; the other files of the checkpoint are valid."""
    for name, content in seeds.checkpoint_files().items():
        (directory / name).write_bytes(content)
    return _described(directory, _load(directory, {"kind": "huggingface", "model": "."}))


def _huggingface_files(directory: Path) -> Read:
    """Fuzz the other files of a checkpoint, which have the same contents."""
    from repogen.scaffold.text_ensemble import _padding, _pooling
    from repogen.source.huggingface.checkpoint import open_checkpoint

    (directory / "config.json").write_bytes(seeds.checkpoint_files()["config.json"])
    (directory / "pytorch_model.bin").write_bytes(b"")
    (directory / "1_Pooling").mkdir()
    index = directory / "model.safetensors.index.json"
    companions = ("preprocessor_config.json", "tokenizer_config.json", "tokenizer.json", "modules.json", "README.md")

    def read(path: Path) -> None:
        for name in (*companions, "1_Pooling/config.json"):
            (directory / name).write_bytes(path.read_bytes())
        index.unlink(missing_ok=True)
        checkpoint = open_checkpoint(directory, "m", trusted=False, local=True)
        index.write_bytes(path.read_bytes())
        _read_all(
            lambda: checkpoint.preprocessor.image_size,
            lambda: checkpoint.tokenizer,
            lambda: checkpoint.pipeline_tag,
            lambda: open_checkpoint(directory, "m", trusted=False, local=True).files,
            lambda: _pooling(directory),
            lambda: _padding(directory),
        )

    return read


def _text(directory: Path) -> Read:
    """Fuzz Python code that is parsed, class names, requirements, and the log of a worker."""
    from repogen.files import MAX_TEXT_BYTES
    from repogen.repository.layout import requirements_in
    from repogen.scaffold.describe import describe
    from repogen.triton_config.render.named_files import _lines, _read_text
    from repogen.worker.log import read_log

    (directory / "model.py").write_bytes(b"")

    def log(path: Path) -> str:
        worker_log = read_log(path, directory)
        return worker_log.suffix + worker_log.location

    def read(path: Path) -> None:
        (directory / "requirements.txt").write_bytes(path.read_bytes())
        _read_all(
            lambda: describe(f"{path}:build", directory),
            lambda: requirements_in(directory),
            lambda: _lines(_read_text(directory, path.name, MAX_TEXT_BYTES)),
            lambda: log(path),
        )

    return read


def _plan_file(directory: Path) -> Read:
    """Fuzz the plan of ``build --plan``, and the recorded costs, which have the same contents."""
    from repogen.build.costs import _read as read_costs
    from repogen.build.plan_file import read_plan

    costs = directory / "build" / "reports" / "costs.json"
    costs.parent.mkdir(parents=True)

    def read(path: Path) -> None:
        costs.write_bytes(path.read_bytes())
        _read_all(lambda: read_costs(directory), lambda: read_plan(path))

    return read


def _results(directory: Path) -> Read:
    """Fuzz what build, bench and tune measured, up to the report of a repository."""
    import repogen
    from repogen.reporting.results import read_results, result_file

    repository = directory / "repository"
    seeds.write_model(repository, "m")

    def read(path: Path) -> str:
        for command in ("build", "bench", "tune"):
            file = result_file(directory / "results", command, "m")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(path.read_bytes())
        repogen.report(repository, output=directory / "report.html", results=directory / "results")
        measured = read_results(directory / "results", "m")
        names = [name for name in ("build", "bench", "tuning") if getattr(measured, name) is not None]
        page = (directory / "report.html").read_text(encoding="utf-8")
        return " ".join([*names, *(str(page.count(tag)) for tag in ("<svg", "<tr", "<li", "<p"))])

    return read


def _task(directory: Path) -> Read:
    """Fuzz the result of an executor's task."""
    import shutil

    from repogen.artifacts.steps import EnsembleArtifact
    from repogen.build.elsewhere import _read as read_result
    from repogen.build.elsewhere import _with_files
    from repogen.errors import error_from_record
    from repogen.executors import process

    outputs = directory / "outputs"

    def read(path: Path) -> None:
        shutil.rmtree(outputs, ignore_errors=True)
        outputs.mkdir()
        for name in ("artifact-model.onnx", "golden-golden.json", "golden-golden.npz", "companion-0"):
            (outputs / name).write_bytes(b"")
        (outputs / process.RESULT).write_bytes(path.read_bytes())
        result = read_result(outputs)
        if result.error is not None:
            assert error_from_record(result.error).record.message == result.error.message
        if result.built is not None:
            built = _with_files(result.built, outputs)
            paths = [built.golden_dir, *built.companions.values()]
            paths += [] if isinstance(built.artifact, EnsembleArtifact) else [built.artifact.path]
            assert all(str(each).startswith(str(outputs)) for each in paths)

    return read


def _settings(directory: Path) -> Read:
    """Fuzz the settings of ``check`` in pyproject.toml and in repogen.yaml, which have the same contents."""
    from repogen.check.settings import find_settings

    def read(path: Path) -> None:
        spec = directory / "repogen.yaml"
        spec.unlink(missing_ok=True)
        _read_all(
            lambda: find_settings(directory),
            lambda: spec.write_bytes(path.read_bytes()),
            lambda: find_settings(directory),
        )

    return read


def _servers(_: Path) -> Read:
    from repogen.deploy.addresses import server_addresses

    return lambda path: server_addresses((), path)


def _attestation(directory: Path) -> Read:
    from repogen.attestation.statement import differences, read_attestation

    (directory / "m" / "1").mkdir(parents=True)

    def read(path: Path) -> None:
        attestation = read_attestation(path.parent)
        if attestation is not None:
            differences(attestation, seeds.manifest())

    return read


def _signature(directory: Path) -> Read:
    """Fuzz a signature of OpenSSF Model Signing."""
    from repogen.attestation.signature import verify_signature

    version, signer = seeds.signed_version(directory)

    def read(_: Path) -> str:
        return words(verify_signature(version, signer))

    return read


def _messages(_: Path) -> Read:  # noqa: C901 - one function for each message
    """Fuzz what another process sends: a webhook, a claim in a store, an image's manifest, tensors over HTTP."""
    from types import SimpleNamespace

    from repogen.bench.load import parse_result
    from repogen.files.url import location
    from repogen.registry.webhook import signature
    from repogen.registry.webhook.signature import _signature as sign
    from repogen.serving.served_models import _METADATA, _curl, _python
    from repogen.smoke.inference import RefusedError
    from repogen.smoke.over_http import decode_response
    from repogen.stores.claim import _has_ended
    from repogen.stores.oci import Registry, reference

    secret: Any = b"0123456789abcdef"
    url: Any = location("oci://registry.example.com/m:1")
    image = reference(url)

    def webhook(body: bytes) -> str:
        headers = {signature.DELIVERY_ID: "d", signature.TIMESTAMP: "1000"}
        headers[signature.SIGNATURE] = sign(secret, "d", "1000", body).decode()
        try:
            event = signature.Verifier(secret.decode(), lambda: 1000.0).event(headers, body)
        except signature.RejectedError as error:
            return words(str(error))
        return type(event).__name__

    def manifest(body: bytes) -> None:
        registry: Any = SimpleNamespace(_manifest=lambda: body, _image=image)
        Registry.layers(registry)

    def response(body: bytes) -> str:
        outcomes = []
        for length in (None, str(body.find(b"\n") + 1), "-1", "x"):
            try:
                decode_response(body, length)
                outcomes.append("")
            except RefusedError as error:
                outcomes.append(words(error.message))
        return ", ".join(outcomes)

    def metadata(body: bytes) -> str:
        try:
            model = _METADATA.validate_json(body)
        except ValueError:
            return "no metadata"
        _curl("127.0.0.1:8000", model)
        _python(model)
        return "metadata"

    def read(path: Path) -> str:
        body = path.read_bytes()
        text = body.decode(errors="replace")
        return _outcomes(
            lambda: webhook(body),
            lambda: _has_ended(body),
            lambda: manifest(body),
            lambda: response(body),
            lambda: metadata(body),
            lambda: type(parse_result(text, text)).__name__,
        )

    return read


def _layer(directory: Path) -> Read:
    """Fuzz a layer of an image."""
    import shutil

    from repogen.files.url import location
    from repogen.stores.oci import Contents, extract, reference

    url: Any = location("oci://registry.example.com/m:1")
    image, target = reference(url), directory / "target"

    def read(path: Path) -> None:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        try:
            extract(path, target, image, Contents())
        finally:
            assert {entry.name for entry in directory.iterdir()} <= {"target", path.name, PROGRESS}

    return read


def _study(directory: Path) -> Read:
    """Fuzz the database of the trials of ``tune``."""
    from repogen.tune.search import Search, open_study, pareto_front

    plan, bed = seeds.search_plan()

    def read(path: Path) -> None:
        for file in directory.glob(f"{path.name}-*"):
            file.unlink()
        with open_study(path) as study:
            search = Search(study, plan, bed)
            pareto_front(search.trials)
            assert search.resumed == len(search.trials)
            assert search.best is None or search.best.feasible

    return read


def _wheel(directory: Path) -> Read:
    """Fuzz a wheel that ``pack: true`` downloaded."""
    import shutil

    from repogen.build.packages import _environment, _needed, _read_wheel, _unpack

    target = directory / "target"

    def read(path: Path) -> None:
        shutil.rmtree(target, ignore_errors=True)
        try:
            wheel = _read_wheel(path)
            _needed(["p[extra]==1.0"], {"p": wheel}, _environment("3.12"))
            _unpack(wheel, target)
        except OSError:  # a build reports it as an error of the model
            return
        finally:
            assert {entry.name for entry in directory.iterdir()} <= {"target", path.name, PROGRESS}

    return read


def _spec_edit(directory: Path) -> Read:
    """Fuzz a spec into which ``tune`` writes settings."""
    from repogen.spec.load import load_spec
    from repogen.spec.models import PassSpec
    from repogen.tune.spec_edit import edit_spec

    _spec(directory)

    def read(path: Path) -> None:
        spec = load_spec(path)
        for name, model in list(spec.models.items())[:2]:
            triton = model.triton.model_copy(update={"max_batch_size": 5})
            changed = model.model_copy(update={"triton": triton, "optimize": (PassSpec(name="onnxsim"),)})
            edit_spec(spec, path.read_bytes(), name, changed)

    return read


def _new_model() -> onnx.ModelProto:
    import onnx

    return onnx.ModelProto()


_PBTXT_WORDS = (
    b"{", b"}", b"[", b"]", b"<", b">", b":", b",", b'"', b"'", b"\\", b"#", b"\n", b"-", b"dims", b"nan", b"1e400",
    b"9223372036854775807", b"9" * 400, b"9" * 5000, b"input { ", b"${x}", b"{{", b"{%", b"# repogen: ignore[RG1]",
    b"\xff", b"\0", b"\xef\xbb\xbf", b'"\\', b"[type.googleapis.com/x] {}", b"0x", b"TYPE_FP32", b"model_warmup { }",
    b"version_policy { specific { versions: [1,2] } }", b'parameters { key: "a" }', b"inf",
    b'ensemble_scheduling { step { model_name: "m" } }',
)  # fmt: skip
_YAML_WORDS = (
    *(b"models:", b"source:", b"kind: onnx", b"inputs:", b"triton:", b"dims:", b"defaults:", b"flavors:"),
    b"signature:",
)
_PICKLE_WORDS = (
    b"cos\nsystem\n", b"\x80\x02", b".", b"R", b"(", b"t", b"\x8c", b"L" + b"9" * 5000 + b"L\n", b"X\xff\xff\xff\x7f",
    b"I" + b"9" * 5000 + b"\n", b"ctorch._utils\n_rebuild_tensor_v2\n", b"\x8a\xff", b"\x8b\xff\xff\xff\x7f",
    b"h\x00", b"2" * 100, b"ccollections\nOrderedDict\n", b"c__torch__.torch.classes.aten\nOpaqueObject\n)\x81",
)  # fmt: skip
_CODE_WORDS = (
    b"def forward(self: ", b") -> ", b"class ", b"Tensor", b",", b"[", b"]", b"(" * 200, b"import x\n", b"-" * 2000,
    b"\0", b"\xff", b"#" * 100,
)  # fmt: skip
_CARD_WORDS = (b"---\n", b"pipeline_tag: ", b"\n" * 500)
_TOML_WORDS = (
    b"[tool.repogen.check]\n", b"[[", b"]]", b"ignore = [", b"select = ", b'"' * 3, b"'" * 3, b"a.b.c = 1\n",
    b"= 1979-05-27\n", b"9" * 5000, b"a." * 100, b'"a".' * 30, b"{a = " * 100, b"[" * 300, b"check:\n", b"\0", b"\xff",
    b"per_path_ignores: {", b"inf", b"nan", b"\\u0000", b"target: {triton: 24.10}\n",
)  # fmt: skip
_ADDRESS_WORDS = (
    b"127.0.0.1:8001\n", b"unix:/tmp/x\n", b"[::1]:8001\n", b"#", b":", b"http://", b"dns:///", b"\0", b"\xff", b"\r\n",
    b"99999", b"@", b"a:1\n" * 1100, "\N{FULLWIDTH DIGIT ONE}".encode(), b"xn--", b"ipv4:", b"%", b" ",
)  # fmt: skip
_LAYER_NAMES = (
    "models", "models/", "models/m/1/model.onnx", "./models/m", "models/../x", "/models/x", "models//x", "models/.wh.m",
    "models/m/1", "models/x\n", "models/" + "x" * 90, "models/\udcff", "etc/passwd", "models/./x",
)  # fmt: skip
_METADATA_WORDS = (
    b"Requires-Dist: ", b"; extra == 'extra'", b"; python_version < '3'", b" >= 1.0,<2", b"[a,b]", b"(>1)", b"\n",
    b"; sys_platform == 1", b"; extra == ", b" @ https://example.com/x.whl", b"=?utf-8?b?AAA=?=", b"\xff", b"\0",
    b"; python_version in '3' and " * 200, b"; os_name < '1.x'", b"; platform_release >= '9'", b"===", b"9" * 5000,
    b"(" * 500, b"; python_full_version == 'x'", b"; dependency_groups == 'x'", b"; os_name ~= 'a'",
)  # fmt: skip
_WHEEL_NAMES = (
    "p-1.0.dist-info/METADATA", "p/__init__.py", "p-1.0.data/purelib/x.py", "p-1.0.data/scripts/x", "p", "..",
)  # fmt: skip
_ARRAY_NAMES = ("x.npy", "s.npy", "0.in.0.npy", "0.in.0.ends.npy", "0.out.0.npy", "x", "readme.txt")
_WEIGHTS_NAMES = ("w/data.pkl", "w/data/0", "w/version", "w/byteorder", "w/.data/serialization_id")
_PROGRAM_NAMES = (
    "m/models/model.json", "m/version", "version", "m/archive_format", "m/data/weights/model_weights_config.json",
    "m/data/constants/model_constants_config.json", "m/data/sample_inputs/model.pt", "m/data/aotinductor/model/x.so",
)  # fmt: skip
_SCRIPT_NAMES = ("m/data.pkl", "m/constants.pkl", "m/version", "m/code/__torch__.py")
_PICKLES = bytes_mutator(_PICKLE_WORDS)
_TENSORS = json_mutator((b"F32", b"data_offsets", b"shape"))
_GRAPH = json_mutator((b"torch.ops.aten.add.Tensor", b"Symbol('s0')"))
_MODELS = message_mutator(_new_model, bytes_mutator())
_SCRIPTS = bytes_mutator((*_PICKLE_WORDS, *_CODE_WORDS))

_worker = partial(Target, isolated=True)
_ALL = (
    Target("spec", "repogen.yaml", _spec, seeds.specs, yaml_mutator(_YAML_WORDS)),
    Target("config", "repository/m/config.pbtxt", _config, seeds.configs, bytes_mutator(_PBTXT_WORDS)),
    Target("records", "repository/m/1/manifest.json", _records, seeds.records, json_mutator()),
    Target("npz", "1/examples.npz", _arrays, seeds.arrays, zip_mutator(array_mutator(), _ARRAY_NAMES)),
    Target("onnx", "repository/m/1/model.onnx", _onnx, seeds.onnx_files, _MODELS),
    _worker("onnx-source", "model.onnx", _onnx_source, seeds.onnx_files, _MODELS),
    _worker("mlmodel", "MLmodel", _mlmodel, seeds.mlmodels, yaml_mutator(_YAML_WORDS)),
    Target("registry", "tags.json", _registry, seeds.tags, json_mutator()),
    _worker("safetensors", "weights.safetensors", _safetensors, seeds.safetensors, header_mutator(_TENSORS)),
    _worker("weights", "weights.pt", _weights, seeds.weights, zip_mutator(_PICKLES, _WEIGHTS_NAMES, _PICKLE_WORDS)),
    _worker("program", "model.pt2", _program, seeds.programs, zip_mutator(_GRAPH, _PROGRAM_NAMES)),
    _worker("torchscript", "model.pt", _torchscript, seeds.scripts, zip_mutator(_SCRIPTS, _SCRIPT_NAMES)),
    _worker("huggingface", "config.json", _huggingface, seeds.checkpoint_configs, json_mutator()),
    Target(
        "huggingface-files", "fuzzed.json", _huggingface_files, seeds.checkpoint_companions, json_mutator(_CARD_WORDS)
    ),
    Target("text", "fuzzed.py", _text, seeds.texts, bytes_mutator(_CODE_WORDS)),
    Target("plan", "plan.json", _plan_file, seeds.plans, json_mutator()),
    Target("results", "results.json", _results, seeds.results, json_mutator()),
    Target("task", "task.json", _task, seeds.tasks, json_mutator()),
    Target("settings", "pyproject.toml", _settings, seeds.settings, bytes_mutator(_TOML_WORDS)),
    Target("servers", "servers.txt", _servers, seeds.servers, bytes_mutator(_ADDRESS_WORDS)),
    Target("attestation", "m/1/attestation.json", _attestation, seeds.attestations, json_mutator()),
    Target("signature", f"{seeds.SIGNED}/model.sig", _signature, seeds.signatures, json_mutator()),
    Target("messages", "message.json", _messages, seeds.messages, json_mutator((b"binary_data_size", b"\n"))),
    Target("layer", "layer", _layer, seeds.layers, tar_mutator(_LAYER_NAMES)),
    Target("study", "study.db", _study, seeds.studies, database_mutator()),
    Target("wheel", seeds.WHEEL, _wheel, seeds.wheels, zip_mutator(bytes_mutator(_METADATA_WORDS), _WHEEL_NAMES)),
    Target("spec-edit", "repogen.yaml", _spec_edit, seeds.specs, yaml_mutator(_YAML_WORDS)),
)
TARGETS = {target.name: target for target in _ALL}

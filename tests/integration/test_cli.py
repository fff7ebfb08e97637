"""Integration tests of the commands: help, JSON on stdout, exit codes, and files on disk."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import onnx
import pytest
from click.testing import CliRunner

from repogen.cli.group import main
from repogen.distribution import install_command
from repogen.repository.layout import journal_path
from repogen.targets import newest_target
from repogen.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .conftest import Project, SharedTriton

MODEL_KEYS = {
    *("name", "status", "version", "sha256", "exporter", "opset", "ir_version", "max_batch_size", "parity", "nodes"),
    *("smoke", "seconds", "error"),  # the documented keys; those below are in the same document
    *("batch_reason", "exporters", "lossy", "passes", "notes", "peak_rss_bytes", "size", "registry_version"),
    *("inputs", "outputs", "operators", "config", "provenance", "reasons", "from_cache"),
}
ERROR_KEYS = {"code", "message", "hint", "where", "exit_code"}
FAULTS = """\
import sys
import uuid
import torch


def exits() -> torch.nn.Module:
    sys.exit(3)


class Noisy(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn_like(x)


class Mixes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0)
"""


def commands(group: click.Group = main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the name of every command."""
    for name, command in group.commands.items():
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.mark.parametrize("words", [(), *commands()], ids=" ".join)
def test_every_command_has_help(words: tuple[str, ...]) -> None:
    """Each command's help has a description and a usage line."""
    result = CliRunner().invoke(main, [*words, "--help"], prog_name="repogen")
    assert (result.exit_code, result.output.splitlines()[0].split()[: len(words) + 2]) == (
        0,
        ["Usage:", "repogen", *words],
    )


def test_version() -> None:
    """`--version` prints the package version."""
    assert CliRunner().invoke(main, ["--version"]).output == f"repogen, version {__version__}\n"


def test_schema_is_json() -> None:
    """`schema` prints a JSON Schema."""
    assert json.loads(CliRunner().invoke(main, ["schema"]).output)["type"] == "object"


@pytest.fixture(scope="module")
def scaffolded(
    tmp_path_factory: pytest.TempPathFactory, project_at: Callable[[Path], Project]
) -> tuple[Project, dict[str, Any]]:
    """Return the project that `init` writes, built without changes, and the JSON of the build."""
    project = project_at(tmp_path_factory.mktemp("scaffold"))
    assert project.run("init").returncode == 0
    build = project.run("build", "--json")
    assert (build.returncode, build.stderr) == (0, "")
    document: dict[str, Any] = json.loads(build.stdout)
    return project, document


def copied(project: Project, directory: Path) -> Project:
    """Return a copy of a built project that a test can change."""
    shutil.copytree(project.directory, directory, dirs_exist_ok=True)
    return replace(project, directory=directory)


def test_build_after_init_publishes_version_1(scaffolded: tuple[Project, dict[str, Any]]) -> None:
    """The unedited spec is published as version 1, smoke-tested, and reported in the documented JSON."""
    project, document = scaffolded
    (model,) = document["models"]
    assert (document["repository"], set(document)) == (
        str(project.repository),
        {"repository", "models", "notes", "report", "error"},
    )
    assert document["report"] == str(project.directory / "build" / "reports" / "repogen.html")
    assert "1 published" in Path(document["report"]).read_text(encoding="utf-8")
    assert set(model) == MODEL_KEYS
    assert (model["status"], model["version"], model["error"]) == ("published", 1, None)
    assert (model["smoke"]["passed"], model["smoke"]["server_version"]) == (True, "2.51.0")
    assert (model["exporter"], model["max_batch_size"]) == ("dynamo", 8)
    assert set(model["parity"]) == {
        *("cases", "skipped", "max_abs_diff", "max_rel_diff", "passed", "sweep", "outputs"),
    }
    assert len(model["parity"]["sweep"]) == model["parity"]["cases"]
    assert set(model["nodes"]) == {"exported", "optimized"}
    assert model["sha256"] == project.published()["tiny/1/model.onnx"]


def test_init_overwrites_only_with_force(tmp_path: Path, project_at: Callable[[Path], Project]) -> None:
    """Existing files are kept with exit code 2; --force replaces them."""
    project = project_at(tmp_path)
    project.spec.write_text("mine", encoding="utf-8")
    result = project.run("init")
    assert (result.returncode, project.spec.read_text(encoding="utf-8")) == (2, "mine")
    assert "already exists: repogen.yaml" in result.stderr
    assert not (tmp_path / "models.py").exists()
    assert project.run("init", "--force").returncode == 0
    assert project.spec.read_text(encoding="utf-8").startswith("# The spec that `repogen build` reads")


def test_rebuild_is_unchanged(scaffolded: tuple[Project, dict[str, Any]]) -> None:
    """A second build reports `unchanged` with the same facts and does not touch the repository."""
    project, document = scaffolded
    before = project.published()
    again = json.loads(project.run("build", "--json").stdout)["models"][0]
    first = document["models"][0]
    assert (again["status"], again["version"]) == ("unchanged", 1)
    assert again["provenance"] == first["provenance"]
    assert [again[key] for key in ("sha256", "exporter", "nodes", "opset")] == [
        first[key] for key in ("sha256", "exporter", "nodes", "opset")
    ]
    assert before == project.published()


@pytest.mark.parametrize(
    "words", [("--help",), ("build", "--help"), ("doctor",), ("build",), ("schema",)], ids=" ".join
)
def test_light_commands_import_no_heavy_package(
    scaffolded: tuple[Project, dict[str, Any]], words: tuple[str, ...]
) -> None:
    """Help, doctor, schema and an unchanged build do not import torch, ONNX Runtime or MLflow."""
    program = (
        "import sys\n"
        "from repogen.cli.group import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit as end:\n"
        "    heavy = {'torch', 'onnxruntime', 'mlflow', 'onnx', 'tritonclient', 'onnxsim'} & set(sys.modules)\n"
        "    print(end.code, sorted(heavy), file=sys.stderr)\n"
    )
    command = [sys.executable, "-c", program, *words]
    run = subprocess.run(command, cwd=scaffolded[0].directory, capture_output=True, text=True, check=True)
    assert run.stderr.splitlines()[-1] == "0 []"


def test_changed_golden_tensors_fail_the_smoke_test(scaffolded: tuple[Project, dict[str, Any]], tmp_path: Path) -> None:
    """A changed byte in a recorded file is exit code 6, and the JSON names the file."""
    project = copied(scaffolded[0], tmp_path)
    golden = project.repository / "tiny" / "1" / "golden.npz"
    content = bytearray(golden.read_bytes())
    content[len(content) // 2] ^= 0xFF
    golden.write_bytes(content)
    smoke = project.run("smoke", "--json")
    (report,) = json.loads(smoke.stdout)["models"]
    assert (smoke.returncode, report["passed"]) == (6, False)
    assert "golden.npz" in next(check["detail"] for check in report["checks"] if not check["passed"])


def test_changed_model_fails_the_smoke_test(scaffolded: tuple[Project, dict[str, Any]], tmp_path: Path) -> None:
    """A model with a forged manifest still fails when its outputs differ from PyTorch."""
    project = copied(scaffolded[0], tmp_path)
    version = project.repository / "tiny" / "1"
    model = onnx.load(version / "model.onnx")
    weights = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    weights.raw_data = bytes(len(weights.raw_data))  # zeros
    content = model.SerializeToString()
    (version / "model.onnx").write_bytes(content)
    manifest = json.loads((version / "manifest.json").read_text(encoding="utf-8"))
    record = next(record for record in manifest["files"] if record["path"] == "model.onnx")
    record |= {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    (version / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    smoke = project.run("smoke")
    assert smoke.returncode == 6
    assert "tiny version 1: FAILED" in smoke.stdout
    assert "FAIL golden" in smoke.stdout


@pytest.mark.usefixtures("interruptible")
def test_smoke_of_a_server_address(scaffolded: tuple[Project, dict[str, Any]]) -> None:
    """`serve` prints its ports and runs until Ctrl-C; `smoke --server HOST:PORT` tests it."""
    project = scaffolded[0]
    with project.start("serve", "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0") as serve:
        assert serve.stdout is not None
        output = list(takewhile(lambda line: line != "press Ctrl-C to stop\n", serve.stdout))
        runtime = f"ONNX Runtime {newest_target().onnxruntime} (Python-hosted, CPU)"  # `init` writes this target
        assert output[0] == f"Triton 2.51.0 (embedded, {runtime}) serves model_repository\n"
        words = [line.split() for line in output[1:4]]
        assert [word for word, _ in words] == ["gRPC", "HTTP", "metrics"]
        assert any(line.split() == ["tiny", "READY", "1"] for line in output)
        smoke = project.run("smoke", "--server", words[0][1])
        assert (smoke.returncode, smoke.stdout.splitlines()[0]) == (
            0,
            "tiny version 1: passed on Triton 2.51.0 (remote)",
        )
        os.killpg(serve.pid, signal.SIGINT)
        _, errors = serve.communicate()
    assert serve.returncode == 0
    assert "Traceback" not in errors
    assert project.vanished()


def test_server_of_a_failed_test_is_stopped(scaffolded: tuple[Project, dict[str, Any]]) -> None:
    """The end of the block does not wait for a server that no one stops."""
    project = scaffolded[0]

    def fail() -> None:
        with project.start("serve", "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0") as serve:
            assert serve.stdout is not None
            assert next(serve.stdout) == "not what `serve` prints"

    with pytest.raises(AssertionError, match=r"Triton 2\.51\.0"):
        fail()
    assert project.vanished()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, new_project: Callable[[Path], Project]) -> Project:
    """Return a project with a published version 1."""
    project = new_project(tmp_path_factory.mktemp("tiny"))
    assert project.run("build", "--no-smoke").returncode == 0
    return project


@pytest.fixture(scope="module")
def reconfigured(tiny: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a project whose version 2 changes only config.pbtxt, built after a dry run."""
    project = copied(tiny, tmp_path_factory.mktemp("reconfigured"))
    before = project.published()
    project.edit("count: 1", "count: 2")
    (dry,) = json.loads(project.run("build", "--no-smoke", "--dry-run", "--json").stdout)["models"]
    assert (dry["status"], dry["version"], project.published()) == ("verified", None, before)
    assert project.stages() == []
    (build,) = json.loads(project.run("build", "--no-smoke", "--json").stdout)["models"]
    assert (build["status"], build["version"], build["sha256"]) == ("published", 2, dry["sha256"])
    return project


def test_config_change_is_a_new_version(reconfigured: Project) -> None:
    """Version 2 has the model bytes of version 1 and the new configuration."""
    published = reconfigured.published()
    assert published["tiny/2/model.onnx"] == published["tiny/1/model.onnx"]
    assert published["tiny/config.pbtxt"] == published["tiny/2/config.pbtxt"] != published["tiny/1/config.pbtxt"]


def test_interrupted_publish_is_completed(reconfigured: Project) -> None:
    """With version 2 in place, an old config.pbtxt and a journal, the next build recovers without an export."""
    model = reconfigured.repository / "tiny"
    files = reconfigured.published()
    before, after = ((model / version / "config.pbtxt").read_bytes() for version in "12")
    (model / "config.pbtxt").write_bytes(before)
    digests = {"before": hashlib.sha256(before).hexdigest(), "after": hashlib.sha256(after).hexdigest()}
    journal_path(model).write_text(json.dumps(digests), encoding="utf-8")
    (build,) = json.loads(reconfigured.run("build", "--no-smoke", "--json").stdout)["models"]
    assert (build["status"], build["version"], reconfigured.published()) == ("unchanged", 2, files)
    assert not journal_path(model).exists()


@pytest.mark.full
def test_force_publishes_an_unchanged_model(tiny: Project, tmp_path: Path) -> None:
    """With --force, the same bytes become version 2."""
    project = copied(tiny, tmp_path)
    build = json.loads(project.run("build", "--no-smoke", "--force", "--json").stdout)["models"][0]
    assert (build["status"], build["version"]) == ("published", 2)
    published = project.published()
    assert published["tiny/2/model.onnx"] == published["tiny/1/model.onnx"]


@pytest.mark.full
def test_changed_signature_needs_allow_breaking(tiny: Project, tmp_path: Path) -> None:
    """A changed signature is rejected with exit code 7 and every difference, unless it is allowed."""
    project = copied(tiny, tmp_path)
    project.edit("outputs: [y]", "outputs: [logits]")
    before = project.published()
    result = project.run("build", "--no-smoke", "--json")
    error = json.loads(result.stdout)["models"][0]["error"]
    assert (result.returncode, error["code"], set(error)) == (7, "publish.breaking", ERROR_KEYS)
    assert "output 'y' was removed" in error["message"]
    assert before == project.published()
    allowed = project.run("build", "--no-smoke", "--breaking", "--json")
    assert (allowed.returncode, json.loads(allowed.stdout)["models"][0]["version"]) == (0, 2)


@pytest.mark.full
@pytest.mark.parametrize(
    "section",
    [
        """optimization: {execution_accelerators: {gpu_execution_accelerator: [
          {name: tensorrt, parameters: {trt_extra_plugin_lib_paths: /tmp/x.so}}]}}""",
        "parameters: {session.optimized_model_filepath: /tmp/x}",
        "extra: \"model_operations { op_library_filename: 'x.so' }\"",
    ],
)
def test_config_that_runs_code_is_not_published(tiny: Project, tmp_path: Path, section: str) -> None:
    """Without a smoke test as well, which would not load the model."""
    project = copied(tiny, tmp_path)
    project.edit("instance_group: [{count: 1, kind: KIND_CPU}]", section)
    before = project.published()
    result = project.run("build", "--no-smoke", "--json")
    error = json.loads(result.stdout)["models"][0]["error"]
    assert (result.returncode, error["code"]) == (5, "config.not-admitted")
    assert before == project.published()


@pytest.mark.full
def test_build_smoke_tests_on_a_running_server(
    triton: SharedTriton, tiny: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is uploaded to a server in explicit mode under a private name; the control header is not printed."""
    project = copied(tiny, tmp_path)
    header = triton.running.endpoint.control
    assert header is not None
    monkeypatch.setenv("REPOGEN_CONTROL_HEADER", f"{header.key}={header.value}")
    build = project.run("build", "--force", "--server", triton.running.endpoint.grpc, "--json")
    smoke = json.loads(build.stdout)["models"][0]["smoke"]
    assert (build.returncode, smoke["server"], smoke["passed"]) == (0, "remote", True)
    assert [override.partition(":")[0] for override in smoke["overrides"]] == ["name"]
    files = [path for path in project.directory.rglob("*") if path.is_file()]
    assert [path for path in files if header.value.encode() in path.read_bytes()] == []
    assert header.value not in build.stdout + build.stderr


def test_parallel_failures(tmp_path: Path, new_project: Callable[[Path], Project]) -> None:
    """With two jobs, the good model is published and the earliest failed step sets the exit code."""
    project = new_project(tmp_path)
    (tmp_path / "faults.py").write_text(FAULTS, encoding="utf-8")
    spec = project.spec.read_text(encoding="utf-8")
    block = spec.partition("  tiny:\n")[2].replace("    triton:\n", "    triton:\n      max_batch_size: 8\n")
    for name, factory in (("random", "Noisy"), ("exits", "exits"), ("mixes", "Mixes")):
        spec += f"  {name}:\n" + block.replace("models.py:build", f"faults.py:{factory}")
    project.spec.write_text(spec, encoding="utf-8")
    build = project.run("build", "--no-smoke", "--jobs", "2", "--json")
    models = json.loads(build.stdout)["models"]
    outcomes = {m["name"]: (m["status"], m["error"] and m["error"]["exit_code"]) for m in models}
    assert outcomes == {
        "tiny": ("published", None),
        "random": ("failed", 3),
        "exits": ("failed", 3),
        "mixes": ("failed", 5),
    }
    assert (build.returncode, build.stderr) == (3, "")
    assert [set(model) for model in models] == [MODEL_KEYS] * 4
    assert sorted(path.name for path in project.repository.iterdir() if path.is_dir()) == ["tiny"]
    assert project.stages() == []


def document_of(run: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the JSON of a command that failed before it had a report."""
    document: dict[str, Any] = json.loads(run.stdout)
    assert set(document) == {"repository", "models", "error", "problems"}
    assert set(document["error"]) == ERROR_KEYS
    assert "Traceback" not in run.stderr
    return document


def test_spec_problems_in_json(tmp_path: Path, new_project: Callable[[Path], Project]) -> None:
    """A spec with problems is exit code 2, with the position of each problem in the JSON."""
    project = new_project(tmp_path)
    project.edit("dtype: float32", "dtyp: float32")
    project.edit("outputs: [y]", "outputs: 3")
    run = project.run("build", "--json")
    problems = document_of(run)["problems"]
    assert (run.returncode, [p["where"].split(":")[1] for p in problems]) == (2, ["4", "4", "5"])
    assert any(p["hint"] == 'did you mean "dtype"?' for p in problems)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "code"),
    [
        (("--model", "nobody"), 2, "spec.no-such-model"),
        (("nowhere.yaml",), 2, "spec.missing"),
        (("--server", "127.0.0.1:1"), 6, "server.remote"),
        (("--server", "quick"), 2, "server.kind"),
        (("--repository", "models.py/repository"), 7, "stage.no-directory"),
        (("--repository", "."), 2, "spec.repository"),
        (("--stage-dir", "model_repository/stage"), 7, "stage.inside-repository"),
    ],
    ids=str,
)
def test_preflight_error_stops_the_build(
    tmp_path: Path, new_project: Callable[[Path], Project], arguments: tuple[str, ...], exit_code: int, code: str
) -> None:
    """A failed precondition is reported with its step's exit code before anything is exported."""
    project = new_project(tmp_path)
    run = project.run("build", *arguments, "--json")
    error = document_of(run)["error"]
    assert (run.returncode, error["exit_code"], error["code"]) == (exit_code, exit_code, code)
    assert {path.name for path in tmp_path.iterdir()} == {"models.py", "repogen.yaml", "tmp"}


def test_stage_on_another_filesystem_is_rejected(tmp_path: Path, new_project: Callable[[Path], Project]) -> None:
    """A stage on another filesystem is exit code 7 with a hint, because renames would fail."""
    elsewhere = Path("/dev/shm")  # noqa: S108 - a filesystem of its own
    assert elsewhere.stat().st_dev != tmp_path.stat().st_dev, "TMPDIR must not be on /dev/shm"
    name = f"stage-{uuid.uuid4()}"  # servers of this process have regions named repogen-PID-…
    run = new_project(tmp_path).run("build", "--stage-dir", str(elsewhere / name), "--json")
    error = document_of(run)["error"]
    assert (run.returncode, error["code"]) == (7, "stage.other-filesystem")
    assert "--stage-dir" in error["hint"]
    assert not list(elsewhere.glob(f"{name}*"))


def test_missing_extra_is_reported_before_the_export(tmp_path: Path, new_project: Callable[[Path], Project]) -> None:
    """Without onnxscript, no worker starts; exit code 2 and the install command are reported."""
    project = new_project(tmp_path)
    program = "import sys; sys.modules['onnxscript'] = None; from repogen.cli.group import main; main()"
    command = [sys.executable, "-c", program, "build", "--no-smoke"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (2, "")
    *_, error, hint, _ = run.stderr.splitlines()
    assert error == "error: building needs packages that are not installed: onnxscript"
    assert hint == f"  hint: {install_command('build')} (see README for the CPU build of torch)"
    assert "import" not in run.stderr.partition("error:")[0]
    assert not project.repository.exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("nowhere",), "repository.missing"), ((".", "--model", "nobody"), "repository.no-such-model")],
    ids=str,
)
def test_smoke_of_a_missing_model(
    tmp_path: Path, project_at: Callable[[Path], Project], arguments: tuple[str, ...], code: str
) -> None:
    """A missing model is exit code 2, before a server starts."""
    run = project_at(tmp_path).run("smoke", *arguments, "--json")
    assert (run.returncode, document_of(run)["error"]["code"]) == (2, code)

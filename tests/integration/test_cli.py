"""The commands as a user runs them: their help, documents on stdout, exit codes, and what they leave on disk."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import onnx
import pytest
from click.testing import CliRunner

from repogen.cli.group import main
from repogen.repository.layout import journal_path
from repogen.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .conftest import Project, SharedTriton

MODEL_KEYS = {
    *("name", "status", "version", "sha256", "exporter", "opset", "ir_version", "max_batch_size", "parity", "nodes"),
    *("smoke", "seconds", "error"),  # up to here the contract's, in one document with those below
    *("batch_reason", "exporters", "passes", "notes", "peak_rss_bytes", "size", "registry_version"),
}
ERROR_KEYS = {"code", "message", "hint", "where", "exit_code"}
FAULTS = """\
import sys
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
    """Yield every command's words."""
    for name, command in group.commands.items():
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.mark.parametrize("words", [(), *commands()], ids=" ".join)
def test_every_command_has_help(words: tuple[str, ...]) -> None:
    """Each says what it does and how it is called."""
    result = CliRunner().invoke(main, [*words, "--help"], prog_name="repogen")
    assert (result.exit_code, result.output.splitlines()[0].split()[: len(words) + 2]) == (
        0,
        ["Usage:", "repogen", *words],
    )


def test_version() -> None:
    """It is the package's."""
    assert CliRunner().invoke(main, ["--version"]).output == f"repogen, version {__version__}\n"


def test_schema_is_json() -> None:
    """Editors can read it."""
    assert json.loads(CliRunner().invoke(main, ["schema"]).output)["type"] == "object"


@pytest.fixture(scope="module")
def scaffolded(
    tmp_path_factory: pytest.TempPathFactory, project_at: Callable[[Path], Project]
) -> tuple[Project, dict[str, Any]]:
    """Return what `init` wrote to an empty directory, built as it is, and the build's document."""
    project = project_at(tmp_path_factory.mktemp("scaffold"))
    assert project.run("init").returncode == 0
    build = project.run("build", "--json")
    assert (build.returncode, build.stderr) == (0, "")
    document: dict[str, Any] = json.loads(build.stdout)
    return project, document


def copied(project: Project, directory: Path) -> Project:
    """Return a copy of a built project, to be changed."""
    shutil.copytree(project.directory, directory, dirs_exist_ok=True)
    return replace(project, directory=directory)


def test_init_then_build_works_unedited(scaffolded: tuple[Project, dict[str, Any]]) -> None:
    """Published as version 1, smoke-tested on the real Triton, in exactly the document that is promised."""
    project, document = scaffolded
    (model,) = document["models"]
    assert (document["repository"], set(document)) == (str(project.repository), {"repository", "models", "error"})
    assert set(model) == MODEL_KEYS
    assert (model["status"], model["version"], model["error"]) == ("published", 1, None)
    assert (model["smoke"]["passed"], model["smoke"]["server_version"]) == (True, "2.51.0")
    assert (model["exporter"], model["max_batch_size"]) == ("dynamo", 8)
    assert set(model["parity"]) == {"cases", "skipped", "max_abs_diff", "max_rel_diff", "passed"}
    assert set(model["nodes"]) == {"exported", "optimized"}
    assert model["sha256"] == project.published()["tiny/1/model.onnx"]


def test_init_never_overwrites_without_force(tmp_path: Path, project_at: Callable[[Path], Project]) -> None:
    """What is there stays, with exit code 2; --force replaces it."""
    project = project_at(tmp_path)
    project.spec.write_text("mine", encoding="utf-8")
    refused = project.run("init")
    assert (refused.returncode, project.spec.read_text(encoding="utf-8")) == (2, "mine")
    assert "already has repogen.yaml" in refused.stderr
    assert not (tmp_path / "models.py").exists()
    assert project.run("init", "--force").returncode == 0
    assert project.spec.read_text(encoding="utf-8").startswith("# What `repogen build` reads")


def test_built_again_nothing_is_published(scaffolded: tuple[Project, dict[str, Any]]) -> None:
    """`unchanged`, with the same facts, and not a byte of the repository touched."""
    project, document = scaffolded
    before = project.published()
    again = json.loads(project.run("build", "--json").stdout)["models"][0]
    first = document["models"][0]
    assert (again["status"], again["version"]) == ("unchanged", 1)
    assert [again[key] for key in ("sha256", "exporter", "nodes", "opset")] == [
        first[key] for key in ("sha256", "exporter", "nodes", "opset")
    ]
    assert before == project.published()


@pytest.mark.parametrize(
    "words", [("--help",), ("build", "--help"), ("doctor",), ("build",), ("schema",)], ids=" ".join
)
def test_nothing_heavy_is_imported(scaffolded: tuple[Project, dict[str, Any]], words: tuple[str, ...]) -> None:
    """Help, doctor, schema and an unchanged build import neither torch nor ONNX Runtime nor MLflow."""
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


def test_altered_golden_tensors_fail_the_smoke_test(scaffolded: tuple[Project, dict[str, Any]], tmp_path: Path) -> None:
    """A byte of a recorded file has changed: exit code 6, and the document names the file."""
    project = copied(scaffolded[0], tmp_path)
    golden = project.repository / "tiny" / "1" / "golden.npz"
    content = bytearray(golden.read_bytes())
    content[len(content) // 2] ^= 0xFF
    golden.write_bytes(content)
    smoke = project.run("smoke", "--json")
    (report,) = json.loads(smoke.stdout)["models"]
    assert (smoke.returncode, report["passed"]) == (6, False)
    assert "golden.npz" in next(check["detail"] for check in report["checks"] if not check["passed"])


def test_an_altered_model_fails_the_smoke_test(scaffolded: tuple[Project, dict[str, Any]], tmp_path: Path) -> None:
    """A model whose manifest was forged along with it still fails when its outputs differ from PyTorch."""
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
def test_serve_and_smoke_by_address(scaffolded: tuple[Project, dict[str, Any]]) -> None:
    """`serve` prints its ports and serves until Ctrl-C, exit code 0; `smoke --server HOST:PORT` asks it."""
    project = scaffolded[0]
    with project.start("serve") as serve:
        assert serve.stdout is not None
        told = [serve.stdout.readline() for _ in range(5)]
        assert told[0].startswith("Triton 2.51.0 (embedded, ONNX Runtime 1.19.2 (Python-hosted, CPU)) serves ")
        words = [line.split() for line in told[1:4]]
        assert [word for word, _ in words] == ["gRPC", "HTTP", "metrics"]
        assert told[4] == "press Ctrl-C to stop\n"
        smoke = project.run("smoke", "--server", words[0][1])
        assert (smoke.returncode, smoke.stdout.splitlines()[0]) == (
            0,
            "tiny version 1: passed on Triton 2.51.0 (remote), unknown",
        )
        os.killpg(serve.pid, signal.SIGINT)
        _, errors = serve.communicate()
    assert serve.returncode == 0
    assert "Traceback" not in errors
    assert project.vanished()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, new_project: Callable[[Path], Project]) -> Project:
    """Return a project whose version 1 is published."""
    project = new_project(tmp_path_factory.mktemp("tiny"))
    assert project.run("build", "--no-smoke").returncode == 0
    return project


@pytest.fixture(scope="module")
def reconfigured(tiny: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a project whose version 2 differs from version 1 in config.pbtxt alone, after a dry run of the same."""
    project = copied(tiny, tmp_path_factory.mktemp("reconfigured"))
    before = project.published()
    project.edit("count: 1", "count: 2")
    (dry,) = json.loads(project.run("build", "--no-smoke", "--dry-run", "--json").stdout)["models"]
    assert (dry["status"], dry["version"], project.published()) == ("verified", None, before)
    assert project.stages() == []
    (build,) = json.loads(project.run("build", "--no-smoke", "--json").stdout)["models"]
    assert (build["status"], build["version"], build["sha256"]) == ("published", 2, dry["sha256"])
    return project


def test_a_change_of_the_config_alone_is_a_new_version(reconfigured: Project) -> None:
    """Version 2 has the model's bytes of version 1, and the model the config of version 2."""
    published = reconfigured.published()
    assert published["tiny/2/model.onnx"] == published["tiny/1/model.onnx"]
    assert published["tiny/config.pbtxt"] == published["tiny/2/config.pbtxt"] != published["tiny/1/config.pbtxt"]


def test_a_publish_killed_between_its_renames_is_finished(reconfigured: Project) -> None:
    """With version 2 in place, an old config.pbtxt and a journal, the next build recovers without an export."""
    model = reconfigured.repository / "tiny"
    whole = reconfigured.published()
    before, after = ((model / version / "config.pbtxt").read_bytes() for version in "12")
    (model / "config.pbtxt").write_bytes(before)
    digests = {"before": hashlib.sha256(before).hexdigest(), "after": hashlib.sha256(after).hexdigest()}
    journal_path(model).write_text(json.dumps(digests), encoding="utf-8")
    (build,) = json.loads(reconfigured.run("build", "--no-smoke", "--json").stdout)["models"]
    assert (build["status"], build["version"], reconfigured.published()) == ("unchanged", 2, whole)
    assert not journal_path(model).exists()


def test_force_publishes_what_is_unchanged(tiny: Project, tmp_path: Path) -> None:
    """The same bytes become version 2."""
    project = copied(tiny, tmp_path)
    build = json.loads(project.run("build", "--no-smoke", "--force", "--json").stdout)["models"][0]
    assert (build["status"], build["version"]) == ("published", 2)
    published = project.published()
    assert published["tiny/2/model.onnx"] == published["tiny/1/model.onnx"]


def test_a_changed_signature_needs_breaking(tiny: Project, tmp_path: Path) -> None:
    """Refused with exit code 7 and every difference; --breaking publishes it."""
    project = copied(tiny, tmp_path)
    project.edit("outputs: [y]", "outputs: [logits]")
    before = project.published()
    refused = project.run("build", "--no-smoke", "--json")
    error = json.loads(refused.stdout)["models"][0]["error"]
    assert (refused.returncode, error["code"], set(error)) == (7, "publish.breaking", ERROR_KEYS)
    assert "output 'y' is gone" in error["message"]
    assert before == project.published()
    allowed = project.run("build", "--no-smoke", "--breaking", "--json")
    assert (allowed.returncode, json.loads(allowed.stdout)["models"][0]["version"]) == (0, 2)


def test_a_build_smoke_tested_by_a_server_that_runs(triton: SharedTriton, tiny: Project, tmp_path: Path) -> None:
    """--server HOST:PORT of one in explicit mode: the bytes are sent, under a private name."""
    project = copied(tiny, tmp_path)
    build = project.run("build", "--force", "--server", triton.running.endpoint.grpc, "--json")
    smoke = json.loads(build.stdout)["models"][0]["smoke"]
    assert (build.returncode, smoke["server"], smoke["passed"]) == (0, "remote", True)
    assert [override.partition(":")[0] for override in smoke["overrides"]] == ["name"]


def test_failures_side_by_side(tmp_path: Path, new_project: Callable[[Path], Project]) -> None:
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
    told = {m["name"]: (m["status"], m["error"] and m["error"]["exit_code"]) for m in models}
    assert told == {
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
    """Return the document of a command that failed before it had a report."""
    document: dict[str, Any] = json.loads(run.stdout)
    assert set(document) == {"repository", "models", "error", "problems"}
    assert set(document["error"]) == ERROR_KEYS
    assert "Traceback" not in run.stderr
    return document


def test_problems_of_the_spec_are_data(tmp_path: Path, new_project: Callable[[Path], Project]) -> None:
    """Exit code 2, and each problem with its place."""
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
        (("--server", "quick"), 6, "server.kind"),
        (("--repository", "models.py/repository"), 7, "stage.no-directory"),
        (("--repository", "."), 2, "spec.repository"),
        (("--stage-dir", "model_repository/stage"), 7, "stage.inside-repository"),
    ],
    ids=str,
)
def test_what_stops_a_build_is_said_before_it_starts(
    tmp_path: Path, new_project: Callable[[Path], Project], arguments: tuple[str, ...], exit_code: int, code: str
) -> None:
    """A clear error with the exit code of its step; nothing is exported, nothing left."""
    project = new_project(tmp_path)
    run = project.run("build", *arguments, "--json")
    error = document_of(run)["error"]
    assert (run.returncode, error["exit_code"], error["code"]) == (exit_code, exit_code, code)
    assert {path.name for path in tmp_path.iterdir()} == {"models.py", "repogen.yaml", "tmp"}


def test_a_stage_on_another_filesystem_is_refused(tmp_path: Path, new_project: Callable[[Path], Project]) -> None:
    """A rename would not work from there: exit code 7 with the remedy."""
    elsewhere = Path("/dev/shm")  # noqa: S108 - a filesystem of its own
    assert elsewhere.stat().st_dev != tmp_path.stat().st_dev, "TMPDIR must not be on /dev/shm"
    run = new_project(tmp_path).run("build", "--stage-dir", str(elsewhere / f"repogen-{os.getpid()}"), "--json")
    error = document_of(run)["error"]
    assert (run.returncode, error["code"]) == (7, "stage.other-filesystem")
    assert "--stage-dir" in error["hint"]
    assert not list(elsewhere.glob(f"repogen-{os.getpid()}*"))


def test_a_missing_extra_is_said_before_the_export(tmp_path: Path, new_project: Callable[[Path], Project]) -> None:
    """Without onnxscript, no worker is started: exit code 2 and the command that installs it."""
    project = new_project(tmp_path)
    program = "import sys; sys.modules['onnxscript'] = None; from repogen.cli.group import main; main()"
    command = [sys.executable, "-c", program, "build", "--no-smoke"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (2, "")
    *_, error, hint, _ = run.stderr.splitlines()
    assert error == "error: building needs packages that are not installed: onnxscript"
    assert "pip install 'triton-repogen[build]'" in hint
    assert "import" not in run.stderr.partition("error:")[0]
    assert not project.repository.exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("nowhere",), "repository.missing"), ((".", "--model", "nobody"), "repository.no-such-model")],
    ids=str,
)
def test_smoke_of_what_is_not_there(
    tmp_path: Path, project_at: Callable[[Path], Project], arguments: tuple[str, ...], code: str
) -> None:
    """Exit code 2, before a server is started."""
    run = project_at(tmp_path).run("smoke", *arguments, "--json")
    assert (run.returncode, document_of(run)["error"]["code"]) == (2, code)

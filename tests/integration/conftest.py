"""A shared embedded Triton for integration tests that do not need their own, and projects to run `repogen` in."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
import uuid
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlMode
from repogen.cli.group import main
from repogen.serving.servers import find_server
from repogen.targets import DEFAULT_RELEASE, newest_target, targets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from repogen.artifacts.serving import RunningTriton
    from repogen.targets import Target


@dataclass(frozen=True)
class SharedTriton:
    """A live embedded Triton in explicit mode, its repository and target; each test gives its models own names."""

    running: RunningTriton
    repository: Path
    target: Target


@pytest.fixture(
    scope="session", params=[DEFAULT_RELEASE, pytest.param(newest_target().release, marks=pytest.mark.full)]
)
def triton(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedTriton]:
    """Start one embedded Triton per target on an empty repository for the whole session (of one xdist worker)."""
    repository = tmp_path_factory.mktemp("triton") / "repository"
    repository.mkdir()
    target = targets()[request.param]
    embedded = find_server("embedded", target, Silent())
    embedded.preflight()
    with embedded.running(repository, ControlMode.EXPLICIT) as running:
        yield SharedTriton(running, repository, target)


TINY = """\
models:
  tiny:
    source: {factory: "models.py:build"}
    inputs: {x: {dtype: float32, shape: [batch, 4]}}
    outputs: [y]
    dims: {batch: {min: 1, max: 8}}
    export: {exporter: torchscript}
    triton:
      instance_group: [{count: 1, kind: KIND_CPU}]
"""
MODELS = """\
import torch


def build() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(4, 2)
"""
_MARK = "REPOGEN_TEST_MARK"


@dataclass(frozen=True)
class Project:
    """A directory with a spec and a model, and the real `repogen` command run in it.

    Attributes:
        directory: Working directory of `repogen`.
        mark: Value of an environment variable that identifies the processes that these runs started.
    """

    directory: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def spec(self) -> Path:
        """The spec."""
        return self.directory / "repogen.yaml"

    @property
    def repository(self) -> Path:
        """The spec's repository."""
        return self.directory / "model_repository"

    @property
    def scratch(self) -> Path:
        """Directory for the temporary files of the runs."""
        return self.directory / "tmp"

    @contextmanager
    def start(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Run `repogen` in a session of its own, as a shell would start it in the foreground.

        The block's end waits for the end of the process. If the block fails, the process is terminated first: a server
        would run forever.
        """
        self.scratch.mkdir(exist_ok=True)
        # torch sets this one if a test in this process compiled a model
        inherited = {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}
        with subprocess.Popen(
            [sys.executable, "-m", "repogen", *arguments],
            cwd=self.directory,
            env=inherited | {_MARK: self.mark, "TMPDIR": str(self.scratch)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                yield process
            except BaseException:
                process.terminate()
                raise

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `repogen` until it exits."""
        with self.start(*arguments) as process:
            out, err = process.communicate()
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def invoke(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `repogen` in this process, which imports MLflow only once."""
        with chdir(self.directory):
            result = CliRunner().invoke(main, arguments)
        return subprocess.CompletedProcess(arguments, result.exit_code, result.stdout, result.stderr)

    def edit(self, old: str, new: str) -> None:
        """Replace a part of the spec, which must exist."""
        text = self.spec.read_text(encoding="utf-8")
        assert old in text
        self.spec.write_text(text.replace(old, new), encoding="utf-8")

    def published(self) -> dict[str, str]:
        """Return the digest of every file below a model of the repository, by path."""
        paths = sorted(path for path in self.repository.glob("*/**/*") if path.is_file())
        return {
            path.relative_to(self.repository).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in paths
        }

    def stages(self) -> list[str]:
        """Return the names of the existing staging directories."""
        return sorted(path.name for path in self.directory.glob(".*.repogen-stage/build-*"))

    def temporary(self) -> list[str]:
        """Return the names of temporary files that the runs left behind."""
        names = sorted(path.name for path in self.scratch.iterdir())
        return [name for name in names if name != ".ses"]  # the session ID that ONNX Runtime writes when it is imported

    def vanished(self) -> bool:
        """Wait up to ten seconds until every process that a run started has ended; return whether they have."""
        deadline = time.monotonic() + 10
        while self._processes():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def processes(self, program: str) -> list[int]:
        """Return the processes of the runs whose program has this name."""
        paths = ((int(pid), Path("/proc", pid, "exe")) for pid in self._processes())
        return [pid for pid, path in paths if path.is_symlink() and path.readlink().name == program]

    def _processes(self) -> list[str]:
        pids = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if f"{_MARK}={self.mark}".encode() in (entry / "environ").read_bytes():
                    pids.append(entry.name)
            except OSError:  # it ended in the meantime, or belongs to another user
                continue
        return pids


@pytest.fixture(scope="session")
def project_at() -> type[Project]:
    """Return the class that makes a project of an existing directory."""
    return Project


@pytest.fixture(scope="session")
def new_project() -> Callable[[Path], Project]:
    """Return a function that creates a project with one tiny model; the TorchScript exporter saves some seconds."""

    def make(directory: Path) -> Project:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "models.py").write_text(MODELS, encoding="utf-8")
        (directory / "repogen.yaml").write_text(TINY, encoding="utf-8")
        return Project(directory)

    return make

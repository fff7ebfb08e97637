"""Prints a matrix: commands that were killed at each change of a directory or a bucket, and what Triton serves then.

A newly started Triton must serve the old or the new version from each state that a kill leaves. After the command is
run again, it must serve the new version. Kills that leave the same state are served once.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tritonclient.grpc import InferenceServerClient

import repogen
from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlMode
from repogen.files.url import location
from repogen.reporting.table import table
from repogen.repository.digest import sha256_file
from repogen.repository.layout import models_of
from repogen.serving.embedded import EmbeddedTriton
from repogen.stores.open import open_store
from repogen.targets import DEFAULT_RELEASE, targets
from tests.support.clients import ask
from tests.support.moto_s3 import create_bucket, s3_server
from tests.support.scaled_models import Scaled, publish_scaled
from tests.support.served_bucket import HEADER, server_on
from tests.unit.versions.killed_command import KilledAtAnyCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.full
PROGRAM = Path(__file__).parents[1] / "unit" / "stores" / "killed_commit.py"
SIZE = 4
OTHER_SIZE = 5
HEADINGS = ("place", "command", "kills", "states", "old served", "new served", "reruns", "new served after a rerun")


@dataclass(frozen=True)
class Command:
    """A command on model m, of which version N multiplies by N.

    Attributes:
        versions: Number of versions before.
        old: Version that is served before; None without a version.
        new: Version that is served afterward.
    """

    versions: int
    old: int | None
    new: int


COMMANDS = {
    "first": Command(0, None, 1),
    "next": Command(1, 1, 2),
    "breaking": Command(1, 1, 2),
    "rollback": Command(2, 2, 1),
    "prune": Command(3, 3, 3),
}


@dataclass(frozen=True)
class Job:
    """One run of a command.

    Attributes:
        name: The command.
        repository: The path or the URL of the repository.
        source: A local repository with the versions, whose newest one is published.
    """

    name: str
    repository: str
    source: Path

    def prepare(self) -> None:
        """Publish the versions before the command, and build the one that it publishes."""
        command = COMMANDS[self.name]
        for number in range(1, command.versions + 1):
            publish_scaled(self.source, "m", Scaled(float(number)))
            repogen.publish("m", source=self.source, target=self.repository)
        if self.name in {"first", "next", "breaking"}:
            size = OTHER_SIZE if self.name == "breaking" else SIZE
            publish_scaled(self.source, "m", Scaled(float(command.new), size=size))

    @property
    def document(self) -> dict[str, str]:
        """The job of ``killed_commit``."""
        command = self.name if self.name in {"rollback", "prune"} else "publish"
        return {"url": self.repository, "source": str(self.source), "command": command}

    def run(self) -> None:
        """Run the command."""
        from tests.unit.stores.killed_commit import run  # noqa: PLC0415 - the fork runs it as well

        run(self.document)


@dataclass
class Row:
    """The kills of a command, and what a new Triton served after them.

    Attributes:
        place: Where the repository is.
        name: The command.
        kills: Number of kills.
        states: A job for each different state that a kill left, or the complete command.
        served: Versions that were served from these states.
        reruns: Versions that were served from the states with the old version, after the command was run again.
    """

    place: str
    name: str
    kills: int = 0
    states: dict[str, Job] = field(default_factory=dict)
    served: list[int | None] = field(default_factory=list)
    reruns: list[int | None] = field(default_factory=list)

    def serve(self, served_version: Callable[[str], int | None]) -> None:
        """Start Triton on each state, and again after a rerun; require the old or the new version, then the new one."""
        command = COMMANDS[self.name]
        for job in self.states.values():
            served = served_version(job.repository)
            assert served in {command.old, command.new}, f"{self.name}: {job.repository}"
            self.served.append(served)
            if served != command.new:
                job.run()
                self.reruns.append(served_version(job.repository))
        assert set(self.reruns) <= {command.new}

    def texts(self) -> tuple[str, ...]:
        """Return the row of the table."""
        command = COMMANDS[self.name]
        counts = (self.kills, len(self.served), self.served.count(command.old), self.served.count(command.new))
        reruns = (len(self.reruns), self.reruns.count(command.new))
        return (self.place, self.name, *map(str, (*counts, *reruns)))


def killed_in_fork(job: Job, at: int) -> bool:
    """Run a command in a fork that is killed before a call that changes the disk; return False if it has fewer."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            KilledAtAnyCall(at)
            job.run()
            code = 0
        finally:
            os._exit(code)  # without the exit handlers of pytest
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in {0, -signal.SIGKILL}
    return code != 0


def killed_at_a_request(job: Job, at: int) -> bool:
    """Run a command in a process that is killed after a request that writes; return False if it has fewer."""
    command = [sys.executable, str(PROGRAM), json.dumps({**job.document, "at": at})]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode in {0, -signal.SIGKILL}, process.stderr
    return process.returncode != 0


def served_locally(repository: str) -> int | None:
    """Return the version that a new Triton serves from a directory; it starts only if it can load every model."""
    if not models_of(Path(repository)):
        return None
    triton = EmbeddedTriton(targets()[DEFAULT_RELEASE], Silent())
    with (
        triton.running(Path(repository), ControlMode.NONE, strict=True) as running,
        closing(InferenceServerClient(running.endpoint.grpc)) as client,
    ):
        return int(answer(client))


def served_from_s3(environment: dict[str, str], empty: Path, url: str) -> int | None:
    """Return the version that a new Triton loads from a bucket; None while the first version is uploaded."""
    if not any(key.endswith("/m/config.pbtxt") for key in keys(url)):
        return None
    with server_on(environment, url, empty) as address, closing(InferenceServerClient(address)) as client:
        client.load_model("m", headers=HEADER.grpc)
        return int(answer(client))


def answer(client: InferenceServerClient) -> float:
    """Return what model m multiplies by, for rows of its size."""
    return ask(client, "m", int(client.get_model_metadata("m").inputs[0].shape[1]))


def keys(url: str) -> list[str]:
    """Return the keys of a repository."""
    place = location(url)
    return [each.key for each in open_store(place).list(f"{place.key}/")]  # type: ignore[arg-type, attr-defined]


def state_of(directory: Path) -> str:
    """Return what Triton reads in a repository: files in its root are ignored."""
    paths = sorted(path for path in directory.glob("*/**/*") if path.is_file())
    return "\n".join(f"{path.relative_to(directory)} {sha256_file(path)}" for path in paths)


def state_of_bucket(url: str) -> str:
    """Return what Triton reads in a bucket."""
    store, prefix = open_store(location(url)), f"{location(url).key}/"  # type: ignore[arg-type, attr-defined]
    tags = {each.key.removeprefix(prefix): each.tag for each in store.list(prefix)}
    return "\n".join(f"{key} {tag}" for key, tag in sorted(tags.items()) if "/" in key)


def show(rows: list[Row], capsys: pytest.CaptureFixture[str]) -> None:
    """Print the matrix, also if the output of tests is captured."""
    with capsys.disabled():
        print("\n" + table(HEADINGS, [row.texts() for row in rows]))  # noqa: T201 - the result


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each call that changes the disk: open for writing, rename, exchange, remove, mkdir, link, fsync and others."""
    rows = [Row("directory", name) for name in COMMANDS]
    for row in rows:
        template = tmp_path / row.name / "template"
        Job(row.name, str(template / "repo"), template / "source").prepare()
        is_killed = True
        while is_killed:
            place = tmp_path / row.name / str(row.kills)
            shutil.copytree(template, place, symlinks=True)
            job = Job(row.name, str(place / "repo"), place / "source")
            is_killed = killed_in_fork(job, row.kills)
            row.states.setdefault(state_of(place / "repo"), job)
            row.kills += is_killed
        assert row.kills > 20
    for row in rows:
        row.serve(served_locally)
    show(rows, capsys)


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """Run S3 with one bucket, and set the variables of its clients."""
    with s3_server() as variables, pytest.MonkeyPatch.context() as patch:
        create_bucket(variables, "bucket")
        for name, value in variables.items():
            patch.setenv(name, value)
        yield variables


@pytest.mark.parametrize("name", COMMANDS)
def test_bucket(name: str, environment: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each request that writes: objects, conditional writes, copies and deletions."""
    row, is_killed = Row("S3", name), True
    while is_killed:
        url = f"s3://bucket/{name}-{row.kills}/models"
        job = Job(name, url, tmp_path / str(row.kills) / "source")
        job.prepare()
        is_killed = killed_at_a_request(job, row.kills)
        row.states.setdefault(state_of_bucket(url), job)
        row.kills += is_killed
    assert row.kills > 0
    (tmp_path / "empty").mkdir()
    row.serve(partial(served_from_s3, environment, tmp_path / "empty"))
    show([row], capsys)

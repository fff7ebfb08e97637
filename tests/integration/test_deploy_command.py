"""`repogen deploy` on real servers: in explicit mode, polling, with TLS, several, and under load."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import shutil
import signal
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import TypeAdapter
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

import repogen
from repogen.api.deploy import deploy_synced
from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlHeader, ControlMode, Credentials
from repogen.artifacts.sync import SyncOptions
from repogen.cli.group import main
from repogen.errors import ServerError
from repogen.registry.sync.sync import sync
from repogen.reporting.json_types import DOCUMENTS
from repogen.serving import commands, control, process
from repogen.serving.embedded import EmbeddedTriton
from repogen.targets import DEFAULT_RELEASE, targets
from tests.support.clients import Load, ask
from tests.support.scaled_models import Scaled, publish_ensemble, publish_scaled
from tests.support.simulated_registry import SimulatedRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from repogen.artifacts.deployment import DeployReport
    from repogen.artifacts.serving import RunningTriton

    from .conftest import Project

pytestmark = pytest.mark.first
HEADER = ControlHeader("x-ops", "5ecre7")


@dataclass(frozen=True)
class Host:
    """A server in explicit mode, and the repository that it reads."""

    running: RunningTriton
    repository: Path

    @property
    def address(self) -> str:
        """Its gRPC address."""
        return self.running.endpoint.grpc

    def answer(self, name: str = "scale", size: int = 4) -> float:
        """Return what the model multiplies by."""
        with closing(InferenceServerClient(self.address)) as client:
            return ask(client, name, size)

    def deploy(self, *names: str, **options: Any) -> DeployReport:
        """Deploy this repository."""
        options = {"servers": [self.address], "repository": self.repository, **options}
        return repogen.deploy(*names, **options)


@contextmanager
def started(repository: Path) -> Iterator[Host]:
    """Start a server in explicit mode, and set its header in the environment; the last one's is used."""
    triton = EmbeddedTriton(targets()[DEFAULT_RELEASE], Silent())
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        # all servers have the same header, as replicas have
        patch.setattr(control, "random_header", lambda: HEADER)
        running = stack.enter_context(triton.running(repository, ControlMode.EXPLICIT, strict=True))
        patch.setenv(control.VARIABLE, f"{HEADER.key}={HEADER.value}")
        yield Host(running, repository)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Return a server on a repository to which each test adds models of its own."""
    repository = tmp_path_factory.mktemp("host") / "repository"
    publish_scaled(repository, "scale", Scaled(1.0))
    with started(repository) as server:
        yield server


def summary(report: DeployReport) -> list[tuple[str, str, tuple[int, ...] | None]]:
    """Return model, action and served versions, for each server and model."""
    return [(m.model, m.action.value, m.serving) for server in report.servers for m in server.models]


def codes(report: DeployReport) -> list[str]:
    """Return the codes of all errors."""
    return [error.code for server in report.servers for error in server.errors]


def test_versions_are_deployed_under_load(host: Host) -> None:
    """No request fails; a version that fails its test is replaced by the one before, which the report proves."""
    assert summary(host.deploy("scale")) == [("scale", "deployed", (1,))]
    assert summary(host.deploy("scale")) == [("scale", "unchanged", (1,))]
    load = Load(host.address, "scale")
    with load.running():
        publish_scaled(host.repository, "scale", Scaled(2.0))
        assert summary(host.deploy("scale")) == [("scale", "deployed", (2,))]
        publish_scaled(host.repository, "scale", Scaled(3.0, golden=4.0))
        failed = host.deploy("scale")
        again = host.deploy("scale")  # the server now has the config of version 2
    assert (load.failures, load.answers) == ([], {1.0, 2.0, 3.0})
    assert load.requests > 10
    for report in (failed, again):
        (model,) = report.servers[0].models
        assert (model.action.value, model.before, model.serving, model.expected) == ("restored", (2,), (2,), (3,))
        assert (report.exit_code, codes(report)) == (6, ["smoke.failed"])
        assert "repogen rollback scale" in model.note
        assert not all(smoke.passed for smoke in model.smoke)
    assert host.answer() == 2.0
    publish_scaled(host.repository, "scale", Scaled(5.0))
    assert summary(host.deploy("scale")) == [("scale", "deployed", (4,))]
    assert host.answer() == 5.0


def test_version_that_does_not_load_leaves_the_old_one(host: Host) -> None:
    """The report has Triton's reason, and why the server's health check fails from now on."""
    publish_scaled(host.repository, "broken", Scaled(1.0))
    host.deploy("broken")
    publish_scaled(host.repository, "broken", Scaled(2.0, content=b"not a graph"))
    report = host.deploy("broken")
    assert summary(report) == [("broken", "restored", (1,))]
    assert codes(report) == ["deploy.load"]
    assert "Protobuf parsing failed" in report.servers[0].errors[0].message
    assert "--strict-readiness=false" in report.servers[0].note
    assert host.answer("broken") == 1.0


def test_new_model_that_fails_is_unloaded(host: Host) -> None:
    """It was not served before."""
    publish_scaled(host.repository, "first", Scaled(1.0, golden=2.0))
    report = host.deploy("first")
    assert (summary(report), codes(report)) == ([("first", "restored", ())], ["smoke.failed"])
    with pytest.raises(InferenceServerException, match="unknown model"):
        host.answer("first")


def test_ensemble_and_steps_are_deployed_and_restored_together(host: Host) -> None:
    """Also for a breaking change, in which the old ensemble does not fit the new step."""
    publish_scaled(host.repository, "step", Scaled(1.0))
    publish_ensemble(host.repository, "pipe", "step", Scaled(1.0))
    assert summary(host.deploy("step")) == [("step", "deployed", (1,))]  # the ensemble is neither served nor selected
    assert summary(host.deploy("pipe")) == [("step", "unchanged", (1,)), ("pipe", "deployed", (1,))]
    publish_scaled(host.repository, "step", Scaled(2.0, size=5))
    publish_ensemble(host.repository, "pipe", "step", Scaled(2.0, golden=3.0, size=5))
    report = host.deploy("step")
    assert summary(report) == [("step", "restored", (1,)), ("pipe", "restored", (1,))]
    assert codes(report) == ["smoke.failed"]
    assert (host.answer("pipe"), host.answer("step")) == (1.0, 1.0)
    publish_ensemble(host.repository, "pipe", "step", Scaled(2.0, size=5))
    assert summary(host.deploy("step")) == [("step", "deployed", (2,)), ("pipe", "deployed", (3,))]
    assert host.answer("pipe", size=5) == 2.0
    assert summary(host.deploy(unload=["pipe"], dry_run=True)) == [("pipe", "skipped", (3,))]
    assert summary(host.deploy(unload=["pipe"])) == [("pipe", "unloaded", ())]


def rollback(host: Host, *arguments: str) -> Any:
    """Run `repogen rollback` on the server, and return its document with the exit code."""
    command = ["rollback", *arguments, "--repository", str(host.repository), "--server", host.address, "--json"]
    result = CliRunner().invoke(main, command)
    document = json.loads(result.output)
    TypeAdapter(DOCUMENTS["rollback"]).validate_python(document)
    return document | {"exit_code": result.exit_code}


def test_rollback_is_deployed(host: Host) -> None:
    """The servers follow the repository; a rerun changes nothing, and --release goes forward again."""
    for factor in (1.0, 2.0):
        publish_scaled(host.repository, "back", Scaled(factor))
    host.deploy("back")
    expected = [("held", "deployed", 1.0), ("unchanged", "unchanged", 1.0), ("released", "deployed", 2.0)]
    for option, (outcome, action, answer) in zip(("--to=1", "--to=1", "--release"), expected, strict=True):
        document = rollback(host, "back", option)
        (model,) = document["deploy"]["servers"][0]["models"]
        assert (document["exit_code"], document["outcome"], model["action"]) == (0, outcome, action)
        assert host.answer("back") == answer


def test_rollback_that_fails_on_a_server_leaves_its_version(host: Host) -> None:
    """The server serves what it served before, and the repository keeps the hold."""
    publish_scaled(host.repository, "unfit", Scaled(1.0, golden=3.0))
    publish_scaled(host.repository, "unfit", Scaled(2.0))
    host.deploy("unfit")
    document = rollback(host, "unfit", "--to=1")
    assert (document["exit_code"], document["held"], host.answer("unfit")) == (6, 1, 2.0)


def test_rollback_requires_its_servers(host: Host) -> None:
    """If a server does not respond, the repository is not changed."""
    for factor in (1.0, 2.0):
        publish_scaled(host.repository, "alone", Scaled(factor))
    command = ["rollback", "alone", "--repository", str(host.repository), "--server", "127.0.0.1:9"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 6, result.output
    assert repogen.versions("alone", repository=host.repository).models[0].held is None


class Interrupting(Silent):
    """Sends SIGINT to this process when a model is tested."""

    def step(self, model: str, step: str) -> None:
        """Send the signal once."""
        if model and step == "smoke":
            signal.raise_signal(signal.SIGINT)


def interrupt_first_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send SIGINT to this process while its next load request is under way."""
    load_model = InferenceServerClient.load_model

    def interrupted_load(client: InferenceServerClient, *arguments: Any, **options: Any) -> None:
        monkeypatch.undo()
        threading.Thread(target=load_model, args=(client, *arguments), kwargs=options).start()
        time.sleep(0.1)  # the server has received the request
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(InferenceServerClient, "load_model", interrupted_load)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("step", ["smoke", "load"])
def test_interruption_reverses_the_change_under_way(host: Host, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it arrives while the server loads."""
    name = f"interrupted_{step}"
    publish_scaled(host.repository, name, Scaled(1.0))
    host.deploy(name)
    publish_scaled(host.repository, name, Scaled(2.0))
    if step == "load":
        interrupt_first_load(monkeypatch)
    report = host.deploy(name, progress=Interrupting() if step == "smoke" else Silent())
    assert (report.exit_code, summary(report)) == (130, [(name, "restored", (1,))])
    assert host.answer(name) == 1.0
    assert summary(host.deploy(name)) == [(name, "deployed", (2,))]


class Broken(Silent):
    """A receiver of progress events with a bug."""

    def step(self, model: str, step: str) -> None:
        """Fail when the new version is tested."""
        if model and step == "smoke":
            raise ZeroDivisionError


class OtherDeploy(Silent):
    """Receives progress events; at a step, another machine publishes a version and loads it."""

    def __init__(self, host: Host, name: str) -> None:
        """Act on a model of a server."""
        self._host = host
        self._name = name

    def step(self, model: str, step: str) -> None:
        """Load another version when this one is tested."""
        if (model, step) == (self._name, "smoke"):
            publish_scaled(self._host.repository, self._name, Scaled(3.0))
            with closing(InferenceServerClient(self._host.address)) as client:
                client.load_model(self._name, headers=HEADER.grpc)


def test_change_of_another_deploy_is_kept(host: Host) -> None:
    """The deploy fails, and does not take the server back to what it served before."""
    publish_scaled(host.repository, "raced", Scaled(1.0))
    host.deploy("raced")
    publish_scaled(host.repository, "raced", Scaled(2.0))
    report = host.deploy("raced", progress=OtherDeploy(host, "raced"))
    assert (report.exit_code, codes(report)) == (6, ["deploy.changed"])
    assert summary(report) == [("raced", "failed", (3,))]
    assert host.answer("raced") == 3.0
    assert summary(host.deploy("raced")) == [("raced", "unchanged", (3,))]


def test_deploys_of_one_machine_wait_for_each_other(host: Host) -> None:
    """Two at the same time succeed, and the server serves what the repository selects."""
    publish_scaled(host.repository, "twice", Scaled(1.0))
    host.deploy("twice")
    publish_scaled(host.repository, "twice", Scaled(2.0))
    reports: list[DeployReport] = []
    threads = [threading.Thread(target=lambda: reports.append(host.deploy("twice"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(summary(report) for report in reports) == [
        [("twice", "deployed", (2,))],
        [("twice", "unchanged", (2,))],
    ]


def test_unexpected_error_reverses_the_change_under_way(host: Host) -> None:
    """The error is raised after that."""
    publish_scaled(host.repository, "unexpected", Scaled(1.0))
    host.deploy("unexpected")
    publish_scaled(host.repository, "unexpected", Scaled(2.0))
    with pytest.raises(ZeroDivisionError):
        host.deploy("unexpected", progress=Broken())
    assert host.answer("unexpected") == 1.0


@pytest.mark.usefixtures("interruptible")
def test_command_that_is_interrupted_or_killed(
    host: Host, tmp_path: Path, project_at: Callable[[Path], Project]
) -> None:
    """Ctrl-C restores the old version; after SIGKILL, the server serves one of the two, and a rerun completes."""
    name = "stopped"
    publish_scaled(host.repository, name, Scaled(1.0))
    host.deploy(name)
    publish_scaled(host.repository, name, Scaled(2.0))
    for number, code, answers in ((signal.SIGINT, 130, {1.0}), (signal.SIGKILL, -signal.SIGKILL, {1.0, 2.0})):
        command = ["deploy", name, "--server", host.address, "--repository", str(host.repository)]
        with project_at(tmp_path).start(*command) as process:
            assert process.stderr is not None
            assert any(line.endswith(f"{name}: load\n") for line in process.stderr)
            process.send_signal(number)
            output, _ = process.communicate()
        assert process.returncode == code
        assert ("interrupted; deployed to 0 of 1 server" in output) is (code == 130)
        assert host.answer(name) in answers
    report = host.deploy(name)
    assert (report.exit_code, report.servers[0].models[0].serving, host.answer(name)) == (0, (2,), 2.0)


def test_load_that_takes_too_long_is_reversed(host: Host) -> None:
    """The server continues to load; the old version is loaded after that."""
    publish_scaled(host.repository, "slow", Scaled(1.0))
    host.deploy("slow")
    publish_scaled(host.repository, "slow", Scaled(2.0))
    report = host.deploy("slow", timeout=0.02)  # a load takes about 0.1 s on an idle machine
    assert (codes(report), summary(report)) == (["deploy.timeout"], [("slow", "restored", (1,))])
    assert host.answer("slow") == 1.0


def test_other_models_that_triton_reloads_are_reported(host: Host) -> None:
    """Triton reloads an ensemble that it reloaded before with a step, at a request for any model."""
    publish_scaled(host.repository, "part", Scaled(1.0))
    publish_ensemble(host.repository, "whole", "part", Scaled(1.0))
    publish_scaled(host.repository, "unrelated", Scaled(1.0))
    host.deploy("whole", "unrelated")
    publish_scaled(host.repository, "part", Scaled(2.0))
    publish_ensemble(host.repository, "whole", "part", Scaled(2.0))
    with closing(InferenceServerClient(host.address)) as client:
        client.load_model("part", headers=HEADER.grpc)
    publish_ensemble(host.repository, "whole", "part", Scaled(2.0))
    report = host.deploy("unrelated")
    assert summary(report) == [("unrelated", "unchanged", (1,))]
    assert "whole serves 3, before: 2" in report.servers[0].note


def test_version_that_was_served_untested_is_reported(host: Host) -> None:
    """As after a deploy that was killed: there is no version before to go back to."""
    publish_scaled(host.repository, "untested", Scaled(1.0, golden=2.0))
    with closing(InferenceServerClient(host.address)) as client:
        client.load_model("untested", headers=HEADER.grpc)
    report = host.deploy("untested")
    assert (codes(report), summary(report)) == (["smoke.failed"], [("untested", "failed", (1,))])
    assert "run `repogen rollback untested --repository" in report.servers[0].models[0].note


def test_repository_with_other_content_is_reported(host: Host, tmp_path: Path) -> None:
    """Other bytes fail the golden tensors, another config the comparison of configs, other versions the load."""
    publish_scaled(host.repository, "mounted", Scaled(1.0))
    host.deploy("mounted")
    other = tmp_path / "other"
    publish_scaled(other, "mounted", Scaled(7.0))
    report = host.deploy("mounted", repository=other)
    assert codes(report) == ["smoke.failed"]
    assert f"the server's repository has the same content as {other}" in report.servers[0].errors[0].hint
    (model,) = report.servers[0].models
    assert (model.action.value, model.serving) == ("failed", (1,))  # version 1 of `other` is what it was tested with

    same = tmp_path / "same"
    shutil.copytree(host.repository / "mounted", same / "mounted")
    publish_scaled(same, "mounted", Scaled(2.0))
    assert codes(host.deploy("mounted", repository=same)) == ["deploy.other-version"]
    assert host.answer("mounted") == 1.0

    config = same / "mounted" / "config.pbtxt"
    shutil.rmtree(same / "mounted" / "2")
    config.write_text(config.read_text(encoding="utf-8").replace("size: 8", "size: 4"), encoding="utf-8")
    report = host.deploy("mounted", repository=same)
    assert "config: max_batch_size: expected 4, found 8" in report.servers[0].errors[0].message

    publish_scaled(same, "elsewhere", Scaled(1.0))
    report = host.deploy("elsewhere", repository=same)
    assert codes(report) == ["deploy.no-such-model"]
    assert "mounted" in report.servers[0].errors[0].message


def test_replicas_are_deployed_in_order_until_one_fails(host: Host, tmp_path: Path) -> None:
    """The first serves the new version, the second the old one, and the third was not changed; then one goes away."""
    publish_scaled(host.repository, "replica", Scaled(1.0))
    copies = [tmp_path / name / "repository" for name in ("second", "third")]
    for copy in copies:
        shutil.copytree(host.repository / "replica", copy / "replica")
    with started(copies[0]) as second, started(copies[1]) as third:
        addresses = [host.address, second.address, third.address]
        assert {row[1:] for row in summary(host.deploy("replica", servers=addresses))} == {("deployed", (1,))}
        publish_scaled(host.repository, "replica", Scaled(2.0))
        for copy in copies:
            shutil.copytree(host.repository / "replica", copy / "replica", dirs_exist_ok=True)
        (copies[0] / "replica" / "2" / "model.onnx").write_bytes(b"lost in transfer")
        file = tmp_path / "servers"
        file.write_text("\n".join(addresses), encoding="utf-8")
        report = host.deploy("replica", servers=(), servers_file=file)
        assert [row[1:] for row in summary(report)] == [("deployed", (2,)), ("restored", (1,)), ("skipped", (1,))]
        assert (report.exit_code, codes(report)) == (6, ["deploy.load"])

        class Stopping(Silent):
            """Stops the third server when its model is tested."""

            tests = 0

            def step(self, model: str, step: str) -> None:
                """Stop it at the second test: the first server comes before."""
                self.tests += bool(model) and step == "smoke"
                if self.tests == 2:
                    third.running.process.stop()  # type: ignore[attr-defined] # of an embedded server

        report = host.deploy("replica", servers=[host.address, third.address], progress=Stopping())
        assert [row[1:] for row in summary(report)] == [("unchanged", (2,)), ("failed", None)]
        assert report.exit_code == 6
        assert codes(report)[0] in {"deploy.server-lost", "smoke.server-died"}
        assert "could not be restored" in report.servers[1].models[0].note

        report = host.deploy("replica", servers=[host.address, third.address])
        assert (summary(report), codes(report)) == ([("replica", "skipped", (2,))], ["server.remote"])


def test_synced_changes_are_deployed(tmp_path: Path) -> None:
    """A version that fails is not deployed again by the next sync, which reports the server instead."""
    built, repository, registry = tmp_path / "built", tmp_path / "synced", SimulatedRegistry(tmp_path / "registry")
    for scaled in (Scaled(1.0), Scaled(2.0), Scaled(3.0, golden=4.0)):
        registry.register(built / "scale" / str(publish_scaled(built, "scale", scaled)), "champion")
    repository.mkdir()
    with started(repository) as host:

        def follow(version: int | None) -> DeployReport:
            """Move the alias, sync, and deploy."""
            registry.point("scale", "champion", version)
            report = sync(registry, repository, SyncOptions("champion"), Silent())
            return deploy_synced(report, [host.address])

        for version in (1, 2):
            assert summary(follow(version)) == [("scale", "deployed", (version,))]
        assert (summary(follow(3)), host.answer()) == ([("scale", "restored", (2,))], 2.0)
        again = follow(3)
        assert (summary(again), codes(again), again.exit_code) == ([("scale", "skipped", (2,))], ["deploy.pending"], 6)
        assert summary(follow(2)) == [("scale", "unchanged", (2,))]
        assert codes(follow(2)) == []
        assert summary(follow(None)) == [("scale", "unloaded", ())]
        assert follow(None).servers == ()


def test_sync_command_deploys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It prints both reports, or one document. If a server does not respond, nothing is synced."""
    built, repository, registry = tmp_path / "built", tmp_path / "synced", SimulatedRegistry(tmp_path / "registry")
    for factor in (1.0, 2.0):
        registry.register(built / "scale" / str(publish_scaled(built, "scale", Scaled(factor))))
    monkeypatch.setattr("repogen.api.registry.open_registry", lambda *_: registry)
    monkeypatch.chdir(tmp_path)
    repository.mkdir()

    def follow(version: int, *options: str) -> Any:
        """Move the alias, and run the command."""
        registry.point("scale", "champion", version)
        return CliRunner().invoke(main, ["sync", "--alias", "champion", "--repository", str(repository), *options])

    with started(repository) as host:
        result = follow(1, "--deploy", "localhost:1")
        assert (result.exit_code, "no Triton responds at localhost:1" in result.output) == (6, True)
        assert list(repository.iterdir()) == []
        result = follow(1, "--deploy", host.address)
        assert result.exit_code == 0, result.output
        text = result.stdout
        assert text.index("synced: updated to champion") < text.index("synced: deployed to 1 server")
        result = follow(2, "--deploy", host.address, "--json")
        document = json.loads(result.stdout)
        TypeAdapter(DOCUMENTS["sync"]).validate_python(document)
        assert (result.exit_code, document["deploy"]["servers"][0]["models"][0]["serving"]) == (0, [2])
        assert host.answer() == 2.0
        assert "synced: nothing to deploy\n" in follow(2, "--deploy", host.address).stdout


def test_command_prints_one_document(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its keys are those of the schema, and the header is not in it; a wrong header is an error."""
    publish_scaled(host.repository, "printed", Scaled(1.0))
    command = ["deploy", "printed", "--server", host.address, "--repository", str(host.repository), "--json", "--debug"]
    result = CliRunner().invoke(main, command)
    document = json.loads(result.stdout)
    TypeAdapter(DOCUMENTS["deploy"]).validate_python(document)
    assert (result.exit_code, document["servers"][0]["mode"]) == (0, "explicit")
    assert HEADER.value not in result.output
    for header, text in ((f"{HEADER.key}=wrong", "did not accept the value"), ("", "requires a header")):
        monkeypatch.setenv(control.VARIABLE, header)
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 6
        error = json.loads(result.stdout)["servers"][0]["error"]
        assert (error["code"], text in error["message"]) == ("smoke.control-header", True)
        assert "wrong" not in result.output


@contextmanager
def served(repository: Path, *, poll: bool) -> Iterator[Host]:
    """Serve a repository with ports; the user's header opens the control API."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(control.VARIABLE, f"{HEADER.key}={HEADER.value}")
        with commands.serve(repository, "embedded", poll=poll, progress=Silent()) as running:
            yield Host(running, repository)


def test_polling_server_is_waited_for(tmp_path: Path) -> None:
    """A version that fails cannot be replaced by request: the report has the command that changes the repository."""
    repository = tmp_path / "repository"
    publish_scaled(repository, "scale", Scaled(1.0))
    with served(repository, poll=True) as host:
        assert summary(host.deploy("scale")) == [("scale", "unchanged", (1,))]
        publish_scaled(repository, "scale", Scaled(2.0))
        report = host.deploy("scale")
        assert report.servers[0].mode is ControlMode.POLL
        assert [row[2] for row in summary(report)] == [(2,)]
        publish_scaled(repository, "scale", Scaled(3.0, content=b"not a graph"))
        report = host.deploy("scale")
        (model,) = report.servers[0].models
        assert (codes(report), model.action.value, model.serving) == (["deploy.load"], "failed", (2,))
        assert f"repogen rollback scale --repository {repository}" in model.note

        http = host.running.endpoint.http
        (error,) = host.deploy("scale", servers=[http]).servers[0].errors
        assert (error.code, "not a gRPC port" in error.hint) == ("server.remote", True)


def test_server_that_never_loads_is_reported(tmp_path: Path) -> None:
    """Mode none gives the same answers as mode poll."""
    repository = tmp_path / "repository"
    publish_scaled(repository, "scale", Scaled(1.0))
    with served(repository, poll=False) as host:
        publish_scaled(repository, "scale", Scaled(2.0))
        report = host.deploy("scale", timeout=0.5)
        assert (codes(report), summary(report)) == (["deploy.not-polled"], [("scale", "failed", (1,))])
        assert "never loads a new version" in report.servers[0].errors[0].hint


def pem(directory: Path, name: str, authority: tuple[x509.Name, Any] | None = None) -> tuple[x509.Name, Any]:
    """Write a key and a certificate for 127.0.0.1, signed by itself or by an authority; return the name and the key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    issuer, signer = authority or (subject, key)
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )
    (directory / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (directory / f"{name}.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return subject, key


@contextmanager
def mutual_tls(directory: Path) -> Iterator[tuple[Host, Credentials]]:
    """Start a server that requires a client certificate; yield it with credentials that it accepts."""
    repository = directory / "repository"
    publish_scaled(repository, "scale", Scaled(1.0))
    root = pem(directory, "root")
    for name in ("server", "client"):
        pem(directory, name, root)
    options = process.triton_options

    def with_tls(*arguments: Any, **named: Any) -> list[str]:
        parts = {"root-cert": "root.pem", "server-cert": "server.pem", "server-key": "server.key"}
        files = [f"--grpc-{part}={directory}/{file}" for part, file in parts.items()]
        return [*options(*arguments, **named), "--grpc-use-ssl-mutual=1", *files]

    credentials = Credentials(
        tls=True,
        root_certificates=directory / "root.pem",
        private_key=directory / "client.key",
        certificate_chain=directory / "client.pem",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "triton_options", with_tls)
        with served(repository, poll=True) as host:
            yield host, credentials


def test_mutual_tls(tmp_path: Path) -> None:
    """A server that requires a client certificate; without TLS or with another root, there is a clear error."""
    pem(tmp_path, "other")
    with mutual_tls(tmp_path) as (host, credentials):
        report = host.deploy("scale", credentials=credentials)
        assert (codes(report), summary(report)) == ([], [("scale", "unchanged", (1,))])
        for tls, root_file in ((False, None), (True, "other.pem"), (True, "root.pem")):
            wrong = Credentials(tls=tls, root_certificates=None if root_file is None else tmp_path / root_file)
            assert codes(host.deploy("scale", credentials=wrong)) == ["server.remote"]
        command = ["deploy", "scale", "--server", host.address, "--repository", str(host.repository)]
        files = {"--tls-root": "root.pem", "--tls-key": "client.key", "--tls-cert": "client.pem"}
        command += [part for option, file in files.items() for part in (option, str(tmp_path / file))]
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 0, result.output
        smoke = ["smoke", str(host.repository), "--server", host.address, *command[6:]]
        result = CliRunner().invoke(main, smoke)
        assert result.exit_code == 0, result.output
        result = CliRunner().invoke(main, smoke[:4])
        assert (result.exit_code, "use --tls, or --tls-root" in result.output) == (6, True)


@pytest.mark.full
def test_bench_over_mutual_tls(tmp_path: Path) -> None:
    """perf_analyzer uses the client's certificate, and sends a header that is not in its command line."""
    with mutual_tls(tmp_path) as (host, credentials):
        options: dict[str, Any] = {"repository": host.repository, "server": host.address, "spec": None}
        options |= {"batch": [1], "concurrency": [1], "rounds": 1, "seconds": 0.1}
        headers = {"authorization": "Bearer 5ecre7"}
        (model,) = repogen.bench(credentials=replace(credentials, headers=headers), **options).models
        assert (model.error, [row.variant for row in model.rows]) == (None, ["onnxruntime", "grpc"])
        with pytest.raises(ServerError) as caught:
            repogen.bench(**options)
        assert caught.value.code == "server.remote"

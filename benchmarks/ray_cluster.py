"""Builds many small models on a Ray cluster whose nodes have networks of their own, and kills a node and the driver.

``python benchmarks/ray_cluster.py [--models 60] [--nodes 3] [--jobs 3]``. It builds the same models four times:

1. with ``--executor local``;
2. with ``--executor ray``: the published files are the same, and the overhead for each model is printed;
3. again with Ray, and kills the driver with SIGKILL after a third of the models is published;
4. once more, into the same repository, and kills all processes of a node after two thirds: every model is published
   once, and the files are those of the local build.

Each node is a network namespace with an address of its own on a bridge, a PID namespace, and a ``/tmp/ray`` of its own.
No privileges are needed where the system allows user namespaces. Otherwise, with ``--no-namespaces``, the nodes are
processes with different addresses of the loopback interface.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from build_overhead import ROOT, write_spec

from repogen.artifacts.file_names import ATTESTATION_FILES
from repogen.reporting.table import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

INSIDE = "REPOGEN_BENCH_NAMESPACE"
RAY = str(Path(sys.executable).with_name("ray"))
PORT = 6379
CODE = """\
import torch


def build(seed):
    torch.manual_seed(seed)
    return torch.nn.Linear(4, 4)
"""
SMALL: dict[str, object] = {
    "inputs": {"x": {"dtype": "float32", "shape": ["batch", 4]}},
    "outputs": ["y"],
    "dims": {"batch": {"min": 1, "max": 8}},
    "export": {"exporter": "torchscript"},
    "triton": {"instance_group": [{"count": 1, "kind": "KIND_CPU"}]},
}
# A node in namespaces of its own: waits for its network interface, and starts Ray.
NODE = """\
mount --bind "$1" /tmp/ray
ip link set lo up
until ip link show "$2" > /dev/null 2>&1; do sleep 0.1; done
ip addr add "$3/24" dev "$2"
ip link set "$2" up
shift 3
exec "$@"
"""


@dataclass
class Node:
    """A running raylet.

    Attributes:
        address: Its IP address.
        process: Its first process; all others end with it.
    """

    address: str
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """Kill all of its processes."""
        for pid in [self.process.pid, *_descendants(self.process.pid)]:
            with suppress(ProcessLookupError):  # the processes of a namespace end with its first one
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


@dataclass(frozen=True)
class Cluster:
    """Starts the nodes of a cluster.

    Attributes:
        scratch: Directory for their files.
        namespaces: Whether each node has namespaces of its own.
    """

    scratch: Path
    namespaces: bool

    @property
    def address(self) -> str:
        """Address of the head."""
        return f"{self._ip(1)}:{PORT}"

    def _ip(self, number: int) -> str:
        return f"{'10.77.0' if self.namespaces else '127.0.77'}.{number}"

    def start_head(self) -> Node:
        """Start a node without processors, on which the driver runs."""
        if self.namespaces:
            for command in (
                "ip link set lo up",
                "ip link add bridge0 type bridge",
                f"ip addr add {self._ip(1)}/24 dev bridge0",
                "ip link set bridge0 up",
                f"mount --bind {self._directory(1)} /tmp/ray",
            ):
                subprocess.run(command.split(), check=True)
        options = ["--head", f"--port={PORT}", "--num-cpus=0", "--include-dashboard=false"]
        return self._started(1, self._ray(1, *options))

    def start(self, number: int) -> Node:
        """Start a node that runs one task at a time."""
        command = self._ray(number, f"--address={self.address}", "--num-cpus=1")
        if not self.namespaces:
            return self._started(number, command)
        inner, outer = f"node{number}", f"port{number}"
        prefix = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", NODE]
        node = self._started(number, [*prefix, "node", str(self._directory(number)), inner, self._ip(number), *command])
        time.sleep(0.5)  # the namespace is created
        for link in (
            f"ip link add {outer} type veth peer name {inner}",
            f"ip link set {outer} master bridge0 up",
            f"ip link set {inner} netns {node.process.pid}",
        ):
            subprocess.run(link.split(), check=True)
        return node

    def _started(self, number: int, command: list[str]) -> Node:
        log = (self.scratch / f"node-{number}.log").open("wb")
        with log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        return Node(self._ip(number), process)

    def _directory(self, number: int) -> Path:
        directory = self.scratch / f"ray-{number}"
        directory.mkdir(exist_ok=True)
        return directory

    def _ray(self, number: int, *options: str) -> list[str]:
        memory = "--object-store-memory=100000000"
        return [RAY, "start", "--block", f"--node-ip-address={self._ip(number)}", memory, *options]

    def wait(self, count: int, seconds: float = 300.0) -> None:
        """Wait until the cluster has this number of nodes.

        Raises:
            TimeoutError: It has not.
        """
        program = (
            f"import ray; ray.init({self.address!r}, log_to_driver=False); print(sum(n['Alive'] for n in ray.nodes()))"
        )
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
            if run.stdout.strip().endswith(str(count)):
                return
            time.sleep(2)
        raise TimeoutError(f"the cluster has fewer than {count} nodes:\n{self.logs()}")

    def logs(self) -> str:
        """Return the ends of the logs of the nodes."""
        paths = [*self.scratch.glob("node-*.log"), *self.scratch.glob("ray-*/session_*/logs/runtime_env_*.log")]
        return "\n".join(f"{path}:\n{path.read_text(errors='replace')[-2000:]}" for path in sorted(paths))


@dataclass(frozen=True)
class Project:
    """A spec of small models.

    Attributes:
        spec: The spec.
        jobs: Number of models that are built at the same time.
    """

    spec: Path
    jobs: int

    @property
    def directory(self) -> Path:
        """Directory of the spec."""
        return self.spec.parent

    def start(self, repository: str, executor: str) -> subprocess.Popen[str]:
        """Start a build."""
        options = ("--repository", repository, "--executor", executor, "--jobs", str(self.jobs))
        command = [sys.executable, "-P", "-m", "repogen", "build", *options, "--no-track", "--no-report", "--json"]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "REPOGEN_CACHE_GB": "0"}
        return subprocess.Popen(
            command, cwd=self.directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def build(self, repository: str, executor: str) -> float:
        """Build all models, and return the seconds."""
        started = time.monotonic()
        finish(self.start(repository, executor))
        return time.monotonic() - started

    def published(self, repository: str) -> Counter[str]:
        """Return the number of versions of each model."""
        return Counter(path.parts[-3] for path in (self.directory / repository).glob("*/*/manifest.json"))

    def files(self, repository: str) -> dict[str, bytes]:
        """Return the published files, without attestations, which contain the time of the build."""
        root = self.directory / repository
        paths = (path for path in root.glob("*/**/*") if path.is_file() and path.name not in ATTESTATION_FILES)
        return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}

    def wait_for(self, repository: str, count: int, build: subprocess.Popen[str]) -> None:
        """Wait until a build published a number of models."""
        while build.poll() is None and len(self.published(repository)) < count:
            time.sleep(0.1)


def finish(build: subprocess.Popen[str]) -> dict[str, str]:
    """Wait for a build, and return the status of each model.

    Raises:
        RuntimeError: It failed.
    """
    out, err = build.communicate()
    if build.returncode:
        raise RuntimeError(f"the build exited with {build.returncode}:\n{err[-4000:]}")
    return {model["name"]: model["status"] for model in json.loads(out)["models"]}


def require(condition: bool, problem: str) -> None:  # noqa: FBT001 - reads like an assertion
    """Raise an error unless a condition is met."""
    if not condition:
        raise RuntimeError(problem)


def kill_driver(project: Project, cluster: Cluster, count: int) -> int:
    """Kill the driver after a third of the models is published; return how many were."""
    driver = project.start("killed", f"ray={cluster.address}")
    project.wait_for("killed", count // 3, driver)
    driver.kill()
    driver.communicate()
    return len(project.published("killed"))


def kill_node(project: Project, cluster: Cluster, nodes: list[Node], count: int) -> Counter[str]:
    """Build the rest, and kill a node after two thirds; return the number of models by status."""
    driver = project.start("killed", f"ray={cluster.address}")
    project.wait_for("killed", 2 * count // 3, driver)
    nodes.pop().kill()
    return Counter(finish(driver).values())


def run(project: Project, cluster: Cluster, nodes: list[Node], count: int) -> Iterator[tuple[str, str]]:
    """Run all builds; yield what was measured."""
    address = f"ray={cluster.address}"
    local = project.build("local", "local")
    yield f"--executor local --jobs {project.jobs}", f"{local:.1f} s, {local / count:.2f} s per model"
    remote = project.build("remote", address)
    yield f"--executor ray, {len(nodes)} nodes", f"{remote:.1f} s, {remote / count:.2f} s per model"
    yield "overhead of ray for each model", f"{(remote - local) / count:+.2f} s"
    expected = project.files("local")
    require(len(project.published("local")) == count, "a model is missing in the local build")
    require(project.files("remote") == expected, "the files of the two builds differ")
    yield "files of both builds", f"{len(expected)}, the same"
    published = kill_driver(project, cluster, count)
    yield "driver killed", f"after {published} models"
    statuses = kill_node(project, cluster, nodes, count)
    require(statuses["unchanged"] == published, f"the second run did not keep what the first published: {statuses}")
    versions = project.published("killed")
    require(versions == Counter(dict.fromkeys(versions, 1)), f"a model was published twice: {versions}")
    require(len(versions) == count and project.files("killed") == expected, "the files differ from the local build's")
    states = ", ".join(f"{number} {status}" for status, number in sorted(statuses.items()))
    yield "run again, with a node killed", f"{states}; every model once, the files are those of the local build"


def in_namespace(arguments: list[str]) -> int:
    """Run this program as root of a user namespace, with a network and mounts of its own."""
    command = [
        "unshare",
        "--user",
        "--map-root-user",
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]
    program = [*command, sys.executable, __file__, *arguments]
    return subprocess.run(program, env=os.environ | {INSIDE: "1"}, check=False).returncode


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--no-namespaces", action="store_true")
    arguments = parser.parse_args()
    if not arguments.no_namespaces and INSIDE not in os.environ:
        sys.exit(in_namespace(sys.argv[1:]))
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    slow_start = {"RAY_raylet_start_wait_time_s": "120"}  # a node on a busy machine needs more than 30 s
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(ROOT), **token, **slow_start}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="repogen-bench-")))
        project = Project(_write_models(scratch / "project", arguments.models), arguments.jobs)
        Path("/tmp/ray").mkdir(exist_ok=True)  # noqa: S108 - where Ray keeps its files
        cluster = Cluster(scratch, not arguments.no_namespaces)
        head = cluster.start_head()
        stack.callback(head.kill)
        cluster.wait(1)
        nodes = [cluster.start(number) for number in range(2, arguments.nodes + 2)]
        stack.callback(_kill_all, nodes)
        cluster.wait(arguments.nodes + 1)
        try:
            rows = list(_printed(lambda: run(project, cluster, nodes, arguments.models)))
        except RuntimeError:
            print(cluster.logs(), file=sys.stderr)
            raise
    print(f"\n{arguments.models} models\n")
    print(table(("what", "result"), rows))


def _printed(rows: Callable[[], Iterator[tuple[str, str]]]) -> Iterator[tuple[str, str]]:
    for row in rows():
        print(": ".join(row), flush=True)
        yield row


def _descendants(pid: int) -> list[int]:
    try:
        lines = [(task / "children").read_text(encoding="ascii") for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []
    children = [int(child) for line in lines for child in line.split()]
    return [*children, *(descendant for child in children for descendant in _descendants(child))]


def _kill_all(nodes: list[Node]) -> None:
    for node in nodes:
        node.kill()


def _write_models(directory: Path, count: int) -> Path:
    directory.mkdir()
    (directory / "models.py").write_text(CODE)
    sources = ({"factory": "models.py:build", "kwargs": {"seed": number}} for number in range(count))
    models: dict[str, dict[str, object]] = {
        f"model_{number:03}": {"source": source, **SMALL} for number, source in enumerate(sources)
    }
    return write_spec(directory, models)


if __name__ == "__main__":
    main()

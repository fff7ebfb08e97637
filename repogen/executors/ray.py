"""The executor ``ray``: one Ray task per model, on any node of a cluster.

The spec's directory is the working directory of the job's ``runtime_env``, and the user's packages are its
``py_modules``: Ray copies them to each node once. Input and output files travel through the object store in chunks. A
task whose node is lost runs again on another one.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repogen.distribution import install_command
from repogen.errors import MissingExtraError, RepogenError, SpecError, first_line
from repogen.executors.interface import TaskLostError, unusable_file
from repogen.executors.process import run_task
from repogen.files import exists, is_plain_name
from repogen.files.temporary import system_directory, temporary_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ray import ObjectRefGenerator

    from repogen.executors.interface import Task, Workplace

_CHUNK_BYTES = 8 * 2**20
_MAX_CHUNKS_WAITING = 16
_MAX_JOBS = 128
_ATTEMPTS = 4
_POLL_SECONDS = 0.5
_CONNECT = "run `ray status` on a node; if the cluster requires a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
_END = ("end", "")
_PROCESSES = Path("/proc")
_GCS = b"--gcs-address="
"""The argument of Ray's node process with the address of its cluster, in Ray 2.60."""
_USERS = re.compile(rb"^Uid:\t([\d\t]+)$", re.MULTILINE)
"""All users of a process; the owner of its directory in /proc is root if the process forbids ptrace."""
# The path of a Unix socket has at most 107 bytes (unix(7)).
_SOCKET = "/repogen-temporary-12345678/ray/session_2026-01-01_00-00-00_123456_1234567/sockets/plasma_store.1"
_MAX_PARENT = 107 - len(_SOCKET)
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # An ignored file, such as weights, is needed as well.
    "RAY_RUNTIME_ENV_IGNORE_GITIGNORE": "1",
    # Ray's default for the working directory is 250 or 500 MiB.
    "RAY_max_grpc_message_size": str(2**31 - 1),
}


class Ray:
    """Builds on a Ray cluster, or on Ray that is started on this machine."""

    name = "ray"

    @contextmanager
    def open(self, workplace: Workplace, address: str) -> Iterator[Cluster]:
        """Connect to the cluster at an address; without one, to that of RAY_ADDRESS, or start one here.

        Raises:
            MissingExtraError: Ray is not installed.
            SpecError: This process uses Ray already, or the cluster cannot be used.
        """
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        try:
            import ray  # noqa: PLC0415 - an optional extra
        except ImportError as error:
            raise MissingExtraError("ray is not installed", install_command("ray")) from error
        if ray.is_initialized():
            raise _unusable("this process is already connected to Ray", "call ray.shutdown() before the build")
        environment = {
            "working_dir": str(workplace.root),
            "excludes": [f"/{path}" for path in workplace.unused],
        }
        if workplace.packages:
            environment["py_modules"] = [str(package) for package in workplace.packages]
        with ExitStack() as stack:
            try:
                options = stack.enter_context(self.connection(address))
                stack.callback(ray.shutdown)
                with _kept_signal_handlers():
                    ray.init(**options, runtime_env=environment, log_to_driver=False, logging_level=logging.ERROR)
            except RepogenError:
                raise
            except Exception as error:  # Ray raises `Exception` itself if a node starts too slowly
                where = f"the Ray cluster {address}" if address else "Ray"
                raise _unusable(f"{where} cannot be used: {first_line(error)}", _CONNECT) from error
            # Ray prints that a node was lost, and --json prints one document.
            with redirect_stdout(sys.stderr):
                yield Cluster(ray)

    @contextmanager
    def connection(self, address: str) -> Iterator[dict[str, Any]]:
        """Yield the options of ``ray.init`` for the cluster at an address, or for a new one on this machine.

        Without an address, Ray connects to the cluster that a file in ``/tmp/ray`` names, which any user of the machine
        may have written: it would receive the files of the models, and run code in this process through what it
        returns. With ``auto``, Ray connects to the cluster of any user's process. A new cluster has its sockets and
        files in ``/tmp/ray``, in which any user may rename and replace them. It is therefore started explicitly, in a
        private directory. Ray 2.60 listens on all interfaces, and lets a new cluster require a token. Sources:
        ``get_ray_address_from_environment``, ``find_gcs_addresses``, ``try_to_create_directory`` and
        ``enable_token_auth_by_default`` of Ray 2.60.

        Args:
            address: The address; ``auto`` for the cluster of this user or root that a node on this machine belongs to;
                empty for RAY_ADDRESS, or a new cluster without that.

        Raises:
            OSError: The directory cannot be created.
            SpecError: There is no such cluster, or more than one.
        """
        address = address or os.environ.get("RAY_ADDRESS", "")
        if address not in {"", "local"}:
            yield {"address": _own_cluster() if address == "auto" else address}
            return
        parent = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())
        if len(os.fsencode(parent)) > _MAX_PARENT:
            parent = Path("/tmp")  # noqa: S108 - the directory is private
        with temporary_directory(system_directory(parent)) as private:
            # Ray makes its directory writable for all users, who cannot reach it
            yield {"address": "local", "_temp_dir": str(private / "ray")}


class Cluster:
    """A connection to a Ray cluster.

    Args:
        ray: The module.
    """

    def __init__(self, ray: Any) -> None:  # noqa: ANN401 - ray is optional, and its functions are not typed
        """Read the size of the cluster."""
        self._ray = ray
        self._remote = ray.remote(_run_on_node)
        self.jobs = min(_MAX_JOBS, 2 * max(1, int(ray.cluster_resources().get("CPU", 1))))

    def run(self, task: Task, progress: Callable[[str], None], cancelled: threading.Event) -> None:
        """Run a task on a node; if the node is lost, on another one.

        Raises:
            TaskLostError: Several nodes were lost, or the process of the task ended.
            SpecError: Ray cannot run the task.
            KeyboardInterrupt: It was cancelled.
        """
        lost = (
            self._ray.exceptions.WorkerCrashedError,
            self._ray.exceptions.NodeDiedError,
            self._ray.exceptions.ObjectLostError,
            self._ray.exceptions.OutOfMemoryError,
            self._ray.exceptions.LocalRayletDiedError,
            _EndedError,
        )
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._run_once(task, progress, cancelled)
            except lost as error:
                if attempt == _ATTEMPTS:
                    raise TaskLostError(
                        f"its node was lost {attempt} times: {first_line(error)}", "run `ray status` on a node"
                    ) from error
                progress("its node was lost; waiting for another one")
                shutil.rmtree(task.outputs)
                task.outputs.mkdir()
            except self._ray.exceptions.RayError as error:
                raise _unusable(
                    f"Ray cannot run the task: {first_line(error)}", "run `ray status` on a node", str(error)
                ) from error
            else:
                return

    def _run_once(self, task: Task, progress: Callable[[str], None], cancelled: threading.Event) -> None:
        options: dict[str, Any] = {"num_cpus": task.cpus, "num_gpus": task.gpus, "name": f"repogen {task.name}"}
        if task.memory_mb is not None:
            options["memory"] = task.memory_mb * 2**20
        results = self._remote.options(
            **options,
            max_retries=0,  # the driver retries: it has to forget what the lost attempt sent
            num_returns="streaming",
            _generator_backpressure_num_objects=_MAX_CHUNKS_WAITING,
        ).remote(self._sent(task.inputs))
        progress("waiting for a node")
        try:
            _receive(self._received(results, cancelled), task.outputs, progress)
        except BaseException:
            with suppress(Exception):
                self._ray.cancel(results, force=True)  # its process ends with the worker
            raise

    def _sent(self, directory: Path) -> list[tuple[str, list[Any]]]:
        """Put the files of a directory into the object store, and return their names and chunks."""
        files = sorted(path for path in directory.rglob("*") if path.is_file())
        return [
            (path.relative_to(directory).as_posix(), [self._ray.put(chunk) for chunk in _chunks(path)])
            for path in files
        ]

    def _received(self, results: ObjectRefGenerator, cancelled: threading.Event) -> Iterator[object]:
        """Yield what a task sends until its end.

        Raises:
            _EndedError: It ended earlier.
            KeyboardInterrupt: It was cancelled.
        """
        while True:
            ready, _ = self._ray.wait([results], timeout=_POLL_SECONDS)
            if cancelled.is_set():
                raise KeyboardInterrupt
            if not ready:
                continue
            try:
                item = self._ray.get(next(results))
            except StopIteration:
                raise _EndedError("it ended without a result") from None
            if item == _END:
                return
            yield item


def _receive(items: Iterator[object], outputs: Path, progress: Callable[[str], None]) -> None:
    """Report the steps that a task sends, and write its files.

    Raises:
        TaskLostError: The process of the task ended.
        SpecError: A node sent something else.
    """
    target = None
    for item in items:
        match item:
            case ("step", str(step)):
                progress(step)
            case ("failed", (str(message), str(hint), str(details))):
                raise TaskLostError(message, hint, details=details)
            case ("file", str(name)):
                target = outputs / name
                if not is_plain_name(name) or exists(target):
                    raise unusable_file(name, "which is not a plain name, or is the name of another file")
                target.touch()
            case ("data", bytes(chunk)) if target is not None:
                with target.open("ab") as stream:
                    stream.write(chunk)
            case _:
                raise SpecError("a node sent something that is not the result of a task", code="executor.file")


class _EndedError(Exception):
    """A task ended before it sent everything."""


def _run_on_node(files: list[tuple[str, list[Any]]]) -> Iterator[tuple[str, object]]:
    """Run a task on a node: yield its steps, then its output files in chunks."""
    import ray  # noqa: PLC0415 - as above

    node = f"{socket.gethostname()}, node {ray.get_runtime_context().get_node_id()[:8]}"
    root = Path.cwd()
    with tempfile.TemporaryDirectory(
        prefix="repogen-task-", dir=system_directory(), ignore_cleanup_errors=True
    ) as scratch:
        inputs, outputs = Path(scratch, "inputs"), Path(scratch, "outputs")
        inputs.mkdir()
        outputs.mkdir()
        for name, chunks in files:
            (inputs / name).parent.mkdir(parents=True, exist_ok=True)
            with (inputs / name).open("wb") as stream:
                for chunk in chunks:
                    stream.write(ray.get(chunk))
        try:
            for step in run_task(root, inputs, outputs):
                yield "step", f"{step} ({node})"
        except TaskLostError as error:  # its hint and details would be lost when it is pickled
            yield "failed", (f"{error.message} on {node}", error.hint, error.details)
        for path in sorted(outputs.iterdir()):
            yield "file", path.name
            for chunk in _chunks(path):
                yield "data", chunk
        yield _END


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            yield chunk


@contextmanager
def _kept_signal_handlers() -> Iterator[None]:
    """Undo the changes of ``ray.init``, which replaces the handler of SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _own_cluster() -> str:
    """Return the address of the cluster that a node on this machine belongs to, if this user or root runs the node.

    Raises:
        SpecError: There is no such cluster, or more than one.
    """
    trusted = {os.geteuid(), 0, Path("/").stat().st_uid}  # in a user namespace, root may have another number
    addresses = set()
    for process in _PROCESSES.glob("[0-9]*"):
        with suppress(OSError):
            users = _USERS.search((process / "status").read_bytes())
            if users is None or not {int(user) for user in users[1].split()} <= trusted:
                continue
            program, *arguments = (process / "cmdline").read_bytes().split(b"\0")
            if program.endswith(b"/raylet"):
                addresses |= {text[len(_GCS) :].decode() for text in arguments if text.startswith(_GCS)}
    if len(addresses) == 1:
        return addresses.pop()
    what = f"more than one Ray cluster ({', '.join(sorted(addresses))})" if addresses else "no Ray cluster"
    raise _unusable(
        f"{what} of yours or of root was found on this machine",
        "set RAY_ADDRESS to the HOST:PORT of the cluster, or unset it to start a new one",
    )


def _unusable(message: str, hint: str, details: str = "") -> SpecError:
    return SpecError(message, hint, code="executor.ray", details=details)

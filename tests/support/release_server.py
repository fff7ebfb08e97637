"""A model registry for tests and benchmarks: `mlflow server` on PostgreSQL, proxied artifacts, basic auth, loopback.

Both servers are stopped by their PID. PostgreSQL does not run as root; if the tests do, it runs as the user
``postgres``.
"""

from __future__ import annotations

import base64
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from werkzeug.security import generate_password_hash

if TYPE_CHECKING:
    from collections.abc import Iterator

_START_SECONDS = 120.0
_USER = "admin"


class ReleaseServer:
    """An MLflow server that can be killed and restarted on the same database and artifact store.

    Attributes:
        uri: Its address; the port stays the same.
        environment: Variables for clients: the address and the credentials.
    """

    def __init__(self, home: Path, database: str, port: int, *, hashing: str) -> None:
        """Write the server's settings without starting it."""
        self._hashing = hashing
        self._home = home
        self._database = database
        self._password = secrets.token_urlsafe(16)
        self._encryption_key = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
        self._process: subprocess.Popen[bytes] | None = None
        self._port = port
        self.uri = f"http://127.0.0.1:{port}"
        self.environment = {
            "MLFLOW_TRACKING_URI": self.uri,
            "MLFLOW_TRACKING_USERNAME": _USER,
            "MLFLOW_TRACKING_PASSWORD": self._password,
        }
        (home / "auth.ini").write_text(
            "[mlflow]\n"
            "default_permission = READ\n"
            f"database_uri = sqlite:///{home}/auth.db\n"
            f"admin_username = {_USER}\n"
            f"admin_password = {self._password}\n"
            "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n",
            encoding="utf-8",
        )

    @property
    def artifacts(self) -> Path:
        """Return the directory of the server's artifacts."""
        return self._home / "artifacts"

    @property
    def password(self) -> str:
        """Return the password, which must not appear in any output."""
        return self._password

    def start(self) -> None:
        """Start the server and wait until it responds."""
        settings = {
            "MLFLOW_AUTH_CONFIG_PATH": str(self._home / "auth.ini"),
            "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(16),
            "MLFLOW_DISABLE_TELEMETRY": "true",
            # Otherwise MLflow starts seven more processes, for features that a registry does not use.
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            # By default, MLflow sends webhooks to https and to public addresses only.
            "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http",
            "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
            "MLFLOW_WEBHOOK_CACHE_TTL": "0",  # a new webhook is used at once
            "MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY": self._encryption_key,
        }
        command = [
            *(sys.executable, "-m", "mlflow", "server", "--app-name", "basic-auth", "--host", "127.0.0.1"),
            *("--port", str(self._port), "--workers", "1", "--backend-store-uri", self._database),
            *("--serve-artifacts", "--artifacts-destination", str(self.artifacts)),
        ]
        outside = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_TRACKING_")}
        with (self._home / "mlflow.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, env=outside | settings, cwd=self._home, stdout=log, stderr=log, start_new_session=True
            )
        self._wait()
        if self._hashing != "scrypt":
            self._replace_hash()

    def _replace_hash(self) -> None:
        """Store the password with a hash that is fast to check."""
        with closing(sqlite3.connect(self._home / "auth.db")) as database, database:
            new = generate_password_hash(self._password, method=self._hashing)
            database.execute("UPDATE users SET password_hash = ? WHERE username = ?", (new, _USER))

    def kill(self) -> None:
        """Kill the server and its workers."""
        if self._process is not None:
            with suppress(ProcessLookupError):  # it has already exited
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def ask(self, path: str) -> Any:
        """Return the server's response as JSON."""
        request = urllib.request.Request(self.uri + path)  # noqa: S310 - the address of this server
        pair = base64.b64encode(f"{_USER}:{self._password}".encode()).decode()
        request.add_header("Authorization", f"Basic {pair}")
        with urllib.request.urlopen(request, timeout=_START_SECONDS) as response:  # noqa: S310 - the same
            return json.load(response)

    def _wait(self) -> None:
        """Wait for the response to an API request: the first one is slower than a health check."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                break
            try:
                self.ask("/api/2.0/mlflow/experiments/search?max_results=1")
            except OSError:
                time.sleep(0.1)
            else:
                return
        log = (self._home / "mlflow.log").read_text(encoding="utf-8", errors="replace")
        self.kill()
        raise RuntimeError(f"mlflow server did not start:\n{log[-4000:]}")


@contextmanager
def release_server(hashing: str = "pbkdf2:sha256:1000") -> Iterator[ReleaseServer]:
    """Run PostgreSQL and MLflow while the block runs.

    Args:
        hashing: Werkzeug's name of the hash for the password. MLflow's default, ``scrypt``, takes up to a third of a
            second of CPU time per request, which the tests avoid.
    """
    home = Path(tempfile.mkdtemp(prefix="repogen-mlflow-"))
    try:
        with _postgres(home) as database:
            server = ReleaseServer(home, database, _free_port(), hashing=hashing)
            try:
                server.start()
                yield server
            finally:
                server.kill()
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _postgres(home: Path) -> Iterator[str]:
    """Run PostgreSQL with a new cluster; yield the URI of its database."""
    binaries = _binaries()
    user = "postgres" if os.geteuid() == 0 else None
    cluster = home / "postgres"
    cluster.mkdir(mode=0o700)
    if user is not None:
        home.chmod(0o711)
        account = pwd.getpwnam(user)
        os.chown(cluster, account.pw_uid, account.pw_gid)
    initdb: list[str | Path] = [binaries / "initdb", "-D", cluster, "-U", "mlflow", "-A", "trust", "--no-sync"]
    subprocess.run(initdb, user=user, cwd=cluster, check=True, capture_output=True)
    port = _free_port()
    command: list[str | Path] = [
        *(binaries / "postgres", "-D", cluster, "-p", str(port), "-c", "listen_addresses=127.0.0.1"),
        *("-c", "unix_socket_directories=", "-c", "fsync=off"),
    ]
    with (home / "postgres.log").open("wb") as log:
        process = subprocess.Popen(command, user=user, cwd=cluster, stdout=log, stderr=log, start_new_session=True)
    try:
        _accepts(port, process)
        yield f"postgresql://mlflow@127.0.0.1:{port}/postgres"
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait(30)


def _binaries() -> Path:
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    if not programs and on_path is None:
        raise RuntimeError("PostgreSQL is missing: `apt-get install postgresql`, as .ci/run does")
    return programs[-1].parent if programs else Path(str(on_path)).parent


def _accepts(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError("PostgreSQL did not start")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

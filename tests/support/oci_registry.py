"""An OCI registry for tests: Debian's docker-registry, in a process of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = os.environ.get("DOCKER_REGISTRY") or shutil.which("docker-registry")
USER, PASSWORD = "publisher", "5ecre7"
# bcrypt of the password, as htpasswd -nbB writes it
_HTPASSWD = "publisher:$2b$04$vccGS1GdSenpT1jSMpjK8O/hnN2.qto8RIsMzJhIsKaVYJRUr3uy6"

_CONFIG = """\
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {directory}}}, delete: {{enabled: true}}}}
http: {{addr: "127.0.0.1:{port}"}}
{auth}
"""


@contextmanager
def oci_registry(*, password: bool = False) -> Iterator[str]:
    """Run a registry; yield its host and port.

    Args:
        password: Whether every request needs the user and the password of this module.
    """
    assert PROGRAM is not None, "install Debian's package docker-registry, or set DOCKER_REGISTRY to the program"
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = int(listener.getsockname()[1])
    with TemporaryDirectory() as directory:
        passwords = Path(directory, "htpasswd")
        passwords.write_text(f"{_HTPASSWD}\n")
        auth = f"auth: {{htpasswd: {{realm: test, path: {passwords}}}}}" if password else ""
        config = Path(directory, "config.yml")
        config.write_text(_CONFIG.format(directory=Path(directory, "data"), port=port, auth=auth))
        environment = {**os.environ, "OTEL_TRACES_EXPORTER": "none"}
        process = subprocess.Popen([PROGRAM, "serve", str(config)], env=environment, stderr=subprocess.DEVNULL)
        try:
            _wait(process, port)
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    while process.poll() is None:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"the registry ended with {process.returncode}")

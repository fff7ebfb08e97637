"""S3 for tests: moto's server in a process of its own, with atomic conditional writes.

moto checks the condition of a write and then writes, and its requests run in threads: two writes with If-None-Match
could both succeed. S3 does not allow that, so requests that write are handled one at a time here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Application = Callable[[dict[str, Any], Any], Iterable[bytes]]

_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """Run a server; yield the environment variables of its clients."""
    with subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            yield {**_CREDENTIALS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_EC2_METADATA_DISABLED": "true"}
        finally:
            process.kill()


def create_bucket(environment: dict[str, str], name: str) -> None:
    """Create a bucket."""
    import boto3  # noqa: PLC0415 - takes a second

    client = boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        region_name=environment["AWS_DEFAULT_REGION"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
    )
    client.create_bucket(Bucket=name)


def serialized(application: Application) -> Application:
    """Return an application that handles requests that write one at a time."""
    lock = threading.Lock()

    def handle(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in {"GET", "HEAD"}:
            return application(environ, start_response)
        with lock:
            return list(application(environ, start_response))

    return handle


def main() -> None:
    """Serve on a free port until killed, and print the port."""
    import logging  # noqa: PLC0415 - only for the process of the server

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app  # noqa: PLC0415 - the same
    from werkzeug.serving import make_server  # noqa: PLC0415 - the same

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = serialized(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    print(server.server_port, flush=True)  # noqa: T201 - the fixture reads it
    parent = os.getppid()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while os.getppid() == parent:
        threading.Event().wait(0.5)


if __name__ == "__main__":
    main()

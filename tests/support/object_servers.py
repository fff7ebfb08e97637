"""Servers of Azure Blob Storage and of Google Cloud Storage for tests, each in a process of its own.

Azurite is Microsoft's emulator; `make test-full` installs it with npm. gcp-storage-emulator is from PyPI. It ignores
``ifGenerationMatch``, so the condition is checked here, at the level of HTTP, as Google documents it. Its requests are
handled one at a time.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

# public: https://learn.microsoft.com/azure/storage/common/storage-connect-azurite
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # gitleaks:allow


@contextmanager
def azure_server() -> Iterator[dict[str, str]]:
    """Run Azurite; yield the environment variables of its clients."""
    program = os.environ.get("AZURITE_BLOB") or Path(sys.prefix) / "azurite" / "node_modules" / ".bin" / "azurite-blob"
    port = _free_port()
    command = [str(program), "--blobPort", str(port), "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    with TemporaryDirectory() as directory:
        process = subprocess.Popen([*command, "--location", directory], cwd=directory)
        try:
            _wait(process, port)
            endpoint = f"http://127.0.0.1:{port}/{_ACCOUNT}"
            text = f"AccountName={_ACCOUNT};AccountKey={_KEY};BlobEndpoint={endpoint};"
            yield {"AZURE_STORAGE_CONNECTION_STRING": f"DefaultEndpointsProtocol=http;{text}"}
        finally:
            process.kill()
            process.wait()


def create_container(environment: dict[str, str], name: str) -> None:
    """Create a container of Azure."""
    from azure.storage.blob import BlobServiceClient  # noqa: PLC0415 - takes a second

    text = environment["AZURE_STORAGE_CONNECTION_STRING"]
    with BlobServiceClient.from_connection_string(text) as client:
        client.create_container(name)


@contextmanager
def gcs_server(bucket: str) -> Iterator[dict[str, str]]:
    """Run an emulator of Google's API with one bucket; yield the environment variables of its clients."""
    port = _free_port()
    process = subprocess.Popen([sys.executable, __file__, str(port), bucket])
    try:
        _wait(process, port)
        yield {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}", "GOOGLE_CLOUD_PROJECT": "test"}
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    """Wait until a server accepts connections."""
    while process.poll() is None:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"the server ended with {process.returncode}")


def _serve_gcs(port: int, bucket: str) -> None:
    """Serve Google's API until killed."""
    from gcp_storage_emulator import server  # type: ignore[import-untyped]  # noqa: PLC0415 - the server's process

    handle = server.RequestHandler.do_POST

    def do_post(handler: Any) -> None:
        query = parse_qs(urlsplit(handler.path).query)
        expected = query.get("ifGenerationMatch", [None])[0]
        if expected is not None and expected != _generation(handler, query):
            handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
            handler.send_error(HTTPStatus.PRECONDITION_FAILED)
            return
        handle(handler)

    server.RequestHandler.do_POST = do_post
    server.create_server("127.0.0.1", port, in_memory=True, default_bucket=bucket).run()


def _generation(handler: Any, query: dict[str, list[str]]) -> str:
    """Return the generation of the object that a request writes; 0 if it does not exist."""
    bucket = unquote(urlsplit(handler.path).path.split("/b/")[1].split("/")[0])
    try:
        return str(handler.storage.get_file_obj(bucket, query["name"][0])["generation"])
    except Exception:  # noqa: BLE001 - the emulator's NotFound
        return "0"


if __name__ == "__main__":
    _serve_gcs(int(sys.argv[1]), sys.argv[2])

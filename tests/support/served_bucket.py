"""A Triton in explicit mode that reads its repository from a bucket of moto's S3."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlHeader, ControlMode
from repogen.serving import control, embedded
from repogen.serving.embedded import EmbeddedTriton
from repogen.targets import DEFAULT_RELEASE, targets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEADER = ControlHeader("x-ops", "5ecre7")


@contextmanager
def server_on(environment: dict[str, str], url: str, directory: Path) -> Iterator[str]:
    """Start a server on the URL, as a user writes it for Triton; yield its address.

    Args:
        environment: Variables of the clients of S3.
        url: The repository.
        directory: An empty directory.
    """
    command = embedded.server_command
    mounted = f"--model-repository=s3://{environment['AWS_ENDPOINT_URL']}/{url.removeprefix('s3://')}"

    def on_bucket(*arguments: Any) -> list[str]:
        options = command(*arguments)
        variables = [f"{name}={value}" for name, value in environment.items() if name != "AWS_ENDPOINT_URL"]
        return [*variables, *(mounted if part.startswith("--model-repository=") else part for part in options)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "server_command", on_bucket)
        patch.setattr(control, "random_header", lambda: HEADER)
        patch.setenv(control.VARIABLE, f"{HEADER.key}={HEADER.value}")
        triton = EmbeddedTriton(targets()[DEFAULT_RELEASE], Silent())
        with triton.running(directory, ControlMode.EXPLICIT, strict=True) as running:
            yield running.endpoint.grpc

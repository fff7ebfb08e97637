"""A staged version that a running Triton server serves for measurements."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.smoke.deployed_model import client_signature, read_deployed_model
from repogen.smoke.grpc_client import GrpcClient
from repogen.smoke.inference import Limits
from repogen.smoke.predict import Address
from repogen.smoke.preparation import loaded, prepare_staged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.artifacts.serving import RunningTriton
    from repogen.artifacts.versions import StagedVersion
    from repogen.smoke.deployed_model import DeployedModel
    from repogen.smoke.inference import WireTensor

    Request = list[WireTensor]

_MAX_BURST = 32


@dataclass(frozen=True)
class ServedVersion:
    """A version that a Triton serves; every request may raise RefusedError or NoResponseError.

    Attributes:
        address: The version's address for another process.
        deployed: The version on the server, with its golden cases.
        limits: Limits on size.
    """

    address: Address
    deployed: DeployedModel
    limits: Limits

    def row(self) -> Request:
        """Return a request of one golden row, or of a whole golden case when the model does not batch."""
        return self.deployed.single_row

    def burst_size(self) -> int:
        """Return the number of such requests that can be sent at once."""
        return max(1, min(_MAX_BURST, self.limits.request_bytes // max(self.deployed.smallest.row_bytes, 1)))

    def send(self, request: Request) -> None:
        """Send one request and wait for the response."""
        self.deployed.infer_row(request)

    def send_many(self, request: Request, size: int) -> None:
        """Send a request ``size`` times at once and wait for all responses."""
        self.deployed.burst([request] * size)


@contextmanager
def serving(server: RunningTriton, staged: StagedVersion, limits: Limits | None = None) -> Iterator[ServedVersion]:
    """Load a staged version while the block runs; its config is prepared as for a smoke test.

    Args:
        server: A server in explicit mode that was started on ``staged.repository``, or a remote one.
        staged: The version; it is served under the name of its directory, which may differ from its config's name.
        limits: Limits on time and size.

    Raises:
        SmokeError: The server is not in explicit mode, the golden tensors cannot be read, or the model is too large to
            send.
        RefusedError: The server does not load it.
        NoResponseError: The server does not respond.
    """
    limits = limits or Limits()
    model, manifest = prepare_staged(server.endpoint, staged), staged.manifest
    with GrpcClient(server.endpoint.grpc, limits, server.endpoint.control) as client:
        deployed = read_deployed_model(client, model, staged.version_dir, manifest)
        address = Address(
            grpc=server.endpoint.grpc,
            model=deployed.name,
            version=deployed.version,
            max_batch_size=manifest.max_batch_size,
            signature=client_signature(manifest.signature, model.config),
            sequences=deployed.in_sequences,
            golden_bytes=deployed.golden_bytes,
        )
        with loaded(server, client, model):
            yield ServedVersion(address, deployed, limits)

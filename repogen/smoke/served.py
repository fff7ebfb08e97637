"""A staged version held on a running Triton, to be asked as often as one likes."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.smoke.deployed_model import read_subject, seen_by_clients
from repogen.smoke.grpc_client import GrpcClient
from repogen.smoke.limits import Limits
from repogen.smoke.loading import loaded, private_name, requirements_of, sent_files
from repogen.smoke.overrides import overridden
from repogen.smoke.predict import Address
from repogen.smoke.sequences import alone
from repogen.triton_config.text.parse import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.artifacts.serving import RunningTriton
    from repogen.artifacts.versions import StagedVersion
    from repogen.smoke.deployed_model import Subject
    from repogen.smoke.inference import InferenceClient, WireTensor

    Request = list[WireTensor]

_BURST = 32


@dataclass(frozen=True)
class ServedVersion:
    """A version that a Triton serves; every request may raise RefusedError or NoAnswerError.

    Attributes:
        address: How another process asks it.
        subject: Its golden cases, and what its config promises.
        client: The connection to the server.
        limits: Bounds on size.
    """

    address: Address
    subject: Subject
    client: InferenceClient
    limits: Limits

    def row(self) -> Request:
        """Return a request of one golden row, or of one whole input where the model does not batch."""
        case = self.subject.smallest
        return self.subject.wire((case.rows([0]) if self.subject.max_batch_size > 0 else case).inputs)

    def burst_size(self) -> int:
        """Return how many such requests can be under way at once."""
        return max(1, min(_BURST, self.limits.request_bytes // max(self.subject.smallest.row_bytes, 1)))

    def ask(self, request: Request) -> None:
        """Make one request and wait for its answer."""
        turn = alone() if self._in_sequences else None
        self.client.infer(self.subject.served_as, self.subject.version, request, turn)

    def ask_many(self, request: Request, size: int) -> None:
        """Make a request ``size`` times at once and wait for all answers."""
        turns = [alone() for _ in range(size)] if self._in_sequences else []
        self.client.burst(self.subject.served_as, self.subject.version, [request] * size, turns)

    @property
    def _in_sequences(self) -> bool:
        return bool(self.subject.config.HasField("sequence_batching"))


@contextmanager
def serving(server: RunningTriton, staged: StagedVersion, limits: Limits | None = None) -> Iterator[ServedVersion]:
    """Load a staged version for the body, unload it afterwards; the config may differ as in a smoke test.

    Args:
        server: In explicit mode; started on ``staged.repository`` unless it is a remote one.
        staged: What to serve. Its directory's name may differ from the name in its config: it is served under the
            directory's.
        limits: Bounds on time and size.

    Raises:
        SmokeError: The server is not in explicit mode, the golden tensors can't be read, or the model is too large to
            be sent.
        RefusedError: The server does not load it.
        NoAnswerError: The server does not answer.
    """
    limits = limits or Limits()
    endpoint = server.endpoint
    where = f"config.pbtxt of {staged.name}"
    told, _ = overridden(parse(staged.config.text, where), version=staged.version, has_gpu=endpoint.has_gpu)
    told.name = staged.name if endpoint.sees_files else private_name(staged.name)
    server.provide(requirements_of(told, staged.version_dir, staged.repository))
    files = {} if endpoint.sees_files else sent_files(staged.version_dir, staged.version)
    name, version, manifest = told.name, staged.version, staged.manifest
    subject = read_subject(staged.version_dir, manifest, told, model=staged.name, served_as=name, version=version)
    in_sequences = bool(told.HasField("sequence_batching"))
    address = Address(
        endpoint.grpc, name, version, manifest.max_batch_size, seen_by_clients(manifest.signature, told), in_sequences
    )
    with GrpcClient(endpoint.grpc, limits) as client, loaded(client, name, told, files):
        yield ServedVersion(address, subject, client, limits)

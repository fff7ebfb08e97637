"""Requests over HTTP, with tensors in the binary form that carries every type; on a port or on a Unix socket.

tritonclient's own HTTP client needs gevent and cannot connect to a Unix socket. Source: Triton's
docs/protocol/extension_binary_data.md.
"""

from __future__ import annotations

import http.client
import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
from tritonclient.utils import serialize_byte_tensor

from repogen.artifacts.serving import SmokeCheck
from repogen.responses import ResponseError, limited, response_limits
from repogen.serving.connection import excerpt
from repogen.serving.process import UnixConnection
from repogen.smoke.deployed_model import DeployedModel
from repogen.smoke.inference import NoResponseError, RefusedError, add_output, from_wire
from repogen.smoke.sequence_checks import check_golden_sequences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from repogen.artifacts.tensors import Array, Arrays
    from repogen.smoke.inference import SequencePosition, WireTensor

_CHECK = "golden over HTTP"
_SECONDS = 120.0
_HEADER_LENGTH = "Inference-Header-Content-Length"
_OK = 200


@dataclass(frozen=True)
class ModelOverHttp(DeployedModel):
    """One version on a server, to which requests are sent over HTTP.

    Attributes:
        address: ``host:port``, or ``unix:PATH``.
    """

    address: str

    def infer(self, inputs: Sequence[WireTensor], position: SequencePosition | None = None) -> Arrays:
        """Send one request and return the outputs by name, in their shapes on the wire."""
        header, body = encode_request(inputs, position)
        headers = {_HEADER_LENGTH: str(len(header)), "Content-Type": "application/octet-stream"}
        scheme, _, path = self.address.partition(":")
        connection = (
            limited(UnixConnection)(path, _SECONDS)
            if scheme == "unix"
            else limited(http.client.HTTPConnection)(self.address, timeout=_SECONDS)
        )
        url = f"/v2/models/{quote(self.name, safe='')}/versions/{self.version}/infer"
        try:
            with response_limits(self.response_limit(inputs), _SECONDS, math.inf):
                connection.request("POST", url, header + body, headers)
                response = connection.getresponse()
            with response:
                content = response.read()
        except (OSError, http.client.HTTPException, ResponseError) as error:
            raise NoResponseError(excerpt(f"HTTP: {error}")) from error
        finally:
            connection.close()
        if response.status != _OK:
            raise RefusedError(f"HTTP {response.status}", excerpt(content[:1000].decode(errors="replace")))
        return decode_response(content, response.headers.get(_HEADER_LENGTH))


def golden_over_http(model: DeployedModel, address: str) -> SmokeCheck:
    """Check that the smallest golden case returns PyTorch's outputs over HTTP as well.

    Args:
        model: The version.
        address: HTTP address of the server; empty when unknown.
    """
    if not address:
        detail = "not tested: the HTTP address of the server is unknown"
        return SmokeCheck(_CHECK, passed=True, detail=detail, warning=True)
    over_http, case = ModelOverHttp(**vars(model), address=address), model.smallest
    if model.in_sequences:
        return replace(check_golden_sequences(over_http, case), name=_CHECK)
    comparison = model.compare(case, over_http.infer(model.wire(case.inputs)))
    return SmokeCheck(_CHECK, comparison.equal, comparison.detail, max_abs_diff=comparison.max_abs_diff)


def encode_request(inputs: Sequence[WireTensor], position: SequencePosition | None) -> tuple[bytes, bytes]:
    """Return the JSON of a request, and the bytes of its tensors, which follow it."""
    contents = [_to_bytes(tensor) for tensor in inputs]
    tensors = [
        {
            "name": tensor.name,
            "shape": list(tensor.array.shape),
            "datatype": tensor.dtype,
            "parameters": {"binary_data_size": len(content)},
        }
        for tensor, content in zip(inputs, contents, strict=True)
    ]
    parameters: dict[str, object] = {"binary_data_output": True}
    if position is not None:
        parameters |= {"sequence_id": position.sequence_id}
        parameters |= {"sequence_start": position.start, "sequence_end": position.end}
    return json.dumps({"inputs": tensors, "parameters": parameters}).encode(), b"".join(contents)


def decode_response(content: bytes, header_length: str | None) -> Arrays:
    """Return the outputs of a response.

    Raises:
        RefusedError: It is not a response of the protocol, or the size of an output does not match its shape.
    """
    try:
        length = len(content) if header_length is None else int(header_length)
        outputs: list[dict[str, Any]] = json.loads(content[:length])["outputs"]
        arrays, start = dict[str, "Array"](), length
        for output in outputs:
            stop = start + _size(output["parameters"]["binary_data_size"])
            add_output(arrays, str(output["name"]), from_wire(content[start:stop], output["datatype"]), output["shape"])
            start = stop
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
        raise RefusedError("INVALID_ANSWER", f"the response over HTTP cannot be read: {error}") from error
    return arrays


def _size(value: Any) -> int:  # noqa: ANN401 - of JSON
    """Return the size of an output; with a negative one, many outputs could have the same bytes."""
    if int(value) < 0:
        raise ValueError(f"an output has {value!r:.60} bytes")
    return int(value)


def _to_bytes(tensor: WireTensor) -> bytes:
    if tensor.dtype == "BYTES":
        serialized = serialize_byte_tensor(tensor.array)
        return bytes(serialized.item()) if serialized.size else b""
    if tensor.dtype == "BF16":  # golden values are float32 arrays of BF16 values, so no digit is lost
        return (tensor.array.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return tensor.array.tobytes()

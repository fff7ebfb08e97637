"""What a running server serves, as its HTTP service describes it, and an example request for each model."""

from __future__ import annotations

import http.client
import json
import shlex
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote

from pydantic import BaseModel, TypeAdapter, ValidationError

from repogen.artifacts.tensors import DTYPES
from repogen.responses import ResponseError, limited, response_limits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CLIENT_IMPORTS = ("import numpy as np", "import tritonclient.grpc as grpcclient")
"""What the Python requests import."""
_SECONDS = 5.0
_MAX_BYTES = 2**20
_MAX_INLINE = 16
"""Values of an input that are written into the command; more are generated."""
_NO_JSON = frozenset({"FP16", "BF16"})
"""Types that Triton accepts in binary form only."""
_ARRAYS = {dtype.triton: dtype.name for dtype in DTYPES.values()} | {"BF16": "float32"}
"""Types of the arrays that tritonclient accepts; it rounds those for BF16."""

Data: TypeAlias = "list[bool] | list[int] | list[float] | list[str]"


class _Tensor(BaseModel):
    name: str
    datatype: str
    shape: list[int]


class _Metadata(BaseModel):
    """Source: the metadata extension of the KServe protocol, as Triton implements it."""

    name: str
    versions: list[str] = []
    inputs: list[_Tensor] = []


_METADATA = TypeAdapter(_Metadata)


@dataclass(frozen=True)
class ServedModel:
    """A model of the repository on a running server.

    Attributes:
        name: Its name.
        versions: Versions that are served; empty if it is not ready.
        reason: Why it is not served; empty if it is, or if that is unknown.
        curl: A command that sends one request; empty for a type without JSON form.
        python: The same in Python, for tritonclient.
    """

    name: str
    versions: tuple[str, ...] = ()
    reason: str = ""
    curl: str = ""
    python: str = ""


def served_models(address: str, names: Iterable[str], failures: Mapping[str, str]) -> list[ServedModel]:
    """Return the state of models.

    Args:
        address: ``HOST:PORT`` of the HTTP service.
        names: The models.
        failures: Why models were not loaded, by name or ``name version N``.
    """
    reasons = {name.partition(" version ")[0]: reason for name, reason in failures.items()}
    return [_served(address, name, reasons.get(name, "")) for name in names]


def _served(address: str, name: str, reason: str) -> ServedModel:
    metadata = _metadata(address, name)
    if metadata is None:
        return ServedModel(name, reason=reason)
    versions = tuple(metadata.versions)
    return ServedModel(name, versions, reason, _curl(address, metadata), _python(metadata))


def _metadata(address: str, name: str) -> _Metadata | None:
    """Return the metadata of a model; None if it is not ready."""
    connection = limited(http.client.HTTPConnection)(address, timeout=_SECONDS)
    try:
        with response_limits(_MAX_BYTES, _SECONDS):
            connection.request("GET", f"/v2/models/{quote(name, safe='')}")
            response = connection.getresponse()
            body = response.read(_MAX_BYTES)
        return _METADATA.validate_json(body) if response.status == http.HTTPStatus.OK else None
    except (OSError, http.client.HTTPException, ResponseError, ValidationError):
        return None
    finally:
        connection.close()


def _curl(address: str, metadata: _Metadata) -> str:
    """Return a command that sends zeros, or short texts, of the smallest shape; its lines fit most terminals."""
    if any(tensor.datatype in _NO_JSON for tensor in metadata.inputs):
        return ""
    url = f"{address}/v2/models/{quote(metadata.name, safe='')}/infer"
    is_small = all(prod(_shape(tensor)) <= _MAX_INLINE for tensor in metadata.inputs)
    inputs = ",\n".join(_input(tensor, is_small=is_small) for tensor in metadata.inputs)
    if is_small:
        body = f'{{"inputs": [\n{inputs}\n]}}'
        return f"curl -s {url} -d {shlex.quote(body)}"
    # double quotes only, so that the shell's quotes need no escapes
    program = f'import json\ninputs = [\n{inputs}\n]\nprint(json.dumps({{"inputs": inputs}}))'
    return f"python3 -c {shlex.quote(program)} |\n  curl -s {url} -d @-"


def _input(tensor: _Tensor, *, is_small: bool) -> str:
    """Return an input with its values as JSON, or as Python that generates the values."""
    size = prod(_shape(tensor))
    header = json.dumps({"name": tensor.name, "shape": _shape(tensor), "datatype": tensor.datatype})
    values = json.dumps([_example(tensor)] * size) if is_small else f"[{_literal(tensor)}] * {size}"
    return f'  {header[:-1]},\n   "data": {values}}}'


def _python(metadata: _Metadata) -> str:
    """Return lines that send the same request; ``client`` is an InferenceServerClient of tritonclient.grpc."""
    arrays = [
        f"np.full({_shape(tensor)}, b'', object)"
        if tensor.datatype == "BYTES"
        else f"np.zeros({_shape(tensor)}, {_ARRAYS.get(tensor.datatype, 'float32')!r})"
        for tensor in metadata.inputs
    ]
    return "\n".join(
        [
            "inputs = [",
            *(f"    grpcclient.InferInput({t.name!r}, {_shape(t)}, {t.datatype!r})," for t in metadata.inputs),
            "]",
            *(f"inputs[{index}].set_data_from_numpy({array})" for index, array in enumerate(arrays)),
            f"response = client.infer({metadata.name!r}, inputs)",
            "for output in response.get_response().outputs:",
            "    print(output.name, response.as_numpy(output.name))",
        ]
    )


def _shape(tensor: _Tensor) -> list[int]:
    return [max(size, 1) for size in tensor.shape]


def _literal(tensor: _Tensor) -> str:
    """Return the example value as Python, with double quotes."""
    value = _example(tensor)
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _example(tensor: _Tensor) -> bool | int | float | str:
    if tensor.datatype == "BYTES":
        return "text"
    if tensor.datatype == "BOOL":
        return False
    return 0.0 if tensor.datatype.startswith("FP") else 0

"""A replacement for ``triton_python_backend_utils``, which a ``model.py`` imports, where Triton is not installed.

Source: triton_python_backend_utils.py of tritonserver 2.51 and its README, as far as it concerns requests and
responses with arrays. Calls to other models (BLS) and decoupled responses raise an error; shared memory is missing.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from repogen.artifacts.tensors import DTYPES
from repogen.source.common.examples import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from repogen.artifacts.tensors import Array

__all__ = [
    "TRITON_STRING_TO_NUMPY",
    "InferenceRequest",
    "InferenceResponse",
    "Logger",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "numpy_to_triton_type",
    "triton_string_to_numpy",
    "using_decoupled_model_transaction_policy",
]

MODULE = "triton_python_backend_utils"
TRITON_STRING_TO_NUMPY = {
    f"TYPE_{dtype.triton}": numpy_dtype(dtype.name).type for dtype in DTYPES.values() if dtype.name != "bfloat16"
}


def install_backend_utils() -> None:
    """Make the names of this module importable under the name of Triton's module."""
    module = ModuleType(MODULE, "repogen's replacement for Triton's module")
    vars(module).update({name: globals()[name] for name in __all__})
    sys.modules[MODULE] = module


class TritonModelException(Exception):  # noqa: N818 - Triton's name
    """An error raised by the model or by this module."""


class TritonError:
    """An error in a response."""

    def __init__(self, message: str, code: int = 0) -> None:
        """Create an error."""
        self._message, self._code = message, code

    def message(self) -> str:
        """Return the message."""
        return self._message

    def code(self) -> int:
        """Return the error code."""
        return self._code


class Tensor:
    """A named array."""

    def __init__(self, name: str, array: Array) -> None:
        """Create a tensor.

        Raises:
            TritonModelException: The value is not an array, or has a type that Triton does not support.
        """
        if not isinstance(array, np.ndarray):
            raise TritonModelException(
                f"Tensor({name!r}) requires a NumPy array, not {type(array).__name__}: np.array([…], dtype=…)"
            )
        if array.dtype.kind == "U":
            raise TritonModelException(
                f"Tensor({name!r}) requires strings as objects, not {array.dtype}: .astype(object)"
            )
        self._name, self._array = name, array

    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> Tensor:  # noqa: ANN401 - of any library
        """Return a tensor created from another library's tensor."""
        return Tensor(name, np.from_dlpack(tensor))

    def to_dlpack(self) -> object:
        """Return a capsule for another library."""
        return self.__dlpack__()

    def __dlpack__(self, **options: Any) -> object:  # noqa: ANN401 - defined by the DLPack protocol
        """Return a capsule."""
        array: Any = self._array
        return array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the CPU."""
        return (1, 0)

    def shape(self) -> list[int]:
        """Return the shape."""
        return list(self._array.shape)

    def name(self) -> str:
        """Return the name."""
        return self._name

    def as_numpy(self) -> Array:
        """Return the array; strings are ``bytes`` objects."""
        return self._array

    def is_cpu(self) -> bool:
        """Return True: all memory is CPU memory."""
        return True

    def triton_dtype(self) -> str:
        """Return Triton's name of the dtype."""
        return numpy_to_triton_type(self._array.dtype.type)


class InferenceRequest:
    """A request of a client; it belongs to no sequence and has no parameters."""

    def __init__(self, tensors: Sequence[Tensor] = (), names: Sequence[str] = (), **call: object) -> None:
        """Create a request from inputs and requested output names; other arguments belong to calls of other models."""
        self._tensors, self._names, self._call = list(tensors), list(names), call

    def inputs(self) -> list[Tensor]:
        """Return the inputs."""
        return self._tensors

    def requested_output_names(self) -> list[str]:
        """Return the names of the requested outputs."""
        return self._names

    def request_id(self) -> str:
        """Return an empty ID."""
        return ""

    def correlation_id(self) -> int:
        """Return 0, the ID outside of sequences."""
        return 0

    def parameters(self) -> str:
        """Return an empty JSON object."""
        return "{}"

    def timeout(self) -> int:
        """Return 0: no timeout."""
        return 0

    def flags(self) -> int:
        """Return 0, the flags outside of sequences."""
        return 0

    def is_cancelled(self) -> bool:
        """Return False."""
        return False

    def get_response_sender(self) -> NoReturn:
        """Raise an error: decoupled responses are not supported."""
        raise TritonModelException(
            "model.py sends decoupled responses, which repogen does not support: return one response for each request"
        )

    def exec(self, *, decoupled: bool = False) -> NoReturn:
        """Raise an error: calls to other models are not supported."""
        del decoupled
        raise TritonModelException(
            "model.py calls another model (BLS), which repogen does not support: use an ensemble with two steps"
        )


class InferenceResponse:
    """A response of the model."""

    def __init__(self, output_tensors: Sequence[Tensor] = (), error: TritonError | None = None) -> None:
        """Create a response from outputs or an error."""
        self._tensors, self._error = list(output_tensors), error

    def output_tensors(self) -> list[Tensor]:
        """Return the outputs."""
        return self._tensors

    def has_error(self) -> bool:
        """Return whether the response is an error."""
        return self._error is not None

    def error(self) -> TritonError | None:
        """Return the error."""
        return self._error


class Logger:
    """Writes to standard error, which is part of the build's log."""

    @staticmethod
    def log(message: str, level: int = 0) -> None:
        """Write a line."""
        del level
        print(message, file=sys.stderr)  # noqa: T201 - a log

    log_info = log_warn = log_error = log_verbose = log


def get_input_tensor_by_name(request: InferenceRequest, name: str) -> Tensor | None:
    """Return an input of a request; None when it has no such input."""
    return next((tensor for tensor in request.inputs() if tensor.name() == name), None)


def get_output_tensor_by_name(response: InferenceResponse, name: str) -> Tensor | None:
    """Return an output of a response; None when it has no such output."""
    return next((tensor for tensor in response.output_tensors() if tensor.name() == name), None)


def get_input_config_by_name(config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return the configuration of an input; None when there is no such input."""
    return _tensor_config(config.get("input", ()), name)


def get_output_config_by_name(config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return the configuration of an output; None when there is no such output."""
    return _tensor_config(config.get("output", ()), name)


def using_decoupled_model_transaction_policy(config: Mapping[str, Any]) -> bool:
    """Return whether a configuration has decoupled responses."""
    return bool(config.get("model_transaction_policy", {}).get("decoupled"))


def triton_string_to_numpy(name: str) -> type:
    """Return the NumPy type of a Triton type such as ``TYPE_FP32``."""
    return TRITON_STRING_TO_NUMPY[name]


def numpy_to_triton_type(kind: type) -> str:
    """Return the Triton type of a NumPy type."""
    return next((name for name, numpy_type in TRITON_STRING_TO_NUMPY.items() if numpy_type is kind), "TYPE_STRING")


def _tensor_config(tensors: Iterable[dict[str, Any]], name: str) -> dict[str, Any] | None:
    return next((tensor for tensor in tensors if tensor["name"] == name), None)

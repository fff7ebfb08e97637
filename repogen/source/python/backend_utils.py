"""What a ``model.py`` imports as ``triton_python_backend_utils``, here, where there is no Triton.

Source: triton_python_backend_utils.py of tritonserver 2.51 and its README: the part that answers requests with arrays.
Calls of other models (BLS), decoupled answers and shared memory are the server's own, and are refused with a word.
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

MODULE = "triton_python_backend_utils"
TRITON_STRING_TO_NUMPY = {f"TYPE_{dtype.triton}": numpy_dtype(dtype.name).type for dtype in DTYPES.values()}


class TritonModelException(Exception):  # noqa: N818 - Triton's name
    """An error of the model."""


class TritonError:
    """An error as an answer."""

    def __init__(self, message: str, code: int = 0) -> None:
        """Keep the message."""
        self._message, self._code = message, code

    def message(self) -> str:
        """Return what went wrong."""
        return self._message

    def code(self) -> int:
        """Return its code."""
        return self._code


class Tensor:
    """A named array."""

    def __init__(self, name: str, array: Array) -> None:
        """Keep them.

        Raises:
            TritonModelException: It is no array, or one of a type that Triton has not; the server refuses both.
        """
        if not isinstance(array, np.ndarray):
            raise TritonModelException(
                f"Tensor({name!r}) takes a NumPy array, not {type(array).__name__}: np.array([…], dtype=…)"
            )
        if array.dtype.kind == "U":
            raise TritonModelException(f"Tensor({name!r}) takes strings as objects: .astype(object), not {array.dtype}")
        self._name, self._array = name, array

    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> Tensor:  # noqa: ANN401 - of any library
        """Return a tensor of another library's."""
        return Tensor(name, np.from_dlpack(tensor))

    def to_dlpack(self) -> object:
        """Return a capsule for another library."""
        return self.__dlpack__()

    def __dlpack__(self, **options: Any) -> object:  # noqa: ANN401 - the protocol's own
        """Return a capsule."""
        array: Any = self._array
        return array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the CPU."""
        return (1, 0)

    def shape(self) -> list[int]:
        """Return its sizes."""
        return list(self._array.shape)

    def name(self) -> str:
        """Return the name."""
        return self._name

    def as_numpy(self) -> Array:
        """Return the array; strings are objects, each of them ``bytes``."""
        return self._array

    def is_cpu(self) -> bool:
        """Return True: there is no other memory here."""
        return True

    def triton_dtype(self) -> str:
        """Return Triton's name of its type."""
        return numpy_to_triton_type(self._array.dtype.type)


class InferenceRequest:
    """What a client asks."""

    def __init__(self, tensors: Sequence[Tensor] = (), names: Sequence[str] = (), **call: object) -> None:
        """Keep inputs and the names of the outputs that are wanted; a call of another model is refused at ``exec``."""
        self._tensors, self._names, self._call = list(tensors), list(names), call

    def inputs(self) -> list[Tensor]:
        """Return the inputs."""
        return self._tensors

    def requested_output_names(self) -> list[str]:
        """Return the outputs that the client wants."""
        return self._names

    def request_id(self) -> str:
        """Return nothing: it has none."""
        return ""

    def correlation_id(self) -> int:
        """Return 0: it belongs to no sequence."""
        return 0

    def parameters(self) -> str:
        """Return no parameters, as JSON."""
        return "{}"

    def timeout(self) -> int:
        """Return 0: it may wait for ever."""
        return 0

    def flags(self) -> int:
        """Return 0: it belongs to no sequence."""
        return 0

    def is_cancelled(self) -> bool:
        """Return False: nobody goes away."""
        return False

    def exec(self, *, decoupled: bool = False) -> NoReturn:
        """Refuse."""
        del decoupled
        raise TritonModelException(
            "model.py calls another model (BLS), which repogen does not run: make it a step of an ensemble"
        )


class InferenceResponse:
    """What the model answers."""

    def __init__(self, output_tensors: Sequence[Tensor] = (), error: TritonError | None = None) -> None:
        """Keep them."""
        self._tensors, self._error = list(output_tensors), error

    def output_tensors(self) -> list[Tensor]:
        """Return the outputs."""
        return self._tensors

    def has_error(self) -> bool:
        """Return whether it is an error."""
        return self._error is not None

    def error(self) -> TritonError | None:
        """Return the error."""
        return self._error


class Logger:
    """Writes to standard error, which the build keeps."""

    @staticmethod
    def log(message: str, level: int = 0) -> None:
        """Write a line."""
        del level
        print(message, file=sys.stderr)  # noqa: T201 - what a log is

    log_info = log_warn = log_error = log_verbose = log


def get_input_tensor_by_name(request: InferenceRequest, name: str) -> Tensor | None:
    """Return an input of a request, None when it has no such."""
    return next((tensor for tensor in request.inputs() if tensor.name() == name), None)


def get_output_tensor_by_name(response: InferenceResponse, name: str) -> Tensor | None:
    """Return an output of a response, None when it has no such."""
    return next((tensor for tensor in response.output_tensors() if tensor.name() == name), None)


def get_input_config_by_name(config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return what a model's config says of an input."""
    return _named(config.get("input", ()), name)


def get_output_config_by_name(config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return what a model's config says of an output."""
    return _named(config.get("output", ()), name)


def using_decoupled_model_transaction_policy(config: Mapping[str, Any]) -> bool:
    """Return whether a config asks for answers apart from requests."""
    return bool(config.get("model_transaction_policy", {}).get("decoupled"))


def triton_string_to_numpy(name: str) -> type:
    """Return NumPy's type for ``TYPE_FP32`` and the like."""
    return TRITON_STRING_TO_NUMPY[name]


def numpy_to_triton_type(kind: type) -> str:
    """Return Triton's name of a NumPy type."""
    return next((name for name, known in TRITON_STRING_TO_NUMPY.items() if known is kind), "TYPE_STRING")


def _named(tensors: Iterable[dict[str, Any]], name: str) -> dict[str, Any] | None:
    return next((tensor for tensor in tensors if tensor["name"] == name), None)


def stand_in() -> ModuleType:
    """Return the module, and have it imported under Triton's name from now on."""
    module = ModuleType(MODULE, "repogen's stand-in for Triton's own module")
    own = (*_CLASSES, *_FUNCTIONS)
    vars(module).update({thing.__name__: thing for thing in own}, TRITON_STRING_TO_NUMPY=TRITON_STRING_TO_NUMPY)
    sys.modules[MODULE] = module
    return module


_CLASSES = (Tensor, TritonError, TritonModelException, InferenceRequest, InferenceResponse, Logger)
_FUNCTIONS = (
    get_input_tensor_by_name,
    get_output_tensor_by_name,
    get_input_config_by_name,
    get_output_config_by_name,
    using_decoupled_model_transaction_policy,
    triton_string_to_numpy,
    numpy_to_triton_type,
)

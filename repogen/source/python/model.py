"""Instances of ``TritonPythonModel``, imported and called as Triton's Python backend does."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from repogen.artifacts.tensors import DTYPES
from repogen.errors import SourceError
from repogen.repository.layout import code_file
from repogen.source.common.callables import RAISED, user_error
from repogen.source.common.examples import as_strings, numpy_dtype
from repogen.source.common.search_path import SourceLoader, add_to_search_path
from repogen.source.python.backend_utils import InferenceRequest, InferenceResponse, Tensor, install_backend_utils
from repogen.triton_config.sections.model import parameter_text
from repogen.triton_config.text.dims import config_dims

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from repogen.artifacts.tensors import Array, Arrays, Signature, TensorSpec

_CLASS = "TritonPythonModel"
_module_numbers = count(1)


@dataclass(frozen=True)
class PythonCode:
    """A model directory with Python code, and how the code is run.

    Attributes:
        directory: The model's directory; it contains the version's directory.
        version: Name of the version's directory.
        signature: Inputs and outputs that are declared.
        config: The model's configuration, as Triton passes it to the code.
        file: The code's file, for messages.
        root: Directory that paths in tracebacks are relative to.
    """

    directory: Path
    version: str
    signature: Signature
    config: Mapping[str, object]
    file: str
    root: Path

    def error(self, problem: str, hint: str) -> SourceError:
        """Return an error about this code."""
        return SourceError(f"{self.file}: {problem}", hint, code="source.python", where=self.file)


@dataclass(frozen=True)
class PythonModel:
    """An initialized instance of a ``TritonPythonModel``.

    Attributes:
        instance: The instance.
        code: The code that it was created from.
    """

    instance: Any
    code: PythonCode

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs for one request.

        Raises:
            SourceError: The code raised, returned an error, or its outputs do not match the declaration.
        """
        return self.responses([inputs])[0]

    def responses(self, requests: Sequence[Arrays]) -> list[dict[str, Array]]:
        """Return the outputs for several requests in one call, as Triton's dynamic batcher can send them."""
        signature = self.code.signature
        sizes = [_sizes(inputs, signature) for inputs in requests]
        names = [spec.name for spec in signature.outputs]
        batch = [InferenceRequest([Tensor(name, a) for name, a in inputs.items()], names) for inputs in requests]
        try:
            # A server's working directory contains none of the model's files either.
            with contextlib.chdir(self.code.directory):
                responses = self.instance.execute(batch)
        except RAISED as error:
            raise _user_error(error, f"execute of {self.code.file} failed", self.code.root) from error
        if not isinstance(responses, list) or len(responses) != len(requests):
            kind = type(responses).__name__
            value = f"a list of {len(responses)}" if isinstance(responses, list) else f"a {kind}"
            raise self.code.error(
                f"execute returned {value} for {len(requests)} requests", "return one response for each request"
            )
        return [self._outputs(response, dims) for response, dims in zip(responses, sizes, strict=True)]

    def _outputs(self, response: object, sizes: dict[str, int]) -> dict[str, Array]:
        """Return the outputs of a response; ``sizes`` has the dims of the request."""
        if not isinstance(response, InferenceResponse):
            raise self.code.error(
                f"execute returned a {type(response).__name__} instead of a response",
                "return pb_utils.InferenceResponse(output_tensors=[…])",
            )
        error = response.error()
        if error is not None:
            raise self.code.error(f"the model returned an error: {error.message()}", "correct the code or the examples")
        arrays = {tensor.name(): as_strings(tensor.as_numpy()) for tensor in response.output_tensors()}
        return {spec.name: self._check(spec, arrays, dict(sizes)) for spec in self.code.signature.outputs}

    def _check(self, spec: TensorSpec, arrays: Mapping[str, Array], sizes: dict[str, int]) -> Array:
        """Return an output if it has the declared dtype and shape."""
        if spec.name not in arrays:
            raise self.code.error(
                f"the response has no output {spec.name!r}; it has {', '.join(arrays) or 'none'}",
                "declare the outputs that the code returns",
            )
        array = arrays[spec.name]
        declared_dtype = numpy_dtype(spec.dtype)
        fits = array.dtype == declared_dtype and array.ndim == len(spec.shape)
        for size, dim in zip(array.shape, spec.shape, strict=False):
            fits &= size == (sizes.setdefault(dim, size) if isinstance(dim, str) else dim)
        if not fits:
            dtype = "string" if array.dtype.kind == "O" else str(array.dtype)
            declared = f"{spec.dtype} [{', '.join(map(str, spec.shape))}]"
            scalar = declared_dtype.name + ("_" if declared_dtype.name in {"bool", "object"} else "")
            example = "" if array.dtype == declared_dtype else f", for example with .astype(np.{scalar})"
            raise self.code.error(
                f"output {spec.name!r} is {dtype} {list(array.shape)}, declared {declared}"
                + (f" with {', '.join(f'{k}={v}' for k, v in sizes.items())}" if sizes else ""),
                f"correct outputs: in the spec, or the code{example}",
            )
        return array


def open_python(code: PythonCode, *, prefix: str = "repogen_python_") -> PythonModel:
    """Import a ``model.py`` as a new module and initialize its class, as Triton does for each instance.

    Raises:
        SourceError: The file cannot be imported, has no ``TritonPythonModel``, or the class raised.
    """
    install_backend_utils()
    path = code_file(code.directory / code.version)
    name = f"{prefix}{next(_module_numbers)}"
    spec = importlib.util.spec_from_file_location(name, path, loader=SourceLoader(name, str(path)))
    if spec is None or spec.loader is None:
        raise code.error("it is not a Python file", "specify a .py file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    add_to_search_path(path.parent)  # as in Triton's stub process: helper modules can be next to it
    model_name = str(code.config["name"])
    arguments = {
        "model_config": json.dumps(code.config),
        "model_instance_kind": "CPU",
        "model_instance_name": f"{model_name}_0_0",
        "model_instance_device_id": "0",
        "model_repository": str(code.directory),
        "model_version": code.version,
        "model_name": model_name,
    }
    try:
        with contextlib.chdir(code.directory):
            spec.loader.exec_module(module)
            instance = _model_class(module, code)()
            if hasattr(instance, "initialize"):
                instance.initialize(arguments)
    except SourceError:
        raise
    except RAISED as error:
        raise _user_error(error, f"{code.file} failed", code.root) from error
    return PythonModel(instance, code)


def model_config(
    name: str, signature: Signature, max_batch_size: int, parameters: Mapping[str, bool | float | str]
) -> dict[str, object]:
    """Return the configuration to pass to Python code before config.pbtxt is written.

    ``max_batch_size`` is 0 when batching has not been measured.
    """
    batched = max_batch_size > 0
    return {
        "name": name,
        "backend": "python",
        "max_batch_size": max_batch_size,
        "input": [_tensor_config(spec, batched=batched) for spec in signature.inputs],
        "output": [_tensor_config(spec, batched=batched) for spec in signature.outputs],
        "parameters": {key: {"string_value": parameter_text(value)} for key, value in parameters.items()},
    }


def _tensor_config(spec: TensorSpec, *, batched: bool) -> dict[str, object]:
    dims, _ = config_dims(spec.shape, batched=batched)
    return {"name": spec.name, "data_type": f"TYPE_{DTYPES[spec.dtype].triton}", "dims": list(dims)}


def _user_error(error: BaseException, problem: str, root: Path) -> SourceError:
    """Return an error for an exception of the code, with a hint if a module or a file is missing."""
    failure = user_error(error, problem, root)
    if isinstance(error, ModuleNotFoundError):
        failure.hint = (
            f"install {error.name!r} here and list it under requirements:; list a module of your own under data:"
        )
    elif isinstance(error, FileNotFoundError):
        failure.hint = 'list the file under data:, and open it as Path(__file__).with_name("…")'
    return failure


def _model_class(module: object, code: PythonCode) -> type[Any]:
    model_class = getattr(module, _CLASS, None)
    if not isinstance(model_class, type) or not hasattr(model_class, "execute"):
        raise code.error(
            f"missing class {_CLASS} with a method execute", "Triton's Python backend requires a class of that name"
        )
    return model_class


def _sizes(inputs: Arrays, signature: Signature) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for spec in signature.inputs:
        sizes.update((d, n) for d, n in zip(spec.shape, inputs[spec.name].shape, strict=True) if isinstance(d, str))
    return sizes

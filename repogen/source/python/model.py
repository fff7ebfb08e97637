"""An instance of a ``TritonPythonModel``, imported and asked as Triton's Python backend does it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from repogen.artifacts.file_names import PYTHON_FILE
from repogen.artifacts.tensors import DTYPES
from repogen.errors import SourceError
from repogen.source.common.callables import RAISED, user_error
from repogen.source.common.examples import as_strings, numpy_dtype
from repogen.source.python.backend_utils import InferenceRequest, InferenceResponse, Tensor, stand_in
from repogen.triton_config.text.dims import config_dims

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from repogen.artifacts.tensors import Array, Arrays, Signature, TensorSpec

_CLASS = "TritonPythonModel"
_numbers = count(1)


@dataclass(frozen=True)
class PythonModel:
    """An instance of a ``TritonPythonModel``.

    Attributes:
        instance: It, initialized.
        signature: What it is to take and to answer.
        file: Its file, for messages.
        root: Directory that its lines are shown relative to.
        away: A directory that holds none of its files, as a server's working directory does.
    """

    instance: Any
    signature: Signature
    file: str
    root: Path
    away: Path

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        """Return the answer to one request.

        Raises:
            SourceError: The code raised, answered with an error, or not with what is declared.
        """
        return self.answers([inputs])[0]

    def answers(self, requests: Sequence[Arrays]) -> list[dict[str, Array]]:
        """Return the answers to several requests, which Triton's dynamic batcher may hand over together."""
        sizes = [_sizes(inputs, self.signature) for inputs in requests]
        names = [spec.name for spec in self.signature.outputs]
        asked = [InferenceRequest([Tensor(name, a) for name, a in inputs.items()], names) for inputs in requests]
        try:
            with contextlib.chdir(self.away):
                made = self.instance.execute(asked)
        except RAISED as error:
            raise _told(user_error(error, f"execute of {self.file} failed", self.root), error) from error
        if not isinstance(made, list) or len(made) != len(requests):
            what = f"a list of {len(made)}" if isinstance(made, list) else f"a {type(made).__name__}"
            raise self._wrong(f"execute returned {what} for {len(requests)} requests", "return one response for each")
        return [self._taken(response, known) for response, known in zip(made, sizes, strict=True)]

    def _taken(self, response: object, sizes: dict[str, int]) -> dict[str, Array]:
        if not isinstance(response, InferenceResponse):
            hint = "return pb_utils.InferenceResponse(output_tensors=[…])"
            raise self._wrong(f"execute returned a {type(response).__name__} among its responses", hint)
        failure = response.error()
        if failure is not None:
            raise self._wrong(f"it answered with an error: {failure.message()}", "correct it, or the examples")
        found = {tensor.name(): as_strings(tensor.as_numpy()) for tensor in response.output_tensors()}
        return {spec.name: self._declared(spec, found, dict(sizes)) for spec in self.signature.outputs}

    def _declared(self, spec: TensorSpec, found: Mapping[str, Array], sizes: dict[str, int]) -> Array:
        if spec.name not in found:
            has = ", ".join(found) or "none"
            raise self._wrong(f"it answered without output {spec.name!r} (it has {has})", "declare what it answers")
        array = found[spec.name]
        fits = array.dtype == numpy_dtype(spec.dtype) and array.ndim == len(spec.shape)
        for size, dim in zip(array.shape, spec.shape, strict=False):
            fits &= size == (sizes.setdefault(dim, size) if isinstance(dim, str) else dim)
        if not fits:
            kind = "string" if array.dtype.kind == "O" else str(array.dtype)
            wanted = f"{spec.dtype} [{', '.join(map(str, spec.shape))}]"
            raise self._wrong(
                f"output {spec.name!r} is {kind} {list(array.shape)}, declared {wanted}"
                + (f" with {', '.join(f'{k}={v}' for k, v in sizes.items())}" if sizes else ""),
                "correct outputs: in the spec, or what the code returns: .astype(np.int64), for example",
            )
        return array

    def _wrong(self, what: str, hint: str) -> SourceError:
        return SourceError(f"{self.file}: {what}", hint, code="source.python", where=self.file)


def open_python(  # noqa: PLR0913 - all that Triton tells an instance, and where it is shown
    directory: Path,
    version: str,
    signature: Signature,
    config: dict[str, object],
    file: str,
    root: Path,
    *,
    prefix: str = "repogen_python_",
) -> PythonModel:
    """Import a ``model.py`` under a name of its own and initialize its class, as Triton does for each instance.

    Args:
        directory: Of the model; the version's directory lies in it.
        version: Name of that.
        signature: What the code is to take and to answer.
        config: Its config, as Triton would give it.
        file: Its file, for messages.
        root: Directory that its lines are shown relative to.
        prefix: Begins the name that the module is imported under.

    Raises:
        SourceError: It can't be imported, has no ``TritonPythonModel``, or that raised.
    """
    stand_in()
    path = directory / version / PYTHON_FILE
    name = f"{prefix}{next(_numbers)}"
    loader = importlib.util.spec_from_file_location(name, path)
    if loader is None or loader.loader is None:
        raise SourceError(f"{file} is no Python file", code="source.python", where=file)
    module = importlib.util.module_from_spec(loader)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))  # as the stub does: helpers may lie beside it
    arguments = {
        "model_config": json.dumps(config),
        "model_instance_kind": "CPU",
        "model_instance_name": f"{config['name']}_0_0",
        "model_instance_device_id": "0",
        "model_repository": str(directory),
        "model_version": version,
        "model_name": str(config["name"]),
    }
    try:
        with contextlib.chdir(directory):
            loader.loader.exec_module(module)
            instance = _class_in(module, file)()
            if hasattr(instance, "initialize"):
                instance.initialize(arguments)
    except SourceError:
        raise
    except RAISED as error:
        raise _told(user_error(error, f"{file} failed", root), error) from error
    return PythonModel(instance, signature, file, root, directory)


def described_config(
    name: str, signature: Signature, max_batch_size: int, parameters: Mapping[str, object]
) -> dict[str, object]:
    """Return what Python code is told of its config, as far as it is known before it is written.

    Args:
        name: Model name.
        signature: Full shapes.
        max_batch_size: 0 where a batch is yet to be measured.
        parameters: The spec's.
    """
    batched = max_batch_size > 0
    return {
        "name": name,
        "backend": "python",
        "max_batch_size": max_batch_size,
        "input": [_described(spec, batched=batched) for spec in signature.inputs],
        "output": [_described(spec, batched=batched) for spec in signature.outputs],
        "parameters": {key: {"string_value": str(value)} for key, value in parameters.items()},
    }


def _told(failure: SourceError, error: BaseException) -> SourceError:
    """Say what a server lacks when code does not find a file or a module."""
    if isinstance(error, ModuleNotFoundError):
        failure.hint = f"install {error.name!r} here, and list it under requirements:; a file of yours under data:"
    elif isinstance(error, FileNotFoundError):
        failure.hint = 'list the file under data:, and open it as Path(__file__).with_name("…")'
    return failure


def _class_in(module: object, file: str) -> type[Any]:
    found = getattr(module, _CLASS, None)
    if not isinstance(found, type) or not hasattr(found, "execute"):
        raise SourceError(
            f"{file} has no class {_CLASS} with a method execute",
            "Triton's Python backend finds the class by that name",
            code="source.python",
            where=file,
        )
    return found


def _described(spec: TensorSpec, *, batched: bool) -> dict[str, object]:
    dims, _ = config_dims(spec.shape, batched=batched)
    return {"name": spec.name, "data_type": f"TYPE_{DTYPES[spec.dtype].triton}", "dims": list(dims)}


def _sizes(inputs: Arrays, signature: Signature) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for spec in signature.inputs:
        sizes.update((d, n) for d, n in zip(spec.shape, inputs[spec.name].shape, strict=True) if isinstance(d, str))
    return sizes

"""``kind: python``: code for Triton's Python backend, run here to know what it answers."""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from repogen.errors import SourceError
from repogen.pbtxt import config_dims
from repogen.source.callables import RAISED, user_error
from repogen.source.dims import dim_ranges
from repogen.source.inputs import examples_for
from repogen.source.python_backend import InferenceRequest, InferenceResponse, Tensor, stand_in
from repogen.source.strings import as_strings
from repogen.values.layout import PYTHON_FILE
from repogen.values.source import Code, Companion, SourceModel
from repogen.values.steps import PythonArtifact
from repogen.values.tensors import DTYPES, Signature, TensorSpec, numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from repogen.spec.models import ModelSpec
    from repogen.spec.sources import PythonSource
    from repogen.values.source import Examples
    from repogen.values.tensors import Array, Arrays

_CLASS = "TritonPythonModel"
_VERSION = "1"
_numbers = count(1)


@dataclass(frozen=True)
class PythonModel:
    """An instance of a ``TritonPythonModel``.

    Attributes:
        instance: It, initialized.
        signature: What it is to take and to answer.
        file: Its file, for messages.
        root: Directory that its lines are shown relative to.
    """

    instance: Any
    signature: Signature
    file: str
    root: Path

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
            made = self.instance.execute(asked)
        except RAISED as error:
            raise user_error(error, f"execute of {self.file} failed", self.root) from error
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


def load_python(source: PythonSource, model: ModelSpec, root: Path, work_dir: Path | None = None) -> SourceModel:
    """Run the code as Triton's Python backend would, with the files beside it that it is served with.

    Raises:
        SourceError: It can't be imported, is no ``TritonPythonModel``, or answers otherwise than declared.
    """
    signature = _signature(model)
    dims, examples = dim_ranges(model.dims), examples_for(model, signature.inputs, root)
    directory = _laid_out(source, root, work_dir)
    asked = model.triton.max_batch_size
    config = described_config("model", signature, asked if isinstance(asked, int) else 0, model.triton.parameters)
    first, second = (open_python(directory, _VERSION, signature, config, source.path, root) for _ in range(2))
    _refuse_lost(first, {name: dim.example for name, dim in dims.items()}, examples)
    data = [Companion(Path(file).name, root / file) for file in source.data]
    return SourceModel(
        origin=Code(
            artifact=PythonArtifact((root / source.path).resolve(), signature, source.requirements),
            published=second,
            original=f"first instance of {source.path}",
            served="a second instance of it",
        ),
        signature=signature,
        dims=dims,
        examples=examples,
        reference=first,
        files=tuple(companion.path for companion in data),
        companions=tuple(data),
    )


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
        loader.loader.exec_module(module)
        instance = _class_in(module, file)()
        if hasattr(instance, "initialize"):
            instance.initialize(arguments)
    except SourceError:
        raise
    except RAISED as error:
        raise user_error(error, f"{file} failed", root) from error
    return PythonModel(instance, signature, file, root)


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


def _signature(model: ModelSpec) -> Signature:
    return Signature(
        tuple(TensorSpec(name, spec.dtype, tuple(spec.shape)) for name, spec in model.inputs.items()),
        tuple(TensorSpec(name, spec.dtype, tuple(spec.shape)) for name, spec in model.declared_outputs.items()),
    )


def _laid_out(source: PythonSource, root: Path, work_dir: Path | None) -> Path:
    """Return a model's directory with the code and its data in it, by links: its lines keep their place."""
    directory = Path(tempfile.mkdtemp(prefix="repogen-python-", dir=work_dir))
    version = directory / _VERSION
    version.mkdir()
    (version / PYTHON_FILE).symlink_to((root / source.path).resolve())
    for file in source.data:
        (version / Path(file).name).symlink_to((root / file).resolve())
    return directory


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


def _described(spec: TensorSpec, *, batched: bool) -> dict[str, object]:
    dims, _ = config_dims(spec.shape, batched=batched)
    return {"name": spec.name, "data_type": f"TYPE_{DTYPES[spec.dtype].triton}", "dims": list(dims)}


def _sizes(inputs: Arrays, signature: Signature) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for spec in signature.inputs:
        sizes.update((d, n) for d, n in zip(spec.shape, inputs[spec.name].shape, strict=True) if isinstance(d, str))
    return sizes


def _refuse_lost(model: PythonModel, sizes: dict[str, int], examples: Examples) -> None:
    """Refuse code that mixes up the requests which Triton hands over together.

    Raises:
        SourceError: Two requests at once are answered otherwise than one after the other.
    """
    requests = [examples(sizes, 0), examples(sizes, 1)]
    together = model.answers(requests)
    for one, answer in zip(requests, together, strict=True):
        alone = model(one)
        wrong = [name for name, array in alone.items() if not _same(array, answer[name])]
        if wrong:
            raise SourceError(
                f"{model.file}: two requests at once are answered otherwise than one by one: output {wrong[0]!r}",
                "execute gets a list of requests: answer each by itself, in order",
                code="source.python",
                where=model.file,
            )


def _same(one: Array, other: Array) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")

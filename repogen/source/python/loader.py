"""``kind: python``: code for Triton's Python backend, run here to know what it answers."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from repogen.artifacts.file_names import PYTHON_FILE
from repogen.artifacts.source import Companion, PassThroughSource, SourceModel
from repogen.artifacts.steps import PythonArtifact
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.errors import SourceError
from repogen.source.common.inputs import dim_ranges, examples_for
from repogen.source.python.model import PythonModel, described_config, open_python
from repogen.source.python.requirements import check_installed, unlisted_imports

if TYPE_CHECKING:
    from repogen.artifacts.source import Examples
    from repogen.artifacts.tensors import Array, Arrays
    from repogen.source.interface import SourceRequest
    from repogen.spec.models import ModelSpec
    from repogen.spec.sources import PythonSource

_VERSION = "1"


def load_python(request: SourceRequest[PythonSource]) -> SourceModel:
    """Run the code as Triton's Python backend would, with the files beside it that it is served with.

    Raises:
        SourceError: It can't be imported, is no ``TritonPythonModel``, or answers otherwise than declared.
    """
    source, model, root = request.options, request.model, request.root
    signature = _signature(model)
    check_installed(source.requirements)
    dims, examples = dim_ranges(model.dims), examples_for(model, signature.inputs, root)
    directory = _laid_out(source, root, request.work_dir)
    asked, batch = model.triton.max_batch_size, signature.batch_dim
    told = asked if isinstance(asked, int) else dims[batch].max if batch else 0
    config = described_config("model", signature, told, model.triton.parameters)
    first, second = (open_python(directory, _VERSION, signature, config, source.path, root) for _ in range(2))
    _refuse_lost(first, {name: dim.example for name, dim in dims.items()}, examples)
    data = [Companion(Path(file).name, root / file) for file in source.data]
    return SourceModel(
        origin=PassThroughSource(
            artifact=PythonArtifact((root / source.path).resolve(), signature, source.requirements),
            published=second,
            original=f"first instance of {source.path}",
            served="a second instance of it",
            assumed_max_batch=told,
        ),
        signature=signature,
        dims=dims,
        examples=examples,
        reference=first,
        notes=tuple(unlisted_imports(root / source.path, source)),
        files=tuple(companion.path for companion in data),
        companions=tuple(data),
    )


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


def _refuse_lost(model: PythonModel, sizes: dict[str, int], examples: Examples) -> None:
    """Refuse code that answers otherwise the second time, or mixes up requests that Triton hands over together.

    Raises:
        SourceError: It does.
    """
    requests = [examples(sizes, 0), examples(sizes, 1)]
    first, again = model(requests[0]), model(requests[0])
    if wrong := _apart(first, again):
        raise SourceError(
            f"{model.file}: the same request is answered otherwise the second time: output {wrong!r}",
            "it keeps state between requests, or draws random numbers: on a server, instances differ in both",
            code="source.python",
            where=model.file,
        )
    for one, answer in zip(requests, model.answers(requests), strict=True):
        if wrong := _apart(model(one), answer):
            raise SourceError(
                f"{model.file}: two requests at once are answered otherwise than one by one: output {wrong!r}",
                "execute gets a list of requests: answer each by itself, in order",
                code="source.python",
                where=model.file,
            )


def _apart(one: Arrays, other: Arrays) -> str:
    """Return the first output that differs; empty when none does."""
    return next((name for name, array in one.items() if not _same(array, other[name])), "")


def _same(one: Array, other: Array) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")

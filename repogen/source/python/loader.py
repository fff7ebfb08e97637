"""Loads code for Triton's Python backend and checks that its responses are reproducible."""

from __future__ import annotations

import ast
import importlib.metadata
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from packaging.utils import canonicalize_name

from repogen.artifacts.file_names import PYTHON_FILE
from repogen.artifacts.source import Companion, PassThroughSource, SourceModel
from repogen.artifacts.steps import PythonArtifact
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.errors import SourceError
from repogen.source.common.inputs import dim_ranges, examples_for
from repogen.source.common.search_path import own_file
from repogen.source.python.backend_utils import MODULE
from repogen.source.python.model import PythonCode, PythonModel, model_config, open_python
from repogen.source.python.requirements import check_installed, requirement_name
from repogen.spec.python_names import parse_code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.artifacts.source import Examples
    from repogen.artifacts.tensors import Array, Arrays
    from repogen.source.interface import SourceRequest
    from repogen.spec.models import ModelSpec
    from repogen.spec.sources import PythonSource

_VERSION = "1"
_BACKEND_PACKAGES = frozenset({"numpy", MODULE, "c_python_backend_utils"})
"""Packages that Triton's Python backend provides."""


def load_python(request: SourceRequest[PythonSource]) -> SourceModel:
    """Run the code as Triton's Python backend does, in a directory with the data files that it is served with.

    Args:
        request: The code, its data files and requirements; the spec entry declares inputs and outputs.

    Raises:
        SourceError: The code cannot be imported, has no ``TritonPythonModel``, or its outputs do not match the
            declaration. Or another user may have created it.
    """
    source, model, root = request.options, request.model, request.root
    for file in (source.path, *source.data):  # data can be modules that the code imports
        own_file(root / file, root)
    signature = _signature(model)
    check_installed(source.requirements)
    dims, examples = dim_ranges(model.dims), examples_for(model, signature.inputs, root)
    requested_size, batch_dim = model.triton.max_batch_size, signature.batch_dim
    default = dims[batch_dim].max if batch_dim else 0
    max_batch_size = requested_size if isinstance(requested_size, int) else default
    code = PythonCode(
        directory=_model_directory(source, root, request.work_dir),
        version=_VERSION,
        signature=signature,
        config=model_config("model", signature, max_batch_size, model.triton.parameters),
        file=source.path,
        root=root,
    )
    first, second = open_python(code), open_python(code)
    _check_reproducible(first, {name: dim.example for name, dim in dims.items()}, examples)
    data = tuple(Companion(Path(file).name, root / file, root.resolve()) for file in source.data)
    return SourceModel(
        origin=PassThroughSource(
            artifact=PythonArtifact((root / source.path).resolve(), signature, source.requirements),
            published=second,
            original=f"first instance of {source.path}",
            served=f"the second instance of {source.path}",
            assumed_max_batch=max_batch_size,
        ),
        signature=signature,
        dims=dims,
        examples=examples,
        reference=first,
        notes=tuple(unlisted_imports(root / source.path, source)),
        files=tuple(companion.path for companion in data),
        companions=data,
    )


def _signature(model: ModelSpec) -> Signature:
    return Signature(
        tuple(TensorSpec(name, spec.dtype, tuple(spec.shape)) for name, spec in model.inputs.items()),
        tuple(TensorSpec(name, spec.dtype, tuple(spec.shape)) for name, spec in model.declared_outputs.items()),
    )


def _model_directory(source: PythonSource, root: Path, work_dir: Path | None) -> Path:
    """Create a model directory with links to the code and its data; tracebacks show the original file."""
    directory = Path(tempfile.mkdtemp(prefix="repogen-python-", dir=work_dir))
    version = directory / _VERSION
    version.mkdir()
    (version / PYTHON_FILE).symlink_to((root / source.path).resolve())
    for file in source.data:
        (version / Path(file).name).symlink_to((root / file).resolve())
    return directory


def _check_reproducible(model: PythonModel, sizes: dict[str, int], examples: Examples) -> None:
    """Check that a repeated request, and requests in one batch, return the same outputs.

    Raises:
        SourceError: They do not.
    """
    requests = [examples(sizes, 0), examples(sizes, 1)]
    if name := _first_difference(model(requests[0]), model(requests[0])):
        raise SourceError(
            f"{model.code.file}: output {name!r} differs when the same request is sent twice",
            "remove random numbers, and state that is kept between requests: both differ between server instances",
            code="source.python",
            where=model.code.file,
        )
    for request, response in zip(requests, model.responses(requests), strict=True):
        if name := _first_difference(model(request), response):
            raise SourceError(
                f"{model.code.file}: output {name!r} differs when two requests are executed together",
                "execute receives a list of requests: return one response for each, in order",
                code="source.python",
                where=model.code.file,
            )


def _first_difference(expected: Arrays, actual: Arrays) -> str:
    """Return the name of the first output that differs; empty when all are equal."""
    return next((name for name, array in expected.items() if not _equal(array, actual[name])), "")


def _equal(expected: Array, actual: Array) -> bool:
    return np.array_equal(expected, actual, equal_nan=expected.dtype.kind == "f")


def unlisted_imports(path: Path, source: PythonSource) -> Iterator[str]:
    """Yield a note with the imports that are neither part of Triton's Python backend nor in ``requirements``."""
    provided = {*_BACKEND_PACKAGES, *sys.stdlib_module_names, *(Path(file).stem for file in source.data)}
    listed_names = {canonicalize_name(requirement_name(requirement)) for requirement in source.requirements}
    distributions = importlib.metadata.packages_distributions()
    unlisted = [
        name
        for name in sorted(_imported_packages(path) - provided)
        # a package that is not installed here usually has the name of its distribution
        if not {canonicalize_name(distribution) for distribution in distributions.get(name, (name,))} & listed_names
    ]
    if len(unlisted) == 1:
        yield f"{source.path} imports {unlisted[0]}, which is not in requirements: it must be installed on the server"
    elif unlisted:
        names = f"{', '.join(unlisted[:-1])} and {unlisted[-1]}"
        yield f"{source.path} imports {names}, which are not in requirements: they must be installed on the server"


def _imported_packages(path: Path) -> set[str]:
    """Return the top-level packages that a file imports, at any level of the code.

    Raises:
        OSError, SyntaxError, ValueError: As ``parse_code``.
    """
    names: set[str] = set()
    for node in ast.walk(parse_code(path)):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names

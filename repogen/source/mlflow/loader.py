"""Loads a model's files, which were downloaded from MLflow before the worker started."""

from __future__ import annotations

import inspect
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import BaseModel, ConfigDict, FailFast, Field, TypeAdapter, ValidationError

from repogen.artifacts.tensors import DTYPES
from repogen.errors import SourceError, first_line
from repogen.files import is_inside
from repogen.files.content import ContentError, read_text
from repogen.source.common.call import named_call
from repogen.source.common.callables import RAISED, user_error
from repogen.source.common.formats import is_script
from repogen.source.common.graph_inputs import GraphInput, Limits, find_graph_inputs
from repogen.source.common.inputs import find_inputs
from repogen.source.common.search_path import add_to_search_path
from repogen.source.onnx.loader import load_onnx
from repogen.source.torch.eager import source_from_module
from repogen.source.torch.exported_program import load_program
from repogen.source.torch.loader import in_either_precision, load_torchscript
from repogen.source.torch.module import prepare, require_module
from repogen.spec.document import compose, data
from repogen.spec.sources import OnnxSource, TorchExportSource, TorchScriptSource

if TYPE_CHECKING:
    from repogen.artifacts.source import SourceModel
    from repogen.source.common.call import Parameters
    from repogen.source.common.inputs import Inputs
    from repogen.source.interface import SourceRequest
    from repogen.spec.models import ModelSpec
    from repogen.spec.sources import MlflowSource

_MLMODEL = "MLmodel"
_MAX_NAME_BYTES = 255  # of Linux
_MAX_MODEL_FILE_BYTES = 2**22  # the signature of a table with thousands of columns is part of the file


class _OnnxFlavor(BaseModel):
    data: str = "model.onnx"


class _PytorchFlavor(BaseModel):
    data: str = Field(default="data", validation_alias="model_data")
    code: str | None = None


class _Flavors(BaseModel):
    """The flavors of a model; those that repogen cannot load are kept by name."""

    model_config = ConfigDict(extra="allow")

    onnx: _OnnxFlavor | None = None
    pytorch: _PytorchFlavor | None = None


class _LoggedSignature(BaseModel):
    """The signature that was logged with a model; ``inputs`` is JSON in a string."""

    inputs: str | None = None


class _ModelFile(BaseModel):
    """The part of a file ``MLmodel`` that repogen reads; source: mlflow.models.Model of MLflow 3."""

    flavors: _Flavors
    signature: _LoggedSignature | None = None


class _TensorType(BaseModel):
    dtype: str
    shape: list[int]


class _LoggedInput(BaseModel):
    """One input of a logged signature; ``tensor`` is None for columns of a table."""

    name: str | None = None
    tensor: _TensorType | None = Field(default=None, validation_alias="tensor-spec")


_LOGGED_INPUTS: TypeAdapter[list[_LoggedInput]] = TypeAdapter(Annotated[list[_LoggedInput], FailFast()])


def load_mlflow(request: SourceRequest[MlflowSource]) -> SourceModel:
    """Load a model by its flavor: onnx, or pytorch as a program, a TorchScript archive or a trusted pickle.

    Args:
        request: The model; ``fetched`` is the directory of its downloaded files.

    Raises:
        SourceError: The model has neither flavor, is a pickle that is not trusted, or cannot be loaded.
    """
    source, fetched = request.options, request.fetched or request.root
    model_file = _read_model_file(fetched, source.uri)
    flavors = model_file.flavors
    if flavors.onnx is not None:
        path = _path_inside(fetched, flavors.onnx.data, source.uri)
        source_model = load_onnx(request.with_options(OnnxSource(kind="onnx", path=str(path))))
    elif flavors.pytorch is not None:
        source_model = _load_pytorch(fetched, model_file, request)
    else:
        flavor_names = ", ".join(sorted(flavors.model_fields_set)) or "none"
        raise SourceError(
            f"{source.uri} has no onnx or pytorch flavor; it has {flavor_names}",
            "log it with mlflow.onnx.log_model or mlflow.pytorch.log_model",
            code="source.mlflow",
            where=source.uri,
        )
    # The downloaded files are deleted after the build; the version in the URI identifies them.
    return replace(source_model, files=(), notes=(f"downloaded from MLflow: {source.uri}", *source_model.notes))


def _read_model_file(fetched: Path, uri: str) -> _ModelFile:
    """Read the file MLmodel; a directory with one ONNX file and no MLmodel is treated as an onnx flavor."""
    path = fetched / _MLMODEL
    if path.is_file():
        try:
            # within the limits of a spec; values that a spec could not contain are ignored unless repogen needs them
            root, problems = compose(read_text(path, _MAX_MODEL_FILE_BYTES), _MLMODEL)
            if root is None and problems:
                raise ContentError(problems[-1].what)  # noqa: TRY301 - reported like the others
            return _ModelFile.model_validate(None if root is None else data(root))
        except (OSError, ContentError, ValidationError) as error:
            raise _unreadable_error(uri, _reason(error)) from error
    graphs = [file.name for file in fetched.glob("*.onnx")]
    if len(graphs) == 1:
        return _ModelFile(flavors=_Flavors(onnx=_OnnxFlavor(data=graphs[0])))
    raise SourceError(
        f"{uri} is not a model: it has no file {_MLMODEL}",
        "specify the directory that log_model wrote",
        code="source.mlflow",
        where=uri,
    )


def _reason(error: BaseException) -> str:
    if not isinstance(error, ValidationError):
        return first_line(error)
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'content'}: {first['msg']}"


def _unreadable_error(uri: str, reason: str) -> SourceError:
    return SourceError(
        f"the file {_MLMODEL} of {uri} cannot be read: {reason}", "log the model again", code="source.mlflow", where=uri
    )


def _path_inside(fetched: Path, name: str, uri: str) -> Path:
    """Return the path of a file or directory in the model's directory.

    Raises:
        SourceError: The path leads out of the directory, or no file can have it.
    """
    relative = PurePosixPath(name)
    if "\0" in name or any(len(os.fsencode(part)) > _MAX_NAME_BYTES for part in relative.parts):
        raise _unreadable_error(uri, f"{name!r:.60} is not the path of a file")
    path = fetched / name
    outside = relative.is_absolute() or ".." in relative.parts
    if outside or not is_inside(path, fetched):
        raise _unreadable_error(uri, f"the path {name!r} leads out of the model's directory")
    return path


_MODEL_FILES = ("model.pt2", "model.pth")


def _load_pytorch(fetched: Path, model_file: _ModelFile, request: SourceRequest[MlflowSource]) -> SourceModel:
    source = request.options
    flavor = model_file.flavors.pytorch or _PytorchFlavor()
    data = _path_inside(fetched, flavor.data, source.uri)
    program, pickled = (_path_inside(fetched, f"{flavor.data}/{file}", source.uri) for file in _MODEL_FILES)
    if program.is_file():
        return load_program(request.with_options(TorchExportSource(kind="torch_export", path=str(program))))
    if not pickled.is_file():
        raise _unreadable_error(source.uri, f"{data.name} has no {pickled.name}")
    if is_script(pickled):
        return load_torchscript(request.with_options(TorchScriptSource(kind="torchscript", path=str(pickled))))
    if not source.trust_pickle:
        raise SourceError(
            f"{source.uri} is a pickled module, and loading it can run any code",
            "log it as a program: mlflow.pytorch.log_model(…, serialization_format='pt2'), or as ONNX; or, if you "
            "trust its author, set trust_pickle: true",
            code="source.weights-unsafe",
            where=source.uri,
        )
    if flavor.code:
        sys.path.insert(0, str(_path_inside(fetched, flavor.code, source.uri)))
    return in_either_precision(partial(_load_pickle, pickled, model_file.signature, request))


def _load_pickle(
    path: Path, signature: _LoggedSignature | None, request: SourceRequest[MlflowSource], *, keep_bfloat16: bool
) -> SourceModel:
    source, model, root = request.options, request.model, request.root
    add_to_search_path(root.resolve())
    try:
        unpickled = torch.load(path, map_location="cpu", weights_only=False)  # trusted by source.trust_pickle
    except RAISED as error:
        raise user_error(error, f"unpickling {source.uri} failed", root) from error
    module, module_notes = prepare(require_module(unpickled, source.uri), None, keep_bfloat16=keep_bfloat16)
    source_model = source_from_module(module, _inputs(module, signature, source.uri, model, root), model, root)
    note = "the module was unpickled, as source.trust_pickle allows"
    return replace(source_model, notes=(note, *module_notes, *source_model.notes))


def _inputs(
    module: torch.nn.Module, signature: _LoggedSignature | None, uri: str, model: ModelSpec, root: Path
) -> Inputs:
    """Return the inputs that the spec declares, or else those of the logged signature."""
    parameters = inspect.signature(module.forward).parameters
    if model.inputs or model.examples is not None:
        return find_inputs(model, root, parameters)
    graph = _graph_inputs(signature, uri, parameters)
    if not graph:
        raise SourceError(
            "the model was logged without a signature of tensors, so its inputs are unknown",
            "declare inputs: {name: {dtype: …, shape: […]}}, or give examples:",
            code="source.inputs-missing",
        )
    inputs = find_graph_inputs(graph, model, root, None)
    return inputs.with_call(named_call(parameters, tuple(spec.name for spec in inputs.specs)))


def _graph_inputs(signature: _LoggedSignature | None, uri: str, parameters: Parameters) -> tuple[GraphInput, ...]:
    """Return the tensors of a logged signature; empty when some inputs are not numeric tensors.

    Tensors without a name get the names of the forward's parameters.

    Raises:
        SourceError: The signature is damaged.
    """
    if signature is None or signature.inputs is None:
        return ()
    try:
        logged = _LOGGED_INPUTS.validate_json(signature.inputs)
    except ValidationError as error:
        raise _unreadable_error(uri, f"signature.inputs: {_reason(error)}") from error
    if len(logged) > len(parameters):
        return ()
    inputs = []
    for entry, parameter in zip(logged, parameters, strict=False):
        if entry.tensor is None or entry.tensor.dtype not in DTYPES or entry.tensor.dtype == "string":
            return ()
        name = entry.name or parameter
        shape = enumerate(entry.tensor.shape)
        dims = (Limits(f"?{name}:{axis}" if axis else "?") if size < 0 else size for axis, size in shape)
        inputs.append(GraphInput(name, entry.tensor.dtype, tuple(dims)))
    return tuple(inputs)

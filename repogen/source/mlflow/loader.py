"""``kind: mlflow``: the files of a model that MLflow keeps, downloaded before the worker began."""

from __future__ import annotations

import inspect
import json
import sys
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import torch
import yaml

from repogen.artifacts.tensors import DTYPES
from repogen.errors import SourceError
from repogen.source.common.call import named_call
from repogen.source.common.callables import RAISED, user_error
from repogen.source.common.formats import is_script
from repogen.source.common.graph_inputs import GraphInput, Limits, find_graph_inputs
from repogen.source.common.inputs import find_inputs
from repogen.source.onnx.loader import load_onnx
from repogen.source.torch.eager import source_from_module
from repogen.source.torch.exported_program import load_program
from repogen.source.torch.loader import load_torchscript
from repogen.source.torch.module import prepare, require_module
from repogen.spec.sources import OnnxSource, TorchExportSource, TorchScriptSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repogen.artifacts.source import SourceModel
    from repogen.source.common.call import Parameters
    from repogen.source.common.inputs import Inputs
    from repogen.source.interface import SourceRequest
    from repogen.spec.models import ModelSpec
    from repogen.spec.sources import MlflowSource

_MLMODEL = "MLmodel"


def load_mlflow(request: SourceRequest[MlflowSource]) -> SourceModel:
    """Load a model by its flavor: onnx, or pytorch as a program, a TorchScript archive or, when trusted, a pickle.

    Args:
        request: Which version; ``fetched`` is the directory of its files.

    Raises:
        SourceError: It has neither flavor, is a pickle that is not trusted, or is not usable.
    """
    source, fetched = request.options, request.fetched or request.root
    about = _mlmodel(fetched, source.uri)
    flavors = about.get("flavors", {})
    if "onnx" in flavors:
        path = _inside(fetched, str(flavors["onnx"].get("data", "model.onnx")), source.uri)
        made = load_onnx(request.with_options(OnnxSource(kind="onnx", path=str(path))))
    elif "pytorch" in flavors:
        made = _load_pytorch(fetched, about, request)
    else:
        raise SourceError(
            f"{source.uri} has no onnx or pytorch flavor; it has {', '.join(sorted(flavors)) or 'none'}",
            "log it with mlflow.onnx.log_model or mlflow.pytorch.log_model",
            code="source.mlflow",
            where=source.uri,
        )
    # The files are gone after the build; the version in the URI stands for them.
    return replace(made, files=(), notes=(f"downloaded from MLflow: {source.uri}", *made.notes))


def _mlmodel(fetched: Path, uri: str) -> dict[str, Any]:
    """Return what the file MLmodel says; an ONNX file by itself is its own."""
    path = fetched / _MLMODEL
    if path.is_file():
        try:
            about = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise _unreadable(uri, str(error)) from error
        if isinstance(about, dict) and isinstance(about.get("flavors"), dict):
            return about
        raise _unreadable(uri, "it lists no flavors")
    graphs = [file.name for file in fetched.glob("*.onnx")]
    if len(graphs) == 1:
        return {"flavors": {"onnx": {"data": graphs[0]}}}
    raise SourceError(
        f"{uri} is no model: it has no file {_MLMODEL}",
        "name the directory that log_model wrote",
        code="source.mlflow",
        where=uri,
    )


def _unreadable(uri: str, why: str) -> SourceError:
    return SourceError(
        f"the file {_MLMODEL} of {uri} can't be read: {why}", "log the model again", code="source.mlflow", where=uri
    )


def _inside(fetched: Path, name: str, uri: str) -> Path:
    parts = PurePosixPath(name)
    path = fetched / name
    if parts.is_absolute() or ".." in parts.parts or not path.resolve().is_relative_to(fetched.resolve()):
        raise _unreadable(uri, f"its data {name!r} lies outside of it")
    return path


def _load_pytorch(fetched: Path, about: Mapping[str, Any], request: SourceRequest[MlflowSource]) -> SourceModel:
    source = request.options
    data = _inside(fetched, str(about["flavors"]["pytorch"].get("model_data", "data")), source.uri)
    program, pickled = data / "model.pt2", data / "model.pth"
    if program.is_file():
        return load_program(request.with_options(TorchExportSource(kind="torch_export", path=str(program))))
    if not pickled.is_file():
        raise _unreadable(source.uri, f"there is no {pickled.name} in {data.name}")
    if is_script(pickled):
        return load_torchscript(request.with_options(TorchScriptSource(kind="torchscript", path=str(pickled))))
    if not source.trust_pickle:
        raise SourceError(
            f"{source.uri} is a pickled module, and loading it runs whatever code is in it",
            "log it as a program: mlflow.pytorch.log_model(…, serialization_format='pt2'), or as ONNX; or, if you "
            "trust who logged it, write trust_pickle: true",
            code="source.weights-unsafe",
            where=source.uri,
        )
    return _load_pickle(pickled, about, source, request.model, request.root)


def _load_pickle(
    path: Path, about: Mapping[str, Any], source: MlflowSource, model: ModelSpec, root: Path
) -> SourceModel:
    code = about["flavors"]["pytorch"].get("code")
    for place in (path.parent.parent / code,) if code else ():
        sys.path.insert(0, str(place))
    sys.path.insert(0, str(root.resolve()))
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=False)  # the spec says that it is trusted
    except RAISED as error:
        raise user_error(error, f"unpickling {source.uri} failed", root) from error
    module, done = prepare(require_module(loaded, source.uri), None)
    made = source_from_module(module, _inputs(module, about, model, root), model, root)
    trusted = "the module was unpickled, as source.trust_pickle allows"
    return replace(made, notes=(trusted, *done, *made.notes))


def _inputs(module: torch.nn.Module, about: Mapping[str, Any], model: ModelSpec, root: Path) -> Inputs:
    """Return the inputs that the spec declares, or else those of the signature that was logged."""
    parameters = inspect.signature(module.forward).parameters
    if model.inputs or model.examples is not None:
        return find_inputs(model, root, parameters)
    logged = _logged_inputs(about, parameters)
    if not logged:
        raise SourceError(
            "the model was logged without a signature of tensors, so its inputs are not known",
            "declare inputs: {name: {dtype: …, shape: […]}}, or give examples:",
            code="source.inputs-missing",
        )
    found = find_graph_inputs(logged, model, root, None)
    return found.with_call(named_call(parameters, tuple(spec.name for spec in found.specs)))


def _logged_inputs(about: Mapping[str, Any], parameters: Parameters) -> tuple[GraphInput, ...]:
    """Return the tensors of MLflow's signature; those without a name are called like the forward's parameters."""
    written = (about.get("signature") or {}).get("inputs")
    columns = json.loads(written) if isinstance(written, str) else []
    tensors = [column for column in columns if column.get("type") == "tensor"]
    if len(tensors) != len(columns) or len(tensors) > len(parameters):
        return ()
    inputs = []
    for column, parameter in zip(tensors, parameters, strict=False):
        dtype, shape = column["tensor-spec"]["dtype"], column["tensor-spec"]["shape"]
        if dtype not in DTYPES or dtype == "string":
            return ()
        name = column.get("name") or parameter
        dims = (Limits(f"?{name}:{n}" if n else "?") if size < 0 else size for n, size in enumerate(shape))
        inputs.append(GraphInput(name, dtype, tuple(dims)))
    return tuple(inputs)

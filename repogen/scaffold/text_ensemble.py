"""Describes an ensemble for text in a Hugging Face directory: text in, a label with its score, or a vector out."""

from __future__ import annotations

import importlib.metadata
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pydantic import BaseModel, TypeAdapter

from repogen.errors import RepogenError, SpecError
from repogen.files import is_file, is_inside, read_bytes
from repogen.files.paths import real_path
from repogen.scaffold.description import CopiedFile, ModelDescription, SpecDescription, flow, model_name
from repogen.source.huggingface.checkpoint import CONFIG, ConfigFile, read_json
from repogen.spec.models import ModelSpec
from repogen.spec.problems import printable
from repogen.worker.inspection import InspectionJob, inspect
from repogen.worker.requirements import require_installed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from repogen.artifacts.tensors import Signature

    Render = Callable[[str, Mapping[str, object]], str]

_TOKENIZER = "tokenizer.json"
_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_BATCH = "dims: {batch: {min: 1, max: 32}}"
_SERVING = "triton: {max_batch_size: 32, dynamic_batching: {max_queue_delay_microseconds: 1000}}"
_VECTORS = "last_hidden_state"


class _Padding(BaseModel):
    """The part of tokenizer.json that describes padding."""

    pad_id: int = 0
    pad_token: str = "[PAD]"  # noqa: S105 - a token of text


class _Tokens(BaseModel):
    """The part of config.json and tokenizer.json that describes padding."""

    pad_token_id: int | None = None
    padding: _Padding | None = None


class _Pooling(BaseModel):
    """The part of 1_Pooling/config.json, which sentence-transformers writes, that is supported."""

    pooling_mode_cls_token: bool = False
    pooling_mode_mean_tokens: bool = True


class _Module(BaseModel):
    """An entry of modules.json, which sentence-transformers writes."""

    type: str


_MODULES = TypeAdapter(list[_Module])
_MAX_MODULES = 2**16
"""Bytes of modules.json."""
_MAX_TOKENIZER_VALUES = 4_000_000
"""A vocabulary has hundreds of thousands of tokens, and as many merges of two."""


@dataclass(frozen=True)
class _TextModel:
    """What loading the model showed.

    Attributes:
        directory: The directory that ``save_pretrained`` wrote.
        path: The same, relative to the spec.
        base: Name of the ensemble.
        inputs: Inputs of the encoder.
        output: Its output that the last step reads.
        width: Size of the output's last axis: the number of classes, or of the elements of a vector.
        max_tokens: Largest number of tokens.
        tokenizers: Version of the package.
    """

    directory: Path
    path: str
    base: str
    inputs: tuple[str, ...]
    output: str
    width: int
    max_tokens: int
    tokenizers: str

    @property
    def classifies(self) -> bool:
        """Whether the last step selects a label."""
        return self.output != _VECTORS


def describe_text_ensemble(path: Path, directory: Path, name: str | None, render: Render) -> SpecDescription:
    """Describe a tokenizer step, the encoder, a step for labels or for one vector per text, and their ensemble.

    The model is loaded once, in a process of its own, to find its inputs and outputs.

    Args:
        path: The directory that ``save_pretrained`` wrote.
        directory: Directory of the new spec.
        name: Name of the ensemble; None for that of the directory.
        render: Returns the text of a template.

    Raises:
        SpecError: It is not a model of text with a tokenizer.json, or the model cannot be loaded.
        MissingExtraError: torch, transformers or another package is not installed.
    """
    root = real_path(path)
    _require_files(path)
    model = _inspected(path, directory, name or model_name(path.resolve().name))
    padding = _padding(path)
    values: dict[str, object] = {
        "max_tokens": model.max_tokens,
        "pad_id": padding.pad_id,
        "pad_token": repr(padding.pad_token),
        "inputs": repr(model.inputs),
        "classes": model.width,
        "width": model.width,
    }
    comments: tuple[str, ...] = ()
    if not model.classifies:
        values |= _pooling(path)
        if not is_file(path / "1_Pooling" / CONFIG):
            comments = (
                "CHECK pooling.py: the directory does not specify how to pool tokens, so it computes their mean.",
            )
    steps = ("tokenizer", "labels" if model.classifies else "pooling", "examples")
    files = {f"{step}.py": render(f"{step}.py.j2", values) for step in steps}
    tokenizer, last = _tokenizer(model), _labels(model) if model.classifies else _pooling_step(model)
    if not is_inside(path, directory):  # files that are published must be in the spec's directory
        tokenizer = _with_copy(tokenizer, CopiedFile(path / _TOKENIZER, path, root))
        last = _with_copy(last, CopiedFile(path / CONFIG, path, root)) if model.classifies else last
    return SpecDescription((tokenizer, _encoder(model), last, _ensemble(model, comments)), files=files)


def _inspected(path: Path, directory: Path, base: str) -> _TextModel:
    """Load the model.

    Raises:
        SpecError: It cannot be loaded, or is not a model of text with a supported output.
    """
    relative = os.path.relpath(path, directory)
    model = ModelSpec.model_validate({"source": {"kind": "huggingface", "model": relative}})
    require_installed([model])
    try:
        inspection = inspect(InspectionJob(model, directory.resolve()))
        version = importlib.metadata.version("tokenizers")
    except (RepogenError, importlib.metadata.PackageNotFoundError) as error:
        raise SpecError(f"{path} cannot be loaded: {error}", "see the message", code="init.from") from error
    inputs = tuple(tensor.name for tensor in inspection.signature.inputs)
    outputs = _widths(inspection.signature)
    output = next((name for name in ("logits", _VECTORS) if name in outputs), None)
    if not set(inputs) <= _INPUTS or output is None:
        returned = ", ".join(tensor.name for tensor in inspection.signature.outputs)
        raise _unsupported(path, f"its inputs are {', '.join(inputs)}, its outputs {returned}")
    longest = inspection.dims.get("sequence", (1, 512))[1]
    return _TextModel(path, relative, base, inputs, output, outputs[output], longest, version)


def _with_copy(step: ModelDescription, file: CopiedFile) -> ModelDescription:
    """Return a step whose data is a copy of a file."""
    return replace(step, source={**step.source, "data": [file.path.name]}, copies={file.path.name: file})


def _tokenizer(model: _TextModel) -> ModelDescription:
    ids = (f"  {name}: {{dtype: int64, shape: [batch, sequence]}}" for name in model.inputs)
    return ModelDescription(
        f"{model.base}_tokenizer",
        {
            "kind": "python",
            "path": "tokenizer.py",
            "data": [f"{model.path}/{_TOKENIZER}"],
            "requirements": [f"tokenizers=={model.tokenizers}"],
        },
        keys=(
            "inputs:",
            "  text: {dtype: string, shape: [batch, 1]}",
            'examples: "examples.py:texts" # CHECK: replace the texts with real ones',
            "outputs:",
            *ids,
            _BATCH,
        ),
    )


def _encoder(model: _TextModel) -> ModelDescription:
    dims = f"dims: {{batch: {{min: 1, max: 32}}, sequence: {{min: 1, max: {model.max_tokens}}}}}"
    outputs = () if model.classifies else (f"outputs: {flow([model.output])}",)
    source: dict[str, object] = {"kind": "huggingface", "model": model.path}
    return ModelDescription(f"{model.base}_encoder", source, keys=(*outputs, dims, _SERVING))


def _labels(model: _TextModel) -> ModelDescription:
    return ModelDescription(
        f"{model.base}_labels",
        {"kind": "python", "path": "labels.py", "data": [f"{model.path}/{CONFIG}"]},
        keys=(
            "inputs:",
            f"  logits: {{dtype: float32, shape: [batch, {model.width}]}}",
            "outputs:",
            "  label: {dtype: string, shape: [batch, 1]}",
            "  score: {dtype: float32, shape: [batch, 1]}",
            _BATCH,
        ),
    )


def _pooling_step(model: _TextModel) -> ModelDescription:
    return ModelDescription(
        f"{model.base}_pooling",
        {"kind": "python", "path": "pooling.py"},
        keys=(
            "inputs:",
            f"  {_VECTORS}: {{dtype: float32, shape: [batch, sequence, {model.width}]}}",
            "  attention_mask: {dtype: int64, shape: [batch, sequence], range: [0, 1]}",
            "outputs:",
            f"  embedding: {{dtype: float32, shape: [batch, {model.width}]}}",
            f"dims: {{batch: {{min: 1, max: 32}}, sequence: {{min: 1, max: {model.max_tokens}}}}}",
        ),
    )


def _ensemble(model: _TextModel, comments: tuple[str, ...]) -> ModelDescription:
    results = ("label", "score") if model.classifies else ("embedding",)
    last_inputs = (model.output,) if model.classifies else (model.output, "attention_mask")
    steps = [
        (f"{model.base}_tokenizer", ("text",), model.inputs),
        (f"{model.base}_encoder", model.inputs, (model.output,)),
        (f"{model.base}_{'labels' if model.classifies else 'pooling'}", last_inputs, results),
    ]
    entries = [
        {"model": name, "inputs": {each: each for each in inputs}, "outputs": {each: each for each in outputs}}
        for name, inputs, outputs in steps
    ]
    purpose = "Text in, label out." if model.classifies else "Text in, one vector per text out."
    keys = (f"outputs: {flow(list(results))}",)
    return ModelDescription(model.base, {"kind": "ensemble", "steps": entries}, (purpose, *comments), keys)


def _require_files(path: Path) -> None:
    if not is_file(path / CONFIG):
        raise SpecError(f"{path} has no {CONFIG}", "specify the directory that save_pretrained wrote", code="init.from")
    names = ", ".join(read_json(path / CONFIG, ConfigFile).architectures or ()) or "not specified"
    if not names.endswith(("ForSequenceClassification", "Model")):
        raise _unsupported(path, f"its architecture is {printable(names)}")
    if not is_file(path / _TOKENIZER):
        raise SpecError(
            f"{path} has no {_TOKENIZER}", "save the fast tokenizer: AutoTokenizer.save_pretrained", code="init.from"
        )


def _unsupported(path: Path, reason: str) -> SpecError:
    return SpecError(
        "--ensemble requires a text classifier (…ForSequenceClassification) or a text encoder (…Model), "
        f"but {path} is not one: {reason}",
        "leave out --ensemble, and write the steps yourself: see the guide to ensembles",
        code="init.from",
    )


def _widths(signature: Signature) -> dict[str, int]:
    """Return the size of the last axis of ``logits`` [batch, classes] and of vectors [batch, sequence, width]."""
    ranks = {"logits": 2, _VECTORS: 3}
    shapes = {tensor.name: tensor.shape for tensor in signature.outputs if len(tensor.shape) == ranks.get(tensor.name)}
    return {name: size for name, shape in shapes.items() if isinstance(size := shape[-1], int)}


def _pooling(path: Path) -> dict[str, object]:
    """Return how tokens are reduced to one vector, as sentence-transformers describes it; by default, their mean.

    Raises:
        SpecError: In another way.
    """
    file, modules = path / "1_Pooling" / CONFIG, path / "modules.json"
    pooling = read_json(file, _Pooling) if is_file(file) else _Pooling()
    if pooling.pooling_mode_cls_token == pooling.pooling_mode_mean_tokens:
        raise _unsupported(path, f"{file.relative_to(path)} does not use pooling_mode_mean_tokens")
    try:
        types = (
            [module.type for module in _MODULES.validate_json(read_bytes(modules, _MAX_MODULES))]
            if is_file(modules)
            else []
        )
    except (OSError, ValueError) as error:
        raise _unsupported(path, f"modules.json cannot be read: {error}") from error
    return {
        "pooling": "mean" if pooling.pooling_mode_mean_tokens else "first",
        "normalize": any(name.endswith(".Normalize") for name in types),
    }


def _padding(path: Path) -> _Padding:
    padding = read_json(path / _TOKENIZER, _Tokens, _MAX_TOKENIZER_VALUES).padding
    if padding is not None:
        return padding
    pad_id = read_json(path / CONFIG, _Tokens).pad_token_id
    return _Padding(pad_id=pad_id or 0)

"""Describes an ensemble for a text classifier in a Hugging Face directory: text in, label and score out."""

from __future__ import annotations

import importlib.metadata
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import BaseModel

from repogen.errors import RepogenError, SpecError
from repogen.files import is_inside
from repogen.scaffold.description import ModelDescription, SpecDescription, flow, model_name
from repogen.source.huggingface.checkpoint import CONFIG, ConfigFile, read_json
from repogen.spec.models import ModelSpec
from repogen.worker.inspection import InspectionJob, inspect
from repogen.worker.requirements import require_installed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from repogen.artifacts.tensors import Signature

_TOKENIZER = "tokenizer.json"
_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_BATCH = "dims: {batch: {min: 1, max: 32}}"
_SERVING = "triton: {max_batch_size: 32, dynamic_batching: {max_queue_delay_microseconds: 1000}}"


class _Padding(BaseModel):
    """The part of tokenizer.json that describes padding."""

    pad_id: int = 0
    pad_token: str = "[PAD]"  # noqa: S105 - a token of text


class _Tokens(BaseModel):
    """The part of config.json and tokenizer.json that describes padding."""

    pad_token_id: int | None = None
    padding: _Padding | None = None


def describe_text_ensemble(
    path: Path, directory: Path, name: str | None, render: Callable[[str, Mapping[str, object]], str]
) -> SpecDescription:
    """Describe a tokenizer step, the encoder, a labels step, and the ensemble of the three.

    The model is loaded once, in a process of its own, to find its inputs and its number of classes.

    Args:
        path: The directory that ``save_pretrained`` wrote.
        directory: Directory of the new spec.
        name: Name of the ensemble; None for that of the directory.
        render: Returns the text of a template.

    Raises:
        SpecError: It is not a text classifier with a tokenizer.json, or the model cannot be loaded.
        MissingExtraError: torch, transformers or another package is not installed.
    """
    _require_classifier(path)
    relative = os.path.relpath(path, directory)
    model = ModelSpec.model_validate({"source": {"kind": "huggingface", "model": relative}})
    require_installed([model])
    try:
        inspection = inspect(InspectionJob(model, directory.resolve()))
        version = importlib.metadata.version("tokenizers")
    except (RepogenError, importlib.metadata.PackageNotFoundError) as error:
        raise SpecError(f"{path} cannot be loaded: {error}", "see the message", code="init.from") from error
    signature = inspection.signature
    inputs = tuple(tensor.name for tensor in signature.inputs)
    classes = _classes(signature)
    if not set(inputs) <= _INPUTS or classes is None:
        raise _not_a_classifier(path, f"its inputs are {', '.join(inputs)}")
    longest = inspection.dims.get("sequence", (1, 512))[1]
    padding = _padding(path)
    values = {
        "max_tokens": longest,
        "pad_id": padding.pad_id,
        "pad_token": repr(padding.pad_token),
        "inputs": repr(inputs),
        "classes": classes,
    }
    files = {f"{step}.py": render(f"{step}.py.j2", values) for step in ("tokenizer", "labels", "examples")}
    base = name or model_name(path.resolve().name)
    models = _models(base, relative, inputs, classes, (longest, version))
    if is_inside(path, directory):
        return SpecDescription(models, files=files)
    # The files that are published must be in the spec's directory.
    tokenizer, encoder, labels, ensemble = models
    tokenizer = replace(
        tokenizer, source={**tokenizer.source, "data": [_TOKENIZER]}, copies={_TOKENIZER: path / _TOKENIZER}
    )
    labels = replace(labels, source={**labels.source, "data": [CONFIG]}, copies={CONFIG: path / CONFIG})
    return SpecDescription((tokenizer, encoder, labels, ensemble), files=files)


def _models(
    base: str, path: str, inputs: tuple[str, ...], classes: int, limits: tuple[int, str]
) -> tuple[ModelDescription, ...]:
    longest, version = limits
    steps = [
        {"model": f"{base}_tokenizer", "inputs": {"text": "text"}, "outputs": {name: name for name in inputs}},
        {"model": f"{base}_encoder", "inputs": {name: name for name in inputs}, "outputs": {"logits": "logits"}},
        {"model": f"{base}_labels", "inputs": {"logits": "logits"}, "outputs": {"label": "label", "score": "score"}},
    ]
    tokenizer: dict[str, object] = {
        "kind": "python",
        "path": "tokenizer.py",
        "data": [f"{path}/{_TOKENIZER}"],
        "requirements": [f"tokenizers=={version}"],
    }
    ids = (f"  {name}: {{dtype: int64, shape: [batch, sequence]}}" for name in inputs)
    return (
        ModelDescription(
            f"{base}_tokenizer",
            tokenizer,
            keys=(
                "inputs:",
                "  text: {dtype: string, shape: [batch, 1]}",
                'examples: "examples.py:texts" # CHECK: replace the texts with real ones',
                "outputs:",
                *ids,
                _BATCH,
            ),
        ),
        ModelDescription(
            f"{base}_encoder",
            {"kind": "huggingface", "model": path},
            keys=(f"dims: {{batch: {{min: 1, max: 32}}, sequence: {{min: 1, max: {longest}}}}}", _SERVING),
        ),
        ModelDescription(
            f"{base}_labels",
            {"kind": "python", "path": "labels.py", "data": [f"{path}/{CONFIG}"]},
            keys=(
                "inputs:",
                f"  logits: {{dtype: float32, shape: [batch, {classes}]}}",
                "outputs:",
                "  label: {dtype: string, shape: [batch, 1]}",
                "  score: {dtype: float32, shape: [batch, 1]}",
                _BATCH,
            ),
        ),
        ModelDescription(
            base,
            {"kind": "ensemble", "steps": steps},
            ("Text in, label out.",),
            (f"outputs: {flow(['label', 'score'])}",),
        ),
    )


def _require_classifier(path: Path) -> None:
    if not (path / CONFIG).is_file():
        raise SpecError(f"{path} has no {CONFIG}", "specify the directory that save_pretrained wrote", code="init.from")
    config = read_json(path / CONFIG, ConfigFile)
    names = ", ".join(config.architectures or ()) or "not specified"
    if "ForSequenceClassification" not in names:
        raise _not_a_classifier(path, f"its architecture is {names}")
    if not (path / _TOKENIZER).is_file():
        raise SpecError(
            f"{path} has no {_TOKENIZER}", "save the fast tokenizer: AutoTokenizer.save_pretrained", code="init.from"
        )


def _not_a_classifier(path: Path, reason: str) -> SpecError:
    return SpecError(
        f"--ensemble requires a text classifier (…ForSequenceClassification), but {path} is not one: {reason}",
        "leave out --ensemble, and write the steps yourself: see the guide to ensembles",
        code="init.from",
    )


def _classes(signature: Signature) -> int | None:
    """Return the number of classes; None if the model has no output ``logits`` [batch, classes]."""
    shapes = {tensor.name: tensor.shape for tensor in signature.outputs}
    last = shapes["logits"][-1] if len(shapes.get("logits", ())) == 2 else None  # noqa: PLR2004 - batch and classes
    return last if isinstance(last, int) else None


def _padding(path: Path) -> _Padding:
    padding = read_json(path / _TOKENIZER, _Tokens).padding
    if padding is not None:
        return padding
    pad_id = read_json(path / CONFIG, _Tokens).pad_token_id
    return _Padding(pad_id=pad_id or 0)

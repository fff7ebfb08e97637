"""Renders the config.pbtxt of an ONNX model, Python model or ensemble, and checks it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.built_model import OnnxArtifact
from repogen.artifacts.file_names import MODEL_FILE, PYTHON_FILE
from repogen.artifacts.steps import EnsembleArtifact
from repogen.artifacts.tensors import DTYPES
from repogen.artifacts.versions import ModelConfig
from repogen.errors import ConfigError
from repogen.triton_config.render.expected import expected_config
from repogen.triton_config.render.model_facts import ONNXRUNTIME, ModelFacts
from repogen.triton_config.render.named_files import with_files
from repogen.triton_config.render.spec_findings import spec_key
from repogen.triton_config.render.template import (
    ENSEMBLE_TEMPLATE,
    TEMPLATE,
    render,
    template_origin,
    template_variables,
)
from repogen.triton_config.render.tensorrt import tensorrt_notes, with_tensorrt
from repogen.triton_config.rules.config_rules import config_findings
from repogen.triton_config.rules.ensemble_repository import ModelInRepository, cycle_findings, ensemble_findings
from repogen.triton_config.rules.file_names import file_problems, model_filenames
from repogen.triton_config.rules.findings import errors_of
from repogen.triton_config.rules.graph import graph_findings
from repogen.triton_config.rules.target import target_findings
from repogen.triton_config.sections.base import key_text
from repogen.triton_config.sections.model import NOT_FOR_ENSEMBLES
from repogen.triton_config.text.compare import differences
from repogen.triton_config.text.parse import parse, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tritonclient.grpc.model_config_pb2 import ModelConfig as Message

    from repogen.artifacts.built_model import BatchReport
    from repogen.artifacts.named_file import NamedFile
    from repogen.artifacts.tensors import Signature
    from repogen.targets import Target
    from repogen.triton_config.render.model_facts import ConfiguredModel, RenderOptions, VerifiedModel
    from repogen.triton_config.render.template import Renderer
    from repogen.triton_config.rules.findings import Finding
    from repogen.triton_config.sections.model import TritonSpec

_DEFAULT_WARMUP_SIZE = 16
"""Size of a dynamic dim in a warmup, if the spec sets none and its bounds allow it."""


def configure(
    name: str, model: ConfiguredModel, verified: VerifiedModel, options: RenderOptions, renderer: Renderer = render
) -> ModelConfig:
    """Render config.pbtxt for a verified model.

    The text is parsed with tritonclient's protobuf classes, compared with the requested configuration, and checked
    with the rules in ``repogen.triton_config.rules``: against the graph, or against the models of an ensemble's steps.
    A template override may add fields, but not change or remove those that the spec and the graph determine.

    Args:
        name: Model name.
        model: The model's spec.
        verified: The model to publish, and the measurements that the config depends on.
        options: Settings that all models of the spec share.
        renderer: Renders the template.

    Returns:
        The config; its signature is the model's, with full shapes.

    Raises:
        ConfigError: The spec does not match the model, the template is invalid, or the result violates a rule.
    """
    artifact, triton = verified.artifact, model.triton
    steps = artifact.steps if isinstance(artifact, EnsembleArtifact) else ()
    facts = _model_facts(name, model, verified, options)
    _check_tensors(artifact.signature, name)
    _check_batch(triton, verified.batch, facts.max_batch_size, f"models.{name}.triton")
    if steps:  # keys that all models of a spec inherit, such as instance_group
        triton = triton.model_copy(update=NOT_FOR_ENSEMBLES)
    notes = tuple(tensorrt_notes(triton, facts))
    triton = with_tensorrt(triton, facts, options.target)
    facts, named_files = with_files(facts, triton, verified, options.root)
    expected = expected_config(triton, facts, steps)
    template = ENSEMBLE_TEMPLATE if steps else TEMPLATE
    text = renderer(template_variables(triton, facts, expected, steps), options.templates, template)
    origin = f"config.pbtxt of {name}, rendered from {template_origin(options.templates, template)}"
    parsed = parse(text, origin)
    _check_equal(name, differences(expected, parsed), origin)
    _check_files(name, parsed, named_files)
    findings = _findings(name, parsed, verified, options.target)
    _check_rules(name, parsed, findings)
    notes += tuple(_reshape_notes(parsed))
    notes += tuple(_warnings(findings, options.ignored_rules))
    return ModelConfig(name, text, facts.max_batch_size, artifact.signature, named_files, notes)


def _model_facts(name: str, model: ConfiguredModel, verified: VerifiedModel, options: RenderOptions) -> ModelFacts:
    artifact, is_graph = verified.artifact, isinstance(verified.artifact, OnnxArtifact)
    measured = not model.triton.ragged or is_graph or isinstance(artifact, EnsembleArtifact)
    declared_size = 0 if model.triton.max_batch_size == "auto" else model.triton.max_batch_size
    return ModelFacts(
        name=name,
        signature=artifact.signature,
        max_batch_size=verified.batch.max_batch_size if measured else declared_size,
        batch_measured=measured,
        rows_compared=verified.batch.compared,
        sizes={
            dim: bounds.example or max(bounds.min, min(bounds.max, _DEFAULT_WARMUP_SIZE))
            for dim, bounds in model.dims.items()
        },
        bounds={dim: (bounds.min, bounds.max) for dim, bounds in model.dims.items()},
        backend=ONNXRUNTIME if is_graph else "" if isinstance(artifact, EnsembleArtifact) else "python",
        gpu=is_graph and (options.gpu or model.triton.tensorrt is not None),
    )


def _reshape_notes(config: Message) -> Iterator[str]:
    """Yield the shape that clients use for tensors with one number in each row, which differs from the model's."""
    tensors = [*config.input, *config.output] if config.max_batch_size else []
    names = [tensor.name for tensor in tensors if tensor.HasField("reshape") and not tensor.reshape.shape]
    if names:
        yield f"clients send and receive [N, 1], not [N]: {', '.join(names)}"


def _findings(name: str, config: Message, verified: VerifiedModel, target: Target) -> list[Finding]:
    findings = config_findings(config, name, target)
    artifact = verified.artifact
    if isinstance(artifact, OnnxArtifact):
        findings += graph_findings(config, artifact.signature, target=target)
        findings += target_findings(artifact.opset, artifact.ir_version, target)
    if isinstance(artifact, EnsembleArtifact):
        models = {**verified.models, name: ModelInRepository(config, ())}
        findings += [*ensemble_findings(config, models), *cycle_findings(name, models)]
    return findings


def _check_tensors(signature: Signature, name: str) -> None:
    """Raise ConfigError for a name or data type that config.pbtxt cannot express."""
    for tensor in (*signature.inputs, *signature.outputs):
        quoted(tensor.name)
    tensors = [tensor for tensor in (*signature.inputs, *signature.outputs) if tensor.dtype not in DTYPES]
    if tensors:
        names = ", ".join(f"{tensor.name!r} ({tensor.dtype})" for tensor in tensors)
        raise ConfigError(
            f"Triton's ONNX Runtime backend does not support the data type of {names}",
            "cast it to float32 or float16 inside the model",
            code="RG209",
            where=f"models.{name}",
        )


def _check_batch(triton: TritonSpec, batch: BatchReport, largest: int, key: str) -> None:
    """Raise ConfigError if the spec sets a batch size, or dynamic batching, that the measurements do not allow."""
    size = triton.max_batch_size
    reason = batch.reason or ("max_batch_size is 0 in the spec" if size == 0 else "batching was not verified")
    if size not in ("auto", largest):
        supported = f"supports {largest}" if largest else "does not batch"
        raise ConfigError(
            f"max_batch_size is {size} in the spec, but the model {supported}: {reason}",
            "set max_batch_size to auto, or make the model batch",
            code="config.max-batch-size",
            where=f"{key}.max_batch_size",
        )
    if triton.dynamic_batching is None:
        return
    if largest == 0:
        raise ConfigError(
            f"the spec sets dynamic_batching, but the model does not batch: {reason}",
            "remove dynamic_batching from the spec, or make the model batch",
            code="config.dynamic-batching",
            where=f"{key}.dynamic_batching",
        )


def _check_equal(name: str, lines: Sequence[str], origin: str) -> None:
    """Raise ConfigError if a rendered text differs from the requested configuration."""
    if lines:
        raise ConfigError(
            f"{origin}, does not match the requested configuration:\n" + "\n".join(f"  {line}" for line in lines),
            "a template may add fields, but must keep those that the spec and the graph determine",
            code="config.not-as-meant",
            where=f"models.{name}.triton",
        )


def _check_files(name: str, config: Message, files: Sequence[NamedFile]) -> None:
    """Raise ConfigError if a config names a file that is not published with it, which a template override can add."""
    published_as = {"", MODEL_FILE, PYTHON_FILE}
    problems = list(file_problems(config, {file.name: len(file.content) for file in files}))
    problems += [
        f"{field} names {file!r}, but the model is published under {MODEL_FILE} or {PYTHON_FILE}"
        for field, file in model_filenames(config)
        if file not in published_as
    ]
    if problems:
        raise ConfigError(
            f"config.pbtxt of {name}: " + "; ".join(problems),
            "remove the name from the template, or from triton.parameters",
            code="config.file-name",
            where=f"models.{name}.triton",
        )


def _warnings(findings: Sequence[Finding], ignored_rules: tuple[str, ...]) -> Iterator[str]:
    """Yield a note for each finding that `repogen check` would report as a warning."""
    for finding in findings:
        if finding.severity == "warning" and not finding.code.startswith(ignored_rules):
            yield f"{finding.code} {finding.message}: {finding.hint}"


def _check_rules(name: str, config: Message, findings: Sequence[Finding]) -> None:
    """Raise ConfigError if a finding is an error."""
    errors = errors_of(findings)
    if not errors:
        return
    if config.HasField("ensemble_scheduling"):
        where = f"models.{name}.source.steps"
    else:
        where = key_text(("models", name, "triton", *spec_key(config, errors[0].field)))
    raise ConfigError(
        f"Triton would reject {name} with this config:\n"
        + "\n".join(f"  {finding.code} {finding.message}" for finding in errors),
        "; ".join(dict.fromkeys(finding.hint for finding in errors)),
        code=errors[0].code,
        where=where,
    )

"""Builds config.pbtxt for an ONNX or Python model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.artifacts.built_model import OnnxArtifact
from repogen.artifacts.tensors import DTYPES
from repogen.artifacts.versions import ModelConfig
from repogen.errors import ConfigError
from repogen.triton_config.render.model_facts import ONNXRUNTIME, ConfiguredModel, Known
from repogen.triton_config.render.named_files import GoldenInputs, no_golden_inputs, with_files
from repogen.triton_config.render.plan import message_for, plan_for
from repogen.triton_config.render.template import origin_of, render
from repogen.triton_config.rules.config_rules import config_findings
from repogen.triton_config.rules.findings import errors_of
from repogen.triton_config.rules.graph import graph_findings, target_findings
from repogen.triton_config.text.compare import differences
from repogen.triton_config.text.parse import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from repogen.artifacts.built_model import BatchReport
    from repogen.artifacts.steps import PythonArtifact
    from repogen.artifacts.tensors import Signature
    from repogen.targets import Target
    from repogen.triton_config.render.plan import Plan
    from repogen.triton_config.rules.findings import Finding
    from repogen.triton_config.sections.model import TritonSpec

_USUAL_SIZE = 16
"""Of a dynamic dim in a warmup, where the spec says nothing and its bounds allow it."""


def configure(  # noqa: PLR0913 - all that a config is made of
    name: str,
    model: ConfiguredModel,
    artifact: OnnxArtifact | PythonArtifact,
    batch: BatchReport,
    *,
    target: Target,
    templates: Path | None = None,
    labels: Mapping[str, Sequence[str]] | None = None,
    root: Path = Path(),
    golden_inputs: GoldenInputs = no_golden_inputs,
    gpu: bool = False,
) -> ModelConfig:
    """Write config.pbtxt for a verified graph, or for Python code.

    The text is parsed back by tritonclient's protobuf classes, compared with what was meant, and checked against the
    graph by the rules in ``repogen.triton_config.rules``. A template override may add fields, but not change or drop
    those that the spec and the graph decide.

    Args:
        name: Model name.
        model: The model's spec.
        artifact: What to publish.
        batch: The verdict on batching; its ``max_batch_size`` is what the config says.
        target: The Triton release that will serve it.
        templates: The spec's directory of template overrides.
        labels: Names of classes by output; each becomes a file that the config names.
        root: Directory of the spec, where the files that it names lie.
        golden_inputs: Returns the inputs of a golden case, for warmups.
        gpu: Whether the target runs a graph on GPUs where the spec does not say.

    Returns:
        The config; its signature is the graph's, with full shapes.

    Raises:
        ConfigError: The spec asks for what the model can't do, the template is wrong, or the result breaks a rule.
    """
    key = f"models.{name}.triton"
    refuse_unservable(artifact.signature, name)
    measured = not model.triton.ragged
    largest = batch.max_batch_size if measured else _said(model.triton)
    refuse_unkept_wishes(model.triton, batch, largest, key)
    sizes = {dim: spec.example or max(spec.min, min(spec.max, _USUAL_SIZE)) for dim, spec in model.dims.items()}
    graph = isinstance(artifact, OnnxArtifact)
    backend = ONNXRUNTIME if graph else "python"
    known = Known(name, artifact.signature, largest, measured, sizes, backend=backend, gpu=gpu and graph)
    known, named_files = with_files(known, model.triton, labels or {}, root, golden_inputs)
    plan = plan_for(model.triton, known)
    text = render(plan, templates)
    origin = f"config.pbtxt of {name}, rendered from {origin_of(templates)}"
    parsed = parse(text, origin)
    refuse_other_than_meant(name, differences(message_for(plan), parsed), origin)
    findings = list(config_findings(parsed, name))
    if graph:
        findings += graph_findings(parsed, artifact.signature)
        findings += target_findings(artifact.opset, artifact.ir_version, target)
    refuse_findings(findings, name, lambda finding: f"{key}.{_key_of(finding.field, plan)}".rstrip("."))
    return ModelConfig(name, text, largest, artifact.signature, named_files)


def refuse_unservable(signature: Signature, name: str) -> None:
    """Without a Triton dtype there is not even a config to render."""
    bad = [t for t in (*signature.inputs, *signature.outputs) if t.dtype not in DTYPES]
    if bad:
        listed = ", ".join(f"{tensor.name!r} ({tensor.dtype})" for tensor in bad)
        raise ConfigError(
            f"RG209: Triton's ONNX Runtime backend does not serve the data type of {listed}",
            "cast it to float32 or float16 inside the model",
            code="config.RG209",
            where=f"models.{name}",
        )


def _said(triton: TritonSpec) -> int:
    """Return the batch that the spec claims; where rows differ in length there is none to be measured."""
    return 0 if triton.max_batch_size == "auto" else triton.max_batch_size


def refuse_unkept_wishes(triton: TritonSpec, batch: BatchReport, allowed: int, key: str) -> None:
    """Raise ConfigError when the spec asks for a batch, or for what needs one, that was not proved."""
    wanted = triton.max_batch_size
    why = batch.reason or ("max_batch_size is 0 in the spec" if wanted == 0 else "no batch was proved")
    if wanted not in ("auto", allowed):
        raise ConfigError(
            f"max_batch_size is {wanted} in the spec, but the model may have {allowed}: {why}",
            "set max_batch_size to auto, or make the model batch",
            code="config.max-batch-size",
            where=f"{key}.max_batch_size",
        )
    if triton.dynamic_batching is None:
        return
    if allowed == 0:
        raise ConfigError(
            f"dynamic_batching is asked for, but the model does not batch: {why}",
            "drop dynamic_batching from the spec, or make the model batch",
            code="config.dynamic-batching",
            where=f"{key}.dynamic_batching",
        )
    above = [size for size in triton.dynamic_batching.preferred_batch_size if size > allowed]
    if above:
        raise ConfigError(
            f"preferred_batch_size {', '.join(map(str, above))} is above max_batch_size {allowed}",
            f"prefer sizes up to {allowed}, or raise max_batch_size",
            code="config.RG108",
            where=f"{key}.dynamic_batching.preferred_batch_size",
        )


def refuse_other_than_meant(name: str, lines: Sequence[str], origin: str) -> None:
    """Raise ConfigError when a rendered text says something else than what was meant, line by line."""
    if lines:
        raise ConfigError(
            f"{origin}, does not say what was meant:\n" + "\n".join(f"  {line}" for line in lines),
            "a template may add fields, but must keep those that the spec and the graph decide",
            code="config.not-as-meant",
            where=f"models.{name}.triton",
        )


def refuse_findings(found: Iterable[Finding], name: str, key_of: Callable[[Finding], str]) -> None:
    """Raise ConfigError when there is an error among findings; warnings are for `repogen check`."""
    errors = errors_of(list(found))
    if errors:
        raise ConfigError(
            f"Triton would not serve {name} with its config:\n"
            + "\n".join(f"  {finding.code} {finding.message}" for finding in errors),
            "; ".join(dict.fromkeys(finding.hint for finding in errors)),
            code=f"config.{errors[0].code}",
            where=key_of(errors[0]),
        )


def _key_of(field: str, plan: Plan) -> str:
    """Return the spec's key of a config's field: the same words, but tensors are by name."""
    match = re.match(r"(input|output)\[(\d+)\]", field)
    if match is None:
        return field
    tensors = plan.inputs if match[1] == "input" else plan.outputs
    return f"{match[1]}.{tensors[int(match[2])].name}{field[match.end() :]}"

"""What a rule says of a config, and every rule by its code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

Severity: TypeAlias = Literal["error", "warning"]

# Codes are public: people write them into ignore lists and search for them. Never give one a new meaning.
RULES: dict[str, str] = {
    "RG101": "name equals the model directory's name",
    "RG102": "backend is onnxruntime, and platform is left out",
    "RG103": "max_batch_size is 0 or more",
    "RG104": "tensor names are unique among inputs and among outputs",
    "RG105": "dims are never empty",
    "RG106": "a dim is -1 or at least 1",
    "RG107": "data types are those that Triton's ONNX Runtime backend serves",
    "RG108": "preferred_batch_size lies between 1 and max_batch_size",
    "RG109": "dynamic_batching stands only where the model batches",
    "RG110": "KIND_CPU names no gpus",
    "RG111": "an instance group's count is at least 1",
    "RG112": "instance group names are unique",
    "RG113": "inputs and outputs are declared",
    "RG114": "reshape holds as many elements as dims",
    "RG115": "version_policy specific names at least one version",
    "RG116": "a warmup fits the model",
    "RG117": "sequence batching keeps max_batch_size below 2147483647",
    "RG201": "every input is one of the graph's",
    "RG202": "every input of the graph is given",
    "RG203": "every output is one of the graph's",
    "RG204": "every output of the graph is given",
    "RG205": "data types equal the graph's",
    "RG206": "ranks equal the graph's",
    "RG207": "dims agree with the graph's",
    "RG208": "a batching model's first dim is dynamic in every tensor",
    "RG209": "the graph's data types can be served",
    "RG301": "the opset is one that the target release loads",
    "RG302": "the IR version is one that the target release loads",
}


@dataclass(frozen=True)
class Finding:
    """A rule that is broken.

    Attributes:
        code: A key of ``RULES``.
        severity: ``error`` where Triton refuses, dies or answers wrongly; ``warning`` where it does what few expect.
        message: What is wrong, with the names and numbers.
        hint: What to do.
    """

    code: str
    severity: Severity
    message: str
    hint: str


def errors_of(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings that keep a model from being served rightly."""
    return tuple(finding for finding in findings if finding.severity == "error")

"""What a rule says of a config, and every rule by its code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

Severity: TypeAlias = Literal["error", "warning"]

# Codes are public: people write them into ignore lists and search for them. Never give one a new meaning.
RULES: dict[str, str] = {
    "RG001": "config.pbtxt is protobuf text of a ModelConfig",
    "RG002": "every field is one that the target release knows",
    "RG003": "config.pbtxt begins without a byte order mark",
    "RG004": "nothing of a template is left in config.pbtxt",
    "RG005": "config.pbtxt is a readable file of UTF-8 text",
    "RG101": "name equals the model directory's name",
    "RG102": "backend, platform and runtime are known to Triton, and agree",
    "RG103": "max_batch_size is 0 or more",
    "RG104": "tensor names are given, and unique among inputs and among outputs",
    "RG105": "dims are never empty",
    "RG106": "a dim is -1 or at least 1",
    "RG107": "data types are those that Triton's ONNX Runtime backend serves",
    "RG108": "preferred_batch_size lies between 1 and max_batch_size",
    "RG109": "dynamic_batching stands only where the model batches",
    "RG110": "an instance group names gpus only where its kind takes them",
    "RG111": "an instance group has a number of instances that can be meant",
    "RG112": "instance group names are unique",
    "RG113": "inputs and outputs are declared",
    "RG114": "reshape holds as many elements as dims",
    "RG115": "version_policy serves at least one version",
    "RG116": "a warmup fits the model",
    "RG117": "sequence batching keeps max_batch_size below 2147483647",
    "RG118": "priorities lie between 1 and priority_levels",
    "RG119": "preserve_ordering goes with one priority level and no DELAY",
    "RG120": "a sequence's controls are given once each, with values of one type",
    "RG121": "the numbers of sequence_batching are in range",
    "RG122": "a sequence's states have names, types, dims and data",
    "RG123": "an ensemble has steps, and each step maps its tensors",
    "RG124": "format, allow_ragged_batch and optional go with the rest of the input",
    "RG125": "batch_input and batch_output name what they are made from",
    "RG126": "optimization levels and thresholds mean something to the backend",
    "RG127": "an execution accelerator is one that the backend has",
    "RG128": "parameters are known to the backend, and have values that it can read",
    "RG129": "queue delays can be meant",
    "RG130": "scheduling goes with what the model is",
    "RG131": "rate limiter resources are named and counted",
    "RG132": "a repository agent is one that Triton ships",
    "RG133": "metric tags are labels that Prometheus takes",
    "RG201": "every input is one of the graph's",
    "RG202": "every input of the graph is given",
    "RG203": "every output is one of the graph's",
    "RG204": "every output of the graph is given",
    "RG205": "data types equal the graph's",
    "RG206": "ranks equal the graph's",
    "RG207": "dims agree with the graph's",
    "RG208": "a batching model's first dim is dynamic in every tensor",
    "RG209": "the graph's data types can be served",
    "RG210": "the model file is an ONNX graph",
    "RG211": "external data lies beside the model, whole",
    "RG301": "the opset is one that the target release loads",
    "RG302": "the IR version is one that the target release loads",
    "RG401": "every directory in the repository is a model",
    "RG402": "a model has a config.pbtxt",
    "RG403": "version directories are named by a number, from 1",
    "RG404": "the versions that are served hold a model file",
    "RG405": "files that the config names are there",
    "RG406": "links stay in the repository",
    "RG407": "files are as the manifest says",
    "RG501": "the model of an ensemble's step is in the repository",
    "RG502": "an ensemble maps tensors that the step's model has",
    "RG503": "tensors of an ensemble have one type and shape from step to step",
    "RG504": "every tensor of an ensemble is made once, and used",
    "RG505": "an ensemble's steps do not wait for each other in a circle",
}


@dataclass(frozen=True)
class Finding:
    """A rule that is broken.

    Attributes:
        code: A key of ``RULES``.
        severity: ``error`` where Triton refuses, dies or answers wrongly; ``warning`` where it does what few expect.
        message: What is wrong, with the names and numbers.
        hint: What to do.
        field: Path of the field that it is about, ``input[0].dims``; empty when it is about the whole.
        fix: The corrected lines, where there is one right answer; else empty.
        path: File or directory, as a reader of the message finds it; empty when there is none.
        line: Line of a text, counted from 1; 0 when it is about the whole file.
        column: Column, counted from 1.
    """

    code: str
    severity: Severity
    message: str
    hint: str
    field: str = ""
    fix: str = ""
    path: str = ""
    line: int = 0
    column: int = 0


def errors_of(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings that keep a model from being served rightly."""
    return tuple(finding for finding in findings if finding.severity == "error")

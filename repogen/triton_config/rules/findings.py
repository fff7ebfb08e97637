"""The rules by code, and a violation of a rule as data."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeAlias

from repogen.artifacts.file_names import CONFIG_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable

Severity: TypeAlias = Literal["error", "warning"]
Applicability: TypeAlias = Literal["safe", "unsafe"]

_MAX_LISTED = 20
_MAX_TEXT = 2000
# Codes are public: users write them into ignore lists and search for them. Never reuse a code for another rule.
RULES: dict[str, str] = {
    "RG001": "config.pbtxt is a ModelConfig in protobuf text format",
    "RG002": "every field is supported by the target release",
    "RG003": "config.pbtxt has no byte order mark",
    "RG004": "config.pbtxt contains no template syntax",
    "RG005": "config.pbtxt is a readable UTF-8 text file",
    "RG101": "name equals the name of the model directory",
    "RG102": "backend, platform and runtime are supported by Triton and consistent",
    "RG103": "max_batch_size is 0 or more",
    "RG104": "inputs and outputs have unique names",
    "RG105": "dims are not empty",
    "RG106": "every dim is -1 or at least 1",
    "RG107": "data types are supported by Triton's ONNX Runtime backend",
    "RG108": "preferred_batch_size is between 1 and max_batch_size",
    "RG109": "dynamic_batching requires max_batch_size above 0",
    "RG110": "gpus is set only for instance groups that can use GPUs",
    "RG111": "the instance count is plausible",
    "RG112": "instance group names are unique",
    "RG113": "inputs and outputs are declared",
    "RG114": "reshape has as many elements as dims",
    "RG115": "version_policy serves at least one version",
    "RG116": "a warmup request matches the model",
    "RG117": "sequence batching requires max_batch_size below 2147483647",
    "RG118": "priorities are between 1 and priority_levels",
    "RG119": "preserve_ordering is not combined with priorities or DELAY",
    "RG120": "each sequence control is defined once, with values of one type",
    "RG121": "values in sequence_batching are within their valid ranges",
    "RG122": "the states of a sequence have names, types, dims and data",
    "RG123": "an ensemble has steps, and each step maps its tensors",
    "RG124": "format, allow_ragged_batch and optional are valid for the input",
    "RG125": "batch_input and batch_output name their target and source tensors",
    "RG126": "optimization levels are supported by the backend",
    "RG127": "execution accelerators are supported by the backend",
    "RG128": "parameters are supported by the backend and have valid values",
    "RG129": "queue delays are plausible",
    "RG130": "scheduling options match the model",
    "RG131": "rate limiter resources have a name and a count",
    "RG132": "repository agents are included in Triton",
    "RG133": "metric tags are valid Prometheus labels",
    "RG134": "an input with an empty reshape is not batched dynamically",
    "RG135": "parameters of execution accelerators are supported and have valid values",
    "RG201": "every declared input is in the graph",
    "RG202": "every input of the graph is declared",
    "RG203": "every declared output is in the graph",
    "RG204": "every output of the graph is declared",
    "RG205": "data types equal those of the graph",
    "RG206": "ranks equal those of the graph",
    "RG207": "dims match those of the graph",
    "RG208": "a batching model has a dynamic first dim in every tensor",
    "RG209": "the data types of the graph can be served",
    "RG210": "the model file is an ONNX graph",
    "RG211": "external data is complete and in the version's directory",
    "RG301": "the opset is supported by the target release",
    "RG302": "the IR version is supported by the target release",
    "RG303": "the target release is known",
    "RG401": "every directory in the repository is a model",
    "RG402": "a model has a config.pbtxt",
    "RG403": "names of version directories are positive integers",
    "RG404": "every served version has a model file",
    "RG405": "files named in the config exist",
    "RG406": "links stay inside the repository",
    "RG407": "files match the manifest",
    "RG410": "names are safe for a shell, and only Python models contain code",
    "RG408": "file names differ in more than case",
    "RG501": "the models of an ensemble's steps are in the repository",
    "RG502": "each step of an ensemble maps tensors that its model has",
    "RG503": "tensors of an ensemble have the same type and shape in every step",
    "RG504": "every tensor of an ensemble is produced once and used",
    "RG505": "the steps of an ensemble do not form a cycle",
}


@dataclass(frozen=True)
class Finding:
    """A violation of a rule.

    Attributes:
        code: A key of ``RULES``.
        severity: ``error`` if Triton rejects the model, crashes or returns wrong results; ``warning`` if it loads the
            model with unexpected behavior.
        message: What is wrong, with names and numbers; shortened to 2000 characters, because names may be long, and the
            same one may be in many findings.
        hint: What to do; shortened as well.
        field: Path of the field, ``input[0].dims`` or ``parameters["name"]``; empty for the whole config.
        fix: The corrected lines, if there is exactly one correction; otherwise empty. They replace the fields of these
            names in the message that contains ``field``.
        path: File or directory, relative to the user's working directory; empty if none.
        line: Line of the text, counted from 1; 0 for the whole file.
        column: Column, counted from 1.
        guess: Whether ``fix`` may not be what the user intended, or changes what a working model does.
        security: Whether the model could run code, use files elsewhere, or differ from what was built, or was not
            examined completely. Comments in config.pbtxt do not suppress it: their author may be the attacker.
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
    guess: bool = False
    security: bool = False

    def __post_init__(self) -> None:
        """Shorten the texts."""
        for key in ("message", "hint"):
            if len(text := getattr(self, key)) > _MAX_TEXT:
                object.__setattr__(self, key, f"{text[:_MAX_TEXT]}…")

    @property
    def applicability(self) -> Applicability | None:
        """Whether `repogen check --fix` can apply the fix; None if only a person can, or if there is none."""
        if not self.fix or not self.path.endswith(CONFIG_FILE):
            return None
        return "unsafe" if self.guess else "safe"


@dataclass(frozen=True)
class CodeCount:
    """The number of findings with one code, and of the fixes that `repogen check` can apply."""

    code: str
    count: int
    safe_fixes: int
    unsafe_fixes: int


def listed(names: Iterable[str]) -> str:
    """Return names for a message, separated by commas: at most 20, so that many messages do not grow with many names.

    >>> listed(["a", "b"]), listed(str(number) for number in range(22))[-11:]
    ('a, b', '19 and more')
    """
    first = list(islice(names, _MAX_LISTED + 1))
    return ", ".join(first[:_MAX_LISTED]) + (" and more" if len(first) > _MAX_LISTED else "")


def count_findings(findings: Iterable[Finding]) -> list[CodeCount]:
    """Return the counts of each code that occurs, the most frequent first."""
    by_code: dict[str, list[Applicability | None]] = {}
    for finding in findings:
        by_code.setdefault(finding.code, []).append(finding.applicability)
    counts = (CodeCount(code, len(all_), all_.count("safe"), all_.count("unsafe")) for code, all_ in by_code.items())
    return sorted(counts, key=lambda count: (-count.count, count.code))


def errors_of(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings with severity ``error``."""
    return tuple(finding for finding in findings if finding.severity == "error")

"""The shapes of the JSON documents; the docs and the tests use their schema."""

from __future__ import annotations

from typing import Literal, NotRequired, TypeAlias

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

NonFinite: TypeAlias = Literal["nan", "inf", "-inf"]
"""A number that JSON does not have."""

_STRICT = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


@with_config(_STRICT)
class ErrorDocument(TypedDict):
    """An error."""

    code: str
    """Code, see [error codes](errors.md)"""
    message: str
    """What happened"""
    hint: str
    """What to do; may be empty"""
    where: str
    """Place of the error: a file, `file:line`, the path of a key, or a URI; may be empty"""
    exit_code: int
    """Exit code of the error"""


@with_config(_STRICT)
class ProblemDocument(TypedDict):
    """One problem of a spec."""

    where: str
    """`file:line:column`"""
    key: str
    """Path of the key"""
    what: str
    """What is wrong"""
    hint: str
    """What to do; may be empty"""


@with_config(_STRICT)
class OutputDifferenceDocument(TypedDict):
    """The differences of one output in one parity case."""

    name: str
    """Name of the output"""
    max_abs_diff: float | NonFinite
    """Largest absolute difference; `inf` is a string"""
    max_rel_diff: float | NonFinite
    """Largest difference relative to the largest value of the output; `inf` is a string"""


@with_config(_STRICT)
class ParityCaseDocument(TypedDict):
    """One parity case."""

    name: str
    """Sizes and seed"""
    sizes: dict[str, int]
    """Size of each dimension"""
    passed: bool
    """Whether all outputs are within the tolerances"""
    reason: str
    """Why it failed; empty if it passed"""
    max_abs_diff: float | NonFinite
    """Largest absolute difference over all outputs; `inf` is a string"""
    max_rel_diff: float | NonFinite
    """Largest relative difference over all outputs; `inf` is a string"""
    cosine: float
    """Smallest cosine similarity over all outputs"""
    outputs: list[OutputDifferenceDocument]
    """Differences of each output; empty if the published model failed"""


@with_config(_STRICT)
class ErrorDistributionDocument(TypedDict):
    """The absolute errors of one output over all parity cases."""

    name: str
    """Name of the output"""
    rtol: float
    """Relative tolerance"""
    atol: float | None
    """Absolute tolerance; null for a lossy model that is judged by its quality"""
    exact: int
    """Number of equal values"""
    histogram: dict[str, int]
    """Number of finite nonzero errors by half order of magnitude: bin `k` contains `10^(k/2)` to `10^((k+1)/2)`"""


@with_config(_STRICT)
class ParityDocument(TypedDict):
    """Parity with the original model, usually in PyTorch."""

    cases: int
    """Number of cases; 0 if nothing was measured, or if a case failed"""
    skipped: list[str]
    """Cases that were skipped when `parity.budget_seconds` was used up"""
    max_abs_diff: float | None
    """Largest absolute difference; null if `cases` is 0"""
    max_rel_diff: float | None
    """Largest relative difference; null if `cases` is 0"""
    passed: bool
    """Whether parity was measured and passed; false for a lossy model that is judged by its quality"""
    sweep: list[ParityCaseDocument]
    """Every case; empty if this build did not measure any"""
    outputs: list[ErrorDistributionDocument]
    """Errors of each output over all cases"""


@with_config(_STRICT)
class NodesDocument(TypedDict):
    """Number of nodes of the graph."""

    exported: int | None
    """After the export"""
    optimized: int | None
    """After the optimization passes"""


@with_config(_STRICT)
class ExporterDocument(TypedDict):
    """One export attempt."""

    exporter: str
    """Name of the exporter"""
    ok: bool
    """Whether its graph passed validation"""
    reason: str
    """Why the attempt failed; empty if it succeeded"""
    seconds: float
    """Duration"""


@with_config(_STRICT)
class GainDocument(TypedDict):
    """The latency of a graph in ONNX Runtime before and after a pass."""

    before_ms: float
    """Median before the pass, in milliseconds"""
    after_ms: float
    """Median after the pass, in milliseconds"""
    ratio: float
    """Latency before the pass divided by the latency after it: median over the rounds"""
    low: float
    """Lower end of the confidence interval of `ratio`"""
    high: float
    """Upper end of the confidence interval of `ratio`"""
    required: float
    """Smallest value of `low` for which the result is used"""


@with_config(_STRICT)
class QualityDocument(TypedDict):
    """The values that `quality.callable` returned."""

    reference: float
    """Value for the original model"""
    optimized: float
    """Value for the optimized graph"""
    max_drop: float
    """Budget"""


@with_config(_STRICT)
class LossyDocument(TypedDict):
    """The lossy passes that were applied."""

    passes: list[str]
    """Names of the passes"""
    precision: Literal["float16", "bfloat16", "qint8"]
    """Coarsest precision that they compute in"""
    quality: QualityDocument | None
    """Values for the published graph; null if the graph was judged by parity"""
    summary: str
    """The passes and the values in one line"""


@with_config(_STRICT)
class PassDocument(TypedDict):
    """One optimization pass."""

    name: str
    """Name of the pass"""
    applied: bool
    """Whether the result is used"""
    reason: str
    """Why the result is not used; may be empty"""
    nodes_before: int
    """Number of nodes before the pass"""
    nodes_after: int
    """Number of nodes after the pass"""
    operators_before: dict[str, int]
    """Number of nodes by operator before the pass"""
    operators_after: dict[str, int]
    """Number of nodes by operator after the pass"""
    lossy: bool
    """Whether the pass computes in a lower precision"""
    gain: GainDocument | None
    """Effect on latency; null if it was not measured"""
    quality: QualityDocument | None
    """Values of `quality.callable`; null if they were not measured"""


@with_config(_STRICT)
class SmokeCheckDocument(TypedDict):
    """One check of a smoke test."""

    name: str
    """Name of the check"""
    passed: bool
    """Whether it passed"""
    detail: str
    """What was measured, or why it failed"""
    warning: bool
    """Whether it passed with a warning"""
    max_abs_diff: float | NonFinite | None
    """Largest difference from the golden tensors; null for a check of something else; `nan` and `inf` are strings"""


@with_config(_STRICT)
class LatencyDocument(TypedDict):
    """Latency of one-row requests, in milliseconds."""

    p50: float
    """Median"""
    p95: float
    """95th percentile"""
    p99: float
    """99th percentile"""
    requests: int
    """Number of requests"""


@with_config(_STRICT)
class SmokeDocument(TypedDict):
    """The smoke test of one version."""

    name: NotRequired[str]
    """Name of the model; missing in the documents of a build and of a deploy"""
    version: int
    """Version in the repository; 0 if no version could be tested"""
    passed: bool
    """Whether every check passed"""
    server: str
    """`embedded`, `docker`, `remote` for a server at HOST:PORT, or the name of a plug-in"""
    server_version: str
    """Version of Triton"""
    runtime: str
    """Runtime of the graph, such as ONNX Runtime 1.19.2; `unknown` for a server that repogen did not start"""
    checks: list[SmokeCheckDocument]
    """All checks"""
    overrides: list[str]
    """Changes to a private copy of config.pbtxt"""
    latency_ms: LatencyDocument | None
    """Latency; null if it was not measured"""


@with_config(_STRICT)
class TensorDocument(TypedDict):
    """An input or output."""

    name: str
    """Name"""
    dtype: str
    """Type, as a spec names it: `float32`, `int64`, `string`, …"""
    shape: list[int | str]
    """Sizes, and names of dynamic dimensions"""


@with_config(_STRICT)
class ProvenanceDocument(TypedDict):
    """How a version was built, as its manifest records it."""

    target: str
    """Triton release"""
    git_commit: str | None
    """Commit of the spec's repository, with `-dirty` if it had changes"""
    tools: dict[str, str]
    """Version of each tool"""
    fingerprint: dict[str, str]
    """Digest or version of everything that the build depends on"""


@with_config(_STRICT)
class ModelDocument(TypedDict):
    """One model of a build."""

    name: str
    """Name of the model"""
    status: Literal["published", "unchanged", "verified", "failed"]
    """Result; `unchanged` if it was up to date, `verified` if it passed every check of a dry run"""
    version: int | None
    """Version in the repository; null if the model was neither published nor unchanged"""
    sha256: str | None
    """Digest of `model.onnx`, of the file at `source.path` for Python code, or of `config.pbtxt` for an ensemble"""
    size: int | None
    """Size in bytes of the graph and its weights, or of the code; null for an ensemble"""
    exporter: str | None
    """Exporter of the graph; `python` for Python code, and `ensemble` for an ensemble"""
    opset: int | None
    """Opset of the graph"""
    ir_version: int | None
    """IR version of the graph"""
    max_batch_size: int | None
    """Value in config.pbtxt; 0 if the model does not batch"""
    batch_reason: str | None
    """Why `max_batch_size` is 0; null if it is not 0, or if this build did not measure it"""
    parity: ParityDocument
    """Comparison with the original model"""
    nodes: NodesDocument
    """Number of nodes"""
    exporters: list[ExporterDocument]
    """Every export attempt"""
    passes: list[PassDocument]
    """Every optimization pass"""
    lossy: LossyDocument | None
    """Lossy passes that were applied; null for none"""
    notes: list[str]
    """Notes, one per entry"""
    smoke: SmokeDocument | None
    """Smoke test; null if none ran"""
    registry_version: int | None
    """Version that this build registered in the MLflow registry; null if it registered none"""
    reasons: NotRequired[list[str]]
    """Why the model was built; empty if it is up to date; missing in results that an older release stored"""
    from_cache: NotRequired[bool]
    """Whether the export and its verification are from the cache; missing in results that an older release stored"""
    seconds: dict[str, float]
    """Duration of each step, by name"""
    peak_rss_bytes: int | None
    """Peak memory of the worker"""
    inputs: list[TensorDocument]
    """Inputs, with the batch; empty if the model failed before it was staged"""
    outputs: list[TensorDocument]
    """Outputs, with the batch; empty if the model failed before it was staged"""
    operators: dict[str, int]
    """Number of nodes of the published graph by operator; empty if this build did not read it"""
    config: str | None
    """Text of config.pbtxt; null if this build did not write it"""
    provenance: ProvenanceDocument | None
    """How the version was built; null if the model failed before it was staged"""
    error: ErrorDocument | None
    """Why the model failed"""


@with_config(_STRICT)
class BuildDocument(TypedDict):
    """``repogen build --json`` and ``repogen diagnose --json``."""

    repository: str
    """Directory or URL of the repository"""
    models: list[ModelDocument]
    """One entry per model"""
    notes: list[str]
    """Notes about the whole build"""
    report: str | None
    """Path of the HTML report; null if none was written"""
    error: ErrorDocument | None
    """An error that is not about one model"""


@with_config(_STRICT)
class FailureDocument(TypedDict):
    """Any command with ``--json`` that failed before it had anything to report; a usage error is only text."""

    repository: None
    """Always null"""
    models: list[ModelDocument]
    """Always empty"""
    error: ErrorDocument
    """The error"""
    problems: list[ProblemDocument]
    """The problems of an invalid spec; rules for several keys of a model are checked after all of its keys are valid"""


@with_config(_STRICT)
class SmokeRunDocument(TypedDict):
    """``repogen smoke --json``."""

    repository: str
    """Directory or URL of the repository"""
    models: list[SmokeDocument]
    """One entry per version"""


@with_config(_STRICT)
class FindingDocument(TypedDict):
    """A finding."""

    code: str
    """Code of the [rule](rules.md)"""
    severity: Literal["error", "warning"]
    """Severity"""
    path: str
    """File or directory, relative to the working directory if it is below that"""
    line: int | None
    """Line, from 1; null if the finding is about a whole file"""
    column: int | None
    """Column, from 1; null if the finding is about a whole file"""
    field: str
    """Field of ModelConfig; may be empty"""
    message: str
    """What was found"""
    hint: str
    """What to do; may be empty"""
    fix: str
    """Replacement text, or for RG403 the new name of the directory, if there is exactly one fix; may be empty"""
    applicability: Literal["safe", "unsafe"] | None
    """Whether `--fix` applies the fix, or only `--fix --unsafe-fixes`; null if neither does"""


@with_config(_STRICT)
class FixedFileDocument(TypedDict):
    """A file that ``repogen check --fix`` corrected."""

    path: str
    """Path of the file"""
    fixes: int
    """Number of findings that were fixed in it"""


@with_config(_STRICT)
class StatisticDocument(TypedDict):
    """The number of findings with one code."""

    code: str
    """Code of the [rule](rules.md)"""
    count: int
    """Number of findings"""
    safe_fixes: int
    """How many of them `--fix` corrects"""
    unsafe_fixes: int
    """How many more of them `--fix --unsafe-fixes` corrects"""


@with_config(_STRICT)
class FindingsDocument(TypedDict):
    """``repogen check --format json``."""

    schema: int
    """Version of this document's format"""
    findings: list[FindingDocument]
    """All findings"""
    checked_models: int
    """Number of models that were checked"""
    errors: int
    """Number of errors"""
    warnings: int
    """Number of warnings"""
    fixed: list[FixedFileDocument]
    """Files that `--fix` corrected"""
    statistics: list[StatisticDocument]
    """Number of findings per code"""
    unexamined_code: list[str]
    """One line for each model with code that a check does not examine, such as `m: Triton runs its model.py`"""


@with_config(_STRICT)
class GateDocument(TypedDict):
    """One gate of a promotion."""

    gate: str
    """Gate and limit, such as `latency.max_ratio`"""
    verdict: Literal["passed", "failed", "recorded", "n/a"]
    """Result; `recorded` without a limit; `n/a` without a champion to compare with; `failed` also if not measured"""
    measured: str
    """The measurement as text"""
    limit: str | None
    """The limit as text; null if there is none"""
    value: float | None
    """The measured number; null if there is none, or if it is not finite"""
    note: str
    """Note; may be empty"""


@with_config(_STRICT)
class FigureDocument(TypedDict):
    """A measurement of a gate."""

    value: float | None
    """The measured number; null if the measurement has none, or if an older version of repogen recorded it"""
    text: str
    """The measurement with its details, and the limit in brackets"""


@with_config(_STRICT)
class MoveDocument(TypedDict):
    """A move of an alias."""

    alias: str
    """The alias"""
    old: int | None
    """Version that it pointed to; null if it did not exist"""
    new: int
    """Version that it points to"""
    by: str
    """Who moved it"""
    at: str
    """Time in UTC, ISO 8601"""
    why: str
    """`promote`, `rollback` or `outside`"""
    ensemble: str | None
    """An ensemble and its version, such as `classify 3`, if the alias moved with that of the ensemble; else null"""
    figures: dict[str, FigureDocument]
    """Measurements by gate; `server` is the Triton server that was used"""


@with_config(_STRICT)
class StepMoveDocument(TypedDict):
    """A model that a promoted ensemble uses."""

    model: str
    """The model"""
    old: int | None
    """Version that its alias pointed to; null if it did not exist"""
    new: int
    """Version that the ensemble was verified with; the alias moves to it together with the alias of the ensemble"""


@with_config(_STRICT)
class PromotionDocument(TypedDict):
    """``repogen promote --json``."""

    model: str
    """Registered model"""
    alias: str
    """The alias"""
    old: int | None
    """Version that the alias pointed to; null if it did not exist"""
    new: int
    """Version to which the promotion moves the alias"""
    outcome: str
    """`promoted`, `rolled back`, `already` (nothing to do), `would move` (`--dry-run`) or `refused` (a gate failed)"""
    gates: list[GateDocument]
    """One entry per limit or measurement"""
    server: str | None
    """Triton server that was used for the measurements; null if none was started"""
    indicative: bool
    """Whether the times can differ from those in production, because the embedded server was measured"""
    move: MoveDocument | None
    """The move of the alias; null if it was not moved"""
    steps: list[StepMoveDocument]
    """The models that an ensemble uses; empty if the model is not an ensemble"""
    notes: list[str]
    """Notes"""


@with_config(_STRICT)
class PeriodDocument(TypedDict):
    """A version that an alias pointed to, and when."""

    alias: str
    """The alias"""
    version: int | None
    """Version that it pointed to; null after the alias was deleted"""
    since: str | None
    """Start in UTC, ISO 8601; null if it was not recorded"""
    until: str | None
    """End in UTC, ISO 8601; null if it has not ended or was not recorded"""
    present: bool
    """Whether the alias still points to the version"""
    by: str
    """Who moved the alias; empty if it was not recorded"""
    why: str
    """`promote`, `rollback`, or `outside` for a move that repogen did not make"""
    ensemble: str | None
    """An ensemble and its version, such as `classify 3`, if the alias moved with that of the ensemble; else null"""
    figures: dict[str, FigureDocument]
    """Measurements by gate; `server` is the Triton server that was used"""


@with_config(_STRICT)
class HistoryDocument(TypedDict):
    """``repogen history --json``."""

    model: str
    """Registered model"""
    periods: list[PeriodDocument]
    """What each alias pointed to, oldest first"""


@with_config(_STRICT)
class DeployedDocument(TypedDict):
    """One model on one server."""

    name: str
    """Name of the model"""
    action: Literal["deployed", "unchanged", "restored", "failed", "unloaded", "skipped"]
    """What was done, see [deploy](../guides/deploy.md#the-report)"""
    expected: list[int]
    """Versions that the repository selects, newest first"""
    before: list[int] | None
    """Versions that the server served before; null if unknown"""
    serving: list[int] | None
    """Versions that the server serves now; null if unknown"""
    note: str | None
    """Note"""
    smoke: list[SmokeDocument]
    """Smoke tests of the expected versions on the server"""
    error: ErrorDocument | None
    """Why it failed"""


@with_config(_STRICT)
class DeployServerDocument(TypedDict):
    """One server of a deploy."""

    server: str
    """Its address"""
    mode: Literal["explicit", "poll"] | None
    """Model control mode; `poll` for every server that rejects load requests; null if unknown"""
    models: list[DeployedDocument]
    """One entry per model"""
    note: str | None
    """Note"""
    error: ErrorDocument | None
    """Why the server could not be used"""


@with_config(_STRICT)
class DeployDocument(TypedDict):
    """``repogen deploy --json``."""

    repository: str
    """Directory or URL of the repository"""
    dry_run: bool
    """Whether nothing was changed because of `--dry-run`"""
    interrupted: bool
    """Whether Ctrl-C ended the run"""
    servers: list[DeployServerDocument]
    """One entry per server, in order"""


@with_config(_STRICT)
class SyncedDocument(TypedDict):
    """One version that ``sync`` handled."""

    name: str
    """Name of the model"""
    action: str
    """What was done, or would be, see [sync](../guides/sync.md#what-sync-does-with-a-model)"""
    version: int | None
    """Version in the registry; null if the entry is not about one version"""
    note: str | None
    """Reason"""
    error: ErrorDocument | None
    """Why it failed"""


@with_config(_STRICT)
class SyncDocument(TypedDict):
    """``repogen sync --json``."""

    repository: str
    """Directory or URL of the repository"""
    alias: str
    """The alias that it follows"""
    dry_run: bool
    """Whether nothing was changed because of `--dry-run`"""
    changed: bool
    """Whether the repository changed, or would without `--dry-run`"""
    models: list[SyncedDocument]
    """One entry per model; with `--prune`, also one for each version that was deleted"""
    deploy: NotRequired[DeployDocument]
    """What the servers of `--deploy` serve; missing without it, and with `--dry-run`"""


@with_config(_STRICT)
class EstimateDocument(TypedDict):
    """The median over the rounds, and its 95% confidence interval."""

    value: float
    """Median"""
    low: float
    """Lower bound"""
    high: float
    """Upper bound"""


@with_config(_STRICT)
class BenchRowDocument(TypedDict):
    """One variant at one batch size and one number of concurrent requests."""

    variant: Literal["eager", "compile", "onnxruntime", "grpc", "http", "shm"]
    """What was measured"""
    batch: int
    """Rows of each request"""
    concurrency: int
    """Number of concurrent requests; always 1 for `eager`, `compile` and `onnxruntime`"""
    p50: EstimateDocument
    """Median latency in milliseconds"""
    p95: EstimateDocument
    """95th percentile of the latency in milliseconds"""
    p99: EstimateDocument
    """99th percentile of the latency in milliseconds"""
    throughput: EstimateDocument
    """Rows per second; requests per second for a model that does not batch"""
    ratio: EstimateDocument | None
    """Speedup over the baseline's row at this batch size and concurrency 1; null in that row, or if there is none"""
    requests: int
    """Number of requests in all rounds"""


@with_config(_STRICT)
class UnmeasuredDocument(TypedDict):
    """A variant that was not measured."""

    variant: str
    """The variant"""
    reason: str
    """Why not"""


@with_config(_STRICT)
class ModelBenchDocument(TypedDict):
    """The measurements of one model."""

    name: str
    """Name of the model"""
    version: int
    """Version in the repository; 0 if no version could be served"""
    server: str | None
    """Server and runtime; null if none was started"""
    baseline: str | None
    """Variant that ratios are relative to; null if nothing was measured"""
    rows: list[BenchRowDocument]
    """The measurements"""
    unmeasured: list[UnmeasuredDocument]
    """Variants without measurements"""
    memory_bytes: dict[str, int]
    """Largest resident memory of the processes of each variant; `triton` for the server"""
    notes: list[str]
    """Notes"""
    error: ErrorDocument | None
    """Why the measurement could not start or was ended; null if it was completed"""


@with_config(_STRICT)
class MachineDocument(TypedDict):
    """The machine that was measured."""

    cpu: str
    """Name of the processor"""
    cores: int
    """CPU cores that repogen, and therefore each variant, may use"""
    memory_bytes: int
    """Total memory"""
    load: float
    """Cores that other programs used just before the start"""
    system: str
    """Operating system"""
    versions: dict[str, str]
    """Versions by tool"""


@with_config(_STRICT)
class BenchDocument(TypedDict):
    """``repogen bench --json``."""

    repository: str
    """Directory or URL of the repository"""
    machine: MachineDocument
    """The machine"""
    rounds: int
    """Number of rounds"""
    seconds: float
    """Duration of each measurement"""
    models: list[ModelBenchDocument]
    """One entry per model"""


@with_config(_STRICT)
class FiguresDocument(TypedDict):
    """What was measured for one config under load."""

    p50: float
    """Median latency in milliseconds"""
    p95: float
    """95th percentile of the latency in milliseconds"""
    p99: float
    """99th percentile of the latency in milliseconds"""
    throughput: float
    """Rows per second; requests per second for a model that does not batch"""
    memory_bytes: int | None
    """Largest resident memory of the server; null if it was not measured"""


@with_config(_STRICT)
class PassCandidateDocument(TypedDict):
    """One value of the parameter `passes`: a list of optimization passes, and the graph that it produces."""

    name: str
    """The value: `spec` for the published graph, `none` for no passes, otherwise their names joined by `+`"""
    passes: list[str]
    """Names of the passes"""
    reason: str | None
    """Why it cannot be chosen; null if it can"""
    sha256: str | None
    """Digest of the graph; null if it cannot be chosen"""
    nodes: int | None
    """Number of nodes of the graph; null if it cannot be chosen"""
    parity_cases: int
    """Number of comparisons with the original model"""
    max_abs_diff: float | None
    """Largest absolute difference from the original's outputs; null if it is infinite, or if it cannot be chosen"""
    lossy: LossyDocument | None
    """Lossy passes that were applied, and their quality; null if there are none"""
    seconds: float
    """Duration of the build"""


@with_config(_STRICT)
class TrialDocument(TypedDict):
    """One config that was tried."""

    number: int
    """Number of the trial, from 1"""
    origin: Literal["spec", "auto", "search"]
    """`spec` for the settings of the spec, `auto` for those of Triton's auto-completion, `search` for the others"""
    settings: dict[str, int | str]
    """Value of each parameter"""
    state: Literal["measured", "stopped", "failed"]
    """`stopped` if its first measurements were worse than those of most other trials"""
    figures: FiguresDocument | None
    """Medians of the measurements; for a stopped trial, of those before it was stopped; null if the trial failed"""
    violations: list[str]
    """Constraints that the measurements violate"""
    reason: str | None
    """Why it failed or was stopped"""
    seconds: float
    """Duration"""


@with_config(_STRICT)
class ComparisonRowDocument(TypedDict):
    """One config of the final comparison."""

    name: Literal["tuned", "spec", "auto"]
    """`tuned` for the chosen config, `spec` for that of the spec, `auto` for Triton's auto-completed config"""
    p50: EstimateDocument
    """Median latency in milliseconds"""
    p95: EstimateDocument
    """95th percentile of the latency in milliseconds"""
    p99: EstimateDocument
    """99th percentile of the latency in milliseconds"""
    throughput: EstimateDocument
    """Rows per second; requests per second for a model that does not batch"""
    memory_bytes: int | None
    """Largest resident memory of the server; null if it was not measured"""
    ratio: EstimateDocument | None
    """Speedup of the tuned config over this config, in the same round; null for `tuned`, or if `tuned` failed"""
    violations: list[str]
    """Constraints that the medians violate"""


@with_config(_STRICT)
class TuneDocument(TypedDict):
    """``repogen tune --json``, and the file tune.json."""

    model: str
    """Name of the model"""
    version: int
    """Published version that was measured"""
    repository: str
    """Directory or URL of the repository"""
    server: str
    """Server and runtime"""
    machine: MachineDocument
    """The machine"""
    objective: Literal["throughput", "latency"]
    """What was optimized"""
    constraints: list[str]
    """Constraints"""
    batch: int
    """Rows of each request; 0 for a model that does not batch"""
    concurrency: int
    """Number of concurrent requests"""
    space: dict[str, list[int | str]]
    """Values of each parameter that were searched"""
    passes: list[PassCandidateDocument]
    """Optimization passes that were considered, those of the spec first; empty if they were not searched"""
    trials: list[TrialDocument]
    """Trials in order, including those of an earlier run"""
    resumed: int
    """Number of trials of an earlier run"""
    pareto: list[int]
    """Numbers of the trials on the Pareto front: each meets the constraints, and no other trial that meets them is
    better in throughput, p99 and memory at once"""
    chosen: int | None
    """Number of the chosen trial; null if no trial meets the constraints"""
    comparison: list[ComparisonRowDocument]
    """The chosen config next to the others, measured in interleaved rounds; empty if they were not compared"""
    improved: bool
    """Whether the chosen config is faster than that of the spec, or meets limits that the spec's config violates"""
    diff: str
    """Change to the spec as a unified diff; empty if there is none"""
    written: bool
    """Whether the spec was changed"""
    interrupted: bool
    """Whether the run was interrupted; the same command continues it"""
    notes: list[str]
    """Notes"""
    files: list[str]
    """Files that were written"""
    error: ErrorDocument | None
    """Why the search or the comparison failed, or the spec could not be changed; null if neither happened"""


@with_config(_STRICT)
class CheckDocument(TypedDict):
    """One check of the environment."""

    name: str
    """What was checked"""
    found: str
    """What was found"""
    ok: bool
    """Whether what was found is sufficient; also true if something optional is missing"""
    optional: bool
    """Whether repogen works without it"""
    remedy: str
    """How to fix it; may be empty"""
    group: str
    """What it belongs to: `repogen`, an extra, or `servers`"""


@with_config(_STRICT)
class DoctorDocument(TypedDict):
    """``repogen doctor --json``."""

    ok: bool
    """Whether every check passed"""
    checks: list[CheckDocument]
    """All checks"""


@with_config(_STRICT)
class RecordedParityDocument(TypedDict):
    """Parity with the original model, as recorded in a manifest."""

    cases: int
    """Number of cases"""
    max_abs_diff: float | NonFinite | None
    """Largest absolute difference; null if nothing was measured; `nan` and `inf` are strings"""
    max_rel_diff: float | NonFinite | None
    """Largest relative difference; null if nothing was measured; `nan` and `inf` are strings"""


@with_config(_STRICT)
class VersionDocument(TypedDict):
    """One version of a model in a repository."""

    version: int
    """Number of its directory"""
    served: bool
    """Whether Triton serves it"""
    held: bool
    """Whether `repogen rollback` holds it"""
    problem: str
    """Why it has no manifest that can be read; empty if it has one"""
    size: int
    """Size in bytes of the files that its manifest lists; without a manifest, of all its files"""
    created: str | None
    """When its manifest was written, in UTC; without a manifest, when its directory was changed"""
    sha256: str | None
    """Digest of `model.onnx`, of the file at `source.path` for Python code, or of `config.pbtxt` for an ensemble"""
    content_sha256: str | None
    """Digest of the paths and digests of the files that its manifest lists"""
    target: str | None
    """Triton release that it was built for"""
    parity: RecordedParityDocument | None
    """Comparison with the original model"""
    confirmed: bool
    """False if the model registry still lists it as pending"""
    registry_version: int | None
    """Version in the MLflow registry; null if the version is not registered, or if no registry was read"""
    aliases: list[str]
    """Aliases that point to it in the MLflow registry"""
    git_commit: str | None
    """Commit of the spec, with `-dirty` if files were changed"""
    signed: bool
    """Whether it has a signature, which may be invalid; `repogen verify` checks it"""


@with_config(_STRICT)
class ModelVersionsDocument(TypedDict):
    """One model of a repository."""

    name: str
    """Name of the model"""
    served: list[int]
    """Versions that config.pbtxt serves, newest first"""
    held: int | None
    """Version that `repogen rollback` holds"""
    problem: str
    """Why it is not known which versions are served, or why none is; may be empty"""
    versions: list[VersionDocument]
    """Its versions, newest first"""


@with_config(_STRICT)
class VersionsDocument(TypedDict):
    """``repogen versions --json``."""

    repository: str
    """Directory or URL of the repository"""
    owner: Literal["built", "synced"] | None
    """`built` if `repogen build` writes it, `synced` if `repogen sync` does; null if it has no `repogen.json`"""
    models: list[ModelVersionsDocument]
    """Its models"""
    notes: list[str]
    """What could not be determined, and why"""


@with_config(_STRICT)
class DiscrepancyDocument(TypedDict):
    """A difference between a repository and its manifests."""

    model: str
    """Name of the model"""
    version: int | None
    """Version; null for a file of the model's directory"""
    message: str
    """What differs"""


@with_config(_STRICT)
class VerifyDocument(TypedDict):
    """``repogen verify --json``."""

    repository: str
    """Directory or URL of the repository"""
    ok: bool
    """Whether there are no findings"""
    models: int
    """Number of models"""
    versions: int
    """Number of versions"""
    files: int
    """Number of files that manifests list"""
    size: int
    """Total size of these files in bytes"""
    signed: int
    """Number of versions that have a signature"""
    findings: list[DiscrepancyDocument]
    """Every difference"""


@with_config(_STRICT)
class SignDocument(TypedDict):
    """``repogen sign --json``."""

    repository: str
    """Directory or URL of the repository"""
    model: str
    """Name of the model"""
    version: int
    """The version that was signed"""


@with_config(_STRICT)
class RollbackDocument(TypedDict):
    """``repogen rollback --json``."""

    repository: str
    """Directory or URL of the repository"""
    model: str
    """Name of the model"""
    outcome: Literal["held", "released", "unchanged"]
    """What was done, or would be done without `--dry-run`"""
    before: list[int]
    """Versions that were served before, newest first"""
    after: list[int]
    """Versions that are served now, or would be without `--dry-run`, newest first"""
    held: int | None
    """Version that is held now, or would be without `--dry-run`; null without a hold"""
    dry_run: bool
    """Whether nothing was changed because of `--dry-run`"""
    notes: list[str]
    """What changes for clients and ensembles"""
    deploy: NotRequired[DeployDocument]
    """What the servers of `--server` serve; missing without it, and with `--dry-run`"""


@with_config(_STRICT)
class PrunedVersionDocument(TypedDict):
    """What a prune did with one version."""

    model: str
    """Name of the model"""
    version: int
    """The version"""
    size: int
    """Size in bytes of the files that its manifest lists; without a manifest, of all its files"""
    deleted: bool
    """Whether it was deleted, or would be without `--dry-run`"""
    keep_reason: str
    """Why it was kept; empty if it was deleted"""


@with_config(_STRICT)
class PruneDocument(TypedDict):
    """``repogen prune --json``."""

    repository: str
    """Directory or URL of the repository"""
    dry_run: bool
    """Whether nothing was deleted because of `--dry-run`"""
    deleted: int
    """Number of versions that were deleted, or would be"""
    freed: int
    """Sum of their sizes in bytes"""
    versions: list[PrunedVersionDocument]
    """Every version of the selected models"""


@with_config(_STRICT)
class TransferredVersionDocument(TypedDict):
    """What a publish did with one version."""

    model: str
    """Name of the model"""
    source: int
    """Version in the source"""
    number: int
    """Version in the target; with `--dry-run`, the number that it would have"""
    published: bool
    """Whether it was published, or would be without `--dry-run`; false if the target had it"""
    size: int
    """Size in bytes of the files that its manifest lists"""
    held: int | None
    """Version that the target serves instead, because `repogen rollback` holds it"""


@with_config(_STRICT)
class TransferDocument(TypedDict):
    """``repogen publish --json``."""

    source: str
    """Directory or URL of the repository that was read"""
    target: str
    """Directory or URL of the repository, package or image that was written"""
    dry_run: bool
    """Whether nothing was changed because of `--dry-run`"""
    versions: list[TransferredVersionDocument]
    """The steps of an ensemble first, the model last"""
    format: str | None
    """`sagemaker`, `azureml` or `oci` for a package; null for a repository"""
    digest: str | None
    """`sha256:` and the digest of the archive, or of the image's manifest; null for directories and with `--dry-run`"""


@with_config(_STRICT)
class VersionRefDocument(TypedDict):
    """A version in a repository or in the MLflow registry."""

    repository: str
    """Directory or URL of the repository; for a registered version, `models:/NAME/VERSION`"""
    model: str
    """Name of the model"""
    version: int
    """The version"""


@with_config(_STRICT)
class WeightsDocument(TypedDict):
    """The tensors of two graphs, compared by digest."""

    unchanged: bool
    """Whether both graphs have the same weights, under any names"""
    same: int
    """Number of tensors with the same name and content"""
    changed: list[str]
    """Names of tensors whose type, shape or values differ"""
    added: list[str]
    """Names of tensors that only the second version has"""
    removed: list[str]
    """Names of tensors that only the first version has"""
    renamed: int
    """Number of tensors with the same content under another name"""


@with_config(_STRICT)
class ChangeDocument(TypedDict):
    """A value that differs."""

    name: str
    """What it is: opset, IR version, exporter, target, `tool torch`, …"""
    before: str
    """Value in the first version; may be empty"""
    after: str
    """Value in the second version; may be empty"""


@with_config(_STRICT)
class OperatorDocument(TypedDict):
    """An operator whose number of nodes differs."""

    name: str
    """Operator, `domain::name` outside of `ai.onnx`"""
    before: int
    """Number of nodes in the first version"""
    after: int
    """Number of nodes in the second version"""


@with_config(_STRICT)
class MetricDocument(TypedDict):
    """A measurement."""

    name: str
    """What was measured"""
    before: float | str | None
    """Value of the first version; null if it was not recorded; `nan` and `inf` are strings"""
    after: float | str | None
    """Value of the second version, in the same form as `before`"""


@with_config(_STRICT)
class FileChangeDocument(TypedDict):
    """A file that differs."""

    path: str
    """Path in the version's directory"""
    before: int | None
    """Size in the first version in bytes; null if it does not have the file"""
    after: int | None
    """Size in the second version in bytes; null if it does not have the file"""


@with_config(_STRICT)
class DiffDocument(TypedDict):
    """``repogen diff --json``."""

    before: VersionRefDocument
    """The first version; with `--against models:/…`, the registered one"""
    after: VersionRefDocument
    """The second version; with `--against models:/…`, the one of the repository"""
    identical: bool
    """Whether all files have the same content; false if a version has no manifest that can be read"""
    signature: list[str] | None
    """Differences of inputs and outputs; null if a version has no manifest that can be read"""
    weights: WeightsDocument | None
    """Weights; null if a version has no graph that can be read"""
    facts: list[ChangeDocument]
    """Opset, exporter, target, tools and other recorded values that differ"""
    nodes: list[int] | None
    """Number of nodes of the first and of the second version; null if a version has no graph that can be read"""
    operators: list[OperatorDocument]
    """Operators whose number of nodes differs"""
    metrics: list[MetricDocument]
    """Measurements, including those that do not differ"""
    sizes: list[int]
    """Sizes of the first and of the second version in bytes, defined like `size` of a version in `repogen versions`"""
    files: list[FileChangeDocument]
    """Files that differ; empty if a version has no manifest that can be read"""
    config: list[str] | None
    """Unified diff of config.pbtxt, one line per entry; null if it was not compared"""
    inputs: list[str]
    """Inputs of the build that differ, as keys of the fingerprint; empty if a version has no readable manifest"""
    notes: list[str]
    """What was not compared, and why"""


@with_config(_STRICT)
class RenderedReportDocument(TypedDict):
    """``repogen report --json``."""

    path: str
    """The HTML file"""
    size: int
    """Size in bytes"""
    repository: str
    """Directory or URL of the repository"""
    models: int
    """Number of models"""
    versions: int
    """Number of versions"""
    measured: list[str]
    """Models with stored results of `build`, `bench` or `tune`"""
    notes: list[str]
    """What could not be read, and why; also if no model has stored results"""


@with_config(_STRICT)
class CostDocument(TypedDict):
    """Time and memory that a build of a model needs."""

    seconds: float
    """Wall time of all steps"""
    memory_bytes: int
    """Peak memory of its worker, or `resources.memory_mb` of the spec"""
    measured: bool
    """Whether an earlier build measured both; if false, `seconds` is an estimate, and `memory_bytes` is an estimate or
    `resources.memory_mb`"""


@with_config(_STRICT)
class ModelPlanDocument(TypedDict):
    """What a build would do with one model."""

    name: str
    """Name of the model"""
    status: Literal["pending", "up-to-date", "rejected"]
    """Whether it would be built; `rejected` if the state of the repository does not allow publishing it"""
    reasons: list[str]
    """Why it would be built; empty if it is up to date"""
    version: int | None
    """Newest published version; null if no version can be used"""
    dependencies: list[str]
    """Models that an ensemble uses, dependencies first"""
    fingerprint: dict[str, str]
    """What its build depends on, as of now: digest or version by key"""
    cost: CostDocument
    """Time and memory that a build of it needs"""
    shard: int | None
    """Number of the shard that builds it, from 1; null without `--shards`"""
    error: ErrorDocument | None
    """Why it is rejected; null otherwise"""


@with_config(_STRICT)
class PlanDocument(TypedDict):
    """``repogen plan --json``."""

    repository: str
    """Directory or URL of the repository"""
    target: str
    """Triton release"""
    models: list[ModelPlanDocument]
    """The selected models"""
    shards: int | None
    """Number of shards; null without `--shards`"""
    seconds: float
    """Estimated wall time of the build, one model at a time"""
    notes: list[str]
    """Notes, one per entry"""


DOCUMENTS: dict[str, type] = {
    "build": BuildDocument,
    "plan": PlanDocument,
    "check": FindingsDocument,
    "smoke": SmokeRunDocument,
    "promote": PromotionDocument,
    "history": HistoryDocument,
    "sync": SyncDocument,
    "versions": VersionsDocument,
    "verify": VerifyDocument,
    "sign": SignDocument,
    "rollback": RollbackDocument,
    "prune": PruneDocument,
    "bench": BenchDocument,
    "tune": TuneDocument,
    "publish": TransferDocument,
    "diff": DiffDocument,
    "report": RenderedReportDocument,
    "deploy": DeployDocument,
    "doctor": DoctorDocument,
    "a command that failed": FailureDocument,
}
"""What prints a document -> its type."""

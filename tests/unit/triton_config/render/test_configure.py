"""configure: golden texts, hostile names, template overrides, and rejected configurations."""

from __future__ import annotations

import gc
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from repogen.artifacts.built_model import BatchReport, OnnxArtifact
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.errors import ConfigError
from repogen.repository.golden import first_golden_inputs
from repogen.resources import templates_dir
from repogen.spec.models import ModelSpec
from repogen.spec.sources import TorchSource
from repogen.targets import DEFAULT_RELEASE, targets
from repogen.triton_config.render import named_files
from repogen.triton_config.render.model import configure
from repogen.triton_config.render.model_facts import RenderOptions, VerifiedModel
from repogen.triton_config.render.template_files import read_template
from repogen.triton_config.sections.model import (
    DynamicBatchingSpec,
    InstanceGroupSpec,
    LatestPolicy,
    TritonSpec,
    VersionPolicySpec,
    WarmupSpec,
)
from repogen.triton_config.sections.tensors import OutputExtraSpec
from repogen.triton_config.text.parse import PbtxtError, parse
from repogen.triton_config.text.view import tensor_views
from tests.support import config_sections
from tests.support.swapping import swap_when_opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from repogen.artifacts.versions import ModelConfig

GOLDEN = Path(__file__).parent / "golden"
TARGET = targets()[DEFAULT_RELEASE]

IMAGE = TensorSpec("image", "float32", ("batch", 1, 8, 8))
LOGITS = TensorSpec("logits", "float32", ("batch", 10))
DIGITS = Signature((IMAGE,), (LOGITS,))


def artifact(signature: Signature = DIGITS, *, opset: int = 20, ir_version: int = 9) -> OnnxArtifact:
    """Return a graph; configure does not open its file."""
    return OnnxArtifact(
        Path("model.onnx"),
        external_data=False,
        signature=signature,
        opset=opset,
        ir_version=ir_version,
        nodes=3,
        exporter="dynamo",
    )


def batches(largest: int) -> BatchReport:
    """Return the result of the batching measurement; 0 means that rows are not independent."""
    return BatchReport(batchable=largest > 0, max_batch_size=largest, reason="" if largest else "rows mix")


def spec(triton: TritonSpec | None = None) -> ModelSpec:
    """Return a spec with this section."""
    return ModelSpec(source=TorchSource(factory="models.py:build"), triton=triton or TritonSpec())


def configured(
    signature: Signature = DIGITS, triton: TritonSpec | None = None, largest: int = 32, templates: Path | None = None
) -> ModelConfig:
    """Configure a model named digits."""
    verified = VerifiedModel(artifact(signature), batches(largest))
    return configure("digits", spec(triton), verified, RenderOptions(TARGET, templates))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a spec's directory with the files that the sections name."""
    config_sections.write_files(tmp_path)
    return tmp_path


FULL = TritonSpec(
    max_batch_size=32,
    dynamic_batching=DynamicBatchingSpec(
        preferred_batch_size=(8, 16), max_queue_delay_microseconds=500, preserve_ordering=True
    ),
    instance_group=(
        InstanceGroupSpec(count=2),
        InstanceGroupSpec(kind="KIND_GPU", gpus=(0, 1), name="on_gpu"),
    ),
    version_policy=VersionPolicySpec(specific=(1, 3)),
)
EVERYTHING = TritonSpec.model_validate(
    {
        "max_batch_size": 32,
        "dynamic_batching": {
            "max_queue_delay_microseconds": 100,
            "priority_levels": 2,
            "default_priority_level": 2,
            "default_queue_policy": {
                "timeout_action": "DELAY",
                "default_timeout_microseconds": 1000,
                "allow_timeout_override": True,
                "max_queue_size": 64,
            },
            "priority_queue_policy": {
                1: {"max_queue_size": 8, "allow_timeout_override": True},
                2: {"timeout_action": "DELAY", "default_timeout_microseconds": 10},
            },
        },
        "instance_group": [
            {
                "count": 2,
                "rate_limiter": {
                    "resources": [{"name": "R1", "count": 4}, {"name": "R2", "global": True}],
                    "priority": 2,
                },
                "passive": True,
                "host_policy": "numa_0",
            },
            {"kind": "KIND_MODEL"},
        ],
        "optimization": {
            "graph": {"level": 1},
            "priority": "PRIORITY_MAX",
            "cuda": {"graphs": True, "busy_wait_events": True, "output_copy_stream": True},
            "execution_accelerators": {
                "gpu_execution_accelerator": [
                    {"name": "tensorrt", "parameters": {"precision_mode": "FP16", "trt_engine_cache_enable": True}}
                ],
                "cpu_execution_accelerator": [{"name": "openvino", "parameters": {"num_streams": 1}}],
            },
            "input_pinned_memory": {"enable": False},
            "output_pinned_memory": {"enable": True},
            "gather_kernel_buffer_threshold": 64,
            "eager_batching": True,
        },
        "parameters": {"intra_op_thread_count": 2, "enable_mem_arena": False, "note": 'a "quoted" word'},
        "metric_tags": {"team": "vision"},
        "model_warmup": [
            {"name": "small", "data": "zero"},
            {"name": "large", "batch_size": 32, "count": 3},
        ],
        "response_cache": {"enable": True},
        "extra": "model_transaction_policy { decoupled: false }  # as it is written",
    }
)
SEQUENCES = Signature(
    (TensorSpec("input_ids", "int64", ("batch", "sequence")), TensorSpec("length", "int32", ("batch",))),
    (TensorSpec("hidden", "float16", ("batch", "sequence", 384)), TensorSpec("valid", "bool", ("batch",))),
)
SCALARS = Signature(
    (TensorSpec("x", "float64", (3, "n")), TensorSpec("scale", "float32", ())),
    (TensorSpec("total", "float64", ()),),
)
CASES = {
    "digits": (DIGITS, None, 32),
    "full": (DIGITS, FULL, 32),
    "everything": (DIGITS, EVERYTHING, 32),
    "rank_one": (
        SEQUENCES,
        TritonSpec(
            dynamic_batching=DynamicBatchingSpec(),
            version_policy=VersionPolicySpec(latest=LatestPolicy(num_versions=2)),
        ),
        8,
    ),
    "unbatched": (
        SCALARS,
        TritonSpec.model_validate(
            {
                "version_policy": {"all": True},
                "instance_group": [{"kind": "KIND_AUTO", "count": "auto"}],
            }
        ),
        0,
    ),
    **{
        name: (case.signature, TritonSpec.model_validate(case.triton), case.largest)
        for name, case in config_sections.CASES.items()
    },
    "growable_memory": (
        config_sections.COUNTER,
        TritonSpec.model_validate({**config_sections.GROWABLE, "instance_group": [{"kind": "KIND_GPU"}]}),
        8,
    ),
    "tensorrt": (
        DIGITS,
        TritonSpec.model_validate(
            {
                "tensorrt": {
                    "precision": "fp16",
                    "cache": "/var/cache/tensorrt",
                    "workspace_mb": 512,
                    "warmup": True,
                    "parameters": {"trt_builder_optimization_level": 5},
                }
            }
        ),
        32,
    ),
}


def test_growable_memory_on_a_cpu_is_rejected(directory: Path) -> None:
    """The model would load, and every inference would fail."""
    triton = TritonSpec.model_validate(config_sections.GROWABLE)
    verified = VerifiedModel(artifact(config_sections.COUNTER), batches(8))
    with pytest.raises(ConfigError, match="RG122 state 'before' has use_growable_memory, which needs GPU memory"):
        configure("digits", spec(triton), verified, RenderOptions(TARGET, root=directory))


@pytest.mark.parametrize("name", CASES)
def test_text_equals_golden_file(name: str, directory: Path) -> None:
    """The rendered text equals the approved file byte for byte."""
    signature, triton, largest = CASES[name]
    config_sections.write_golden(directory, signature)
    golden_inputs = partial(first_golden_inputs, directory)
    verified = VerifiedModel(artifact(signature), batches(largest), golden_inputs=golden_inputs)
    config = configure("digits", spec(triton), verified, RenderOptions(TARGET, root=directory))
    assert (GOLDEN / f"{name}.pbtxt").read_text(encoding="utf-8") == config.text


def test_every_key_is_in_a_golden_file() -> None:
    """Each key of ``triton:`` is set by a case, except those that are always rejected."""
    keys = {path for _, triton, _ in CASES.values() if triton is not None for path in _set_keys(triton)}
    assert set(_all_keys(TritonSpec)) - keys == {"instance_group.profile"}


def _set_keys(section: BaseModel, prefix: str = "") -> Iterator[str]:
    for name in section.model_fields_set:
        yield f"{prefix}{name}"
        yield from _below(getattr(section, name), f"{prefix}{name}.")


def _below(value: object, prefix: str) -> Iterator[str]:
    if isinstance(value, BaseModel):
        yield from _set_keys(value, prefix)
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ():
        yield from _below(item, prefix)


def _all_keys(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, info in section.model_fields.items():
        yield f"{prefix}{name}"
        for below in _sections(info.annotation):
            yield from _all_keys(below, f"{prefix}{name}.")


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _sections(argument)


def test_every_golden_file_has_a_case() -> None:
    """No golden file remains of a removed case."""
    assert sorted(f"{name}.pbtxt" for name in CASES) == sorted(path.name for path in GOLDEN.glob("*.pbtxt"))


def test_result_contains_signature_and_batch_size() -> None:
    """Later steps read full shapes and the batch size from the result."""
    config = configured()
    assert (config.name, config.signature, config.max_batch_size) == ("digits", DIGITS, 32)


@given(st.text(st.characters(codec="utf-8"), min_size=1), st.text(st.characters(codec="utf-8"), min_size=1))
def test_any_tensor_name_is_preserved(input_name: str, output_name: str) -> None:
    """Quotes, line ends, backslashes, NUL and all of Unicode are read back unchanged."""
    signature = Signature(
        (TensorSpec(input_name, "float32", ("batch", 2)),), (TensorSpec(output_name, "float32", ("batch", 2)),)
    )
    config = parse(configured(signature).text, "test")
    assert (input_name, output_name) == (config.input[0].name, config.output[0].name)


def test_invisible_characters_are_escaped() -> None:
    """A right-to-left override or line separator in a name does not change how the file is displayed."""
    signature = Signature((TensorSpec("a\u202eb\u2028", "float32", ("batch",)),), (LOGITS,))
    assert r'name: "a\342\200\256b\342\200\250"' in configured(signature).text


def test_lone_surrogate_is_rejected() -> None:
    """A name that UTF-8 cannot encode is an error, not a crash."""
    signature = Signature((TensorSpec("a\ud800", "float32", ("batch",)),), (LOGITS,))
    with pytest.raises(ConfigError, match="cannot be written as UTF-8"):
        configured(signature)


def test_unverified_batch_size_is_rejected_with_the_reason() -> None:
    """The message contains the reason from the measurement."""
    with pytest.raises(ConfigError, match="max_batch_size is 8 in the spec, but the model does not batch: rows mix"):
        configured(triton=TritonSpec(max_batch_size=8), largest=0)


def test_dynamic_batching_without_batch_is_rejected_with_the_reason() -> None:
    """With max_batch_size auto, dynamic_batching is not ignored."""
    with pytest.raises(ConfigError, match="the spec sets dynamic_batching, but the model does not batch: rows mix"):
        configured(triton=TritonSpec(dynamic_batching=DynamicBatchingSpec()), largest=0)


def test_preferred_size_above_the_largest_is_rejected() -> None:
    """Triton would reject it at load."""
    triton = TritonSpec(dynamic_batching=DynamicBatchingSpec(preferred_batch_size=(8, 64)))
    with pytest.raises(ConfigError, match="RG108 preferred_batch_size 64 is not between 1 and max_batch_size 32"):
        configured(triton=triton)


def test_batch_with_a_fixed_first_dim_is_rejected() -> None:
    """RG208 is reported for each tensor with a fixed first dim."""
    signature = Signature((TensorSpec("image", "float32", (1, 3)),), (TensorSpec("y", "float32", (1, 2)),))
    with pytest.raises(ConfigError) as caught:
        configured(signature, largest=1)
    assert caught.value.message.count("RG208") == 2


def test_dtype_that_no_release_serves_is_rejected_by_name() -> None:
    """The message contains the tensor and its unsupported dtype."""
    signature = Signature((TensorSpec("image", "float8e4m3fn", ("batch",)),), (LOGITS,))
    with pytest.raises(ConfigError, match=r"'image' \(float8e4m3fn\)"):
        configured(signature)


def test_bfloat16_is_rendered_for_a_release_that_serves_it() -> None:
    """Since 26.03; before, a rule names the tensor and the release."""
    signature = Signature(
        (TensorSpec("image", "bfloat16", ("batch", 3)),), (TensorSpec("y", "bfloat16", ("batch", 2)),)
    )
    verified = VerifiedModel(artifact(signature), batches(8))
    config = configure("digits", spec(), verified, RenderOptions(targets()["26.03"]))
    parsed = parse(config.text, "test")
    assert [view.dtype for view in tensor_views((*parsed.input, *parsed.output))] == ["BF16", "BF16"]
    with pytest.raises(ConfigError, match=r"RG107 input 'image' has data_type TYPE_BF16.* only in 26.03 or newer"):
        configure("digits", spec(), verified, RenderOptions(targets()["26.02"]))


def test_graph_newer_than_the_target_is_rejected() -> None:
    """Opset and IR above the target's limits are both reported."""
    verified = VerifiedModel(artifact(opset=22, ir_version=11), batches(8))
    with pytest.raises(ConfigError) as caught:
        configure("digits", spec(), verified, RenderOptions(TARGET))
    assert [line.split()[0] for line in caught.value.message.splitlines()[1:]] == ["RG301", "RG302"]


def test_kind_cpu_with_gpus_is_rejected() -> None:
    """Triton would reject the instance group."""
    triton = TritonSpec(instance_group=(InstanceGroupSpec(kind="KIND_CPU", gpus=(0,)),))
    with pytest.raises(ConfigError, match="RG110"):
        configured(triton=triton)


def override(directory: Path, text: str) -> Path:
    """Write a template override and return its directory."""
    directory.mkdir(exist_ok=True)
    (directory / "config.pbtxt.j2").write_text(text, encoding="utf-8")
    return directory


def own_template() -> str:
    """Return repogen's template."""
    return (templates_dir() / "config.pbtxt.j2").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("added", "problem"),
    [
        ('default_model_filename: "../../../model.onnx"', "default_model_filename names '../../../model.onnx'"),
        ('cc_model_filenames { key: "7.5" value: "/x.onnx" }', "cc_model_filenames"),
        ('model_operations { op_library_filename: "/tmp/ops.so" }', "is the path '/tmp/ops.so' on the server"),
        (
            'model_warmup { inputs { key: "x" value { input_data_file: "../../../../etc/shadow" } } }',
            "names '../../../../etc/shadow', which is not published",
        ),
        (
            'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "$$TRITON_MODEL_DIRECTORY/../e" } }',
            "names '../e', which is outside the model's directory",
        ),
    ],
)
def test_override_may_not_name_a_file(tmp_path: Path, added: str, problem: str) -> None:
    """Triton would read a file that was neither verified nor published."""
    with pytest.raises(ConfigError) as caught:
        configured(templates=override(tmp_path, own_template() + added))
    assert caught.value.code == "config.file-name"
    assert problem in caught.value.message


def test_override_may_add_a_field(tmp_path: Path) -> None:
    """A template can set a field that the spec does not set."""
    added = 'parameters: { key: "intra_op_thread_count" value: { string_value: "2" } }\n'
    assert added in configured(templates=override(tmp_path, own_template() + added)).text


def test_override_directory_without_the_file_changes_nothing(tmp_path: Path) -> None:
    """Templates that the directory does not contain are repogen's own."""
    assert configured().text == configured(templates=tmp_path).text


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ("max_batch_size: {{ max_batch_size }}", "", "max_batch_size: expected 32, found no value"),
        ("count: {{ group.count }}", "count: 4", "instance_group[0].count: expected 1, found 4"),
        ("TYPE_{{ t.dtype }}", "TYPE_FP64", "input[0].data_type: expected TYPE_FP32, found TYPE_FP64"),
        (
            "input [",
            'input { name: "extra" data_type: TYPE_FP32 dims: 1 }\ninput [',
            "input: expected length 1, found length 2",
        ),
        (
            "    dims: {{",
            "    reshape: { shape: 64 }\n    dims: {{",
            "input[0].reshape: expected no value, found shape: 64",
        ),
    ],
)
def test_override_that_changes_the_configuration_is_rejected(
    tmp_path: Path, old: str, new: str, difference: str
) -> None:
    """The error names the field of the spec or graph that the template changes or removes."""
    text = own_template()
    assert old in text
    with pytest.raises(ConfigError) as caught:
        configured(templates=override(tmp_path, text.replace(old, new, 1)))
    assert difference in caught.value.message
    assert caught.value.code == "config.not-as-meant"


def test_unknown_field_names_line_and_template(tmp_path: Path) -> None:
    """The error contains the position of the field in the rendered text."""
    with pytest.raises(PbtxtError) as caught:
        configured(templates=override(tmp_path / "mine", 'name: "digits"\nbackends: "x"\n'))
    assert (caught.value.line, caught.value.column) == (2, 1)
    assert "mine/config.pbtxt.j2:2:1" in caught.value.message


def test_unknown_variable_is_an_error_with_its_line(tmp_path: Path) -> None:
    """A typo in a template is an error instead of an empty string."""
    with pytest.raises(ConfigError, match=r"config\.pbtxt\.j2:2 can't be rendered: 'nane' is undefined"):
        configured(templates=override(tmp_path, "\n{{ nane }}"))


@pytest.mark.parametrize(
    "bomb",
    [
        "{% for i in range(10**9) %}x{% endfor %}",
        "{% for i in range(90000) %}{% for j in range(90000) %}x{% endfor %}{% endfor %}",
        '{{ "a" * 1000000000 }}',
        "{{ 9 ** 9 ** 9 }}",
        "{{ ''.__class__.__mro__ }}",
        "{% if %}",
        "{{ 1 / 0 }}",
        "{{ name.nothing.at_all }}",
        "{{ 1 | pblist }}",
    ],
)
def test_invalid_template_is_a_template_error(tmp_path: Path, bomb: str) -> None:
    """Endless loops, sandbox escapes and failures are reported as errors of the template."""
    with pytest.raises(ConfigError) as caught:
        configured(templates=override(tmp_path, bomb))
    assert caught.value.code == "config.template"


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _outside(path: Path) -> None:
    (path.parents[1] / "outside.j2").write_text("x", encoding="utf-8")
    path.symlink_to(path.parents[1] / "outside.j2")


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _huge(path: Path) -> None:
    path.write_bytes(b"x" * (2**20 + 1))


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _binary(path: Path) -> None:
    path.write_bytes(b"\xff\xfe")


@pytest.mark.parametrize("name", ["config.pbtxt.j2", "part.j2"])
@pytest.mark.parametrize(
    ("create", "reason"),
    [
        (_fifo, "is not a regular file"),
        (_outside, "is a link that leaves the directory of templates"),
        (_device, "is a link that leaves the directory of templates"),
        (_huge, "has more than 1048576 bytes"),
        (_loop, "can't be read"),
        (_binary, "is not UTF-8 text"),
    ],
)
def test_file_that_is_not_a_template_is_not_read(
    tmp_path: Path, create: Callable[[Path], None], reason: str, name: str
) -> None:
    """Neither as the template nor through an include; a FIFO would block the build."""
    directory = override(tmp_path / "templates", "{% include 'part.j2' %}")
    (directory / name).unlink(missing_ok=True)
    create(directory / name)
    with pytest.raises(ConfigError, match=reason) as caught:
        configured(templates=directory)
    assert caught.value.code == "config.template"
    assert name in caught.value.message


def test_link_inside_the_directory_of_templates_is_read(tmp_path: Path) -> None:
    """A template may be a link to another one."""
    directory = override(tmp_path / "templates", own_template())
    (directory / "config.pbtxt.j2").rename(directory / "other.j2")
    (directory / "config.pbtxt.j2").symlink_to("other.j2")
    assert configured(templates=directory).text == configured().text


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    """Keep objects of other tests alive: their destructors would fail at the limit of recursion."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize(
    ("text", "line"),
    [("\n{% include 'config.pbtxt.j2' %}", 2), ("{% macro m() %}\n{{ m() }}{% endmacro %}{{ m() }}", 2)],
)
def test_endless_recursion_is_an_error_of_its_line(tmp_path: Path, text: str, line: int) -> None:
    """A template that includes itself, and a macro that calls itself."""
    with pytest.raises(ConfigError, match="nested too deeply") as caught:
        configured(templates=override(tmp_path, text))
    assert caught.value.where == f"config.pbtxt.j2:{line}"


@given(
    st.lists(st.one_of(st.integers(1, 2**31 - 1), st.sampled_from(["h", "w"])), max_size=6),
    st.booleans(),
    st.sampled_from(["float32", "int64", "bool", "string"]),
)
def test_any_shape_gives_a_valid_config(shape: list[int | str], batch: bool, dtype: str) -> None:  # noqa: FBT001
    """The config matches graphs of any shape, with and without a batch."""
    full = ("batch", *shape) if batch else tuple(shape)
    signature = Signature((TensorSpec("x", dtype, full),), (TensorSpec("y", dtype, full),))
    x = tensor_views(parse(configured(signature, largest=4 if batch else 0).text, "test").input)[0]
    expected = tuple(dim if isinstance(dim, int) else -1 for dim in shape)
    assert (expected or (1,), () if batch and not shape else None) == (x.dims, x.reshape)


def test_label_file_is_named_by_its_content() -> None:
    """The config names it for its output only; other labels are in another file."""
    configs = [
        configure("digits", spec(), VerifiedModel(artifact(), batches(8), {"logits": labels}), RenderOptions(TARGET))
        for labels in (["zero", "one"], ["eins", "zwei"])
    ]
    (first,), (second,) = (config.named_files for config in configs)
    assert first.content == b"zero\none\n"
    assert first.name != second.name
    config = parse(configs[0].text, "test")
    assert [tensor.label_filename for tensor in tensor_views((*config.input, *config.output))] == ["", first.name]


@pytest.mark.parametrize(
    ("triton", "code", "message"),
    [
        ({"extra": "max_batchsize: 3"}, "config.syntax", 'no field named "max_batchsize"'),
        ({"extra": 'name: "other"'}, "config.extra", "contains name, which the spec and the graph determine"),
        (
            {"extra": "response_cache { }", "response_cache": {}},
            "config.extra",
            "contains response_cache, which another key of the spec sets",
        ),
        ({"extra": "optimization { graph { level: 99 } }"}, "", ""),
        ({"parameters": {"intra_op_thread_count": "two"}}, "RG128", "it must be a 32-bit integer"),
        ({"metric_tags": {"a-b": "c"}}, "RG133", "is not a valid Prometheus label"),
        ({"metric_tags": {"_a": "c"}}, "RG133", "is not a valid Prometheus label"),
        ({"model_warmup": [{"batch_size": 64}]}, "RG116", "has batch_size 64, but the largest batch is 32"),
        ({"dynamic_batching": {"priority_levels": 2}}, "RG118", "default_priority_level is 0, and there are 2 levels"),
        (
            {"optimization": {"execution_accelerators": {"cpu_execution_accelerator": [{"name": "onednn"}]}}},
            "RG127",
            "cpu_execution_accelerator 'onednn' is not supported",
        ),
    ],
)
def test_sections_that_triton_would_reject(triton: dict[str, Any], code: str, message: str) -> None:
    """The error has the code of the rule; settings that Triton ignores are rendered."""
    if not code:
        assert "level: 99" in configured(triton=TritonSpec.model_validate(triton)).text
        return
    with pytest.raises(ConfigError) as caught:
        configured(triton=TritonSpec.model_validate(triton))
    assert caught.value.code == code
    assert message in caught.value.message


def test_warmup_needs_a_size_for_each_dynamic_dim() -> None:
    """The size is set in the warmup or is the example size of the dim."""
    section = TritonSpec.model_validate({"model_warmup": [{"sizes": {"sequence": 7}}]})
    config = parse(configured(SEQUENCES, section).text, "test")
    warmup_inputs = config.model_warmup[0].inputs
    assert {name: list(tensor.dims) for name, tensor in warmup_inputs.items()} == {"input_ids": [7], "length": [1]}
    with pytest.raises(ConfigError, match="needs a size for dim 'sequence' of input 'input_ids'"):
        configured(SEQUENCES, TritonSpec.model_validate({"model_warmup": [{}]}))


def test_warmup_with_a_size_for_an_unknown_dim() -> None:
    """It may be misspelled: the warmup would have another size."""
    with pytest.raises(ConfigError, match="has a size for 'sequences', which is not a dynamic dim") as caught:
        configured(SEQUENCES, TritonSpec.model_validate({"model_warmup": [{"sizes": {"sequence": 7, "sequences": 9}}]}))
    assert caught.value.hint.startswith("the dynamic dims are batch, sequence")


@pytest.mark.parametrize(("groups", "kind"), [((), "KIND_GPU"), ((InstanceGroupSpec(count=2),), "KIND_CPU")])
def test_target_with_gpus_sets_the_default_instance_group(groups: tuple[InstanceGroupSpec, ...], kind: str) -> None:
    """One instance per GPU, unless the spec sets instance_group."""
    section = TritonSpec(instance_group=groups)
    verified = VerifiedModel(artifact(), batches(8))
    text = configure("digits", spec(section), verified, RenderOptions(TARGET, gpu=True)).text

    (group,) = parse(text, "config.pbtxt").instance_group
    assert type(group).Kind.Name(group.kind) == kind
    assert ("target.device is gpu" in text) == (kind == "KIND_GPU")


def test_one_file_of_many_states_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spec of a few KB could read one file thousands of times, and keep each copy."""
    read = Mock(wraps=named_files._read_bytes)  # noqa: SLF001 - what reads a file
    monkeypatch.setattr(named_files, "_read_bytes", read)
    (tmp_path / "zeros").write_bytes(bytes(16))
    files = named_files._states(tmp_path, ["zeros", "./zeros", "././zeros"])  # noqa: SLF001 - the files of many states
    assert read.call_count == 1
    assert len({id(file) for file in files.values()}) == 1


def test_labels_have_a_limit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each output of a model can name the same file."""
    monkeypatch.setattr(named_files, "MAX_TEXT_BYTES", 10)
    (tmp_path / "labels.txt").write_text("a\nb\nc\n", encoding="utf-8")
    output = {name: OutputExtraSpec(label_filename="labels.txt") for name in ("y", "z")}
    with pytest.raises(ConfigError, match="larger than 4 bytes"):
        named_files._spec_labels(TritonSpec(output=output), tmp_path)  # noqa: SLF001 - as above


def test_link_that_replaces_labels_before_they_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels are published, and another user may write to a directory of the spec."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "labels.txt").write_text("a\n", encoding="utf-8")
    swap_when_opened(
        monkeypatch, tmp_path / "shared" / "labels.txt", tmp_path / "shared" / "labels.txt", Path("/etc/hostname")
    )
    triton = TritonSpec(output={"y": OutputExtraSpec(label_filename="shared/labels.txt")})
    with pytest.raises(ConfigError, match="leads out of"):
        named_files._spec_labels(triton, tmp_path)  # noqa: SLF001 - as above


def test_link_that_replaces_a_template_before_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of a template is published."""
    template = tmp_path / "config.pbtxt.j2"
    template.write_text("a")
    assert read_template(template, tmp_path) == "a"
    swap_when_opened(monkeypatch, template, template, Path("/etc/hostname"))
    with pytest.raises(OSError, match="leads out of"):
        read_template(template, tmp_path)


def test_warmups_of_a_graph_with_many_inputs() -> None:
    """Each warmup has a value for each input, which the spec need not name."""
    signature = Signature(
        tuple(TensorSpec(f"x{number}", "float32", (4,)) for number in range(200)),
        (TensorSpec("y", "float32", (4,)),),
    )
    triton = TritonSpec(model_warmup=(WarmupSpec(),) * 200)
    with pytest.raises(ConfigError, match="200 warmups for 200 inputs are more") as caught:
        configured(signature, triton, largest=0)
    assert caught.value.code == "config.warmup"


@pytest.mark.parametrize(
    ("compared", "origin"),
    [(True, "measured: rows are not independent"), (False, "not measured: see the build's notes")],
)
def test_config_states_whether_rows_were_compared(compared: bool, origin: str) -> None:  # noqa: FBT001 - a parameter of the test
    """They are not if no dim is on axis 0 of all inputs."""
    batch = BatchReport(batchable=False, max_batch_size=0, reason="a reason", compared=compared)
    config = configure("digits", spec(), VerifiedModel(artifact(DIGITS), batch), RenderOptions(TARGET, None))
    assert f"max_batch_size: 0  # {origin}\n" in config.text


def test_warnings_of_rules_are_notes() -> None:
    """They are those that `repogen check` would report, except for those that the spec ignores."""
    month = Signature((TensorSpec("month", "int64", ("batch",)),), (TensorSpec("y", "float32", ("batch", 2)),))
    model = spec(TritonSpec.model_validate({"dynamic_batching": {}}))
    shapes = "clients send and receive [N, 1], not [N]: month"
    for ignored, expected in (((), ["RG134"]), (("RG1",), [])):
        config = configure(
            "digits", model, VerifiedModel(artifact(month), batches(8)), RenderOptions(TARGET, ignored_rules=ignored)
        )
        assert config.notes[0] == shapes
        assert [note.partition(" ")[0] for note in config.notes[1:]] == expected

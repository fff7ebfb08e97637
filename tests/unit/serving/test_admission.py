"""Which models Triton may load: names that reach a shell, and code in models that are not Python models."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING
from unittest.mock import Mock

import onnx
import pytest

from repogen.api.check import check, check_report
from repogen.check.checker import Selection
from repogen.errors import ConfigError
from repogen.files.work_limit import work_limit
from repogen.onnx_graph import external_data
from repogen.serving import admission
from repogen.serving.admission import read_refusals, require_admitted, unexamined_code
from repogen.targets import DEFAULT_RELEASE
from repogen.triton_config.text.parse import empty_config, parse
from tests.support import graphs

if TYPE_CHECKING:
    from pathlib import Path

SESSION_FILES = (
    "session.optimized_model_filepath",
    "session.optimized_model_external_initializers_file_name",
    "session.model_external_initializers_file_folder_path",
    "session.custom_ops_library",
    "session.collect_node_memory_stats_to_file",
    "session.node_partition_config_file",
    "ep.context_enable",
    "ep.context_file_path",
    "ep.context_model_external_initializers_file_name",
)
LIBRARIES = ("trt_extra_plugin_lib_paths", "trt_engine_decryption_lib_path")
ACCELERATOR = (
    'optimization { execution_accelerators { gpu_execution_accelerator { name: "%s" '
    'parameters { key: "%s" value: "/tmp/x" } } } }'
)
ONNX = 'backend: "onnxruntime"\n'


def model(root: Path, config: str | None = ONNX, name: str = "m", *files: str) -> Path:
    """Write a model with empty files; return its directory."""
    directory = root / name
    for file in ("1/model.onnx", *files):
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        (directory / file).touch()
    if config is not None:
        (directory / "config.pbtxt").write_text(config, encoding="utf-8")
    return directory


@pytest.mark.parametrize("name", ["m", "bert-base_v1.5", "a@b+c=d,e:f%", "mod\u00e8le", "-m", "2.0"])
@pytest.mark.parametrize("config", [None, ONNX, 'platform: "onnxruntime_onnx"', "instance_group { name: 'm_0' }"])
def test_plain_models_may_be_loaded(tmp_path: Path, name: str, config: str | None) -> None:
    """Names and values without special characters of a shell."""
    assert read_refusals(model(tmp_path, config, name)) == ()


@pytest.mark.parametrize(
    "name", ["x$(date)y", "a;b", "a b", "a`b`", "a|b", "a&b", "a>b", "a\nb", "a'b", 'a"b', "a*", "~", "!a", "a\\b"]
)
def test_name_that_reaches_a_shell_is_refused(tmp_path: Path, name: str) -> None:
    """`check` reports it as well."""
    (reason,) = read_refusals(model(tmp_path, ONNX, name))
    assert repr(name) in reason
    assert "to a shell" in reason
    assert "RG410" in {finding.code for finding in check(tmp_path)}


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (ONNX + 'instance_group { name: "a;b" }', "instance_group[0].name 'a;b'"),
        (ONNX + 'default_model_filename: "$(a).onnx"', "default_model_filename '$(a).onnx'"),
        (ONNX + 'parameters { key: "EXECUTION_ENV_PATH" }', "parameter EXECUTION_ENV_PATH runs code"),
        ('parameters { key: "EXECUTION_ENV_PATH" }', "parameter EXECUTION_ENV_PATH runs code"),
        ('platform: "ensemble" parameters { key: "EXECUTION_ENV_PATH" }', "parameter EXECUTION_ENV_PATH"),
        (ONNX + 'parameters { key: "TRITON_BATCH_STRATEGY_PATH" }', "TRITON_BATCH_STRATEGY_PATH runs code"),
        (ONNX + 'model_operations { op_library_filename: "a.so" }', "op_library_filename runs code"),
        *(
            (ONNX + f'parameters {{ key: "{key}" value {{ string_value: "/tmp/x" }} }}', f'parameters["{key}"] makes')
            for key in SESSION_FILES
        ),
        *((ONNX + ACCELERATOR % ("tensorrt", key), f'parameters["{key}"] loads the libraries') for key in LIBRARIES),
        ('backend: "../x"', "backend '../x' is not a plain name"),
        ('backend: ".."', "backend '..' is not a plain name"),
        ('backend: "python" runtime: "a/b.so"', "runtime 'a/b.so' is not a plain name"),
        (ONNX + 'model_repository_agents { agents { name: "../a" } }', "agents[0].name '../a' is not a plain name"),
    ],
)
def test_config_that_runs_code_is_refused(tmp_path: Path, config: str, reason: str) -> None:
    """The reason names the field; `check` reports it as well."""
    refusals = read_refusals(model(tmp_path, config))
    assert [reason in text for text in refusals] == [True]
    assert "RG410" in {finding.code for finding in check(tmp_path)}


@pytest.mark.parametrize("directory", ["", "1/", "7/", "01/"])
@pytest.mark.parametrize("file", ["libtriton_onnxruntime.so", "libtriton_python.so", "batchstrategy.so", "own.so"])
def test_library_in_a_model_is_refused(tmp_path: Path, directory: str, file: str) -> None:
    """Triton searches libraries in the version's and the model's directory first, and any that `runtime` names."""
    config = ONNX + ('runtime: "own.so"' if file == "own.so" else "")
    (reason,) = read_refusals(model(tmp_path, config, "m", f"{directory}{file}"))
    assert reason == f"m/{directory}{file} is a file that Triton would run as code"


ELSEWHERE = "../../../../../../../../../../etc/hostname"


FROM_MODEL = "is outside of the model's directory"
FROM_VERSION = "is outside of the version's directory"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (f'output {{ name: "y" data_type: TYPE_FP32 dims: [ 4 ] label_filename: "{ELSEWHERE}" }}', FROM_MODEL),
        (
            'output { name: "y" data_type: TYPE_FP32 dims: [ 4 ] label_filename: "link.txt" }',
            "is a link that leads out of the repository",
        ),
        (
            f'model_warmup {{ name: "w" inputs {{ key: "x" value {{ input_data_file: "../{ELSEWHERE}" }} }} }}',
            FROM_MODEL,
        ),
        (f'sequence_batching {{ state {{ initial_state {{ data_file: "../{ELSEWHERE}" }} }} }}', FROM_MODEL),
        (f'default_model_filename: "{ELSEWHERE}"', FROM_VERSION),
        (f'cc_model_filenames {{ key: "7.5" value: "{ELSEWHERE}" }}', FROM_VERSION),
    ],
)
def test_file_outside_of_the_repository_is_refused(tmp_path: Path, config: str, expected: str) -> None:
    """Clients could read it through the server: class names, warmup data, states, model files."""
    directory = model(tmp_path / "repository", ONNX + config)
    (tmp_path / "secret.txt").write_text("secret")
    (directory / "link.txt").symlink_to(tmp_path / "secret.txt")
    (reason,) = read_refusals(directory)
    assert expected in reason


@pytest.mark.parametrize("location", ["/etc/hostname", f"../{ELSEWHERE}", "link"])
@pytest.mark.parametrize("file", ["model.onnx", "model.onnx/model.onnx", "own.bin"])
def test_external_data_outside_of_its_directory_is_refused(tmp_path: Path, location: str, file: str) -> None:
    """ONNX Runtime 1.19 reads it, and a graph can return it to clients."""
    config = ONNX + ('default_model_filename: "own.bin"' if file == "own.bin" else "")
    directory = model(tmp_path, config)
    (directory / "1" / "model.onnx").unlink()
    path = directory / "1" / file
    path.parent.mkdir(exist_ok=True)
    graphs.with_external(path, "data")
    stored = onnx.load(path, load_external_data=False)
    stored.graph.initializer[0].external_data[0].value = location
    onnx.save_model(stored, path)
    (path.parent / "link").symlink_to("/etc/hostname")
    (reason,) = read_refusals(directory)
    assert f"external data {location!r} is outside of its directory" in reason


def test_name_of_another_model_is_refused(tmp_path: Path) -> None:
    """A server would load the other model if it got the name in the config."""
    (reason,) = read_refusals(model(tmp_path, ONNX + 'name: "other"'))
    assert reason == "config.pbtxt has the name 'other', which is not the name of the directory"


def test_directory_of_a_model_may_be_a_link(tmp_path: Path) -> None:
    """Its files are in the model, wherever that is."""
    config = ONNX + 'output { name: "y" data_type: TYPE_FP32 dims: [ 4 ] label_filename: "labels.txt" }'
    directory = model(tmp_path / "models", config, "m", "labels.txt")
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "m").symlink_to(directory)
    assert read_refusals(tmp_path / "repository" / "m") == ()


@pytest.mark.parametrize("link", ["m", "m/1", "m/1/model.onnx", "m/config.pbtxt"])
def test_link_of_another_user_to_a_model(tmp_path: Path, link: str) -> None:
    """It could lead to a private model of this user, which clients of the server could then use."""
    model(tmp_path / "repository", ONNX, "m")
    path = tmp_path / "repository" / link
    path.rename(tmp_path / "private")
    path.symlink_to(tmp_path / "private")
    assert read_refusals(tmp_path / "repository" / "m") == ()
    os.chown(path, 65534, -1, follow_symlinks=False)
    (reason,) = read_refusals(tmp_path / "repository" / "m")
    assert reason == f"{path} is a symlink of another user, who does not own what it leads to"


@pytest.mark.parametrize("size", [2**20 - 40, 2**20 - 4, 2**20, 3 * 2**20])
def test_external_data_is_found_after_large_weights(tmp_path: Path, size: int) -> None:
    """Graphs are searched block by block before they are parsed; a reference may lie on the end of a block."""
    path = tmp_path / "m" / "1" / "model.onnx"
    path.parent.mkdir(parents=True)
    graphs.with_external(path, "data")
    stored = onnx.load(path, load_external_data=False)
    stored.graph.initializer[0].external_data[0].value = "/etc/hostname"
    padding = onnx.TensorProto(name="padding", data_type=onnx.TensorProto.UINT8, dims=[size], raw_data=bytes(size))
    stored.graph.initializer.insert(0, padding)
    path.write_bytes(stored.SerializeToString())
    (reason,) = read_refusals(tmp_path / "m")
    assert "external data '/etc/hostname'" in reason


def test_external_data_beside_the_graph_is_allowed(tmp_path: Path) -> None:
    """As repogen writes it."""
    directory = model(tmp_path)
    graphs.with_external(directory / "1" / "model.onnx", "data")
    assert read_refusals(directory) == ()


@pytest.mark.parametrize("target", [".", "..", "../.."])
def test_links_that_multiply_directories_are_refused(tmp_path: Path, target: str) -> None:
    """Triton follows every link while it looks for files, which takes exponential time."""
    directory = model(tmp_path / "repository")
    for name in "abc":
        (directory / "1" / name).symlink_to(target)
    (reason,) = read_refusals(directory)
    assert "more than 10000 directories" in reason
    assert "RG410" in {finding.code for finding in check(tmp_path / "repository")}


def test_links_that_multiply_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They take as much time as directories; a model with many files of its own is loaded."""
    monkeypatch.setattr(admission, "_MAX_ENTRIES", 500)
    directory = model(tmp_path, ONNX, "m", *(f"1/{number}.bin" for number in range(100)))
    assert read_refusals(directory) == ()
    (directory / "1" / "again").symlink_to(".")
    (reason,) = read_refusals(directory)
    assert "500 files" in reason


def test_config_that_is_not_a_regular_file_is_not_opened(tmp_path: Path) -> None:
    """Reading a FIFO would wait forever."""
    directory = model(tmp_path, None)
    os.mkfifo(directory / "config.pbtxt")
    assert read_refusals(directory) == ("config.pbtxt cannot be read: not a regular file",)


def test_config_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    """The file is sparse."""
    directory = model(tmp_path)
    os.truncate(directory / "config.pbtxt", 2**30)
    with pytest.raises(ConfigError, match="is larger than 1 MiB"):
        read_refusals(directory)


def test_stub_in_a_model_is_refused(tmp_path: Path) -> None:
    """Triton's Python backend prefers it to its own."""
    (reason,) = read_refusals(model(tmp_path, ONNX, "m", "triton_python_backend_stub"))
    assert reason.startswith("m/triton_python_backend_stub is a file")


@pytest.mark.parametrize("config", ['backend: "python"', None])
def test_python_model_may_contain_code(tmp_path: Path, config: str | None) -> None:
    """It runs its code by design."""
    text = None if config is None else config + 'parameters { key: "EXECUTION_ENV_PATH" }'
    assert read_refusals(model(tmp_path, text, "m", "1/model.py", "triton_python_backend_stub")) == ()


@pytest.mark.parametrize(
    "key", ["session.intra_op.allow_spinning", "optimization.enable_gelu_approximation", "note.file"]
)
def test_other_parameters_of_a_session_are_admitted(tmp_path: Path, key: str) -> None:
    """They name no file, or are not passed to ONNX Runtime."""
    assert read_refusals(model(tmp_path, ONNX + f'parameters {{ key: "{key}" value {{ string_value: "1" }} }}')) == ()


@pytest.mark.parametrize("key", ["trt_engine_cache_path", "trt_timing_cache_path", "trt_ep_context_file_path"])
def test_cache_of_an_accelerator_is_a_warning(tmp_path: Path, key: str) -> None:
    """Such a model is loaded: a cache is usual, and only a server with a GPU reads it."""
    directory = model(tmp_path, ONNX + ACCELERATOR % ("tensorrt", key))
    assert read_refusals(directory) == ()
    (finding,) = (finding for finding in check(directory) if finding.code == "RG405")
    assert (finding.severity, finding.line) == ("warning", 2)
    assert "'/tmp/x' names files" in finding.message


def test_ensembles_in_a_cycle_are_refused(tmp_path: Path) -> None:
    """Tritonserver 2.51 crashes if another ensemble uses one of them."""
    for name, step in {"a": "b", "b": "c", "c": "a", "user": "a", "other": "m"}.items():
        step_text = f'ensemble_scheduling {{ step {{ model_name: "{step}" }} }}'
        model(tmp_path, f'platform: "ensemble" {step_text}', name)
    model(tmp_path)
    refused = {name: read_refusals(tmp_path / name) for name in ("a", "b", "c", "user", "other", "m")}
    cycle = {name: (f"the steps of {name!r} lead back to {name!r}",) for name in "abc"}
    assert refused == cycle | dict.fromkeys(("user", "other", "m"), ())


def test_very_deep_ensemble_is_refused(tmp_path: Path) -> None:
    """Each poll reads the steps of every ensemble: the time would grow with the square of their number."""
    model(tmp_path, ONNX, "e0")
    for number in range(1, 300):
        step = f'ensemble_scheduling {{ step {{ model_name: "e{number - 1}" }} }}'
        model(tmp_path, f'platform: "ensemble" {step}', f"e{number}")
    assert read_refusals(tmp_path / "e256") == ()
    assert read_refusals(tmp_path / "e299") == ("the steps of 'e299' lead to more than 256 models",)


LEAK = "../../../secret.txt"


def with_location(*values: str, key: str = "location") -> onnx.ModelProto:
    """Return a graph whose weight is in the file of the last location, or of the first."""
    graph = graphs.matmul()
    weight = graph.graph.initializer[0]
    weight.data_location = onnx.TensorProto.EXTERNAL
    for value in values:
        entry = weight.external_data.add()
        entry.key, entry.value = key, value
    return graph


def with_default(location: str) -> onnx.ModelProto:
    """Return a graph with a function whose attribute has a default value in a file."""
    value = with_location(location).graph.initializer[0]
    constant = onnx.helper.make_node("Constant", [], ["y"])
    constant.attribute.add(name="value", type=onnx.AttributeProto.TENSOR, ref_attr_name="value")
    opset = onnx.helper.make_opsetid("", 17)
    function = onnx.helper.make_function("own", "Weight", [], ["y"], [constant], [opset])
    function.attribute_proto.add(name="value", type=onnx.AttributeProto.TENSOR, t=value)
    graph = graphs.matmul()
    graph.functions.append(function)
    return graph


def as_web_page(graph: onnx.ModelProto) -> bytes:
    """Return a graph that begins with an unknown field, which looks like a page."""
    return b"\x0a\x20" + b"<html>".ljust(32) + graph.SerializeToString()


def without_version(graph: onnx.ModelProto) -> bytes:
    """Return a graph without an IR version, which repogen's own reader rejects."""
    graph.ClearField("ir_version")
    return graph.SerializeToString()


@pytest.mark.parametrize(
    ("config", "file", "content"),
    [
        ("", "1/model.onnx", with_location(LEAK).SerializeToString()),
        ("", "1/model.onnx", as_web_page(with_location(LEAK))),
        ("", "1/model.onnx", without_version(with_location(LEAK))),
        ("", "1/model.onnx", with_location(LEAK, "").SerializeToString()),
        ("", "1/model.onnx", with_location(LEAK, "model.onnx").SerializeToString()),
        ("", "1/model.onnx", with_location("*/_ORT_MEM_ADDR_/*").SerializeToString()),
        ("", "1/model.onnx", with_default(LEAK).SerializeToString()),
        ('default_model_filename: "a/b/graph.bin"', "1/a/b/graph.bin", with_location(LEAK).SerializeToString()),
        ('default_model_filename: "/a/model.onnx"', "1/a/model.onnx", with_location(LEAK).SerializeToString()),
        ('default_model_filename: "a/b"', "1/a/b/model.onnx", with_location(LEAK).SerializeToString()),
        (
            'cc_model_filenames { key: "8.0" value: "a/graph.bin" }',
            "1/a/graph.bin",
            with_location(LEAK).SerializeToString(),
        ),
    ],
    ids=[
        "file",
        "page",
        "version",
        "empty",
        "several",
        "memory",
        "default",
        "nested",
        "absolute",
        "directory",
        "capability",
    ],
)
def test_graph_that_may_read_other_files_is_refused(tmp_path: Path, config: str, file: str, content: bytes) -> None:
    """Wherever the config looks for it, and also if repogen cannot parse what the server's parser might."""
    directory = model(tmp_path, ONNX + config, "m", file)
    (directory / file).write_bytes(content)
    reasons = read_refusals(directory)
    assert reasons
    assert file in reasons[0]


def test_file_without_external_data_need_not_be_a_graph(tmp_path: Path) -> None:
    """The server rejects it, and its message says more."""
    directory = model(tmp_path)
    (directory / "1" / "model.onnx").write_bytes(b"<html>")
    assert read_refusals(directory) == ()


def test_version_is_not_moved_next_to_code(tmp_path: Path) -> None:
    """Triton would run a library in the published directory instead of its own; an unpublished model has none."""
    staged = model(tmp_path / "stage")
    require_admitted(staged, ONNX, tmp_path / "repository" / "m")
    published = model(tmp_path / "repository", ONNX, "m", "1/libtriton_onnxruntime.so")
    with pytest.raises(ConfigError, match=r"m/1/libtriton_onnxruntime\.so is a file that Triton would run as code"):
        require_admitted(staged, ONNX, published)


CODE = [
    ('backend: "python"', (), "Triton runs its model.py"),
    ("", ("1/model.py",), "Triton runs its model.py"),
    ('backend: "pytorch"', (), "Triton's backend 'pytorch' may run code in its files"),
    ('platform: "pytorch_libtorch"', (), "Triton's backend 'pytorch_libtorch' may run code in its files"),
    ('backend: "tensorrt"', (), "Triton's backend 'tensorrt' may run code in its files"),
    ('backend: "dali"', (), "Triton's backend 'dali' may run code in its files"),
    ('backend: "own"', (), "Triton's backend 'own' may run code in its files"),
    ("", ("1/model.pt",), "Triton loads its model.onnx, model.pt"),
    ("", ("7/model.savedmodel/saved_model.pb",), "Triton loads its model.onnx, model.savedmodel"),
    ('default_model_filename: "a.plan"', (), "Triton loads its a.plan"),
    ("", (), ""),
    ('default_model_filename: "a.onnx"', ("1/model.pt",), ""),
    (ONNX, ("1/model.pt", "1/model.py"), ""),
    ('platform: "onnxruntime_onnx"', ("1/model.py",), ""),
    ('platform: "ensemble"', (), ""),
    ("ensemble_scheduling { step { model_name: 'a' } }", (), ""),
]


@pytest.mark.parametrize(("config", "files", "code"), CODE)
def test_code_that_is_not_examined(tmp_path: Path, config: str, files: tuple[str, ...], code: str) -> None:
    """`check` reports it, without a finding; repogen publishes no model of another backend."""
    directory = model(tmp_path, config, "m", *files)
    assert unexamined_code(directory, parse(config, "m")) == code
    report = check_report([tmp_path], DEFAULT_RELEASE, Selection())
    assert report.unexamined == ((f"m: {code}",) if code else ())
    if code and "model.py" not in code:
        with pytest.raises(ConfigError, match="and repogen builds no such models"):
            require_admitted(directory, config)
    else:
        require_admitted(directory, config)


def test_names_that_lead_to_one_graph_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of names such as `a/../model.onnx`, and links, made a command parse one graph for hours."""
    names = ["a/../model.onnx", "a/../a/../model.onnx", "b/../model.onnx"]
    config = "".join(f'cc_model_filenames {{ key: "{number}" value: "{name}" }}' for number, name in enumerate(names))
    directory = model(tmp_path, ONNX + config)
    graphs.with_external(directory / "1" / "model.onnx")
    for name in ("a", "b"):
        (directory / "1" / name).mkdir()
    (directory / "2").symlink_to("1")
    (directory / "3").mkdir()
    (directory / "3" / "model.onnx").symlink_to("../1/model.onnx")
    read = Mock(wraps=admission._contains)  # noqa: SLF001 - what reads the file
    monkeypatch.setattr(admission, "_contains", read)
    admission._external_data.cache_clear()  # noqa: SLF001 - of other tests
    assert read_refusals(directory) == ()
    assert [call.args[0] for call in read.call_args_list] == [directory / "1" / "model.onnx"]


def test_external_data_in_very_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is looked up."""
    monkeypatch.setattr(external_data, "MAX_LOCATIONS", 0)
    admission._external_data.cache_clear()  # noqa: SLF001 - of other tests
    directory = model(tmp_path)
    graphs.with_external(directory / "1" / "model.onnx")
    (reason,) = read_refusals(directory)
    assert "external data in more than 0 files" in reason


def test_runtime_is_not_a_pattern(tmp_path: Path) -> None:
    """A pattern of 300 KB took 10 s to compile."""
    directory = model(tmp_path, ONNX + f'runtime: "{"*a" * 100_000}b"')
    before = time.process_time()
    (reason,) = read_refusals(directory)
    assert "is not a plain name" in reason
    assert time.process_time() - before < 2.0


def test_model_that_exceeds_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not loaded, whoever parsed its config, and the limit concerns no other model."""

    def read(*_: object) -> tuple[str, ...]:
        end = time.process_time() + 1
        while time.process_time() < end:
            pass
        return ()

    monkeypatch.setattr(admission, "work_limit", partial(work_limit, seconds=0.1))
    monkeypatch.setattr(admission, "refusals", read)
    (reason,) = admission.load_refusals(tmp_path / "m", empty_config())
    assert reason.startswith("model m needs more than 0.1 s of processor time")

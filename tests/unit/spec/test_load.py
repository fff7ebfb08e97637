"""Loading a valid spec, and reporting the problems of an invalid one."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from repogen.errors import SpecError
from repogen.spec.load import load_spec, load_tracking_spec
from repogen.spec.models import PassSpec
from repogen.spec.problems import SpecProblemsError
from repogen.spec.sources import TorchSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from repogen.spec.models import Spec

    Problems = Callable[[str | bytes], list[tuple[str, str, str]]]

GOOD = """\
models:
  m:
    source: {factory: "models.py:build"}
    inputs: {x: {dtype: float32, shape: [batch, 4]}}
    dims: {batch: {max: 8}}
"""


def test_base_of_the_rejected_specs_is_valid(folder: Path) -> None:
    """The spec that the rejected specs are derived from loads."""
    (folder / "repogen.yaml").write_text(GOOD)
    names = ["m"]
    assert names == list(load_spec(folder / "repogen.yaml").models)


@pytest.mark.parametrize("release", ["26.03", "26.08", "99.01"])
def test_bfloat16_inputs_are_accepted_for_a_release_that_serves_them(release: str, folder: Path) -> None:
    """Also for one that is newer than the table."""
    path = folder / "repogen.yaml"
    entry = "{source: {factory: 'models.py:build'}, inputs: {x: {dtype: bfloat16, shape: [4]}}}"
    path.write_text(f'target: {{triton: "{release}"}}\nmodels: {{m: {entry}}}\n')
    assert load_spec(path).models["m"].inputs["x"].dtype == "bfloat16"


def test_all_problems_are_reported_at_once(problems: Problems) -> None:
    """YAML, structure, rules and missing files are reported together, in file order."""
    text = (
        "repositry: out\n"
        "models:\n"
        "  a:\n"
        '    source: {factory: "gone.py:build", factory: 1}\n'
        "    inputs: {x: {dtype: float32, shape: [batch, 4]}}\n"
        "    dims: {batch: {max: 8}}\n"
        "    limits: {timeout_seconds: soon}\n"
        "    triton: {max_batch_size: 9}\n"
        "  b: 3\n"
    )
    expected = [
        ("1:1", "repositry"),
        ("4:14", "models.a.source.factory"),
        ("4:40", "models.a.source.factory"),
        ("7:14", "models.a.limits.timeout_seconds"),
        ("8:14", "models.a.triton.max_batch_size"),
        ("9:3", "models.b"),
    ]
    assert expected == [problem[:2] for problem in problems(text)]


def test_format_of_a_problem(folder: Path) -> None:
    """The message is `file:line:col key.path: what (hint)`."""
    path = folder / "repogen.yaml"
    path.write_text("repositry: x\n" + GOOD)
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    assert f'{path}:1:1 repositry: unknown key (did you mean "repository"?)' == str(caught.value)


def test_long_message_is_truncated(folder: Path) -> None:
    """The message has a hundred lines; the data has every problem."""
    path = folder / "repogen.yaml"
    path.write_text(GOOD + "    optimize: [" + "true, " * 150 + "]\n")
    with pytest.raises(SpecProblemsError) as caught:
        load_spec(path)
    count, last = len(caught.value.problems), str(caught.value).splitlines()[-1]
    assert (count, last) == (150, "and 50 more problems")


@pytest.mark.parametrize(
    ("name", "message"), [("gone.yaml", "spec not found"), (".", "is a directory"), ("a\0b", "can't be read")]
)
def test_unreadable_file_is_a_spec_error(name: str, message: str, tmp_path: Path) -> None:
    """A missing file, a directory and an invalid name are errors with a message."""
    with pytest.raises(SpecError, match=message):
        load_spec(tmp_path / name)


@pytest.mark.parametrize("link", ["link.yaml", "link/repogen.yaml"])
def test_spec_behind_a_link_of_another_user(tmp_path: Path, link: str) -> None:
    """It could be that of a private project, whose models would be published for every user."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "repogen.yaml").write_text("models: {}", encoding="utf-8")
    path = tmp_path / link.partition("/")[0]
    path.symlink_to("project/repogen.yaml" if link.endswith("link.yaml") else "project")
    os.chown(path, 65534, -1, follow_symlinks=False)
    with pytest.raises(SpecError) as caught:
        load_spec(tmp_path / link)
    assert caught.value.code == "foreign-link"


def test_fifo_is_a_spec_error(tmp_path: Path) -> None:
    """A FIFO is not opened, and the message has no number of a system error."""
    os.mkfifo(tmp_path / "fifo.yaml")
    with pytest.raises(SpecError) as caught:
        load_spec(tmp_path / "fifo.yaml")
    assert caught.value.message == "the spec can't be read: not a regular file"


def test_missing_spec_suggests_init(tmp_path: Path) -> None:
    """The hint for a missing spec suggests `repogen init`."""
    with pytest.raises(SpecError) as caught:
        load_spec(tmp_path / "repogen.yaml")
    assert "create one with `repogen init`" == caught.value.hint  # noqa: SIM300 - expected first


INCOMPLETE = """\
templates: gone
models:
  my model: {source: {factory: "gone.py:build", weights: gone.pt}}
"""


def test_only_the_mlflow_server_of_a_spec_is_needed(tmp_path: Path) -> None:
    """Its models may be incomplete, and its files need not exist."""
    path = tmp_path / "repogen.yaml"
    path.write_text(f"mlflow: {{experiment: mine}}\n{INCOMPLETE}", encoding="utf-8")
    spec = load_tracking_spec(path)
    assert spec.mlflow is not None
    assert (spec.root, spec.mlflow.experiment, spec.mlflow.tracking_uri) == (tmp_path, "mine", "sqlite:///mlflow.db")
    path.write_text(INCOMPLETE, encoding="utf-8")
    assert load_tracking_spec(path).mlflow is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("mlflow: {tracking_ur: x}", '1:10 mlflow.tracking_ur: unknown key (did you mean "tracking_uri"?)'),
        ("mlflow: {tracking_uri: 3}", "1:10 mlflow.tracking_uri: must be a string, not 3"),
        ("mlflow: {tracking_uri: 'sqlite:'}", "1:10 mlflow.tracking_uri: does not name a database file"),
        ("mlflw: {}", '1:1 mlflw: unknown key (did you mean "mlflow"?)'),
        ("mlflow: {", "2:1: "),
        ("- mlflow", "1:1: the spec must be a mapping"),
    ],
)
def test_settings_for_the_mlflow_server_are_checked(text: str, problem: str, tmp_path: Path) -> None:
    """Also without the rest of the spec, and a misspelled section is not ignored."""
    path = tmp_path / "repogen.yaml"
    path.write_text(f"{text}\n", encoding="utf-8")
    with pytest.raises(SpecProblemsError) as caught:
        load_tracking_spec(path)
    assert len(caught.value.problems) == 1
    assert str(caught.value).startswith(f"{path}:{problem}")


def test_name_of_a_model_in_place_of_the_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint has the option, if there is a spec."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "repogen.yaml").touch()
    for path, hint in (
        ("digits", "pass --model digits"),
        ("digits.yaml", "repogen init"),
        ("a/digits", "repogen init"),
    ):
        with pytest.raises(SpecError) as caught:
            load_spec(Path(path))
        assert hint in caught.value.hint


@pytest.mark.parametrize(("existing", "missing"), [("repogen.yml", "repogen.yaml"), ("a.yaml", "a.yml")])
def test_spec_with_the_other_suffix_is_named(tmp_path: Path, existing: str, missing: str) -> None:
    """The hint says what to do; the file is not used without being named."""
    (tmp_path / existing).touch()
    with pytest.raises(SpecError) as caught:
        load_spec(tmp_path / missing)
    assert caught.value.hint == f"{tmp_path / existing} exists: pass it, or rename it to {missing}"


def test_large_file_is_rejected(tmp_path: Path) -> None:
    """A file of more than 1 MB is rejected."""
    path = tmp_path / "repogen.yaml"
    path.write_bytes(b"#" * 1_000_001)
    with pytest.raises(SpecError, match="larger than 1000000 bytes"):
        load_spec(path)


SPEC = """\
repository: out
target: {triton: "25.08"}
templates: templates
defaults:
  parity: {rtol: 1.0e-2, seed: 7}
  optimize: [onnxsim]
  dims: {batch: {max: 8}, unused: {max: 4}}
models:
  first:
    source: {factory: "models.py:build", weights: weights.pt}
    inputs: {"x.1": {dtype: float32, shape: [batch, 4]}}
    parity: {rtol: 1e-3}
  second:
    source: {factory: "package.module:Factory.make", kwargs: {depth: 3, layers: [a, {b: null}]}}
    examples: "models.py:examples"
    optimize: []
"""


@pytest.fixture
def loaded(folder: Path) -> Spec:
    """Return a spec that uses defaults."""
    (folder / "repogen.yaml").write_text(SPEC)
    return load_spec(folder / "repogen.yaml")


def test_paths_are_relative_to_the_spec(loaded: Spec, folder: Path) -> None:
    """Repository and templates are absolute."""
    assert (folder / "out", folder / "templates", "25.08") == (loaded.repository, loaded.templates, loaded.release)


def test_defaults_are_merged_into_mappings_only(loaded: Spec) -> None:
    """A model's mapping is merged with the default; its list or scalar replaces it."""
    first, second = loaded.models.values()
    assert (first.parity.rtol, first.parity.seed, first.optimize) == (0.001, 7, (PassSpec(name="onnxsim"),))
    assert (second.parity.rtol, second.parity.seed, second.optimize) == (0.01, 7, ())


def test_kwargs_are_plain_data(loaded: Spec) -> None:
    """The factory gets the values of the YAML."""
    expected = {"depth": 3, "layers": ["a", {"b": None}]}
    source = loaded.models["second"].source
    assert isinstance(source, TorchSource)
    assert expected == source.kwargs


@pytest.mark.parametrize(
    ("key_path", "place"),
    [
        ("models.first.inputs.x.1.shape[1]", "11:53"),
        ("models.first.inputs.x.1", "11:14"),
        ("models.first.parity.rtol", "12:14"),
        ("models.first.parity.seed", "5:26"),
        ("models.first.dims.batch", "7:10"),
        ("models.first.triton.max_batch_size", "9:3"),
        ("models.first.optimize[0]", "6:14"),
    ],
)
def test_every_key_path_has_a_position(key_path: str, place: str, loaded: Spec) -> None:
    """The position is that of the key, item, default, or nearest parent."""
    assert f"{loaded.display_path}:{place}" == loaded.where(key_path)


def test_unknown_key_path_has_the_position_of_the_file(loaded: Spec) -> None:
    """An unknown key path has the position of the file."""
    assert loaded.display_path == loaded.where("nowhere.at[3].all")


@pytest.mark.parametrize(
    "rewrite",
    [lambda text: "\ufeff" + text, lambda text: text.replace("\n", "\r\n")],
    ids=["byte order mark", "CRLF"],
)
def test_byte_order_mark_and_crlf_are_ignored(rewrite: Callable[[str], str], loaded: Spec, folder: Path) -> None:
    """Files of Windows editors load to the same models and positions."""
    (folder / "repogen.yaml").write_bytes(rewrite(SPEC).encode())
    assert loaded == load_spec(folder / "repogen.yaml")


def test_anchors_within_limits_are_accepted(folder: Path) -> None:
    """An alias has the value of its anchor."""
    text = (
        GOOD + "    outputs: &o [a, b]\n  n:\n    source: {factory: 'models.py:build'}\n    examples: 'models.py:e'\n"
    )
    (folder / "repogen.yaml").write_text(text + "    outputs: *o\n")
    assert load_spec(folder / "repogen.yaml").models["n"].outputs == ("a", "b")


def test_error_can_be_pickled(folder: Path) -> None:
    """An unpickled error has the same problems and message."""
    path = folder / "repogen.yaml"
    path.write_text("repositry: x\n" + GOOD)
    with pytest.raises(SpecProblemsError) as caught:
        load_spec(path)
    # Bytes that this test has just written.
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert (caught.value.problems, str(caught.value)) == (again.problems, str(again))


def test_repository_with_a_long_name(problems: Callable[[str | bytes], list[tuple[str, str, str]]]) -> None:
    """A name that is longer than a file name is a problem of the spec."""
    text = f"repository: {'x' * 300}\nmodels: {{m: {{source: {{factory: 'models.py:build'}}}}}}\n"
    (problem,) = [problem for problem in problems(text) if problem[1] == "repository"]
    assert problem[2].endswith("cannot be used: File name too long (use another directory)")


def test_many_defaults_for_many_models(problems: Problems) -> None:
    """The values of defaults are counted once for each model."""
    defaults = ", ".join(f"d{number}: 1" for number in range(1000))
    models = ", ".join(f"m{number}: {{}}" for number in range(100))
    text = f"defaults: {{dims: {{{defaults}}}}}\nmodels: {{{models}}}\n"
    expected = ("1:1", "defaults", "has more than 100000 values, counted for each model (split the spec)")
    assert problems(text) == [expected]


@pytest.mark.parametrize(
    ("release", "nearest"),
    [
        ("22.01", "nearest: 23.08, "),
        ("24.1", "nearest: 24.01 or 24.10, "),
        ("24.2", "nearest: 24.02, "),
        ("22.1", "nearest: 23.08, "),
        ("24.13", "nearest: 24.12, "),
        ("2024.10", "nearest: 24.10, "),
        ("24.10-py3", "nearest: 24.10, "),
        ("latest", ""),
        ("2.51.0", ""),
    ],
)
def test_release_that_is_nearest(folder: Path, release: str, nearest: str) -> None:
    """The year and the month are compared, and not their digits as text."""
    (folder / "repogen.yaml").write_text(GOOD)
    with pytest.raises(SpecError) as caught:
        load_spec(folder / "repogen.yaml", release)
    assert caught.value.hint.startswith(f"{nearest}newest: ")

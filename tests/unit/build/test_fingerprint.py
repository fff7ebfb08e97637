"""What a build depends on, and what is said when it changes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.built_model import ImportedCode
from repogen.build.fingerprint import changes, fingerprint, known_inputs, spec_digest
from repogen.repository.digest import sha256_bytes
from repogen.spec.load import load_spec

if TYPE_CHECKING:
    from pathlib import Path

SPEC = """\
models:
  m:
    source: {factory: "models.py:build", weights: weights.pt}
    examples: examples.npz
    limits: {timeout_seconds: 60}
  other:
    source: {factory: "models.py:build"}
    examples: "models.py:examples"
"""
MODELS, SHARED = "def build(): ...\n", "shared = 1\n"
IMPORTED = ImportedCode(
    files={"models.py": sha256_bytes(MODELS.encode()), "../shared.py": sha256_bytes(SHARED.encode())},
    distributions={"PyYAML": "0", "typing_extensions": "0"},
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project: a spec in `spec/`, with code beside and above it."""
    folder = tmp_path / "project" / "spec"
    folder.mkdir(parents=True)
    (folder / "repogen.yaml").write_text(SPEC)
    (folder / "models.py").write_text(MODELS)
    (folder / "weights.pt").write_bytes(b"weights")
    (folder / "examples.npz").write_bytes(b"examples")
    (folder.parent / "shared.py").write_text(SHARED)
    return folder


def recorded(folder: Path) -> dict[str, str]:
    """Return the fingerprint of the model in a project as it is now."""
    return fingerprint(known_inputs(load_spec(folder / "repogen.yaml"), "m"), IMPORTED)


def reasons(old: dict[str, str], folder: Path) -> list[str]:
    """Return what changed in a project since."""
    return changes(old, load_spec(folder / "repogen.yaml"), "m")


def test_it_names_everything_a_build_depends_on(project: Path) -> None:
    """Digests of files by relative path, versions of distributions as installed now."""
    found = recorded(project)
    expected = {
        "dist:PyYAML": version("PyYAML"),
        "dist:typing_extensions": version("typing_extensions"),
        "examples": sha256_bytes(b"examples"),
        "file:../shared.py": sha256_bytes(SHARED.encode()),
        "file:models.py": sha256_bytes(MODELS.encode()),
        "spec": spec_digest(load_spec(project / "repogen.yaml"), "m"),
        "target": "24.10",
        "weights": sha256_bytes(b"weights"),
    }
    rest = {"repogen", "template:config.pbtxt.j2", "template:ensemble.pbtxt.j2"}
    assert expected == {key: value for key, value in found.items() if key not in rest}
    assert rest <= set(found)


def test_nothing_changed_in_a_copy_elsewhere(project: Path, tmp_path: Path) -> None:
    """A clone in another place has the same fingerprint, and no word of the old place is in it."""
    old = recorded(project)
    shutil.copytree(project.parent, tmp_path / "clone")
    unchanged: list[str] = []
    assert unchanged == reasons(old, tmp_path / "clone" / "spec")
    assert old == recorded(tmp_path / "clone" / "spec")
    assert str(tmp_path) not in str(old)


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("models.py", "def build(): pass\n", "models.py changed"),
        ("models.py", "def build(): ...\r\n", "models.py changed"),
        ("../shared.py", "shared = 2\n", "../shared.py changed"),
        ("weights.pt", "others", "the weights file changed"),
        ("examples.npz", "others", "the examples file changed"),
        ("repogen.yaml", SPEC.replace("60", "61"), "the model's block in the spec changed"),
        ("repogen.yaml", 'target: {triton: "24.11"}\n' + SPEC, "target Triton 24.10 -> 24.11"),
    ],
)
def test_a_change_is_told_in_words(file: str, content: str, reason: str, project: Path) -> None:
    """One change, one reason."""
    old = recorded(project)
    (project / file).write_bytes(content.encode())
    expected = [reason]
    assert expected == reasons(old, project)


def test_a_file_that_config_pbtxt_names_is_an_input(project: Path) -> None:
    """As the weights are; its key path says which it is."""
    (project / "classes.txt").write_text("cat\n")
    examples = "    examples: examples.npz\n"
    labels = f"{examples}    triton: {{output: {{y: {{label_filename: classes.txt}}}}}}\n"
    (project / "repogen.yaml").write_text(SPEC.replace(examples, labels))
    old = recorded(project)
    (project / "classes.txt").write_text("dog\n")
    assert reasons(old, project) == ["the file of triton.output.y.label_filename changed"]


def test_a_file_edited_after_the_worker_hashed_it_is_a_change(project: Path) -> None:
    """What counts is the worker's digest, not what lies there when the build ends."""
    (project / "models.py").write_text("def build(): return None\n")
    expected = ["models.py changed"]
    assert expected == reasons(recorded(project), project)


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("weights.pt", "the weights file changed"),
        ("examples.npz", "the examples file changed"),
        ("templates/config.pbtxt.j2", "the template config.pbtxt.j2 changed"),
    ],
)
def test_an_input_edited_while_the_build_ran_is_a_change(file: str, reason: str, project: Path) -> None:
    """The fingerprint that is put together at the end has the digests from before the worker."""
    (project / "templates").mkdir()
    (project / "templates" / "config.pbtxt.j2").write_text("before")
    (project / "repogen.yaml").write_text("templates: templates\n" + SPEC)
    before = known_inputs(load_spec(project / "repogen.yaml"), "m")
    (project / file).write_text("edited while the worker ran")
    expected = [reason]
    assert expected == reasons(fingerprint(before, IMPORTED), project)


def test_a_file_that_is_gone_is_a_change(project: Path) -> None:
    """Code that the last build imported and that was deleted since."""
    old = recorded(project)
    (project.parent / "shared.py").unlink()
    expected = ["../shared.py is gone"]
    assert expected == reasons(old, project)


def test_another_version_of_a_distribution_is_a_change(project: Path) -> None:
    """Old and new version are named; one that is no longer installed is gone."""
    old = {**recorded(project), "dist:PyYAML": "1.0", "dist:no-such-distribution": "2.0"}
    expected = [f"PyYAML 1.0 -> {version('PyYAML')}", "no-such-distribution 2.0 -> gone"]
    assert expected == reasons(old, project)


def test_another_repogen_is_a_change(project: Path) -> None:
    """Other sources, or a key that this repogen doesn't know."""
    old = {**recorded(project), "repogen": "0" * 64, "planet": "x"}
    expected = ["planet (recorded by another repogen) is gone", "repogen itself changed"]
    assert expected == reasons(old, project)


def test_what_happens_to_another_model_is_no_change(project: Path) -> None:
    """Each model has a fingerprint of its own."""
    old = recorded(project)
    (project / "repogen.yaml").write_text(SPEC.replace("models.py:examples", "models.py:others"))
    unchanged: list[str] = []
    assert unchanged == reasons(old, project)


def test_defaults_and_the_same_words_in_the_model_are_equal(project: Path) -> None:
    """The digest is of the effective block, not of how it is written."""
    before = spec_digest(load_spec(project / "repogen.yaml"), "m")
    moved = "defaults: {limits: {timeout_seconds: 60.0}}\n" + SPEC.replace("    limits: {timeout_seconds: 60}\n", "")
    (project / "repogen.yaml").write_text(moved)
    assert before == spec_digest(load_spec(project / "repogen.yaml"), "m")


def test_a_template_override_is_a_change_and_so_is_its_removal(project: Path) -> None:
    """Templates of the spec's directory replace repogen's by name."""
    (project / "templates").mkdir()
    (project / "repogen.yaml").write_text("templates: templates\n" + SPEC)
    old = recorded(project)
    (project / "templates" / "config.pbtxt.j2").write_text("")
    expected = ["the template config.pbtxt.j2 changed"]
    assert expected == reasons(old, project)


def test_whatever_a_template_may_include_is_part_of_it(project: Path) -> None:
    """Every file of the overrides counts, by its path below them: edited, added or removed."""
    parts = project / "templates" / "parts"
    parts.mkdir(parents=True)
    for part in ("edited.txt", "removed.jinja"):
        (parts / part).write_text("before")
    (project / "repogen.yaml").write_text("templates: templates\n" + SPEC)
    old = recorded(project)
    (parts / "edited.txt").write_text("after")
    (parts / "added").touch()
    (parts / "removed.jinja").unlink()
    expected = [
        "the template parts/added is new",
        "the template parts/edited.txt changed",
        "the template parts/removed.jinja is gone",
    ]
    assert expected == reasons(old, project)


def test_a_huge_directory_of_templates_is_not_hashed_whole(project: Path) -> None:
    """A thousand files at most, those of the directory itself first."""
    parts = project / "templates" / "a"
    parts.mkdir(parents=True)
    for number in range(1100):
        (parts / f"{number}").touch()
    (project / "templates" / "config.pbtxt.j2").touch()
    (project / "repogen.yaml").write_text("templates: templates\n" + SPEC)
    templates = [key for key in recorded(project) if key.startswith("template:")]
    expected = 1000 + 1  # and repogen's own of ensembles
    assert expected == len(templates)
    assert "template:config.pbtxt.j2" in templates


def test_neither_torch_nor_the_model_is_imported(project: Path) -> None:
    """Deciding `unchanged` costs a fresh process no heavy import."""
    program = (
        "import sys; from pathlib import Path; from repogen.spec import load_spec\n"
        "from repogen import fingerprint as f\n"
        f"spec = load_spec(Path({str(project / 'repogen.yaml')!r})); f.changes({recorded(project)!r}, spec, 'm')\n"
        "print(sorted({'torch', 'onnx', 'numpy', 'onnxruntime', 'mlflow', 'models', 'jinja2'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    nothing = "[]\n"
    assert nothing == run.stdout

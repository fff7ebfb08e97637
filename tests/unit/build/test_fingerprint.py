"""The inputs of a build, and the reasons that are reported when they change."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from repogen import plugins
from repogen.artifacts.built_model import ImportedCode
from repogen.build import verified
from repogen.build.fingerprint import (
    _installed_versions,
    build_inputs,
    changes,
    current_inputs,
    fingerprint,
    spec_digest,
    spec_parts,
)
from repogen.repository.digest import sha256_bytes
from repogen.spec.load import load_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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
LIMITS = "    limits: {timeout_seconds: 60}\n"
EXAMPLES = "def examples(): ...\n"
MODELS, SHARED = f"def build(): ...\n{EXAMPLES}", "shared = 1\n"
IMPORTED = ImportedCode(
    files={"models.py": sha256_bytes(MODELS.encode()), "../shared.py": sha256_bytes(SHARED.encode())},
    distributions={"PyYAML": "0", "typing_extensions": "0"},
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project: a spec in `spec/`, with code next to it and above it."""
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
    return fingerprint(build_inputs(load_spec(folder / "repogen.yaml"), "m"), IMPORTED)


def reasons(old: dict[str, str], folder: Path) -> list[str]:
    """Return what changed in a project since a fingerprint was recorded."""
    return changes(old, load_spec(folder / "repogen.yaml"), "m")


def test_another_mlflow_server_is_a_change(project: Path) -> None:
    """It may have another model of the same name and version; a hostile one must not decide what is published."""
    (project / "repogen.yaml").write_text("models: {m: {source: {kind: mlflow, uri: models:/m/1}}}\n")
    spec = replace(load_spec(project / "repogen.yaml"), registry="https://trusted ")
    other = replace(spec, registry="https://hostile ")
    old = fingerprint(build_inputs(spec, "m"), ImportedCode({}, {}))
    assert changes(old, spec, "m") == []
    assert changes(old, other, "m") == ["the MLflow server of the model changed"]
    keys = [verified._key(build_inputs(each, "m"), each.models["m"]) for each in (spec, other)]  # noqa: SLF001 - of the cache
    assert keys[0] != keys[1]


def test_fingerprint_contains_every_input(project: Path) -> None:
    """Digests of files by relative path, versions of distributions as they are installed."""
    inputs = recorded(project)
    expected = {
        "dist:PyYAML": version("PyYAML"),
        "dist:typing_extensions": version("typing_extensions"),
        "examples": sha256_bytes(b"examples"),
        "file:../shared.py": sha256_bytes(SHARED.encode()),
        "file:models.py": sha256_bytes(MODELS.encode()),
        "spec": spec_digest(load_spec(project / "repogen.yaml"), "m"),
        **spec_parts(load_spec(project / "repogen.yaml").models["m"]),
        "target": "24.10",
        "weights": sha256_bytes(b"weights"),
    }
    rest = {"repogen", "template:config.pbtxt.j2", "template:ensemble.pbtxt.j2"}
    assert expected == {key: value for key, value in inputs.items() if key not in rest}
    assert rest <= set(inputs)


def test_absolute_path_in_a_manifest_is_not_read(project: Path) -> None:
    """No build records one, and the digest of a private file would be compared."""
    private = project.parent / "private.py"
    private.write_text("x = 1\n")
    key = f"file:{private}"
    inputs = current_inputs({key: sha256_bytes(private.read_bytes())}, load_spec(project / "repogen.yaml"), "m")
    assert key not in inputs


def test_clone_in_another_directory_is_unchanged(project: Path, tmp_path: Path) -> None:
    """It has the same fingerprint, which contains no absolute path."""
    old = recorded(project)
    shutil.copytree(project.parent, tmp_path / "clone")
    unchanged: list[str] = []
    assert unchanged == reasons(old, tmp_path / "clone" / "spec")
    assert old == recorded(tmp_path / "clone" / "spec")
    assert str(tmp_path) not in str(old)


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("models.py", f"def build(): pass\n{EXAMPLES}", "models.py changed"),
        ("models.py", f"def build(): ...\r\n{EXAMPLES}", "models.py changed"),
        ("../shared.py", "shared = 2\n", "../shared.py changed"),
        ("weights.pt", "others", "the weights file changed"),
        ("examples.npz", "others", "the examples file changed"),
        ("repogen.yaml", SPEC.replace("60", "61"), "limits.timeout_seconds in the spec changed"),
        (
            "repogen.yaml",
            SPEC.replace("    limits: {timeout_seconds: 60}\n", ""),
            "limits.timeout_seconds in the spec is no longer set",
        ),
        ("repogen.yaml", SPEC.replace("60}", "60}\n    outputs: [y]"), "outputs in the spec is now set"),
        ("repogen.yaml", 'target: {triton: "24.11"}\n' + SPEC, "target Triton 24.10 -> 24.11"),
    ],
)
def test_change_has_a_readable_reason(file: str, content: str, reason: str, project: Path) -> None:
    """One change, one reason."""
    old = recorded(project)
    (project / file).write_bytes(content.encode())
    expected = [reason]
    assert expected == reasons(old, project)


def test_version_without_the_keys_of_its_spec(project: Path) -> None:
    """It was built by an earlier release, and says only that the block changed."""
    old = {key: value for key, value in recorded(project).items() if not key.startswith("spec:")}
    assert reasons(old, project) == []
    (project / "repogen.yaml").write_text(SPEC.replace("60", "61"))
    assert reasons(old, project) == ["the model's block in the spec changed"]


def test_file_that_config_pbtxt_names_is_an_input(project: Path) -> None:
    """Its key path identifies it."""
    (project / "classes.txt").write_text("cat\n")
    examples = "    examples: examples.npz\n"
    labels = f"{examples}    triton: {{output: {{y: {{label_filename: classes.txt}}}}}}\n"
    (project / "repogen.yaml").write_text(SPEC.replace(examples, labels))
    old = recorded(project)
    (project / "classes.txt").write_text("dog\n")
    assert reasons(old, project) == ["the file of triton.output.y.label_filename changed"]


def test_file_edited_after_the_worker_hashed_it_is_a_change(project: Path) -> None:
    """The digest is the worker's, not that of the file when the build ends."""
    (project / "models.py").write_text(f"def build(): return None\n{EXAMPLES}")
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
def test_input_edited_while_the_build_ran_is_a_change(file: str, reason: str, project: Path) -> None:
    """The fingerprint is assembled at the end, from digests that were computed before the worker ran."""
    (project / "templates").mkdir()
    (project / "templates" / "config.pbtxt.j2").write_text("before")
    (project / "repogen.yaml").write_text("templates: templates\n" + SPEC)
    before = build_inputs(load_spec(project / "repogen.yaml"), "m")
    (project / file).write_text("edited while the worker ran")
    expected = [reason]
    assert expected == reasons(fingerprint(before, IMPORTED), project)


def test_deleted_file_is_a_change(project: Path) -> None:
    """Code that the last build imported and that no longer exists."""
    old = recorded(project)
    (project.parent / "shared.py").unlink()
    expected = ["../shared.py was removed, or cannot be read"]
    assert expected == reasons(old, project)


def test_other_version_of_a_distribution_is_a_change(project: Path) -> None:
    """The reason has both versions; a distribution that is no longer installed was removed."""
    old = {**recorded(project), "dist:PyYAML": "1.0", "dist:no-such-distribution": "2.0"}
    expected = [f"PyYAML 1.0 -> {version('PyYAML')}", "no-such-distribution 2.0 was removed"]
    assert expected == reasons(old, project)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Return a function that installs a version of a plug-in with an exporter, a pass and a gate; "" uninstalls it."""
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    groups = ("repogen.exporters", "repogen.passes", "repogen.gates")
    entries = "".join(f"[{group}]\nextra = extra:Part\n" for group in groups)

    def install(number: str) -> None:
        for path in site.iterdir():
            shutil.rmtree(path)
        if number:
            metadata = site / f"extra_plugin-{number}.dist-info"
            metadata.mkdir()
            (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: extra-plugin\nVersion: {number}\n")
            (metadata / "entry_points.txt").write_text(entries)
        plugins.plugins.cache_clear()
        _installed_versions.cache_clear()

    yield install
    plugins.plugins.cache_clear()
    _installed_versions.cache_clear()


def test_exporter_of_a_plugin_is_an_input_of_exporter_auto(project: Path, install: Callable[[str], None]) -> None:
    """It joins the fallback chain when it is installed, and leaves it when it is uninstalled."""
    old = recorded(project)
    install("0.1")
    assert reasons(old, project) == ["extra-plugin 0.1 is new"]
    old = recorded(project)
    install("0.2")
    assert reasons(old, project) == ["extra-plugin 0.1 -> 0.2"]
    install("")
    assert reasons(old, project) == ["extra-plugin 0.1 was removed"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("export: {exporter: dynamo}", []),
        ("export: {exporter: extra}", ["extra-plugin 0.1 -> 0.2"]),
        ("export: {exporter: dynamo}\n    optimize: [onnxsim]", []),
        ("export: {exporter: dynamo}\n    optimize: [extra]", ["extra-plugin 0.1 -> 0.2"]),
    ],
)
def test_plugin_that_a_model_does_not_use_is_not_an_input(
    settings: str, expected: list[str], project: Path, install: Callable[[str], None]
) -> None:
    """A version of a plug-in counts for the models whose spec names its exporter or pass; gates never count."""
    install("0.1")
    (project / "repogen.yaml").write_text(SPEC.replace("limits: {", f"{settings}\n    limits: {{"))
    old = recorded(project)
    install("0.2")
    assert reasons(old, project) == expected


def test_other_repogen_is_a_change(project: Path) -> None:
    """Other source code, or a key that this version does not use."""
    old = {**recorded(project), "repogen": "0" * 64, "planet": "x"}
    expected = ["planet (recorded by another version of repogen) was removed", "repogen itself changed"]
    assert expected == reasons(old, project)


def test_change_of_another_model_is_ignored(project: Path) -> None:
    """Each model has its own fingerprint."""
    old = recorded(project)
    (project / "repogen.yaml").write_text(SPEC.replace("models.py:examples", "models.py:build"))
    unchanged: list[str] = []
    assert unchanged == reasons(old, project)


def test_defaults_equal_the_same_keys_in_the_model(project: Path) -> None:
    """The digest is of the effective block, however it is written."""
    before = spec_digest(load_spec(project / "repogen.yaml"), "m")
    moved = "defaults: {limits: {timeout_seconds: 60.0}}\n" + SPEC.replace("    limits: {timeout_seconds: 60}\n", "")
    (project / "repogen.yaml").write_text(moved)
    assert before == spec_digest(load_spec(project / "repogen.yaml"), "m")


def test_template_override_is_a_change(project: Path) -> None:
    """Templates next to the spec replace repogen's by name."""
    (project / "templates").mkdir()
    (project / "repogen.yaml").write_text("templates: templates\n" + SPEC)
    old = recorded(project)
    (project / "templates" / "config.pbtxt.j2").write_text("")
    expected = ["the template config.pbtxt.j2 changed"]
    assert expected == reasons(old, project)


def test_file_that_cannot_be_a_template_is_not_read(project: Path, tmp_path: Path) -> None:
    """A link out of the directory of templates is not followed, and a FIFO does not block."""
    (project / "templates").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text("before")
    (project / "templates" / "file").symlink_to(tmp_path / "elsewhere" / "secret")
    (project / "templates" / "directory").symlink_to(tmp_path / "elsewhere")
    (project / "templates" / "loop").symlink_to(project / "templates")
    os.mkfifo(project / "templates" / "fifo")
    (project / "repogen.yaml").write_text("templates: templates\n" + SPEC)
    inputs = recorded(project)
    assert {key for key in inputs if key.startswith("template:")} == {
        "template:config.pbtxt.j2",
        "template:ensemble.pbtxt.j2",
    }


def test_every_file_of_the_overrides_is_an_input(project: Path) -> None:
    """A template may include any of them: edited, added and removed ones are changes, each by its path."""
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
        "the template parts/removed.jinja was removed",
    ]
    assert expected == reasons(old, project)


def test_heavy_packages_and_the_model_are_not_imported(project: Path) -> None:
    """Finding what changed must be quick in a new process."""
    program = (
        "import sys; from pathlib import Path; from repogen.spec.load import load_spec\n"
        "from repogen.build import fingerprint as f\n"
        f"spec = load_spec(Path({str(project / 'repogen.yaml')!r})); f.changes({recorded(project)!r}, spec, 'm')\n"
        "print(sorted({'torch', 'onnx', 'numpy', 'onnxruntime', 'mlflow', 'models', 'jinja2'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    nothing = "[]\n"
    assert nothing == run.stdout

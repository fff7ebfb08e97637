"""Settings of `repogen check` in repogen.yaml and pyproject.toml, and the options of the command."""

from __future__ import annotations

import json
import os
import time
from fnmatch import translate
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from repogen.check import checker
from repogen.check.settings import find_settings
from repogen.cli.check import check
from repogen.errors import SpecError
from tests.unit.check.conftest import CONFIG, add_model

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

WRONG = CONFIG.replace("[ 3 ]", "[ 4 ]") + 'instance_group [ { name: "g" }, { name: "g" } ]\n'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with a repository of one error (RG207) and one warning (RG112)."""
    add_model(tmp_path / "model_repository", "m", WRONG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(check, arguments)


@pytest.mark.parametrize(
    ("settings", "code", "findings"),
    [
        ("", 1, ["RG207", "RG112"]),
        ('ignore = ["RG207"]', 0, ["RG112"]),
        ('ignore = ["RG207"]\nstrict = true', 1, ["RG112"]),
        ('select = ["RG2"]', 1, ["RG207"]),
        ('per-path-ignores = {"model_repository/m" = ["RG2", "RG112"]}', 0, []),
        ('per-path-ignores = {"*/config.pbtxt" = ["RG2"], "elsewhere" = ["RG1"]}', 0, ["RG112"]),
        ('target = "25.06"', 1, ["RG207", "RG112"]),
    ],
)
def test_pyproject(project: Path, settings: str, code: int, findings: list[str]) -> None:
    """Options replace the settings, and --isolated ignores them."""
    (project / "pyproject.toml").write_text(f"[project]\nname = 'x'\n[tool.repogen.check]\n{settings}\n")
    result = run("--format", "json")
    assert (result.exit_code, [f["code"] for f in json.loads(result.stdout)["findings"]]) == (code, findings)
    assert run("--isolated").exit_code == 1
    assert run("--select", "RG112").exit_code == (1 if "strict" in settings else 0)


def test_spec_of_another_directory(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Its settings are used in place of the closest ones, with paths relative to it; it must exist."""
    (project / "repogen.yaml").write_text("check: {select: [RG1]}\n")
    other = tmp_path_factory.mktemp("other")
    (other / "prod.yaml").write_text("check: {ignore: [RG207]}\ntarget: {triton: '25.06'}\n")
    (other / "repogen.yaml").write_text("check: {ignore: [RG112]}\n")
    for spec in (str(other / "prod.yaml"), os.path.relpath(other / "prod.yaml", project)):
        result = run("--format", "json", "--spec", spec)
        assert [f["code"] for f in json.loads(result.stdout)["findings"]] == ["RG112"]
    settings = find_settings(project, other / "prod.yaml")
    assert settings is not None
    assert (settings.file, settings.spec.target) == (other / "prod.yaml", "25.06")
    result = run("--spec", "missing.yaml")
    assert (result.exit_code, "missing.yaml: spec not found" in result.stderr) == (2, True)
    assert "repogen explain spec.missing" in result.stderr


def test_spec_takes_precedence(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The closest file counts, from a subdirectory as well; the spec's target is the default."""
    (project / "pyproject.toml").write_text('[tool.repogen.check]\nignore = ["RG1"]\n')
    (project / "repogen.yaml").write_text("target: {triton: '25.06'}\nmodels: {}\ncheck: {ignore: [RG2]}\n")
    (project / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(project / "deep" / "er")
    settings = find_settings(project / "deep" / "er")
    assert settings is not None
    assert (settings.file, settings.spec.ignore, settings.spec.target) == (project / "repogen.yaml", ("RG2",), "25.06")
    assert run("../../model_repository").exit_code == 0
    (project / "repogen.yaml").write_text("models: {}\n")
    settings = find_settings(project)
    assert settings is not None
    assert settings.spec.ignore == ("RG1",)


def test_release_of_a_spec_without_settings(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository is checked for the release that its spec builds for, also if the settings are in another file."""
    (project / "pyproject.toml").write_text('[tool.repogen.check]\nignore = ["RG1", "RG207"]\n')
    (project / "spec").mkdir()
    (project / "spec" / "repogen.yaml").write_text("target: {triton: '25.06'}\nmodels: {}\n")
    monkeypatch.chdir(project / "spec")
    settings = find_settings(project / "spec")
    assert settings is not None
    assert (settings.file, settings.spec.target) == (project / "pyproject.toml", "25.06")
    (project / "pyproject.toml").write_text('[tool.repogen.check]\ntarget = "25.08"\n')
    settings = find_settings(project / "spec")
    assert settings is not None
    assert settings.spec.target == "25.08"
    (project / "pyproject.toml").unlink()
    settings = find_settings(project / "spec")
    assert settings is not None
    assert (settings.file, settings.spec.target) == (project / "spec" / "repogen.yaml", "25.06")
    config = project / "model_repository" / "m" / "config.pbtxt"
    config.write_text(CONFIG + "model_metrics { }\n")  # a field of release 24.11 and later
    assert run("../model_repository").exit_code == 0
    assert run("../model_repository", "--isolated").exit_code == 1


def test_release_of_a_spec_above_the_settings(project: Path) -> None:
    """The closest spec may be in a directory above that of the closest settings."""
    (project / "repogen.yaml").write_text("target: {triton: '25.06'}\nmodels: {}\n")
    (project / "team").mkdir()
    (project / "team" / "pyproject.toml").write_text('[tool.repogen.check]\nignore = ["RG1"]\n')
    settings = find_settings(project / "team")
    assert settings is not None
    assert (settings.spec.ignore, settings.spec.target) == (("RG1",), "25.06")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("pyproject.toml", "[tool.repogen.check]\nignored = ['RG1']", 'ignored: unknown key (did you mean "ignore"?)'),
        ("pyproject.toml", "[tool.repogen.check]\nselect = 'RG1'", "select: must be a list of codes"),
        ("pyproject.toml", "[tool.repogen.check\n", "line 1"),
        ("repogen.yaml", "check: {strict: 1}", "strict"),
        ("repogen.yaml", "check: {rules: []}", "rules: unknown key (use one of target, select, ignore"),
        ("repogen.yaml", "check: [", "is not valid YAML"),
        ("repogen.yaml", "check: 3", "must be a mapping"),
        ("pyproject.toml", "[tool.repogen.check]\nselect = ['RG9']", "'RG9' is not the code of a rule"),
    ],
)
def test_invalid_settings(project: Path, file: str, text: str, message: str) -> None:
    """They are exit code 2, with the file."""
    (project / file).write_text(text)
    result = run()
    assert result.exit_code == 2
    assert message in result.stderr
    if "RG9" not in text:
        with pytest.raises(SpecError) as caught:
            find_settings(project)
        assert (caught.value.code, caught.value.where) == ("check.config", str(project / file))


def test_fix(project: Path) -> None:
    """--diff changes nothing; --fix reports what is left, and is done once."""
    config = project / "model_repository" / "m" / "config.pbtxt"
    result = run("--diff")
    assert (result.exit_code, config.read_text()) == (1, WRONG)
    assert result.stderr == "would fix 1 finding in 1 file\n"
    assert '-output { name: "y" data_type: TYPE_FP32 dims: [ 4 ] }\n+output' in result.stdout
    result = run("--fix")
    assert (result.exit_code, config.read_text()) == (0, WRONG.replace("[ 4 ] }\ninst", "[ 3 ] }\ninst"))
    assert result.stdout.splitlines()[-2:] == [
        "checked 1 model: 1 warning; run `repogen explain CODE` for details",
        "fixed 1 finding in 1 file",
    ]
    assert run("--diff").exit_code == 0
    assert run("--fix").stdout.splitlines()[-1] == "fixed 0 findings"


def test_fix_as_json(project: Path) -> None:
    """The document names the files."""
    document = json.loads(run("--fix", "--format", "json").stdout)
    path = str(project / "model_repository" / "m" / "config.pbtxt")
    assert [(file["path"], file["fixes"]) for file in document["fixed"]] in (
        [(path, 1)],
        [("model_repository/m/config.pbtxt", 1)],
    )


def test_statistics(project: Path) -> None:
    """One line per code."""
    assert project.is_dir()
    lines = run("--statistics").stdout.splitlines()
    assert [line.split()[:4] for line in lines[2:]] == [["RG112", "1", "0", "0"], ["RG207", "1", "1", "0"]]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("select = " + "[" * 50_000, "it is nested too deeply"),
        ("select = [" + "9" * 5_000 + "]", "4300 digits"),
        (".".join(["a"] * 2_000) + " = 1", "a key has more than 16 parts"),
        ("[" + "'a' . " * 17 + "b]", "a key has more than 16 parts"),
        ('"\\"". ' + '"a".' * 17 + "b = 1", "a key has more than 16 parts"),
        ("x = '" + "a" * 1_000_000 + "'", "is larger than 1000000 bytes"),
    ],
)
def test_hostile_pyproject(project: Path, text: str, problem: str) -> None:
    """Values for which tomllib has no error, or needs memory for the square of their size."""
    (project / "pyproject.toml").write_text(f"[tool.repogen.check]\n{text}\n")
    result = run()
    assert result.exit_code == 2
    assert problem in result.output


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_settings_of_another_user(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that another user created in a directory above, such as /tmp, does not turn findings off."""
    settings = project / "pyproject.toml"
    settings.write_text('[tool.repogen.check]\nignore = ["RG"]\n')
    directory = project / "mine"
    directory.mkdir()
    monkeypatch.chdir(directory)
    repository = str(project / "model_repository")
    assert run(repository).exit_code == 0
    os.chown(settings, 65534, 65534)
    assert run(repository).exit_code == 1
    os.chown(directory, 65534, 65534)  # a checkout of that user
    assert run(repository).exit_code == 0


def test_patterns_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand patterns, compared with thousands of findings, took hours."""
    compiled = Mock(wraps=translate)
    monkeypatch.setattr(checker, "translate", compiled)
    add_model(tmp_path, "m", "input {}\n" * 20)
    patterns = {f"other/{number}*": ("RG1",) for number in range(600)}
    selection = checker.Selection(per_path={**patterns, "m": ("RG105",)}, root=tmp_path)
    findings = checker.check(tmp_path, selection=selection).findings
    assert findings
    assert "RG105" not in {finding.code for finding in findings}
    assert compiled.call_count == 2 * 601


def test_repeated_codes_count_once(tmp_path: Path) -> None:
    """A file of 1 MB can repeat a code 200,000 times, which was compared with each finding."""
    add_model(tmp_path, "m", "input {}\n" * 1000)
    selection = checker.Selection(ignore=("RG105",) * 200_000)
    before = time.process_time()
    assert "RG105" not in {finding.code for finding in checker.check(tmp_path, selection=selection).findings}
    assert time.process_time() - before < 3.0


def test_patterns_have_limits(tmp_path: Path) -> None:
    """Each pattern is compared with the path of each finding."""
    file = tmp_path / "pyproject.toml"
    for patterns in ([f"m{number}" for number in range(1001)], ["m" * 1001]):
        text = "".join(f'"{pattern}" = ["RG1"]\n' for pattern in patterns)
        file.write_text(f"[tool.repogen.check.per-path-ignores]\n{text}", encoding="utf-8")
        with pytest.raises(SpecError, match="per_path_ignores"):
            find_settings(tmp_path)

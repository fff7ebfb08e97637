"""The code that a build runs is derived from its imports."""

from __future__ import annotations

import ast
import shutil
from typing import TYPE_CHECKING

import pytest

from repogen.build.code_digest import ENTRY_MODULES, PACKAGE, SourceTree, digest_of, own_entry_points

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the package."""
    ignored = shutil.ignore_patterns("__pycache__")
    return shutil.copytree(PACKAGE, tmp_path_factory.mktemp("source") / "repogen", ignore=ignored)


def digest(package: Path) -> str:
    """Return the digest of the code that a build runs, for a copy of the package."""
    return digest_of(SourceTree(package, own_entry_points()).reachable(ENTRY_MODULES))


@pytest.mark.parametrize(
    "file",
    [
        "onnx_graph/external_data.py",
        "build/dependencies.py",
        "build/pipeline.py",
        "build/steps.py",
        "export/dynamo.py",
        "source/load.py",
        "worker/supervisor.py",
        "worker/child.py",
        "serving/supervisor.py",
        "serving/onnxruntime_backend/model.py",
        "repository/publish.py",
        "data/triton_releases.csv",
        "version.py",
    ],
)
def test_changed_file_of_the_build_changes_the_digest(package: Path, file: str) -> None:
    """A published version that was built by other code is not up to date."""
    before = digest(package)
    path = package / file
    original = path.read_bytes()
    path.write_bytes(original + b"\n# changed\n")
    try:
        assert digest(package) != before
    finally:
        path.write_bytes(original)
    assert digest(package) == before


@pytest.mark.parametrize(
    "file", ["reporting/markdown.py", "cli/build.py", "check/checker.py", "registry/promotion/promote.py", "doctor.py"]
)
def test_changed_file_that_no_build_runs_keeps_the_digest(package: Path, file: str) -> None:
    """A change in a report or in another command does not build every model again."""
    before = digest(package)
    path = package / file
    original = path.read_bytes()
    path.write_bytes(original + b"\n# changed\n")
    try:
        assert digest(package) == before
    finally:
        path.write_bytes(original)


def test_new_import_adds_its_module(package: Path) -> None:
    """Also an import in a function, of a package that was not reached before."""
    steps = package / "build" / "steps.py"
    original = steps.read_bytes()
    steps.write_bytes(original + b"\n\ndef f():\n    from repogen import doctor\n")
    try:
        assert "doctor.py" in SourceTree(package, {}).reachable(ENTRY_MODULES)
    finally:
        steps.write_bytes(original)


def test_entry_points_of_a_group_that_a_build_loads_are_part_of_it(package: Path) -> None:
    """But not those of a group that it never names, such as gates."""
    loader = package / "source" / "load.py"
    original = loader.read_bytes()
    loader.write_bytes(original + b'\nload_plugin("repogen.sources", "x")\n')
    groups = {"repogen.sources": ["repogen.doctor"], "repogen.gates": ["repogen.check.checker"]}
    try:
        files = SourceTree(package, groups).reachable(ENTRY_MODULES)
    finally:
        loader.write_bytes(original)
    assert "doctor.py" in files
    assert "check/checker.py" not in files


def test_own_exporters_and_sources_are_part_of_a_build(package: Path) -> None:
    """Whether they are imported by name or found as entry points."""
    files = SourceTree(package, own_entry_points()).reachable(ENTRY_MODULES)
    for folder in ("source/torch", "source/onnx", "source/huggingface", "export", "optimize", "validate"):
        assert any(file.startswith(f"{folder}/") for file in files), folder
    for group in ("repogen.sources", "repogen.exporters", "repogen.passes", "repogen.servers"):
        for module in own_entry_points().get(group, ()):
            assert any(file.startswith(module.replace("repogen.", "", 1).replace(".", "/")) for file in files), module


def test_digest_does_not_depend_on_the_directory(package: Path) -> None:
    """A wheel and a checkout of the same source have one digest; templates are inputs of their own."""
    (package / "_templates").mkdir()
    (package / "_templates" / "config.pbtxt.j2").touch()
    assert digest(package) == digest(PACKAGE)


def imports_of(node: ast.AST) -> Iterator[str]:
    """Yield what a module imports at run time, as ``ast`` parses it."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.Import():
                yield from (alias.name for alias in child.names)
            case ast.ImportFrom():
                assert child.level == 0, "relative imports are not followed"
                yield from (str(child.module), *(f"{child.module}.{alias.name}" for alias in child.names))
        yield from imports_of(child)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_scanned_imports_are_those_of_the_parser(path: Path) -> None:
    """The regular expressions miss no import of the package's own source."""
    tree = SourceTree(PACKAGE, {})
    text = path.read_text(encoding="utf-8")
    modules = {
        ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for file in PACKAGE.rglob("*.py")
    }
    assert modules.intersection(imports_of(ast.parse(text))) <= tree.imports(text)

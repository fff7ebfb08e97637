"""The virtual environment of a server, and the requirements of its models."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import Endpoint
from repogen.errors import ServerError
from repogen.serving import install, model_environment
from repogen.smoke.preparation import prepare_published
from repogen.targets import DEFAULT_RELEASE, targets

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.serving.install import Installation


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    """Return an installation with one module in its site directory."""
    located = install.locate(targets()[DEFAULT_RELEASE].onnxruntime, tmp_path / "cache")
    located.site.mkdir(parents=True)
    (located.site / "in_the_site.py").touch()
    return located


class Notes(Silent):
    """A Progress that stores the notes."""

    def __init__(self) -> None:
        """Start without notes."""
        self.notes: list[tuple[str, str]] = []

    def note(self, model: str, text: str) -> None:
        """Store the note."""
        self.notes.append((model, text))


def run(run_dir: Path, code: str) -> str:
    """Run code with the server's Python, isolated like the stub."""
    command = [str(run_dir / "bin" / "python3"), "-I", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_environment_has_only_the_servers_packages(installation: Installation, tmp_path: Path) -> None:
    """Packages of the base Python are not importable, and no bytecode is written next to models."""
    run_dir = tmp_path / "run"
    run_dir.mkdir()

    model_environment.create(installation, run_dir)

    assert run(run_dir, "import in_the_site, sys; print(sys.prefix, sys.dont_write_bytecode)") == f"{run_dir} True"
    paths = run(run_dir, "import sys; print(*sys.path, sep='\\n')").splitlines()
    assert not [path for path in paths if _is_other_site(path)]
    assert (run_dir / "lib" / f"libpython{installation.python.version}.so.1.0").is_symlink()


def _is_other_site(path: str) -> bool:
    return path.endswith("site-packages") and "run/lib" not in path


def test_requirements_of_a_repository_are_read(tmp_path: Path) -> None:
    """Comments and empty lines are ignored, and so is a requirements.txt next to a graph."""
    code, graph = tmp_path / "code" / "1", tmp_path / "graph" / "1"
    for directory, file in ((code, "model.py"), (graph, "model.onnx")):
        directory.mkdir(parents=True)
        (directory / file).touch()
        (directory / "requirements.txt").write_text(f"# {file}\n\na==1\n  b==2.0\n")

    assert model_environment.required_by(tmp_path, Silent()) == ["a==1", "b==2.0"]


@pytest.mark.parametrize(
    "config",
    [
        'backend: "onnxruntime"',
        'platform: "onnxruntime_onnx"',
        'backend: "python" instance_group { name: "a;b" }',
        "not a config",
    ],
    ids=["graph", "platform", "refused", "damaged"],
)
def test_requirements_of_a_model_that_triton_does_not_run_as_code_are_ignored(tmp_path: Path, config: str) -> None:
    """A package runs code when Python starts, and anyone can put a model.py next to a graph."""
    model, endpoint = tmp_path / "m", Endpoint("", "", "", "embedded", "", "", sees_files=True, has_gpu=False)
    (model / "1").mkdir(parents=True)
    for file in ("model.onnx", "model.py"):
        (model / "1" / file).touch()
    (model / "1" / "requirements.txt").write_text("a==1\n")
    (model / "config.pbtxt").write_text(config)

    assert model_environment.required_by(tmp_path, Silent()) == []
    if "onnx" in config:
        assert prepare_published(endpoint, model).requirements() == []


def test_model_with_an_unpinned_requirement(tmp_path: Path) -> None:
    """A note names the model and the requirement; the packages of the other models are installed."""
    for name, line in (("other", "a==1"), ("m", "b==1\nnumpy")):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "model.py").touch()
        (tmp_path / name / "1" / "requirements.txt").write_text(line)
    progress = Notes()
    assert model_environment.required_by(tmp_path, progress) == ["a==1"]
    ((name, note),) = progress.notes
    assert (name, "'numpy' in requirements.txt is not pinned" in note) == ("m", True)


def test_unpinned_requirement_is_rejected(installation: Installation, tmp_path: Path) -> None:
    """Options of pip are rejected as well."""
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    model_environment.create(installation, run_dir)

    for line in ("numpy", "--index-url=http://x", "a @ http://x", "-r other.txt"):
        with pytest.raises(ServerError, match="is not pinned"):
            model_environment.provide(installation, run_dir, [line], Silent())


def test_failed_pip_install_is_an_error(installation: Installation, tmp_path: Path) -> None:
    """The message has pip's output, and no partial installation is left."""
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    model_environment.create(installation, run_dir)

    with pytest.raises(ServerError, match=r"(?s)pip could not install no-such-package-at-all==1.*No matching"):
        model_environment.provide(installation, run_dir, ["no-such-package-at-all==1"], Silent())

    assert not list(installation.root.glob("packages-*"))


def test_unwritable_cache_is_an_error(installation: Installation, tmp_path: Path) -> None:
    """A file that cannot be written is a ServerError with a hint, as for the server itself."""
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    model_environment.create(installation, run_dir)
    (installation.root / "install.lock").mkdir()

    with pytest.raises(ServerError, match="could not be installed in") as caught:
        model_environment.provide(installation, run_dir, ["a==1"], Silent())

    assert install.CACHE_VARIABLE in caught.value.hint

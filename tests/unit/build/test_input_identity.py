"""Inputs that another user replaces while a build reads them, and back before it ends."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from repogen.build.input_identity import observe
from repogen.errors import SourceError
from repogen.spec.load import load_spec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from repogen.spec.models import Spec

OTHER = 3002
BLOCKS = {
    "weights": "{source: {factory: m.py:f, weights: shared/w.safetensors}, inputs: {x: {dtype: float32, shape: [4]}}}",
    "onnx": "{source: {kind: onnx, path: shared/w.safetensors}}",
    "directory": "{source: {kind: huggingface, model: shared}}",
    "examples": "{source: {factory: m.py:f}, examples: shared/w.safetensors}",
}


@pytest.fixture
def spec(tmp_path: Path) -> Callable[[str], Spec]:
    """Return what loads a spec whose input is in a directory of another user."""
    for path in (tmp_path / "shared" / "w.safetensors", tmp_path / "private" / "w.safetensors", tmp_path / "m.py"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(path.parent.name)
    (tmp_path / "m.py").write_text("def f(): ...\n")
    (tmp_path / "shared" / "config.json").write_text("{}")

    def load(kind: str) -> Spec:
        (tmp_path / "repogen.yaml").write_text(f"models: {{m: {BLOCKS[kind]}}}\n")
        return load_spec(tmp_path / "repogen.yaml")

    return load


def exchange(path: Path, other: Path) -> None:
    """Replace a path with a link, and restore it."""
    aside = path.with_name("aside")
    path.rename(aside)
    path.symlink_to(other)
    path.unlink()
    aside.rename(path)


def replaced(spec: Spec, change: Callable[[], None], used: tuple[Path, ...] = ()) -> bool:
    """Return whether a change is detected."""
    observed = observe(spec, ["m"], spec.root / "model_repository")
    observed.require_unreplaced((), "m")
    time.sleep(0.02)  # the clock of ctime
    change()
    try:
        observed.require_unreplaced(used, "m")
    except SourceError as error:
        return error.code == "source.replaced"
    return False


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("owner", ["file", "directory", "mode"])
def test_input_that_is_replaced_and_restored(
    spec: Callable[[str], Spec], tmp_path: Path, kind: str, owner: str
) -> None:
    """Whoever owns it, or can write to its directory."""
    file = tmp_path / "shared" / "w.safetensors"
    if owner == "mode":
        file.parent.chmod(0o777)
    else:
        os.chown(file if owner == "file" else file.parent, OTHER, -1)
    assert replaced(spec(kind), lambda: exchange(file, tmp_path / "private" / "w.safetensors"), (file,))


def test_directory_that_is_replaced_and_restored(spec: Callable[[str], Spec], tmp_path: Path) -> None:
    """The directory above it belongs to another user."""
    folder = tmp_path / "shared"
    (tmp_path / "outer").mkdir()
    folder.rename(tmp_path / "outer" / "shared")
    folder.symlink_to("outer/shared")
    os.chown(tmp_path / "outer", OTHER, -1)
    target = tmp_path / "outer" / "shared"
    assert replaced(spec("weights"), lambda: exchange(target, tmp_path / "private"))


def test_file_that_is_added_to_a_directory(spec: Callable[[str], Spec], tmp_path: Path) -> None:
    """A Hugging Face directory has optional files."""
    os.chown(tmp_path / "shared", OTHER, -1)
    added = tmp_path / "shared" / "README.md"
    assert replaced(spec("directory"), lambda: added.symlink_to(tmp_path / "private" / "w.safetensors"), (added,))


@pytest.mark.parametrize("kind", BLOCKS)
def test_inputs_that_nobody_else_can_replace_are_not_compared(
    spec: Callable[[str], Spec], tmp_path: Path, kind: str
) -> None:
    """A user may edit files during a build: the next build finds the change."""
    file = tmp_path / "shared" / "w.safetensors"
    loaded = spec(kind)
    assert observe(loaded, ["m"], tmp_path / "model_repository").identities == {}
    assert not replaced(loaded, lambda: exchange(file, tmp_path / "private" / "w.safetensors"), (file,))


def test_files_of_a_build_next_to_inputs(spec: Callable[[str], Spec], tmp_path: Path) -> None:
    """A build writes into the directories of the spec and of the repository, which other users may share."""
    tmp_path.chmod(0o777)
    (tmp_path / "shared").chmod(0o777)
    os.chown(tmp_path / "shared" / "w.safetensors", OTHER, -1)
    assert not replaced(spec("weights"), (tmp_path / "model_repository").mkdir)


def test_link_that_is_planted_after_the_spec_was_loaded(spec: Callable[[str], Spec], tmp_path: Path) -> None:
    """It stays until the build ends."""
    loaded = spec("weights")
    (tmp_path / "shared" / "w.safetensors").unlink()
    (tmp_path / "shared" / "w.safetensors").symlink_to("/etc/passwd")
    with pytest.raises(SourceError, match="leads out of the spec's directory") as caught:
        observe(loaded, ["m"], tmp_path / "model_repository")
    assert caught.value.code == "source.replaced"


def test_link_of_another_user_to_a_private_directory(spec: Callable[[str], Spec], tmp_path: Path) -> None:
    """It was there before the build, and stays."""
    (tmp_path / "shared").rename(tmp_path / "moved")
    (tmp_path / "shared").symlink_to("moved")
    loaded = spec("directory")
    os.chown(tmp_path / "shared", OTHER, -1, follow_symlinks=False)
    with pytest.raises(SourceError, match="is a symlink of another user"):
        observe(loaded, ["m"], tmp_path / "model_repository")

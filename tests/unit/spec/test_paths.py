"""Files that a spec names: those that are published are in its directory, and links do not lead elsewhere."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from repogen.spec.load import load_spec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Problems = Callable[[str | bytes], list[tuple[str, str, str]]]

TORCH = "models:\n  m:\n    source: {factory: 'models.py:build'%s}\n    inputs: {x: {dtype: float32, shape: [1]}}\n"
LABELS = TORCH % "" + "    outputs: [y]\n    triton: {output: {y: {label_filename: %s}}}\n"
STATE = TORCH % "" + "    triton: {sequence_batching: {state: [{%s, initial_state: [{data_file: %s}]}]}}\n"
PYTHON = (
    "models:\n  m:\n    source: {kind: python, path: models.py, data: [%s]}\n"
    "    inputs: {x: {dtype: float32, shape: [1]}}\n    outputs: {y: {dtype: float32, shape: [1]}}\n"
)


@pytest.fixture
def secret(folder: Path) -> Path:
    """Return a file outside of the spec's directory, to which the spec's directory contains links."""
    path = folder.parent / f"{folder.name}-secret" / "shadow.npz"
    path.parent.mkdir()
    path.write_text("root:x")
    (folder / "link.npz").symlink_to(path)
    (folder / "link.pt").symlink_to(path)
    (folder / "linked").symlink_to(path.parent)
    return path


def published(file: str) -> list[str]:
    """Return one spec for each key that publishes a file."""
    return [LABELS % file, STATE % ("input_name: x, output_name: y", file), PYTHON % file]


@pytest.mark.parametrize("name", ["absolute", "parent", "link.npz", "linked/shadow.npz"])
def test_files_outside_of_the_spec_are_not_published(name: str, secret: Path, folder: Path, problems: Problems) -> None:
    """Class names, states and data of Python code are copied into the repository, readable for everyone."""
    file = {"absolute": str(secret), "parent": os.path.relpath(secret, folder)}.get(name, name)
    for spec in published(file):
        text = " ".join(f"{key} {what}" for _, key, what in problems(spec))
        assert "leads out of the spec's directory" in text
        assert "copy it there" in text


def test_number_of_templates(folder: Path, problems: Problems) -> None:
    """All of them are hashed, so that no edit is missed."""
    parts = folder / "templates" / "parts"
    parts.mkdir(parents=True)
    for index in range(1000):
        (parts / f"{index}.j2").touch()
    spec = "templates: templates\n" + TORCH % ""
    (folder / "repogen.yaml").write_text(spec)
    assert load_spec(folder / "repogen.yaml").templates == folder / "templates"
    (parts / "1000.j2").touch()
    expected = 'directory "templates" has more than 1000 files (use a directory that contains only templates)'
    assert problems(spec) == [("1:1", "templates", expected)]


def test_hard_link_to_a_file_that_others_may_not_read(folder: Path, problems: Problems) -> None:
    """Its other name may be that of a secret; a copy, and a hard link to a public file, are valid."""
    file = folder / "linked.txt"
    file.write_text("secret\n")
    file.chmod(0o640)
    (folder / "repogen.yaml").write_text(LABELS % "linked.txt")
    load_spec(folder / "repogen.yaml")
    os.link(file, folder / "other")
    for spec in published("linked.txt"):
        assert '"linked.txt" has more than one hard link' in " ".join(what for _, _, what in problems(spec))
    file.chmod(0o644)
    (folder / "repogen.yaml").write_text(LABELS % "linked.txt")
    load_spec(folder / "repogen.yaml")


def test_files_in_the_directory_of_the_spec_are_published(folder: Path) -> None:
    """Links and dots that stay in it are valid."""
    (folder / "sub").mkdir()
    (folder / "sub" / "classes.txt").write_text("cat\n")
    (folder / "inner.txt").symlink_to("sub/classes.txt")
    for file in ("inner.txt", "sub/../sub/classes.txt", str(folder / "inner.txt")):
        (folder / "repogen.yaml").write_text(LABELS % file)
        load_spec(folder / "repogen.yaml")


def test_weights_that_are_a_link_out_of_the_spec(secret: Path, problems: Problems) -> None:
    """The link is content of a checkout, which is not trusted; the path itself is the user's choice."""
    assert secret.exists()
    for file in ("link.pt", "linked/shadow.pt"):
        shutil.copy(secret, secret.with_name("shadow.pt"))
        ((_, key, what),) = problems(TORCH % f", weights: {file}")
        assert key == "models.m.source.weights"
        assert what.startswith(f'"{file}" is a link that leads out of the spec\'s directory')
    ((_, key, what),) = problems(TORCH % "" + "    examples: link.npz\n")
    assert (key, "link that leads out" in what) == ("models.m.examples", True)


def test_weights_elsewhere(folder: Path, secret: Path, problems: Problems) -> None:
    """A spec may name weights in another directory, in which a link must stay."""
    weights = secret.with_name("w.pt")
    weights.write_bytes(b"")
    (secret.parent / "latest.pt").symlink_to("w.pt")
    (secret.parent / "out.pt").symlink_to(folder / "weights.pt")
    for file in (str(weights), os.path.relpath(secret.parent / "latest.pt", folder)):
        (folder / "repogen.yaml").write_text(TORCH % f", weights: {file}")
        load_spec(folder / "repogen.yaml")
    ((_, _, what),) = problems(TORCH % f", weights: {secret.parent}/out.pt")
    assert "is a link that leads out of its own directory" in what


def test_weights_in_a_hub_cache(folder: Path) -> None:
    """The files of a snapshot are links to its blobs."""
    model = folder / "hub" / "models--team--layer"
    (model / "blobs").mkdir(parents=True)
    (model / "blobs" / "1234").write_bytes(b"")
    (model / "snapshots" / "c0ffee").mkdir(parents=True)
    (model / "snapshots" / "c0ffee" / "w.pt").symlink_to("../../blobs/1234")
    spec = folder / "project" / "repogen.yaml"
    spec.parent.mkdir()
    shutil.copy(folder / "models.py", spec.parent)
    spec.write_text(TORCH % f", weights: {model}/snapshots/c0ffee/w.pt")
    load_spec(spec)


def test_fifo_and_long_names(folder: Path, problems: Problems) -> None:
    """Neither blocks nor crashes."""
    os.mkfifo(folder / "fifo.pt")
    for file in ("fifo.pt", f"{'w' * 300}.pt", "loop.pt"):
        if file == "loop.pt":
            (folder / file).symlink_to(file)
        ((_, _, what),) = problems(TORCH % f", weights: {file}")
        assert "does not exist" in what


def test_repository_that_cannot_be_used(folder: Path, problems: Problems) -> None:
    """A symlink loop and a long name are problems of the spec at their line."""
    (folder / "loop").symlink_to("loop")
    for repository, reason in (("loop/r", "symbolic links"), ("loop", "symbolic links"), ("r" * 300, "name too long")):
        ((position, key, what),) = problems(f"repository: {repository}\n" + TORCH % "")
        assert (position, key) == ("1:1", "repository")
        assert "cannot be used" in what
        assert reason in what.lower()


@pytest.mark.parametrize("model", ["./missing", "../missing", "/missing/model", "~/model", "a/b/c"])
def test_directory_of_a_model_that_does_not_exist(model: str, problems: Problems) -> None:
    """A text that is not a Hub ID is a directory, which is checked before torch is imported."""
    expected = ("3:33", "models.m.source.model", f'directory "{model}" does not exist (paths are relative to the spec)')
    assert problems(f"models:\n  m:\n    source: {{kind: huggingface, model: {model}}}\n") == [expected]


def test_commit_of_a_model_in_a_directory(folder: Path, problems: Problems) -> None:
    """A directory, which another user may have created, is not the commit on the Hub that the spec names."""
    (folder / "org" / "name").mkdir(parents=True)
    what = (
        'is a commit on the Hugging Face Hub, but "org/name" is a directory next to the spec '
        "(rename or delete the directory, or remove this key)"
    )
    expected = ("3:50", "models.m.source.revision", what)
    assert problems("models:\n  m:\n    source: {kind: huggingface, model: org/name, revision: abc}\n") == [expected]


def test_model_that_may_be_on_the_hub(folder: Path) -> None:
    """It is searched for when it is built."""
    spec = folder / "repogen.yaml"
    spec.write_text("models:\n  m:\n    source: {kind: huggingface, model: google-bert/bert-base-cased}\n")
    load_spec(spec)

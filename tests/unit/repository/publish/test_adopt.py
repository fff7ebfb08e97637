"""A model that repogen did not build is taken over only on request, and loses nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.errors import PublishError
from repogen.repository.filesystem import Disk
from repogen.repository.publish import publish

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Served, Stage

CONFIG = """\
# tuned by hand
name: "m"
platform: "onnxruntime_onnx"
max_batch_size: 0
input { name: "x" data_type: TYPE_FP32 dims: [ -1, 4 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ -1, 4 ] }
"""


@pytest.fixture
def model(repository: Path) -> Path:
    """Return the directory of a model with the versions 1 and 7."""
    directory = repository / "m"
    for version in ("1", "7"):
        (directory / version).mkdir(parents=True)
        (directory / version / "model.onnx").write_bytes(version.encode())
    (directory / "config.pbtxt").write_text(CONFIG)
    (directory / "labels.txt").write_text("theirs")
    return directory


def files(model: Path) -> dict[str, bytes]:
    """Return the content of every file of a model."""
    return {path.relative_to(model).as_posix(): path.read_bytes() for path in model.rglob("*") if path.is_file()}


def test_versions_and_config_are_kept(stage: Stage, model: Path, repository: Path, served: Served) -> None:
    """The new version follows the number; the next publish needs no adoption."""
    before = files(model)
    assert publish(stage(), repository, breaking=False, adopt=True).version == 8
    after = files(model)
    assert {name: after[name] for name in before if name != "config.pbtxt"} == {
        name: content for name, content in before.items() if name != "config.pbtxt"
    }
    assert after["config.pbtxt.adopted"] == CONFIG.encode()
    assert after["config.pbtxt"] == after["8/config.pbtxt"]
    assert served(repository) == [8]
    assert publish(stage(b"next"), repository, breaking=False).version == 9
    assert files(model)["config.pbtxt.adopted"] == CONFIG.encode()


def test_clients_must_not_break(stage: Stage, model: Path, repository: Path) -> None:
    """The existing config has the signature that clients use."""
    before = files(model)
    with pytest.raises(PublishError, match=r"input 'x' was FP32 \[ -1, 4 \], is FP32 \[ -1, 5 \]") as caught:
        publish(stage(shape=("batch", 5)), repository, breaking=False, adopt=True)
    assert (caught.value.code, files(model)) == ("publish.breaking", before)
    assert publish(stage(shape=("batch", 5)), repository, breaking=True, adopt=True).version == 8


def test_failure_leaves_the_model_as_it_was(stage: Stage, model: Path, repository: Path) -> None:
    """The swap is the only change."""

    class Full(Disk):
        def exchange(self, first: Path, second: Path) -> None:
            super().exchange(first, second)
            raise OSError(28, "No space left on device", str(second))

    before = files(model)
    with pytest.raises(PublishError, match="No space left"):
        publish(stage(), repository, breaking=False, adopt=True, filesystem=Full())
    assert files(model) == before


def test_own_and_new_models_are_published_as_always(stage: Stage, repository: Path) -> None:
    """The option may stay in a script."""
    assert [publish(stage(bytes([n])), repository, breaking=False, adopt=True).version for n in (1, 2)] == [1, 2]
    assert not (repository / "m" / "config.pbtxt.adopted").exists()


def test_inputs_that_triton_fills_are_not_new(stage: Stage, model: Path, repository: Path) -> None:
    """Clients do not send the controls of a sequence."""
    staged = stage()
    extra = TensorSpec("START", "float32", ("batch", 1))
    signature = Signature((*staged.manifest.signature.inputs, extra), staged.manifest.signature.outputs)
    text = staged.config.text + 'sequence_batching { control_input { name: "START" } }\n'
    controlled = replace(
        staged, manifest=replace(staged.manifest, signature=signature), config=replace(staged.config, text=text)
    )
    assert (model / "7").is_dir()
    assert publish(controlled, repository, breaking=False, adopt=True).version == 8

"""Which models are deployed together, in which order, and which repositories are rejected before a server is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repogen.deploy.plan import plan
from repogen.errors import ConfigError, PublishError, RepogenError, SmokeError, SpecError
from tests.support.scaled_models import Scaled, publish_ensemble, publish_scaled

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with ``alone``, the ensemble ``a_pipe`` of ``step``, and the ensemble ``b_pipe`` of it."""
    path = tmp_path / "repository"
    for name in ("step", "alone"):
        publish_scaled(path, name, Scaled(1.0))
    publish_scaled(path, "alone", Scaled(2.0))
    publish_ensemble(path, "a_pipe", "step", Scaled(1.0))
    publish_ensemble(path, "b_pipe", "a_pipe", Scaled(1.0))
    return path


def names(repository: Path, *selected: str) -> list[list[tuple[str, bool]]]:
    """Return name and selection of each model, by group."""
    return [[(model.name, model.selected) for model in group] for group in plan(repository, selected)]


def test_steps_come_before_their_ensembles(repository: Path) -> None:
    """The order is not that of the names; independent models are groups of their own."""
    groups = names(repository)
    assert sorted(groups) == [[("alone", True)], [("step", True), ("a_pipe", True), ("b_pipe", True)]]


def test_steps_of_a_selected_ensemble_are_selected(repository: Path) -> None:
    """Ensembles that use a selected model are deployed where they are served."""
    assert names(repository, "a_pipe") == [[("step", True), ("a_pipe", True), ("b_pipe", False)]]
    assert names(repository, "step") == [[("step", True), ("a_pipe", False), ("b_pipe", False)]]


def test_versions_are_those_that_the_repository_selects(repository: Path) -> None:
    """The newest one without a policy; the policy's otherwise."""
    assert plan(repository, ("alone",))[0][0].versions == (2,)
    config = repository / "alone" / "config.pbtxt"
    with config.open("a", encoding="utf-8") as stream:
        stream.write("version_policy { all { } }\n")
    assert plan(repository, ("alone",))[0][0].versions == (2, 1)


def test_models_of_others_are_not_deployed_unless_named(repository: Path) -> None:
    """They have no golden tensors."""
    (repository / "foreign" / "1").mkdir(parents=True)
    (repository / "foreign" / "config.pbtxt").write_text('backend: "onnxruntime"', encoding="utf-8")
    assert "foreign" not in {name for group in names(repository) for name, _ in group}
    with pytest.raises(SpecError, match="foreign version 1 was not built by repogen"):
        plan(repository, ("foreign",))


@pytest.mark.parametrize(
    ("path", "content", "error", "message"),
    [
        ("alone/2/model.onnx", b"damaged", PublishError, r"alone version 2 is damaged: model\.onnx has 7 bytes"),
        ("alone/2/manifest.json", b"{", RepogenError, r"alone/2/manifest\.json"),
        ("alone/config.pbtxt", b"nmae: 1", ConfigError, r"alone/config\.pbtxt:1:1"),
        ("alone/config.pbtxt", b'backend: "onnxruntime" version_policy { specific { } }', ConfigError, "selects none"),
        ("alone/2/libtriton_onnxruntime.so", b"", SmokeError, "libtriton_onnxruntime.so"),
        ("alone/config.pbtxt", b'backend: "pytorch"', SmokeError, "'pytorch' may run code .* builds no such models"),
        (
            "step/config.pbtxt",
            b'ensemble_scheduling { step { model_name: "b_pipe" } }',
            ConfigError,
            "form a cycle: .*a_pipe",
        ),
    ],
)
def test_unfit_repository_is_rejected(
    repository: Path, path: str, content: bytes, error: type[RepogenError], message: str
) -> None:
    """Before a server is called."""
    (repository / path).write_bytes(content)
    with pytest.raises(error, match=message) as caught:
        plan(repository, ("alone", "step"))
    assert caught.value.exit_code not in {0, 70}


def test_config_that_cannot_be_parsed(repository: Path) -> None:
    """It is reported even if no model is named, if repogen built the model."""
    (repository / "foreign" / "1").mkdir(parents=True)
    (repository / "foreign" / "config.pbtxt").write_text("nmae: 1", encoding="utf-8")
    assert len(plan(repository, ())) == 2
    (repository / "alone" / "config.pbtxt").write_text("nmae: 1", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"alone/config\.pbtxt:1:1"):
        plan(repository, ())


def test_repository_must_exist_and_have_models(tmp_path: Path, repository: Path) -> None:
    """As for the other commands."""
    (tmp_path / "empty").mkdir()
    for directory, selected, message in (
        (tmp_path / "missing", (), "is not a directory"),
        (tmp_path / "empty", (), "has no model that repogen built"),
        (repository, ("alnoe",), "has no model alnoe"),
    ):
        with pytest.raises(SpecError, match=message):
            plan(directory, selected)

"""The user's packages that an executor copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.built_model import ImportedCode
from repogen.build.user_packages import user_packages, with_local_paths
from repogen.spec.models import ModelSpec

if TYPE_CHECKING:
    from pathlib import Path


def model(factory: str, **keys: object) -> ModelSpec:
    """Return a spec entry with a factory."""
    return ModelSpec.model_validate({"source": {"factory": factory}, **keys})


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory on Python's path with a package and two modules."""
    library = tmp_path / "library"
    (library / "company_models" / "vision").mkdir(parents=True)
    (library / "company_models" / "vision" / "resnet.py").write_text("")
    (library / "company_examples.py").write_text("")
    (library / "company_figures.py").write_text("")
    monkeypatch.syspath_prepend(library)
    return library


def test_packages_outside_of_the_specs_directory(library: Path, tmp_path: Path) -> None:
    """Each once, of every key that names a callable; none of them is imported."""
    quality = {"callable": "company_figures:accuracy", "max_drop": 0.1}
    models = [
        model("company_models.vision.resnet:build", examples="company_examples:draw", quality=quality),
        model("company_models:other", examples=["a.npz"]),
    ]
    assert user_packages(models, tmp_path / "spec") == (
        library / "company_examples.py",
        library / "company_figures.py",
        library / "company_models",
    )


@pytest.mark.parametrize("factory", ["models.py:build", "json.decoder:f", "torch.nn:Linear", "repogen.api:f", "none:f"])
def test_what_every_machine_has(tmp_path: Path, factory: str) -> None:
    """Files of the spec's directory, the standard library, installed packages, repogen, and what does not exist."""
    assert user_packages([model(factory)], tmp_path) == ()


@pytest.mark.parametrize("place", ["company_models", "company_models.py"])
def test_package_in_the_specs_directory(library: Path, tmp_path: Path, place: str) -> None:
    """It is imported from there."""
    assert (library / "company_models").is_dir()
    (tmp_path / "spec" / place).mkdir(parents=True)
    assert user_packages([model("company_models:build")], tmp_path / "spec") == ()


def test_paths_of_another_machine_become_local(library: Path, tmp_path: Path) -> None:
    """Those of packages; the same as those that a local build records."""
    files = {
        "models.py": "1",
        "../../py_modules_files/_ray_pkg_1/company_models/vision/resnet.py": "2",
        "../../py_modules_files/_ray_pkg_2/company_examples.py": "3",
        "../company_models/gone.py": "4",
        "/etc/passwd": "5",
        "../company_models/../private.py": "6",
    }
    packages = (library / "company_examples.py", library / "company_models")
    code = with_local_paths(ImportedCode(files, {"numpy": "2"}), packages, tmp_path / "spec")
    assert code.files == {
        "models.py": "1",
        "../library/company_models/vision/resnet.py": "2",
        "../library/company_examples.py": "3",
    }
    assert code.distributions == {"numpy": "2"}

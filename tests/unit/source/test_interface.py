"""Tests for sources of other packages: invalid plug-ins, and loaders that fail."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from repogen.errors import SourceError, SpecError
from repogen.plugins import plugins
from repogen.source.load import load_source
from repogen.spec.models import ModelSpec
from repogen.spec.sources import SourceOptions, source_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

OPTIONS = """
from typing import ClassVar, Literal
from repogen.spec.sources import SourceOptions

class Options(SourceOptions):
    kind: Literal["rows"] = "rows"
    loader: ClassVar = "rows_plugin:load"

class OtherKind(SourceOptions):
    kind: Literal["columns"] = "columns"
    loader: ClassVar = "rows_plugin:load"

class NoLoader(SourceOptions):
    kind: Literal["rows"] = "rows"

"""


@pytest.fixture
def register(root: Path) -> Iterator[Callable[[str, str], None]]:
    """Return a function that installs a package with the source kind ``rows``."""
    caches = (plugins, source_options)

    def install(code: str, target: str = "Options") -> None:
        (root / "rows_plugin.py").write_text(OPTIONS + code)
        metadata = root / "rows_plugin-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: rows-plugin\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[repogen.sources]\nrows = rows_plugin:{target}\n")
        for function in caches:
            function.cache_clear()

    sys.path.insert(0, str(root))
    yield install
    for function in caches:
        function.cache_clear()


def load_rows(root: Path) -> None:
    """Load a model with the source kind ``rows``."""
    model = ModelSpec.model_validate({"source": {"factory": "models.py:build"}})
    load_source(model.model_copy(update={"source": source_options("rows")(kind="rows")}), root)


def test_plugin_that_fails_to_import_is_reported(register: Callable[..., None]) -> None:
    """The error names the package."""
    register("1 / 0")
    with pytest.raises(SpecError, match="plug-in 'rows' of rows-plugin failed to import: ZeroDivisionError") as caught:
        source_options("rows")
    assert caught.value.code == "plugin.import"


@pytest.mark.parametrize("target", ["OtherKind", "NoLoader", "Literal"])
def test_invalid_options_model_is_rejected(register: Callable[..., None], target: str) -> None:
    """The model must be a subclass of SourceOptions for this kind, and have a loader."""
    register("", target)
    with pytest.raises(SpecError, match="the source kind 'rows' is not a subclass of") as caught:
        source_options("rows")
    assert caught.value.code == "plugin.interface"


def test_valid_options_model_is_returned(register: Callable[..., None]) -> None:
    """The built-in kinds are found in the same way."""
    register("")
    assert issubclass(source_options("rows"), SourceOptions)
    assert source_options("onnx").__name__ == "OnnxSource"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise ValueError('no rows')", r"plug-in 'rows' \(rows_plugin:load\) failed: ValueError"),
        ("return request.options", "returned a Options, not a SourceModel"),
    ],
)
def test_failing_plugin_loader_is_a_source_error(
    register: Callable[..., None], root: Path, body: str, message: str
) -> None:
    """An exception or a wrong result of a plug-in is not a bug of repogen."""
    register(f"def load(request): {body}")
    with pytest.raises(SourceError, match=message) as caught:
        load_rows(root)
    assert caught.value.code in {"source.user-code", "source.return-type"}

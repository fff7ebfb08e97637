"""The registered exporters and passes: what they accept, their order, and that a spec does not import torch."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, cast

import pytest

from repogen import plugins
from repogen.artifacts.source import Eager, OnnxFile, Program, Script
from repogen.errors import SpecError
from repogen.export.interface import Exporter
from repogen.optimize.interface import Pass

if TYPE_CHECKING:
    from repogen.artifacts.source import Origin

INPUTS = "inputs: {x: {dtype: float32, shape: [2]}}"
MODULE = cast("Any", None)  # no built-in exporter looks at the module to decide
LOAD = """\
import sys
from pathlib import Path
from repogen.spec.load import load_spec
from repogen.errors import SpecError
try:
    load_spec(Path("repogen.yaml"))
except SpecError as error:
    print(error.message)
print(sorted({"torch", "onnx_ir", "onnxruntime", "onnxsim"} & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("origin", "names"),
    [
        (Eager(MODULE), ["dynamo", "torchscript"]),
        (Eager(MODULE, attention=True), ["dynamo", "torchscript", "dynamo-eager", "torchscript-eager"]),
        (Program(MODULE, (), MODULE), ["dynamo", "torchscript"]),
        (Script(MODULE, (), MODULE), ["torchscript", "torchscript-traced"]),
        (OnnxFile(MODULE), ["onnx"]),
    ],
)
def test_each_kind_of_source_has_its_exporters(origin: Origin, names: list[str]) -> None:
    """In the order of their priorities, which differ."""
    exporters = [
        plugins.load_instance("repogen.exporters", name, Exporter)  # type: ignore[type-abstract] # a Protocol
        for name in plugins.plugins("repogen.exporters")
    ]
    accepting = sorted((exporter.priority, exporter.name) for exporter in exporters if exporter.accepts(origin))
    assert [name for _, name in accepting] == names
    assert len({priority for priority, _ in accepting}) == len(accepting)


def test_a_class_that_is_not_a_pass_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message gives the entry point and the Protocol to implement."""
    entry = EntryPoint("dynamo", "repogen.export.builtin:Dynamo", "repogen.passes")
    monkeypatch.setattr(plugins, "plugins", lambda _: {"dynamo": entry})
    with pytest.raises(SpecError, match=r"builtin:Dynamo is not a Pass with the name 'dynamo'") as caught:
        plugins.load_instance("repogen.passes", "dynamo", Pass)  # type: ignore[type-abstract] # a Protocol
    assert (caught.value.code, caught.value.hint) == ("plugin.interface", "implement repogen.optimize.interface.Pass")


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("export: {exporter: dynamo}\n    optimize: [onnxsim]", ""),
        (
            "export: {exporter: dynamo, options: {a: 1}}",
            "models.m.export.options: must be left out: dynamo has no options, not a mapping",
        ),
        (
            "optimize: [{name: onnxsim, options: {a: 1}}]",
            "models.m.optimize[0].options: must be left out: onnxsim has no options, not a mapping",
        ),
        (
            "export: {options: {a: 1}}",
            "models.m.export.options: must be left out when exporter is auto, not a mapping",
        ),
    ],
)
def test_loading_a_spec_does_not_import_torch(tmp_path: Any, section: str, message: str) -> None:
    """Nor ONNX packages: options are validated with the modules of the entry points alone."""
    (tmp_path / "models.py").write_text("def build(): ...\n")
    (tmp_path / "repogen.yaml").write_text(
        f'models:\n  m:\n    source: {{factory: "models.py:build"}}\n    {INPUTS}\n    {section}\n',
        encoding="utf-8",
    )
    command = [sys.executable, "-c", LOAD]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    *problems, imported = result.stdout.splitlines()
    assert imported == "[]"
    assert [problem.partition(" ")[2] for problem in problems] == ([message] if message else [])

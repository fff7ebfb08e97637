"""Templates of a spec: rendered in a process of their own, whatever they do."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.steps import EnsembleStep
from repogen.errors import ConfigError
from repogen.resources import templates_dir
from repogen.triton_config.render.template import ENSEMBLE_TEMPLATE, TEMPLATE, TemplateVariables, render
from repogen.triton_config.sections.model import TritonSpec
from repogen.triton_config.text.view import TensorView
from repogen.worker import template as template_process
from repogen.worker.template import render_template

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECTION = TritonSpec.model_validate(
    {
        "instance_group": [
            {
                "count": 2,
                "kind": "KIND_CPU",
                "rate_limiter": {"resources": [{"name": "R", "global": True, "count": 1}]},
            }
        ],
        "dynamic_batching": {
            "preferred_batch_size": [4],
            "priority_levels": 2,
            "default_priority_level": 1,
            "priority_queue_policy": {1: {"max_queue_size": 8}},
        },
        "version_policy": {"latest": {"num_versions": 2}},
    }
)
VARIABLES = TemplateVariables(
    name="tiny \N{RIGHT-TO-LEFT OVERRIDE}",
    backend="onnxruntime",
    max_batch_size=8,
    batch_origin="measured",
    inputs=(TensorView("x", "FP32", (3, -1), reshape=(3, 4)),),
    outputs=(TensorView("y", "FP32", (2,), label_filename="labels.txt"),),
    instance_groups=SECTION.instance_group,
    instances_from_spec=True,
    dynamic_batching=SECTION.dynamic_batching,
    version_policy=SECTION.version_policy,
    steps=(EnsembleStep("a", {"x": "IN"}, {"y": "OUT"}, 3),),
    extra_fields='parameters { key: "a" }',
    uses_graph=True,
)


@pytest.fixture
def isolated(tmp_path: Path) -> Callable[..., str]:
    """Return a function that renders a template of the directory ``templates`` in a process."""
    (tmp_path / "templates").mkdir()

    def render_isolated(text: str | None = None, template: str = TEMPLATE) -> str:
        if text is not None:
            (tmp_path / "templates" / template).write_text(text, encoding="utf-8")
        return render_template(tmp_path / "work" / "m", threading.Event(), VARIABLES, tmp_path / "templates", template)

    return render_isolated


@pytest.mark.parametrize("template", [TEMPLATE, ENSEMBLE_TEMPLATE])
def test_text_is_the_same_in_another_process(isolated: Callable[..., str], template: str) -> None:
    """No variable changes on its way to the process, and the text does not on its way back."""
    text = (templates_dir() / template).read_text(encoding="utf-8") + "# \N{RIGHT-TO-LEFT OVERRIDE} {{ more }}\n"
    last_line = f"# \N{RIGHT-TO-LEFT OVERRIDE} {VARIABLES.more}\n"
    assert isolated(text, template) == render(VARIABLES, None, template) + last_line


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("\n{{ 'a'|center(2000000000) }}", 2, "memory"),
        (
            "{% set big = range(90000)|list %}\n{% for i in big %}{% for j in big %}{% endfor %}{% endfor %}",
            2,
            "1 s of compute time",
        ),
        ("\n{% include 'config.pbtxt.j2' %}", 2, "nested too deeply"),
        ("{% macro m() %}\n{{ m() }}{% endmacro %}{{ m() }}", 2, "nested too deeply"),
        ("{% extends 'config.pbtxt.j2' %}", 1, "nested too deeply"),
        ("\n{% import 'none.j2' as none_ %}", 2, "none.j2 does not exist"),
    ],
)
def test_template_without_end_is_an_error_of_its_line(
    isolated: Callable[..., str], monkeypatch: pytest.MonkeyPatch, text: str, line: int, reason: str
) -> None:
    """Time, memory and depth are limited, and the error names the line of the template."""
    monkeypatch.setattr(template_process, "CPU_SECONDS", 1)
    with pytest.raises(ConfigError) as caught:
        isolated(text)
    assert caught.value.code == "config.template"
    assert caught.value.where == f"config.pbtxt.j2:{line}"
    assert reason in caught.value.message


@pytest.mark.parametrize("model", ["instance_groups[0]", "dynamic_batching", "version_policy.latest"])
@pytest.mark.parametrize(
    "method",
    [
        r"parse_raw('cos\nsystem\n(S\'touch MARK\'\ntR.', proto='pickle', allow_pickle=True)",
        "parse_file('/etc/hostname')",
        "model_construct()",
    ],
)
def test_methods_of_variables_are_not_available(tmp_path: Path, model: str, method: str) -> None:
    """Those of pydantic's models unpickle text, which runs any command, and read files."""
    template = "{{ " + f"{model}.{method}" + " }}"
    (tmp_path / TEMPLATE).write_text(template.replace("MARK", str(tmp_path / "mark")), encoding="utf-8")
    with pytest.raises(ConfigError, match="is unsafe"):
        render(VARIABLES, tmp_path)
    assert not (tmp_path / "mark").exists()


def test_template_that_crashes_the_process_is_an_error(isolated: Callable[..., str]) -> None:
    """Expressions that are nested too deeply for Python's compiler are reported as well."""
    for depth in (150, 5_000, 200_000):
        with pytest.raises(ConfigError) as caught:
            isolated("{{ " + "(" * depth + "1" + ")" * depth + " }}" if depth < 10_000 else "{{" + "-" * depth + "1 }}")
        assert caught.value.code == "config.template"

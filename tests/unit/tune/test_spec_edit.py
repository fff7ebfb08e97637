"""Settings written into a spec: comments and layout stay, and nothing else changes."""

from __future__ import annotations

import difflib
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import TypeAdapter

from repogen.errors import SpecError
from repogen.spec.load import load_spec
from repogen.spec.models import PassSpec
from repogen.tune.space import TunableModel, current_settings, space_of, with_settings
from repogen.tune.spec_edit import SpecEdit, edit_spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from repogen.artifacts.tune import Choice

ROOT = Path(__file__).resolve().parents[3]
SPEC = """\
# Models of the team.
models:
    tiny:  # a small one
        source: {factory: "models.py:build"}  # the code
        inputs:
          x: {dtype: float32, shape: [batch, 4]}
        outputs: ['y']
        dims: {batch: {min: 1, max: 8}}
        triton:
            # one instance for each core
            instance_group: [{count: 1, kind: KIND_CPU}]  # measured in May
            parameters:
                intra_op_thread_count: 2  # half of the cores
                enable_mem_arena: false
    other:
        source: {factory: "models.py:build"}
        inputs: {x: {dtype: float32, shape: [3, 4]}}
        outputs: [y]
"""


def edited(path: Path, text: str, name: str = "tiny", **settings: Choice) -> SpecEdit:
    """Return the change that gives a model of a spec these settings."""
    (path / "models.py").write_text("def build(): ...\n", encoding="utf-8")
    file = path / "repogen.yaml"
    file.write_bytes(text.encode())
    spec = load_spec(file)
    model = TunableModel(spec.models[name].triton, 8, is_graph=True, cores=4)
    changed = spec.models[name].model_copy(update={"triton": with_settings(model, settings)})
    return edit_spec(spec, file.read_bytes(), name, changed)


def with_passes(path: Path, text: str, passes: Sequence[object], name: str = "tiny", **settings: Choice) -> SpecEdit:
    """Return the change that gives a model of a spec these passes and settings."""
    (path / "models.py").write_text("def build(): ...\n", encoding="utf-8")
    file = path / "repogen.yaml"
    file.write_bytes(text.encode())
    spec = load_spec(file)
    entries = TypeAdapter(tuple[PassSpec, ...]).validate_python(passes)
    triton = with_settings(TunableModel(spec.models[name].triton, 8, is_graph=True, cores=4), settings)
    changed = spec.models[name].model_copy(update={"optimize": entries, "triton": triton})
    edit = edit_spec(spec, file.read_bytes(), name, changed)
    assert load_spec(file, content=edit.after).models[name].optimize == entries
    return edit


def changed(edit: SpecEdit) -> list[str]:
    """Return the changed lines of the diff."""
    return [line for line in edit.diff.splitlines() if line[:1] in "+-" and line[:3] not in {"+++", "---"}]


def test_lines_of_another_layout_are_not_compared_with_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every line differs from what a YAML writer would write: a long spec would need hours."""
    comparisons: list[object] = []
    set_line = difflib.SequenceMatcher.set_seq1

    def counted(matcher: difflib.SequenceMatcher[str], line: Sequence[str]) -> None:
        comparisons.append(line)
        set_line(matcher, line)

    monkeypatch.setattr(difflib.SequenceMatcher, "set_seq1", counted)
    model = """\
   model{}:
         source:
                  factory: 'models.py:build'
         inputs: {{x: {{dtype: float32, shape: [batch, 4]}}}}
         dims: {{batch: {{min: 1, max: 8}}}}
"""
    text = "models:\n" + "".join(model.format(number) for number in range(20))
    assert "+" in edited(tmp_path, text, "model7", instance_count=2).diff
    assert len(comparisons) < 100


def test_only_the_settings_change(tmp_path: Path) -> None:
    """Comments, quotes, indentation and order of the rest stay, byte for byte."""
    edit = edited(
        tmp_path,
        SPEC,
        instance_count=4,
        intra_op_thread_count=1,
        dynamic_batching="on",
        max_queue_delay_microseconds=500,
        preferred_batch_size="half",
    )

    assert changed(edit) == [
        "-            instance_group: [{count: 1, kind: KIND_CPU}]  # measured in May",
        "+            instance_group: [{count: 4, kind: KIND_CPU}]  # measured in May",
        "-                intra_op_thread_count: 2  # half of the cores",
        "+                intra_op_thread_count: 1  # half of the cores",
        "+            dynamic_batching: {preferred_batch_size: [4, 8], max_queue_delay_microseconds: 500}",
    ]


def test_section_is_created(tmp_path: Path) -> None:
    """For a model without one."""
    text = SPEC.replace("other:", "tiny2:")
    edit = edited(tmp_path, text, "tiny2", graph_level=1, instance_count=4, execution_mode=1)

    section = load_spec(edit.path, content=edit.after).models["tiny2"].triton
    assert section.optimization is not None
    assert section.optimization.graph is not None
    assert (section.optimization.graph.level, section.instance_group[0].count) == (1, 4)
    assert section.parameters == {"execution_mode": 1}
    assert all(line.startswith("+") for line in changed(edit))


def test_removed_settings(tmp_path: Path) -> None:
    """A default value replaces a number; a section that is empty without it is removed."""
    text = SPEC.replace(
        "enable_mem_arena: false", "enable_mem_arena: false\n            optimization: {graph: {level: 2}}"
    )
    edit = edited(tmp_path, text, intra_op_thread_count=0, graph_level=0)

    assert changed(edit) == [
        "-                intra_op_thread_count: 2  # half of the cores",
        "-            optimization: {graph: {level: 2}}",
    ]


INHERITED = """\
defaults:
  triton:
    dynamic_batching: {max_queue_delay_microseconds: 100}
    instance_group: [{count: 2, kind: KIND_CPU, host_policy: numa0}]
    parameters: {intra_op_thread_count: 2}
models:
  tiny:
    source: {factory: "models.py:build"}
    inputs: {x: {dtype: float32, shape: [3, 4]}}
    outputs: [y]
  other:
    source: {factory: "models.py:build"}
    inputs: {x: {dtype: float32, shape: [3, 4]}}
    outputs: [y]
"""


@pytest.mark.parametrize(
    "settings",
    [
        {"dynamic_batching": "off"},
        {"instance_count": 4},
        {"intra_op_thread_count": 0},
        {"max_queue_delay_microseconds": 0},
        {"max_queue_delay_microseconds": 500, "preferred_batch_size": "max"},
    ],
)
def test_inherited_settings_change_for_one_model(tmp_path: Path, settings: dict[str, Choice]) -> None:
    """The defaults and the other models stay."""
    edit = edited(tmp_path, INHERITED, "tiny", **settings)

    after = load_spec(edit.path, content=edit.after)
    before = load_spec(edit.path, content=edit.before)
    model = TunableModel(after.models["tiny"].triton, 8, is_graph=True, cores=4)
    assert {name: current_settings(model)[name] for name in settings} == settings
    assert after.models["other"] == before.models["other"]
    assert all(line.startswith("+") for line in changed(edit))


@pytest.mark.parametrize("name", ["tiny", "other"])
def test_passes_are_written_after_the_export(tmp_path: Path, name: str) -> None:
    """As a line of their own, also for the last model; nothing else changes."""
    edit = with_passes(tmp_path, SPEC, ["ir-cleanup", {"name": "int8-dynamic", "gain": False}], name)

    assert changed(edit) == ["+        optimize: [ir-cleanup, {name: int8-dynamic, gain: false}]"]
    lines = edit.after.decode().splitlines()
    before = {"tiny": "        dims: {batch: {min: 1, max: 8}}", "other": "        outputs: [y]"}
    assert lines[lines.index(changed(edit)[0][1:]) - 1] == before[name]


COMMENTED = """\
models:
  tiny:
    source:
      factory: "models.py:build"
    # what clients send
    inputs:
      x:
        dtype: float32
        shape: [3, 4]

    # the server
    triton:
      instance_group: [{count: 1, kind: KIND_CPU}]

  # the second one
  other: {source: {factory: "models.py:build"}, inputs: {x: {dtype: float32, shape: [3, 4]}}}
"""


def test_comments_stay_with_what_follows(tmp_path: Path) -> None:
    """The new key is neither between a comment and its key, nor after a blank line."""
    edit = with_passes(tmp_path, COMMENTED, ["onnxsim"], instance_count=4)
    text = edit.after.decode()
    assert "        shape: [3, 4]\n    optimize: [onnxsim]\n\n    # the server\n    triton:\n" in text
    assert changed(edit)[1:] == [
        "-      instance_group: [{count: 1, kind: KIND_CPU}]",
        "+      instance_group: [{count: 4, kind: KIND_CPU}]",
    ]
    flow = with_passes(tmp_path, COMMENTED, ["onnxsim"], "other")
    assert "optimize: [onnxsim]}\n" in flow.after.decode()


WITHOUT_SECTION = """\
models:
  # the first one
  tiny:
    source: {factory: "models.py:build"}
    outputs: [y]
    inputs:
      x:
        dtype: float32
        shape: [batch, 4]  # rows

    # sizes
    dims: {batch: {min: 1, max: 8}}  # tested

  # the second one
  other:
    source: {factory: "models.py:build"}
    inputs: {x: {dtype: float32, shape: [3, 4]}}
    outputs: [y]
"""


def test_new_section_is_before_the_comments_of_the_next_model(tmp_path: Path) -> None:
    """And after all keys of its own model."""
    edit = edited(tmp_path, WITHOUT_SECTION, instance_count=4)
    section = "    triton:\n      instance_group: [count: 4]\n"
    before, after = WITHOUT_SECTION.split("  # tested\n")
    assert edit.after.decode() == f"{before}  # tested\n{section}{after}"
    last = edited(tmp_path, WITHOUT_SECTION, "other", instance_count=4)
    assert last.after.decode() == WITHOUT_SECTION + section


LISTED = COMMENTED.replace(
    "    # the server\n",
    """\
    optimize:
      - onnxsim  # folds constants
      # measured in May
      - {name: ort-fusions, gain: false}  # attention
    # the server
""",
)


def test_entries_that_stay_keep_their_comments(tmp_path: Path) -> None:
    """Entries are removed and added around them."""
    fusions = {"name": "ort-fusions", "gain": False}
    assert changed(with_passes(tmp_path, LISTED, ["onnxsim", fusions, "ir-cleanup"])) == ["+      - ir-cleanup"]
    last = "-      - {name: ort-fusions, gain: false}  # attention"
    assert changed(with_passes(tmp_path, LISTED, ["onnxsim"])) == [last]
    first = "-      - onnxsim  # folds constants"
    assert changed(with_passes(tmp_path, LISTED, ["ir-cleanup", fusions])) == [first, "+      - ir-cleanup"]
    emptied = changed(with_passes(tmp_path, LISTED, [], instance_count=4))
    assert emptied[:4] == ["-    optimize:", first, "+    optimize: []", last]
    same_column = LISTED.replace("      - onn", "    - onn").replace("      - {name: ort", "    - {name: ort")
    assert changed(with_passes(tmp_path, same_column, ["onnxsim", "ir-cleanup"])) == [
        last[:1] + last[3:],
        "+    - ir-cleanup",
    ]


def test_passes_of_the_defaults_and_auto_are_replaced(tmp_path: Path) -> None:
    """For one model; the others keep them."""
    inherited = COMMENTED.replace("models:\n", "defaults: {optimize: [onnxsim]}\nmodels:\n", 1)
    assert changed(with_passes(tmp_path, inherited, [])) == ["+    optimize: []"]
    automatic = LISTED.partition("    optimize:")[0] + "    optimize: auto  # all of them\n    # the server\n"
    automatic += LISTED.partition("    # the server\n")[2]
    assert changed(with_passes(tmp_path, automatic, ["onnxsim"])) == [
        "-    optimize: auto  # all of them",
        "+    optimize: [onnxsim] # all of them",
    ]


def test_shared_passes_change_for_one_model(tmp_path: Path) -> None:
    """The other model keeps the list of the anchor."""
    text = SPEC.replace("        triton:\n", "        optimize: &shared [onnxsim]\n        triton:\n")
    edit = with_passes(tmp_path, text + "        optimize: *shared\n", ["onnxsim", "ir-cleanup"])
    assert load_spec(edit.path, content=edit.after).models["other"].optimize == (PassSpec(name="onnxsim"),)


def test_shared_section_is_an_error(tmp_path: Path) -> None:
    """An anchor of two models: both would change."""
    text = SPEC.replace("        triton:\n", "        triton: &shared\n") + "        triton: *shared\n"

    with pytest.raises(SpecError, match="without changing other parts") as caught:
        edited(tmp_path, text, instance_count=4)
    assert caught.value.code == "tune.edit"


def test_line_ends_and_byte_order_mark_stay(tmp_path: Path) -> None:
    """Of a file that was written on Windows."""
    edit = edited(tmp_path, "\ufeff" + SPEC.replace("\n", "\r\n"), instance_count=4)

    assert edit.after.startswith(b"\xef\xbb\xbf#")
    assert edit.after.count(b"\r\n") == edit.after.count(b"\n") == SPEC.count("\n")


def test_changed_file_is_not_overwritten(tmp_path: Path) -> None:
    """The user's change is kept."""
    edit = edited(tmp_path, SPEC, instance_count=4)
    edit.path.write_text(SPEC + "# edited\n", encoding="utf-8")

    with pytest.raises(SpecError, match="was changed while") as caught:
        edit.write()

    assert caught.value.code == "tune.spec-changed"
    assert edit.path.read_text(encoding="utf-8").endswith("# edited\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["models.py", "repogen.yaml"]


def test_written_file_keeps_its_mode_and_link(tmp_path: Path) -> None:
    """The target of a symlink is replaced, not the link."""
    edit = edited(tmp_path, SPEC, instance_count=4)
    real = tmp_path / "real.yaml"
    edit.path.rename(real)
    real.chmod(0o640)
    edit.path.symlink_to(real)

    edit.write()

    assert edit.path.is_symlink()
    assert (real.read_bytes(), real.stat().st_mode & 0o777) == (edit.after, 0o640)


@pytest.mark.parametrize("example", ["digits", "resnet18", "minilm", "distilbert", "text"])
def test_specs_of_the_examples(example: str) -> None:
    """Every comment stays, and lines are only added or replaced inside the section."""
    path = ROOT / "examples" / example / "repogen.yaml"
    spec = load_spec(path)
    generator = random.Random(0)  # noqa: S311 - not a secret
    for name, each in spec.models.items():
        if each.source.kind == "ensemble":
            continue
        model = TunableModel(each.triton, 8, is_graph=True, cores=4)
        for _ in range(10):
            section = with_settings(model, space_of(model).random(generator))
            passes = generator.choice([each.optimize, (), (PassSpec(name="ort-fusions", gain=False),)])
            changes = each.model_copy(update={"triton": section, "optimize": passes})
            edit = edit_spec(spec, path.read_bytes(), name, changes)
            removed = [line for line in changed(edit) if line.startswith("-")]
            assert len(removed) <= 9, edit.diff
            assert edit.after.count(b"#") >= edit.before.count(b"#") - len(removed)


def test_long_specs_are_not_compared_line_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison of tens of thousands of equal lines took hours."""
    compared: list[int] = []
    matcher = difflib.SequenceMatcher

    def counted(junk: None, before: list[str], after: list[str], **options: bool) -> difflib.SequenceMatcher[str]:
        compared.append(max(len(before), len(after)))
        return matcher(junk, before, after, **options)

    monkeypatch.setattr(difflib, "SequenceMatcher", counted)
    edit = edited(tmp_path, SPEC.replace("    other:", "#\n" * 2100 + "    other:"), instance_count=2)
    assert changed(edit)
    assert edit.after.count(b"#\n") == 2100
    assert max(compared) < 20

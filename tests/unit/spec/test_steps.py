"""Python models and ensembles in a spec: requirements, and the position of each problem."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from repogen.spec.load import load_spec
from repogen.spec.sources import EnsembleSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Problems = Callable[[str | bytes], list[tuple[str, str, str]]]

_TOKENIZER = """\
models:
  tokenizer:
    source: {kind: python, path: models.py, requirements: [tokenizers==0.23.3]}
    inputs: {text: {dtype: string, shape: [batch, 1]}}
    examples: models.py:texts
    outputs: {ids: {dtype: int64, shape: [batch, tokens]}}
    dims: {batch: {max: 4}}
  encoder:
    source: {factory: models.py:build}
    inputs: {ids: {dtype: int64, shape: [batch, tokens], range: [0, 9]}}
    outputs: [embedding]
    dims: {batch: {max: 4}, tokens: {max: 8}}
"""


def ensemble(text: str) -> str:
    """Return the spec with an added ensemble."""
    return _TOKENIZER + "  whole:\n" + "".join(f"    {line}\n" for line in dedent(text).strip().splitlines())


def test_complete_ensemble_loads(folder: Path) -> None:
    """Outputs with dtype and shape, strings, and steps with and without maps are read."""
    path = folder / "repogen.yaml"
    path.write_text(
        ensemble("""
        source:
          kind: ensemble
          steps:
            - {model: tokenizer, inputs: {text: words}, outputs: {ids: ids}}
            - {model: encoder, version: 2}
        outputs: [embedding]
        """)
    )

    spec = load_spec(path)

    source = spec.models["whole"].source
    assert isinstance(source, EnsembleSource)
    assert [(step.model, step.version, step.inputs) for step in source.steps] == [
        ("tokenizer", None, {"text": "words"}),
        ("encoder", 2, {}),
    ]
    assert spec.models["tokenizer"].output_names == ("ids",)
    assert spec.models["tokenizer"].declared_outputs["ids"].dtype == "int64"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "source: {kind: ensemble, steps: [{model: tokeniser}]}",
            [
                (
                    "14:39",
                    "models.whole.source.steps[0].model",
                    'this spec has no model "tokeniser" (did you mean "tokenizer"?)',
                )
            ],
            id="unknown model",
        ),
        pytest.param(
            "source: {kind: ensemble, steps: [{model: whole}]}",
            [("14:39", "models.whole.source.steps[0].model", "an ensemble cannot be a step of itself")],
            id="itself",
        ),
        pytest.param(
            "source: {kind: ensemble, steps: []}",
            [("14:30", "models.whole.source.steps", "needs at least one entry")],
            id="no steps",
        ),
        pytest.param(
            "source: {kind: ensemble, steps: [{model: encoder, inputs: {id: x}, outputs: {embeding: y}}]}",
            [
                (
                    "14:64",
                    "models.whole.source.steps[0].inputs.id",
                    'encoder has no input "id" (did you mean "ids"?)',
                ),
                (
                    "14:82",
                    "models.whole.source.steps[0].outputs.embeding",
                    'encoder has no output "embeding" (did you mean "embedding"?)',
                ),
            ],
            id="tensors that a model does not have",
        ),
        pytest.param(
            """
            source:
              kind: ensemble
              steps:
                - {model: tokenizer, outputs: {ids: x}}
                - {model: encoder, outputs: {embedding: x}}
            """,
            [
                (
                    "18:38",
                    "models.whole.source.steps[1].outputs.embedding",
                    '"x" is also an output of step 1 (use a unique name for each tensor)',
                )
            ],
            id="made twice",
        ),
        pytest.param(
            "source: {kind: ensemble, steps: [{model: encoder, version: 1}, {model: encoder, version: 2}]}",
            [
                (
                    "14:69",
                    "models.whole.source.steps[1].model",
                    "encoder is used in two versions (use one version)",
                )
            ],
            id="two versions",
        ),
        pytest.param(
            """
            source: {kind: ensemble, steps: [{model: encoder}]}
            inputs: {x: {dtype: float32, shape: [batch]}}
            triton: {instance_group: [{count: 2}]}
            """,
            [
                ("15:5", "models.whole.inputs", "the inputs of an ensemble follow from its steps (remove it)"),
                (
                    "16:14",
                    "models.whole.triton.instance_group",
                    (
                        "applies only to the models in the steps; Triton rejects it in an ensemble"
                        " (set it for the models in the steps)"
                    ),
                ),
            ],
            id="what Triton refuses of it",
        ),
    ],
)
def test_invalid_ensemble_is_rejected(text: str, expected: list[tuple[str, str, str]], problems: Problems) -> None:
    """Each mistake is reported at its position before anything is built."""
    assert problems(ensemble(text)) == expected


def test_ensemble_ignores_defaults_that_triton_rejects(folder: Path) -> None:
    """Triton rejects an ensemble's instance groups, so defaults for the other models do not apply."""
    path = folder / "repogen.yaml"
    path.write_text(
        "defaults: {triton: {instance_group: [{count: 2}]}}\n"
        + ensemble("source: {kind: ensemble, steps: [{model: encoder}]}")
    )

    assert load_spec(path).models["encoder"].triton.instance_group[0].count == 2


def test_cycle_is_reported_for_each_ensemble(problems: Problems) -> None:
    """Ensembles may be steps, but not of each other."""
    text = _TOKENIZER + "".join(
        f"  {name}:\n    source: {{kind: ensemble, steps: [{{model: {step}}}]}}\n"
        for name, step in (("one", "two"), ("two", "one"))
    )

    assert problems(text) == [
        ("14:30", "models.one.source.steps", "the steps lead back to this ensemble (break the cycle)"),
        ("16:30", "models.two.source.steps", "the steps lead back to this ensemble (break the cycle)"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "    inputs: {text: {dtype: string, shape: [batch, 1]}}\n",
            "",
            ("2:3", "models.tokenizer", "Python code must declare its inputs"),
        ),
        (
            "outputs: {ids: {dtype: int64, shape: [batch, tokens]}}",
            "outputs: [ids]",
            ("6:5", "models.tokenizer.outputs", "Python code must declare its outputs"),
        ),
        (
            "{dtype: int64, shape: [batch, tokens]}",
            "{dtype: long, shape: [batch, tokens]}",
            ("6:21", "models.tokenizer.outputs.ids.dtype", "must be one of"),
        ),
        (
            "    examples: models.py:texts\n",
            "",
            ("4:14", "models.tokenizer.inputs.text", "random strings may be invalid, so examples are required"),
        ),
        ("==0.23.3", "", ("3:60", "models.tokenizer.source.requirements[0]", "must be NAME==VERSION")),
        (
            "requirements: [",
            'requirements: ["--index-url=http://x", ',
            ("3:60", "models.tokenizer.source.requirements[0]", "must be NAME==VERSION"),
        ),
        (
            "requirements: [tokenizers==0.23.3]",
            "pack: true",
            ("3:45", "models.tokenizer.source.pack", "there is nothing to pack"),
        ),
        (
            "requirements:",
            'pack_for: ["3.12"], requirements:',
            ("3:45", "models.tokenizer.source.pack_for", "it has no effect without pack: true"),
        ),
        (
            "requirements:",
            "pack: true, pack_for: [3.12], requirements:",
            ("3:68", "models.tokenizer.source.pack_for[0]", "must be a version of Python in quotes"),
        ),
        (
            "path: models.py,",
            "path: model.py,",
            ("3:28", "models.tokenizer.source.path", 'file "model.py" does not exist'),
        ),
        (
            "requirements:",
            "data: [weights.pt, x/vocab.txt], requirements:",
            ("3:64", "models.tokenizer.source.data[1]", 'file "x/vocab.txt" does not exist'),
        ),
        (
            "outputs: [embedding]",
            "outputs: {embedding: {dtype: float32, shape: [batch, 3]}}",
            ("11:5", "models.encoder.outputs", "dtypes and shapes come from the graph"),
        ),
        (
            "inputs: {ids: {dtype: int64, shape: [batch, tokens], range: [0, 9]}}",
            "inputs: {ids: {dtype: string, shape: [batch, tokens]}}",
            ("10:20", "models.encoder.inputs.ids.dtype", "only kind: python supports strings"),
        ),
    ],
)
def test_invalid_python_model_is_rejected(
    old: str, new: str, expected: tuple[str, str, str], problems: Problems
) -> None:
    """Each mistake gives one problem."""
    assert old in _TOKENIZER
    ((place, key, words),) = problems(_TOKENIZER.replace(old, new, 1))
    assert (place, key) == expected[:2]
    assert words.startswith(expected[2])


def test_data_files_need_unique_names(folder: Path, problems: Problems) -> None:
    """Data files share a directory with repogen's own files."""
    for name in ("a/vocab.txt", "b/vocab.txt", "manifest.json"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")

    reported = problems(
        _TOKENIZER.replace("requirements:", "data: [a/vocab.txt, b/vocab.txt, manifest.json], requirements:")
    )

    assert [(key, what) for _, key, what in reported] == [
        (
            "models.tokenizer.source.data[1]",
            '"vocab.txt" can\'t be stored next to model.py: another file has this name (rename it)',
        ),
        (
            "models.tokenizer.source.data[2]",
            '"manifest.json" can\'t be stored next to model.py: a file of repogen has this name (rename it)',
        ),
    ]

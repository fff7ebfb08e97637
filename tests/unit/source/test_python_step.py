"""Python code for Triton's Python backend, run without a Triton: what it answers, and what is wrong with it."""

from __future__ import annotations

from textwrap import dedent, indent
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from repogen.artifacts.source import PassThroughSource
from repogen.errors import SourceError
from repogen.source.load import load_source
from repogen.spec.models import ModelSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from repogen.artifacts.source import SourceModel

_SPEC: dict[str, Any] = {
    "source": {"kind": "python", "path": "step.py", "data": ["suffix.txt"]},
    "inputs": {"text": {"dtype": "string", "shape": ["batch", 1]}},
    "outputs": {"length": {"dtype": "int64", "shape": ["batch", 1]}},
    "examples": "examples.py:texts",
    "dims": {"batch": {"max": 4}},
}
_CODE = """\
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def initialize(self, args):
        self.suffix = Path(__file__).with_name("suffix.txt").read_bytes()

    def execute(self, requests):
{body}
"""
_GOOD = """
return [self.answer(request) for request in requests]

def answer(self, request):
    texts = pb.get_input_tensor_by_name(request, "text").as_numpy()
    lengths = [[len(text + self.suffix)] for text in texts[:, 0]]
    return pb.InferenceResponse([pb.Tensor("length", np.array(lengths, dtype=np.int64))])
"""
_EXAMPLES = """\
def texts(batch, seed):
    return {"text": [["é" * (seed + row)] for row in range(batch)]}
"""
Load = "Callable[..., SourceModel]"


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., SourceModel]:
    """Return what loads a step with a body of ``execute``, and more that its spec says."""

    def loaded(body: str = _GOOD, **more: Any) -> SourceModel:
        first, _, rest = dedent(body).strip().partition("\n\n")
        methods = "\n\n" + indent(rest, "    ") if rest else ""
        text = _CODE.replace("{body}", indent(first, "        ") + methods)
        return of_text(text, **more)

    def of_text(text: str, **more: Any) -> SourceModel:
        (tmp_path / "step.py").write_text(text, encoding="utf-8")
        (tmp_path / "suffix.txt").write_text("!!", encoding="utf-8")
        (tmp_path / "examples.py").write_text(_EXAMPLES, encoding="utf-8")
        return load_source(ModelSpec.model_validate({**_SPEC, **more}), tmp_path, work_dir=tmp_path)

    loaded.of_text = of_text  # type: ignore[attr-defined] # the same for a whole file
    return loaded


def refusal(load: Callable[..., SourceModel], *args: Any, **more: Any) -> SourceError:
    """Return why a step is refused, at its load or at its first answer."""

    def run() -> None:
        source = load(*args, **more)
        source.reference(source.examples(source.example_sizes, 0))

    with pytest.raises(SourceError) as refused:
        run()
    return refused.value


def test_it_answers_with_what_lies_beside_it(load: Callable[..., SourceModel], tmp_path: Path) -> None:
    """Strings come as bytes in UTF-8, data files lie beside the code and travel with it."""
    source = load()

    answer = source.reference(source.examples({"batch": 3}, 1))

    assert answer["length"].tolist() == [[4], [6], [8]]
    assert [(c.name, c.path) for c in source.companions] == [("suffix.txt", tmp_path / "suffix.txt")]
    assert isinstance(source.origin, PassThroughSource)
    assert source.origin.artifact.exporter == "python"


def test_state_between_requests_is_told(load: Callable[..., SourceModel]) -> None:
    """State, as random numbers, shows at the second request."""
    body = """
    self.seen = getattr(self, "seen", 0) + len(requests)
    return [pb.InferenceResponse([pb.Tensor("length", np.full((r.inputs()[0].as_numpy().shape[0], 1), self.seen))])
            for r in requests]
    """
    assert "the same request is answered otherwise the second time" in refusal(load, body).message


def test_requests_that_are_mixed_up_are_told(load: Callable[..., SourceModel]) -> None:
    """Triton's dynamic batcher hands over several at once."""
    body = """
    sizes = [request.inputs()[0].as_numpy().shape for request in requests]
    return [pb.InferenceResponse([pb.Tensor("length", np.full(size, len(requests)))]) for size in sizes]
    """
    assert "two requests at once are answered otherwise" in refusal(load, body).message


def test_what_is_installed_must_be_what_is_required(load: Callable[..., SourceModel]) -> None:
    """What is proved is else not what is served; what is imported and not listed is a note."""
    found = refusal(load, _GOOD, source={**_SPEC["source"], "requirements": ["pyyaml==1.0", "no-such==2"]})

    assert found.message.startswith("pyyaml is ")
    assert "requirements: say 1.0; no-such is not installed here" in found.message
    assert "no-such==2" in found.hint

    body = _GOOD.replace("\nreturn [", "\nimport yaml, json, numpy\nreturn [", 1)
    assert load(body).notes == ("step.py imports yaml, which requirements: does not list: the server must have it",)


@pytest.mark.parametrize("made", ["np.float32(1.0)", "np.array([['a']])"])
def test_what_the_server_refuses_of_a_tensor_is_refused_here(load: Callable[..., SourceModel], made: str) -> None:
    """Its own module takes arrays alone, and strings as objects."""
    body = f"return [pb.InferenceResponse([pb.Tensor('length', {made})]) for r in requests]"
    assert "Tensor('length') takes" in refusal(load, body).message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return []", "returned a list of 0 for 1 requests"),
        ("return None", "returned a NoneType for 1 requests"),
        ("return [1 for r in requests]", "returned a int among its responses"),
        ("return [pb.InferenceResponse([]) for r in requests]", "answered without output 'length' (it has none)"),
        (
            "return [pb.InferenceResponse(error=pb.TritonError('too hot')) for r in requests]",
            "answered with an error: too hot",
        ),
        (
            "return [pb.InferenceResponse([pb.Tensor('length', np.zeros((2, 1), np.int32))]) for r in requests]",
            "output 'length' is int32 [2, 1], declared int64 [batch, 1] with batch=2",
        ),
        (
            "return [pb.InferenceResponse([pb.Tensor('length', np.zeros((3, 1), np.int64))]) for r in requests]",
            "output 'length' is int64 [3, 1], declared int64 [batch, 1] with batch=2",
        ),
        ("return [pb.InferenceRequest(model_name='other').exec() for r in requests]", "calls another model (BLS)"),
        ("raise ValueError('no such word')", "execute of step.py failed: ValueError: no such word"),
        ("import sys; sys.exit(3)", "called sys.exit"),
    ],
)
def test_a_wrong_answer_is_told(load: Callable[..., SourceModel], body: str, message: str) -> None:
    """What it did, and what was declared."""
    assert message in refusal(load, body).message


def test_an_exception_is_placed_in_the_users_own_file(load: Callable[..., SourceModel]) -> None:
    """Not in the copy that was run."""
    assert refusal(load, "raise ValueError('no')").where == "step.py:12"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class Model:\n    pass\n", "step.py has no class TritonPythonModel with a method execute"),
        ("import no_such_thing\n", "step.py failed: ModuleNotFoundError: No module named 'no_such_thing'"),
        ("def (:\n", "step.py failed: SyntaxError"),
        (
            "class TritonPythonModel:\n    execute = print\n    def initialize(self, args): args['nothing']\n",
            "step.py failed: KeyError: 'nothing'",
        ),
    ],
)
def test_a_file_that_is_no_step_is_told(load: Any, text: str, message: str) -> None:
    """At its load."""
    assert message in refusal(load.of_text, text).message


def test_it_is_told_its_config(load: Callable[..., SourceModel]) -> None:
    """As Triton gives it: JSON, with the dims without the batch where one was asked for."""
    text = """\
import json
import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        assert pb.get_output_config_by_name(config, "length")["dims"] == [1], config
        assert pb.get_input_config_by_name(config, "text")["data_type"] == "TYPE_STRING", config
        assert config["parameters"] == {"bonus": {"string_value": "5"}}, config
        self.kind = pb.triton_string_to_numpy("TYPE_INT64")
        assert not pb.using_decoupled_model_transaction_policy(config)

    def execute(self, requests):
        pb.Logger.log_info("answering")
        return [
            pb.InferenceResponse([pb.Tensor("length", np.full(r.inputs()[0].as_numpy().shape, 5, self.kind))])
            for r in requests
        ]
"""
    source = load.of_text(text, triton={"max_batch_size": 4, "parameters": {"bonus": 5}})  # type: ignore[attr-defined]

    assert source.reference(source.examples({"batch": 2}, 0))["length"].tolist() == [[5], [5]]


def test_numbers_are_drawn_where_no_examples_are_given(load: Callable[..., SourceModel]) -> None:
    """As for any model."""
    body = """
    return [pb.InferenceResponse([pb.Tensor("length", r.inputs()[0].as_numpy().astype(np.int64))]) for r in requests]
    """
    source = load(body, inputs={"x": {"dtype": "float32", "shape": ["batch", 1]}}, examples=None)

    assert source.examples({"batch": 2}, 0)["x"].dtype == np.float32


def test_stored_strings_are_taken(load: Callable[..., SourceModel], tmp_path: Path) -> None:
    """From an .npz, as text or as bytes."""
    np.savez(tmp_path / "texts.npz", text=np.array([["ab"], ["c"]]))

    source = load(examples="texts.npz")

    assert source.examples({"batch": 3}, 0)["text"].tolist() == [[b"ab"], [b"c"], [b"ab"]]

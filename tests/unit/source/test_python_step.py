"""Code for Triton's Python backend, run without Triton: its outputs and its errors."""

from __future__ import annotations

import os
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
return [self.respond(request) for request in requests]

def respond(self, request):
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
    """Return a function that loads a step with a body of ``execute`` and more keys of the spec."""

    def load_body(body: str = _GOOD, **more: Any) -> SourceModel:
        first, _, rest = dedent(body).strip().partition("\n\n")
        methods = "\n\n" + indent(rest, "    ") if rest else ""
        text = _CODE.replace("{body}", indent(first, "        ") + methods)
        return of_text(text, **more)

    def of_text(text: str, **more: Any) -> SourceModel:
        (tmp_path / "step.py").write_text(text, encoding="utf-8")
        (tmp_path / "suffix.txt").write_text("!!", encoding="utf-8")
        (tmp_path / "examples.py").write_text(_EXAMPLES, encoding="utf-8")
        return load_source(ModelSpec.model_validate({**_SPEC, **more}), tmp_path, work_dir=tmp_path)

    load_body.of_text = of_text  # type: ignore[attr-defined] # the same for a whole file
    return load_body


def rejection(load: Callable[..., SourceModel], *args: Any, **more: Any) -> SourceError:
    """Return the error of loading a step or of its first response."""

    def run() -> None:
        source = load(*args, **more)
        source.reference(source.examples(source.example_sizes, 0))

    with pytest.raises(SourceError) as caught:
        run()
    return caught.value


def test_code_reads_its_data_files(load: Callable[..., SourceModel], tmp_path: Path) -> None:
    """Strings are UTF-8 bytes; data files are next to the code and are published with it."""
    source = load()

    outputs = source.reference(source.examples({"batch": 3}, 1))

    assert outputs["length"].tolist() == [[4], [6], [8]]
    assert [(c.name, c.path) for c in source.companions] == [("suffix.txt", tmp_path / "suffix.txt")]
    assert isinstance(source.origin, PassThroughSource)
    assert source.origin.artifact.exporter == "python"


def test_state_between_requests_is_rejected(load: Callable[..., SourceModel]) -> None:
    """State and random numbers change the response to a repeated request."""
    body = """
    self.seen = getattr(self, "seen", 0) + len(requests)
    return [pb.InferenceResponse([pb.Tensor("length", np.full((r.inputs()[0].as_numpy().shape[0], 1), self.seen))])
            for r in requests]
    """
    assert "output 'length' differs when the same request is sent twice" in rejection(load, body).message


def test_mixed_up_requests_are_rejected(load: Callable[..., SourceModel]) -> None:
    """Triton's dynamic batcher can pass several requests to one call."""
    body = """
    sizes = [request.inputs()[0].as_numpy().shape for request in requests]
    return [pb.InferenceResponse([pb.Tensor("length", np.full(size, len(requests)))]) for size in sizes]
    """
    assert "output 'length' differs when two requests are executed together" in rejection(load, body).message


def test_requirements_must_match_installed_versions(load: Callable[..., SourceModel]) -> None:
    """A mismatch is an error; an import that is not in requirements is a note."""
    error = rejection(load, _GOOD, source={**_SPEC["source"], "requirements": ["pyyaml==1.0", "no-such==2"]})

    assert error.message.startswith("pyyaml is ")
    assert "requirements: pins 1.0; no-such is not installed here" in error.message
    assert "no-such==2" in error.hint

    body = _GOOD.replace("\nreturn [", "\nimport yaml, json, numpy\nreturn [", 1)
    assert load(body).notes == (
        "step.py imports yaml, which is not in requirements: it must be installed on the server",
    )


@pytest.mark.parametrize("value", ["np.float32(1.0)", "np.array([['a']])"])
def test_tensor_values_that_triton_rejects(load: Callable[..., SourceModel], value: str) -> None:
    """Triton's module accepts only arrays, and strings only as objects."""
    body = f"return [pb.InferenceResponse([pb.Tensor('length', {value})]) for r in requests]"
    assert "Tensor('length') requires" in rejection(load, body).message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return []", "returned a list of 0 for 1 requests"),
        ("return None", "returned a NoneType for 1 requests"),
        ("return [1 for r in requests]", "returned a int instead of a response"),
        ("return [pb.InferenceResponse([]) for r in requests]", "the response has no output 'length'; it has none"),
        (
            "return [pb.InferenceResponse(error=pb.TritonError('too hot')) for r in requests]",
            "the model returned an error: too hot",
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
        ("requests[0].get_response_sender().send(None)", "sends decoupled responses"),
        ("raise ValueError('no such word')", "execute of step.py failed: ValueError: no such word"),
        ("import sys; sys.exit(3)", "called sys.exit"),
    ],
)
def test_wrong_responses(load: Callable[..., SourceModel], body: str, message: str) -> None:
    """The message has what the code returned and what was declared."""
    assert message in rejection(load, body).message


@pytest.mark.parametrize(
    ("value", "dtype", "hint"),
    [
        ("np.zeros((2, 1))", "float32", ", or the code, for example with .astype(np.float32)"),
        ("np.zeros((2, 1))", "bool", ", or the code, for example with .astype(np.bool_)"),
        ("np.zeros((3, 1), np.float32)", "float32", ", or the code"),
    ],
)
def test_hint_has_the_declared_dtype(load: Callable[..., SourceModel], value: str, dtype: str, hint: str) -> None:
    """No conversion is suggested if only the shape is wrong."""
    outputs = {"length": {"dtype": dtype, "shape": ["batch", 1]}}
    body = f"return [pb.InferenceResponse([pb.Tensor('length', {value})]) for r in requests]"
    assert rejection(load, body, outputs=outputs).hint == f"correct outputs: in the spec{hint}"


def test_exception_has_the_line_of_the_original_file(load: Callable[..., SourceModel]) -> None:
    """The location is in the user's file, not in the model directory that was run."""
    assert rejection(load, "raise ValueError('no')").where == "step.py:12"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class Model:\n    pass\n", "step.py: missing class TritonPythonModel with a method execute"),
        ("import no_such_thing\n", "step.py failed: ModuleNotFoundError: No module named 'no_such_thing'"),
        ("def (:\n", "step.py failed: SyntaxError"),
        (
            "class TritonPythonModel:\n    execute = print\n    def initialize(self, args): args['nothing']\n",
            "step.py failed: KeyError: 'nothing'",
        ),
    ],
)
def test_file_that_is_not_a_step(load: Any, text: str, message: str) -> None:
    """The error occurs when the step is loaded."""
    assert message in rejection(load.of_text, text).message


def test_code_receives_its_configuration(load: Callable[..., SourceModel]) -> None:
    """It is JSON as Triton passes it; dims exclude the batch when the model batches."""
    text = """\
import json
import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        assert pb.get_output_config_by_name(config, "length")["dims"] == [1], config
        assert pb.get_input_config_by_name(config, "text")["data_type"] == "TYPE_STRING", config
        values = [config["parameters"][key]["string_value"] for key in ("bonus", "fast")]
        assert values == ["5", "true"], config
        self.kind = pb.triton_string_to_numpy("TYPE_INT64")
        assert not pb.using_decoupled_model_transaction_policy(config)

    def execute(self, requests):
        pb.Logger.log_info("running")
        return [
            pb.InferenceResponse([pb.Tensor("length", np.full(r.inputs()[0].as_numpy().shape, 5, self.kind))])
            for r in requests
        ]
"""
    triton = {"max_batch_size": 4, "parameters": {"bonus": 5, "fast": True}}
    source = load.of_text(text, triton=triton)  # type: ignore[attr-defined]

    assert source.reference(source.examples({"batch": 2}, 0))["length"].tolist() == [[5], [5]]


def test_inputs_are_generated_without_examples(load: Callable[..., SourceModel]) -> None:
    """Numeric inputs are generated as for any model."""
    body = """
    return [pb.InferenceResponse([pb.Tensor("length", r.inputs()[0].as_numpy().astype(np.int64))]) for r in requests]
    """
    source = load(body, inputs={"x": {"dtype": "float32", "shape": ["batch", 1]}}, examples=None)

    assert source.examples({"batch": 2}, 0)["x"].dtype == np.float32


def test_stored_strings(load: Callable[..., SourceModel], tmp_path: Path) -> None:
    """An .npz file can contain strings as text or as bytes."""
    np.savez(tmp_path / "texts.npz", text=np.array([["ab"], ["c"]]))

    source = load(examples="texts.npz")

    assert source.examples({"batch": 3}, 0)["text"].tolist() == [[b"ab"], [b"c"], [b"ab"]]


@pytest.mark.parametrize("case", ["sticky directory", "step.py", "suffix.txt"])
def test_code_that_another_user_may_have_created_is_not_run(
    tmp_path: Path, load: Callable[..., SourceModel], case: str
) -> None:
    """The directory of the spec is shared; data can be modules that the code imports."""
    respond = "[pb.Tensor('length', request.inputs()[0].as_numpy().astype(np.int64))]"
    body = f"return [pb.InferenceResponse({respond}) for request in requests]"
    # without examples, the code of which would be rejected as well
    more: dict[str, Any] = {"inputs": {"x": {"dtype": "float32", "shape": ["batch", 1]}}, "examples": None}
    load(body, **more)
    body = f"open({str(tmp_path / 'ran')!r}, 'w')\n{body}"
    tmp_path.chmod(0o1777 if case == "sticky directory" else 0o777)
    if case != "sticky directory":
        os.chown(tmp_path / case, 65534, -1)
    error = rejection(load, body, **more)
    message = "other users can create files in " if case == "sticky directory" else f"{case} belongs to another user"
    assert (error.code, error.message[: len(message)]) == ("working-directory.foreign", message)
    assert not (tmp_path / "ran").exists()

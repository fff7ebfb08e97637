"""An ONNX file as the reference that parity is measured against, and answers that came with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnxruntime

from repogen.errors import SourceError, first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import onnx

    from repogen.artifacts.source import Examples, Reference
    from repogen.artifacts.tensors import Array, Arrays

_TOO_NEW = ("Unsupported model IR version", "is till opset", "under development")


@dataclass(frozen=True)
class FileReference:
    """Runs a file as it is.

    Attributes:
        run: From inputs by the file's names to the outputs asked for.
        inputs: The file's name of each input, by the signature's.
        outputs: The signature's names of the outputs, in order.
        said: What runs it, for people.
    """

    run: Callable[[dict[str, Array]], list[Array]]
    inputs: Mapping[str, str]
    outputs: tuple[str, ...]
    said: str

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs by name.

        Raises:
            SourceError: The graph refused these inputs.
        """
        fed = {self.inputs[name]: array for name, array in inputs.items()}
        try:
            answers = self.run(fed)
        except Exception as error:
            lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
            shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in inputs.items())
            raise SourceError(
                f"the ONNX file failed in {self.said} on {shapes}: {lines[0][:300]}",
                "correct inputs: or dims: in the spec, or the model",
                code="source.onnx-run",
                details=str(error),
            ) from error
        return {name: cast("Array", np.asarray(a)) for name, a in zip(self.outputs, answers, strict=True)}


def file_reference(
    proto: onnx.ModelProto, path: Path, inputs: Mapping[str, str], outputs: Mapping[str, str]
) -> FileReference:
    """Make the reference: ONNX Runtime, or onnx's own evaluator for a file that is too new for it.

    Args:
        proto: The model without its external data.
        path: Its file.
        inputs: The file's name of each input, by the signature's.
        outputs: The same of the outputs.

    Raises:
        SourceError: ONNX Runtime can't load it for another reason.
    """
    wanted = list(outputs.values())
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # see validate.runtime
    options.log_severity_level = 4
    try:
        session: Any = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        if not any(reason in str(error) for reason in _TOO_NEW) or len(proto.graph.initializer) == 0:
            raise SourceError(
                f"ONNX Runtime {onnxruntime.__version__} cannot load {path.name}: {first_line(error, path.parent)}",
                "export the model again, for an opset that ONNX Runtime has",
                code="source.onnx",
                where=path.name,
                details=str(error),
            ) from error
        return FileReference(_evaluator(path, wanted), inputs, tuple(outputs), "onnx's own evaluator")
    return FileReference(
        lambda fed: cast("list[Array]", session.run(wanted, fed)),
        inputs,
        tuple(outputs),
        f"ONNX Runtime {onnxruntime.__version__}",
    )


def _evaluator(path: Path, wanted: list[str]) -> Callable[[dict[str, Array]], list[Array]]:
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415 - for files of the future only

    evaluator: Any = ReferenceEvaluator(str(path))
    return lambda fed: cast("list[Array]", evaluator.run(wanted, fed))


@dataclass(frozen=True)
class AnsweredExamples:
    """The inputs of an answers file, as they are at its own sizes; fitted copies at others."""

    inputs: dict[str, Array]
    sizes: Mapping[str, int]
    others: Examples

    def __call__(self, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Return arrays of the sizes asked for."""
        return dict(self.inputs) if dict(sizes) == dict(self.sizes) else self.others(sizes, seed)


@dataclass(frozen=True)
class AnsweredReference:
    """The answers of an answers file to its own inputs; the file's own to all others."""

    inputs: dict[str, Array]
    answers: dict[str, Array]
    others: Reference

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs by name."""
        same = all(
            array.shape == self.inputs[name].shape and np.array_equal(array, self.inputs[name])
            for name, array in inputs.items()
        )
        return dict(self.answers) if same else self.others(inputs)

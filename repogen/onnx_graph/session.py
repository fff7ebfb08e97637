"""ONNX Runtime sessions in repogen's own processes: on the CPU, without telemetry.

Imports only the standard library, NumPy and ONNX Runtime, because ``repogen.worker.target_session`` runs this file with
those of the target release.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_BFLOAT16 = "tensor(bfloat16)"
_ONNX_NUMBER = 16  # onnx.TensorProto.BFLOAT16


def open_session(model: Path | bytes, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
    """Load a file or its content; errors are those of ``onnxruntime.InferenceSession``."""
    # For the whole process; not at import, because another library may turn it on later.
    onnxruntime.disable_telemetry_events()
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run(
    session: Any,  # noqa: ANN401 - onnxruntime is not typed
    names: Sequence[str],
    inputs: Mapping[str, Any],
    options: onnxruntime.RunOptions | None = None,
) -> list[Any]:
    """Return the outputs of a session; its BF16 inputs and outputs are float32 arrays.

    ONNX Runtime has no NumPy dtype for BF16, so ``session.run`` rejects such inputs and outputs.

    Args:
        session: An ``onnxruntime.InferenceSession`` on the CPU.
        names: Names of the outputs.
        inputs: Arrays by name.
        options: Options of the run.
    """
    bfloat16_inputs = {value.name for value in session.get_inputs() if value.type == _BFLOAT16}
    if not bfloat16_inputs and all(value.type != _BFLOAT16 for value in session.get_outputs()):
        outputs: list[Any] = session.run(list(names), dict(inputs), options)
        return outputs
    # An OrtValue does not copy the array, which must exist as long as it does.
    arrays = {name: to_bits(a) if name in bfloat16_inputs else np.asarray(a, order="C") for name, a in inputs.items()}
    values = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, _ONNX_NUMBER)
        if name in bfloat16_inputs
        else onnxruntime.OrtValue.ortvalue_from_numpy(array)
        for name, array in arrays.items()
    }
    return [_array(value) for value in session.run_with_ort_values(list(names), values, options)]


def to_bits(array: Any) -> np.ndarray[Any, np.dtype[np.uint16]]:  # noqa: ANN401 - any array of numbers
    """Return the BF16 values nearest to float32 values, ties to even, as uint16.

    >>> [hex(bits) for bits in to_bits(np.array([1.0, -1 / 3, np.nan], np.float32))]
    ['0x3f80', '0xbeab', '0x7fc0']
    """
    floats = np.asarray(array, np.float32, order="C")
    bits = floats.view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(floats), np.uint16(0x7FC0), rounded)


def _array(value: Any) -> Any:  # noqa: ANN401 - an OrtValue
    """Return a copy of an OrtValue in the memory of the CPU."""
    if value.data_type() != _BFLOAT16:
        return value.numpy()
    shape = value.shape()
    size = int(np.prod(shape, dtype=np.int64))
    content = ctypes.string_at(value.data_ptr(), 2 * size) if size else b""
    return (np.frombuffer(content, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)

"""Operators that ONNX Runtime does not have in the form that exporters write."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper

from repogen.onnx_graph.kernel_gaps import fill_kernel_gaps, replace_int64_reductions

SMALL: dict[Any, int] = {np.dtype(np.uint8): TensorProto.UINT8, np.dtype(np.int8): TensorProto.INT8}
SMALL |= {np.dtype(np.int16): TensorProto.INT16, np.dtype(np.uint16): TensorProto.UINT16}
TYPES = SMALL | {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}


def one_node(
    operator: str, inputs: dict[str, Any], output: int, rank: int | None = None, **attributes: Any
) -> onnx.ModelProto:
    """Return a graph of one node whose first input is dynamic, and whose other inputs are constant."""
    node = helper.make_node(operator, list(inputs), ["z"], **attributes)
    first, *others = inputs
    x = inputs[first]
    rank = x.ndim if rank is None else rank
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(first, TYPES[x.dtype], [None] * x.ndim)],
        [helper.make_tensor_value_info("z", output, [None] * rank)],
        [onnx.numpy_helper.from_array(np.asarray(inputs[name]), name) for name in others],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def outputs(proto: onnx.ModelProto, x: Any) -> Any:
    """Return the output of the rewritten graph in the installed ONNX Runtime."""
    model = ir.from_proto(proto)
    fill_kernel_gaps(model)
    rewritten = ir.to_proto(model)
    onnx.checker.check_model(rewritten, full_check=True)
    session = onnxruntime.InferenceSession(rewritten.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})[0]


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [(), (1, 2), (0, -1), (1,)], ids=str)
@pytest.mark.parametrize(("operator", "function"), [("ReduceMax", np.max), ("ReduceMin", np.min)])
def test_extremes_of_int64_along_any_axes(operator: str, function: Any, axes: tuple[int, ...], keepdims: int) -> None:
    """ONNX Runtime returns other values for some rows beyond int32."""
    x = np.random.default_rng(0).integers(-(1 << 40), 1 << 40, (50, 6, 9))
    expected = function(x, axis=axes or None, keepdims=bool(keepdims))
    inputs = {"x": x, **({"axes": np.array(axes)} if axes else {})}
    proto = one_node(operator, inputs, TensorProto.INT64, expected.ndim, keepdims=keepdims)
    assert np.array_equal(outputs(proto, x), expected)
    model = ir.from_proto(proto)
    assert replace_int64_reductions(model)


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("rewrite", [fill_kernel_gaps, replace_int64_reductions])
def test_sums_of_int64_are_exact(rewrite: Any, keepdims: int) -> None:
    """ONNX Runtime adds in float64; sums beyond int64 wrap, as in PyTorch."""
    limits = np.iinfo(np.int64)
    x = np.random.default_rng(0).integers(limits.min, limits.max, (3, 50), endpoint=True)
    x[0, :2], x[1] = (limits.min, limits.max), np.arange(50) - (1 << 55)
    inputs = {"x": x, "axes": np.array([1])}
    model = ir.from_proto(one_node("ReduceSum", inputs, TensorProto.INT64, keepdims + 1, keepdims=keepdims))
    rewrite(model)
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    assert np.array_equal(session.run(None, {"x": x})[0], x.sum(1, keepdims=bool(keepdims)))


def test_sums_of_masks_stay() -> None:
    """The values of a smaller type are added exactly."""
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.INT64),
        helper.make_node("ReduceSum", ["wide"], ["z"]),
    ]
    ends = [helper.make_tensor_value_info("x", TensorProto.BOOL, ["n"])], [helper.make_tensor_value_info("z", 7, [1])]
    body = helper.make_graph(nodes, "g", *ends, value_info=[helper.make_tensor_value_info("wide", 7, ["n"])])
    model = ir.from_proto(helper.make_model(body, opset_imports=[helper.make_opsetid("", 20)], ir_version=9))
    fill_kernel_gaps(model)
    assert [node.op_type for node in model.graph] == ["Cast", "ReduceSum"]


@pytest.mark.parametrize("dtype", sorted(SMALL, key=str))
@pytest.mark.parametrize(
    ("operator", "function"),
    [("Add", np.add), ("Mul", np.multiply), ("Sub", np.subtract), ("Greater", np.greater), ("Equal", np.equal)],
)
def test_small_integers_are_computed_in_a_wider_type(dtype: Any, operator: str, function: Any) -> None:
    """Overflow wraps, as in PyTorch, and no kernel for the small type is needed."""
    limits = np.iinfo(dtype)
    x = np.array([limits.min, 0, 3, limits.max], dtype)
    y = np.array([limits.max, 0, 3, 2], dtype)
    kind = TensorProto.BOOL if function in {np.greater, np.equal} else SMALL[np.dtype(dtype)]
    proto = one_node(operator, {"x": x, "y": y}, kind)
    model = ir.from_proto(proto)
    fill_kernel_gaps(model)
    (node,) = (node for node in model.graph if node.op_type == operator)
    assert {value.dtype for value in node.inputs if value is not None} == {ir.DataType.INT32}
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(outputs(proto, x), function(x, y))


@pytest.mark.parametrize(("operator", "function"), [("ArgMax", np.argmax), ("ArgMin", np.argmin)])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_extreme_of_int64_is_the_first_of_equal_values(operator: str, function: Any, keepdims: int) -> None:
    """Exact above 2**53, where float64 is not."""
    x = np.array([[5, 9, 9, 5], [2**60, 2**60 + 1, 0, 0]], np.int64)
    proto = one_node(operator, {"x": x}, TensorProto.INT64, 1 + keepdims, axis=1, keepdims=keepdims)
    np.testing.assert_array_equal(outputs(proto, x), function(x, axis=1, keepdims=bool(keepdims)))


@pytest.mark.parametrize(("operator", "function"), [("ReduceMax", np.max), ("ReduceMin", np.min)])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_extreme_of_large_int64(operator: str, function: Any, keepdims: int) -> None:
    """ONNX Runtime's own kernels return other values for some rows."""
    x = np.random.default_rng(0).integers(-(10**10), 10**10, (64, 9))
    inputs = {"x": x, "axes": np.array([1], np.int64)}
    proto = one_node(operator, inputs, TensorProto.INT64, 1 + keepdims, keepdims=keepdims)
    np.testing.assert_array_equal(outputs(proto, x), function(x, axis=1, keepdims=bool(keepdims)))


def test_extreme_of_an_inner_value_without_a_type() -> None:
    """TorchScript's exporter omits the types of inner values."""
    x = np.array([[5, 9, 9, 5]], np.int64)
    proto = one_node("ArgMax", {"sum": x}, TensorProto.INT64, 1, axis=1, keepdims=0)
    proto.graph.node.insert(0, helper.make_node("Add", ["x", "x"], ["sum"]))
    proto.graph.input[0].name = "x"
    model = ir.from_proto(proto)
    fill_kernel_gaps(model)
    assert "ArgMax" not in {node.op_type for node in model.graph}
    np.testing.assert_array_equal(outputs(proto, x), [1])


def test_lists_without_types_stay_sequences() -> None:
    """TorchScript's exporter writes no types for the lists of a loop, and inference declares them as tensors."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go_in"], ["go_out"]),
            helper.make_node("SequenceInsert", ["list_in", "bytes"], ["list_out"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go_in", TensorProto.BOOL, []),
            helper.make_tensor_sequence_value_info("list_in", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go_out", TensorProto.BOOL, []),
            helper.make_tensor_sequence_value_info("list_out", TensorProto.FLOAT, None),
        ],
    )
    nodes = [
        helper.make_node("Cast", ["x"], ["bytes"], to=TensorProto.FLOAT),
        helper.make_node("SequenceEmpty", [], ["empty"]),
        helper.make_node("Loop", ["trips", "", "empty"], ["filled"], body=body),
        helper.make_node("ConcatFromSequence", ["filled"], ["z"], axis=0),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.UINT8, [None]),
        helper.make_tensor_value_info("z", TensorProto.FLOAT, [None]),
    ]
    trips = onnx.numpy_helper.from_array(np.array(3, np.int64), "trips")
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [trips])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert outputs(proto, np.array([1, 2], np.uint8)).tolist() == [1, 2] * 3


@pytest.mark.parametrize("length", [6, 7, 9, 10, 12])
def test_inverse_of_a_one_sided_dft(length: int) -> None:
    """Even and odd lengths, also shorter and longer than the spectrum; the imaginary parts of the ends are ignored."""
    x = np.random.default_rng(0).standard_normal((2, 5, 3, 2)).astype(np.float32)
    inputs = {"x": x, "n": np.array(length, np.int64), "axis": np.array(1, np.int64)}
    proto = one_node("DFT", inputs, TensorProto.FLOAT, inverse=1, onesided=1)
    expected = np.fft.irfft(x[..., 0] + 1j * x[..., 1], n=length, axis=1)
    np.testing.assert_allclose(outputs(proto, x)[..., 0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("length", [64, 80, 400, 1000])
def test_one_sided_dft_has_the_precision_of_a_matrix_product(length: int) -> None:
    """ONNX Runtime's own has an error of 1e-2 for 1000 values."""
    x = np.random.default_rng(0).standard_normal((2, 3, length, 1)).astype(np.float32)
    proto = one_node("DFT", {"x": x, "n": np.array(length), "axis": np.array(-2)}, TensorProto.FLOAT, onesided=1)
    proto.graph.input[0].type.tensor_type.shape.dim[2].dim_value = length
    proto.graph.input[0].type.tensor_type.shape.dim[3].dim_value = 1
    expected = np.fft.rfft(x[..., 0].astype(np.float64))
    actual = outputs(proto, x)
    np.testing.assert_allclose(actual[..., 0] + 1j * actual[..., 1], expected, rtol=0, atol=length * 2e-7)


@pytest.mark.parametrize("length", [64, 75, 80, 400, 1000])
def test_inverse_has_the_precision_of_a_matrix_product(length: int) -> None:
    """ONNX Runtime's own differs by 1e-5 for 320 values, and ``torch.istft`` adds up such frames."""
    x = np.random.default_rng(0).standard_normal((2, 3, length // 2 + 1, 2)).astype(np.float32)
    inputs = {"x": x, "n": np.array(length), "axis": np.array(-2)}
    proto = one_node("DFT", inputs, TensorProto.FLOAT, inverse=1, onesided=1)
    proto.graph.input[0].type.tensor_type.shape.dim[2].dim_value = length // 2 + 1
    expected = np.fft.irfft((x[..., 0] + 1j * x[..., 1]).astype(np.complex128), n=length)
    np.testing.assert_allclose(outputs(proto, x)[..., 0], expected, rtol=0, atol=3e-7)


@pytest.mark.parametrize("length", [64, 80, 400])
def test_short_time_transform_has_the_precision_of_a_convolution(length: int) -> None:
    """Log-mel features amplify errors of small values."""
    generator = np.random.default_rng(0)
    x, window = generator.standard_normal((2, 900, 1)).astype(np.float32), np.hamming(length).astype(np.float32)
    inputs = {"x": x, "step": np.array(20), "window": window, "n": np.array(length)}
    proto = one_node("STFT", inputs, TensorProto.FLOAT, 4, onesided=1)
    proto.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 1
    frames = np.lib.stride_tricks.sliding_window_view(x[..., 0].astype(np.float64), length, axis=1)[:, ::20]
    actual = outputs(proto, x)
    expected = np.fft.rfft(frames * window)
    np.testing.assert_allclose(actual[..., 0] + 1j * actual[..., 1], expected, rtol=0, atol=length * 2e-7)


def test_indices_become_int64() -> None:
    """The exporters write int32 for ``torch.istft``, which is not valid ONNX."""
    x = np.zeros((3, 2), np.float32)
    indices, updates = np.array([[0], [2]], np.int32), np.ones((2, 2), np.float32)
    proto = one_node("ScatterND", {"x": x, "indices": indices, "updates": updates}, TensorProto.FLOAT)
    np.testing.assert_array_equal(outputs(proto, x), [[1, 1], [0, 0], [1, 1]])


def test_other_nodes_stay_as_they_are() -> None:
    """Float operators, and those that every release has for the type."""
    x = np.array([1, 2], np.uint8)
    for proto in (
        one_node("Add", {"x": x.astype(np.float32), "y": x.astype(np.float32)}, TensorProto.FLOAT),
        one_node("ReduceMax", {"x": x}, TensorProto.UINT8),
    ):
        model = ir.from_proto(proto)
        fill_kernel_gaps(model)
        assert len(model.graph) == 1


@pytest.mark.parametrize(("bound", "name"), [(np.float32(-1), "low"), (np.float32(1), "high"), (np.int64(1), "low")])
def test_infinities_beyond_the_other_bound_of_clip(bound: Any, name: str) -> None:
    """ONNX Runtime replaces them by the largest finite number; integers have none."""
    is_low = name == "low"
    x = np.array([-3, 0, 3], bound.dtype)
    if bound.dtype.kind == "f":
        x = np.concatenate([x, np.array([np.inf, -np.inf, 3e38], bound.dtype)])
    proto = one_node("Clip", {"x": x, name: bound}, TYPES[bound.dtype])
    if not is_low:
        proto.graph.node[0].input.insert(1, "")
    np.testing.assert_array_equal(outputs(proto, x), np.maximum(x, bound) if is_low else np.minimum(x, bound))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("exporter", [pytest.param("dynamo", marks=pytest.mark.full), "torchscript"])
@pytest.mark.parametrize(
    "options",
    [
        {"size": (48, 7)},
        {"scale_factor": 2.1},
        {"scale_factor": (3.7, 1.1)},
        {"scale_factor": 2.0},
        {"size": 48},
        {"scale_factor": (2.01, 5 / 3)},
    ],
)
def test_nearest_values_are_those_of_pytorch(options: dict[str, Any], exporter: str) -> None:
    """At sizes where ``Resize`` returns other rows, and for every position."""
    import torch  # noqa: PLC0415 - the other tests do not need it

    class Resized(torch.nn.Module):
        """Resizes images."""

        def forward(self, x: Any) -> Any:
            """Return the nearest values."""
            return torch.nn.functional.interpolate(x, mode="nearest", **options)

    content = io.BytesIO()
    x = torch.rand(2, 3, 9, 11)
    if exporter == "dynamo":
        axes: Any = {0: "batch", 2: "height", 3: "width"}
        program = torch.onnx.export(Resized(), (x,), dynamo=True, dynamic_shapes=(axes,), verbose=False)
        assert program is not None
        content.write(program.model_proto.SerializeToString())
    else:
        names: Any = {"input_names": ["x"], "dynamic_axes": {"x": [0, 2, 3]}, "opset_version": 18}
        torch.onnx.export(Resized(), (x,), content, dynamo=False, **names)  # type: ignore[arg-type] # buffers work
    model = ir.from_proto(onnx.load_from_string(content.getvalue()))
    fill_kernel_gaps(model)
    assert ("Resize" in {node.op_type for node in model.graph}) == (options == {"scale_factor": 2.0})
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    for height, width in [*((n, 74 - n) for n in range(12, 63)), *((n, n) for n in range(1, 12)), (16, 480)]:
        image = torch.rand(1, 3, height, width)
        (actual,) = session.run(None, {session.get_inputs()[0].name: image.numpy()})
        np.testing.assert_array_equal(actual, Resized()(image).numpy())


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("rewrite", [fill_kernel_gaps, replace_int64_reductions])
@pytest.mark.parametrize(
    "operator", ["ReduceProd", "ReduceSumSquare", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"]
)
def test_reductions_of_int64_are_exact(operator: str, rewrite: Any, axis: int | None, keepdims: int) -> None:
    """ONNX Runtime 1.31.1 computes some in float64, 1.19.2 has no mean, and extremes of all axes are wrong."""
    x = np.array([[(1 << 40) + 1, 3, 5], [1 << 20, 7, (1 << 31) + 11]], np.int64)
    inputs = {"x": x} if axis is None else {"x": x, "axes": np.array([axis], np.int64)}
    rank = (2 if keepdims else 0) if axis is None else 1 + keepdims
    model = ir.from_proto(one_node(operator, inputs, TensorProto.INT64, rank, keepdims=keepdims))
    rewrite(model)
    assert operator not in {node.op_type for node in model.graph} or operator == "ReduceSum"
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    (actual,) = session.run(None, {"x": x})
    functions: Any = {"ReduceProd": np.prod, "ReduceSum": np.sum, "ReduceMax": np.max, "ReduceMin": np.min}
    if operator == "ReduceMean":
        total = x.sum(axis, keepdims=bool(keepdims))
        expected = total // (x.size // total.size)
    else:
        function = functions.get(operator, lambda values, axis, keepdims: (values**2).sum(axis, keepdims=keepdims))
        expected = function(x, axis=axis, keepdims=bool(keepdims))
    assert actual.shape == np.shape(expected)
    assert np.array_equal(actual, expected)


@pytest.mark.parametrize("operator", ["Relu", "Sign"])
def test_signs_of_int64(operator: str) -> None:
    """ONNX Runtime 1.31.1 reads the lower 32 bits only."""
    x = np.array([(1 << 31) + 11, -(1 << 31) - 12, 0, 1 << 40], np.int64)
    expected = np.sign(x) if operator == "Sign" else np.maximum(x, 0)
    assert np.array_equal(outputs(one_node(operator, {"x": x}, TensorProto.INT64), x), expected)

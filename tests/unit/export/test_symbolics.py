"""Translations that TorchScript's exporter lacks."""

from __future__ import annotations

import io
from typing import Any

import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional

from repogen.artifacts.tensors import Signature
from repogen.export.dynamo import explain
from repogen.export.symbolics import register_symbolics
from repogen.export.translations import TRANSLATIONS


class Cell(nn.Module):
    """Calls a recurrent cell; scripted, its forward compares the rank with ``in (1, 2)``."""

    def __init__(self, cell: nn.Module) -> None:
        """Store the cell."""
        super().__init__()
        self.cell = cell

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Return the next hidden state."""
        state: torch.Tensor = self.cell(x, hidden)
        return state


class Long(nn.Module):
    """Calls an LSTM cell."""

    def __init__(self, *, bias: bool) -> None:
        """Create the cell."""
        super().__init__()
        self.cell = nn.LSTMCell(5, 4, bias=bias)

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return both states."""
        states: tuple[torch.Tensor, torch.Tensor] = self.cell(x, (hidden, hidden * 2))
        return states


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("kind", ["gru", "lstm", "tanh", "relu"])
def test_scripted_recurrent_cells(kind: str, opset: int, bias: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """They agree with PyTorch for a batch size that differs from the example's."""
    cells: dict[str, Any] = {
        "gru": lambda: Cell(nn.GRUCell(5, 4, bias)),
        "lstm": lambda: Long(bias=bias),
        "tanh": lambda: Cell(nn.RNNCell(5, 4, bias)),
        "relu": lambda: Cell(nn.RNNCell(5, 4, bias, "relu")),
    }
    script: Any = torch.jit.script(cells[kind]().eval())
    x, hidden = torch.randn(3, 5), torch.randn(3, 4)
    register_symbolics(opset)
    content = io.BytesIO()
    torch.onnx.export(
        script,
        (x[:2], hidden[:2]),
        content,  # type: ignore[arg-type] # buffers work, though not declared
        dynamo=False,
        opset_version=opset,
        input_names=["x", "hidden"],
        dynamic_axes={"x": {0: "batch"}, "hidden": {0: "batch"}},
    )
    session = onnxruntime.InferenceSession(content.getvalue(), providers=["CPUExecutionProvider"])
    expected = script(x, hidden)
    for actual, tensor in zip(
        session.run(None, {"x": x.numpy(), "hidden": hidden.numpy()}),
        expected if isinstance(expected, tuple) else (expected,),
        strict=True,
    ):
        torch.testing.assert_close(torch.from_numpy(actual), tensor.detach())


class StableSort(nn.Module):
    """Sorts values with ties, in both directions, stable and by default."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return values, and indices of three ways to sort."""
        values, indices = torch.sort(x, dim=1, descending=True, stable=True)
        return values, indices, torch.argsort(x, dim=1, stable=True), torch.sort(x, dim=0, stable=True)[1]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("exporter", ["traced", "scripted", "dynamo"])
def test_stable_sort(exporter: str) -> None:
    """Equal values keep their order: ONNX's TopK is stable, and the exporters only translate the default sort."""
    module: Any = torch.jit.script(StableSort()) if exporter == "scripted" else StableSort()
    x = torch.randint(0, 3, (4, 9), generator=torch.Generator().manual_seed(0)).float()
    content = io.BytesIO()
    if exporter == "dynamo":
        program = torch.onnx.export(module.eval(), (x,), dynamo=True, custom_translation_table=TRANSLATIONS)
        assert program is not None
        content.write(program.model_proto.SerializeToString())
    else:
        register_symbolics(20)
        torch.onnx.export(module.eval(), (x,), content, opset_version=20, dynamo=False)  # type: ignore[arg-type] # as above
    session = onnxruntime.InferenceSession(content.getvalue())
    outputs = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert all(torch.equal(torch.tensor(a), b) for a, b in zip(outputs, StableSort()(x), strict=True))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, torch.inf])
def test_distances(p: float) -> None:
    """torch.cdist has a translation in TorchScript's exporter only."""

    class Distances(nn.Module):
        """Compares batches of vectors."""

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            """Return all distances."""
            return torch.cdist(x, y, p)

    x, y = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    program = torch.onnx.export(Distances(), (x, y), dynamo=True, custom_translation_table=TRANSLATIONS)
    assert program is not None
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    (distances,) = session.run(None, {"x": x.numpy(), "y": y.numpy()})
    assert torch.allclose(torch.tensor(distances), torch.cdist(x, y, p), atol=1e-5)


class Last(nn.Module):
    """Returns the outputs of a recurrent layer."""

    def __init__(self, layer: nn.Module) -> None:
        """Store the layer."""
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return one output."""
        outputs: torch.Tensor = self.layer(x)[0]
        return outputs


class Loss(nn.Module):
    """A loss, as of a model that is served with its targets."""

    def __init__(self, **options: Any) -> None:
        """Keep the arguments."""
        super().__init__()
        self.options = options

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return the loss of each row, or of all."""
        return functional.cross_entropy(x, target, **self.options)


class Bag(nn.Module):
    """Reads bags of a table, which may be empty."""

    def __init__(self, *, weighted: bool = False, **options: Any) -> None:
        """Create the table."""
        super().__init__()
        self.bag = nn.EmbeddingBag(7, 3, **options)
        self.weighted = weighted

    def forward(self, ids: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """Return a row for each bag."""
        bags: torch.Tensor = self.bag(ids, offsets, ids.float().cos() if self.weighted else None)
        return bags


def same(module: nn.Module, *inputs: torch.Tensor) -> bool:
    """Return whether ONNX Runtime agrees with PyTorch."""
    program = torch.onnx.export(
        module.eval(), inputs, dynamo=True, custom_translation_table=TRANSLATIONS, verbose=False
    )
    assert program is not None
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    names = [node.name for node in session.get_inputs()]
    (actual,) = session.run(None, {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)})
    return torch.allclose(torch.tensor(actual), module(*inputs), atol=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reduction", ["mean", *(pytest.param(r, marks=pytest.mark.full) for r in ("none", "sum"))])
@pytest.mark.parametrize(
    "weight", [torch.tensor([1.0, 2.0, 0.5, 0.1, 3.0]), pytest.param(None, marks=pytest.mark.full)]
)
def test_cross_entropy(reduction: str, weight: torch.Tensor | None) -> None:
    """The exporter ignores label_smoothing, and does not accept probabilities."""
    draw = torch.Generator().manual_seed(0)
    x, target = torch.randn(6, 5, 2, generator=draw), torch.randint(0, 5, (6, 2), generator=draw)
    options = {"reduction": reduction, "weight": weight}
    assert same(Loss(**options, label_smoothing=0.2), x, target)
    assert same(Loss(**options, ignore_index=2, label_smoothing=0.2), x, target)
    assert same(Loss(**options, label_smoothing=0.2), x, x.flip(0).softmax(1))
    assert same(Loss(**options), x[0, :, 0], target[0, 0])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["sum", *(pytest.param(m, marks=pytest.mark.full) for m in ("mean", "max"))])
def test_embedding_bag(mode: str) -> None:
    """With padding_idx, the exporter's own translation is not valid ONNX."""
    ids, offsets = torch.tensor([1, 0, 0, 6, 0, 4, 2]), torch.tensor([0, 2, 2, 3, 7])
    assert same(Bag(mode=mode), ids, offsets)
    assert same(Bag(mode=mode, padding_idx=0, include_last_offset=True), ids, offsets)
    assert same(Bag(mode=mode, padding_idx=-1), ids.int(), offsets.int())
    assert mode != "sum" or same(Bag(mode=mode, padding_idx=0, weighted=True), ids, offsets)


class Divisions(nn.Module):
    """Divides integers that float32 cannot represent, and a size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of quotients, padded to a multiple of four columns."""
        floor = torch.div(x, -7, rounding_mode="floor") + torch.div(x, x.flip(1) | 1, rounding_mode="floor")
        quotients = floor + torch.div(x, 7, rounding_mode="trunc") + x // 3
        return functional.pad(quotients, (0, -(-x.shape[1] // 4) * 4 - x.shape[1]))


@pytest.mark.filterwarnings("ignore")
def test_integer_divisions() -> None:
    """The exporter computes them in float32, and rounds negative quotients of sizes toward zero."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(-(10**12), 10**12, (3, 9), generator=draw)
    program = torch.onnx.export(
        Divisions(),
        (x,),
        dynamo=True,
        custom_translation_table=TRANSLATIONS,
        dynamic_shapes={"x": {1: "columns"}},
        verbose=False,
    )
    assert program is not None
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    other = torch.randint(-(10**12), 10**12, (3, 11), generator=draw)
    (quotients,) = session.run(None, {"x": other.numpy()})
    assert torch.equal(torch.tensor(quotients), Divisions()(other))


class Grid(nn.Module):
    """Divides floats, and takes their remainders."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return quotients and remainders."""
        floor, trunc = torch.div(x, -0.3, rounding_mode="floor"), torch.div(x, -0.3, rounding_mode="trunc")
        divisor = x.abs() + 1
        return torch.stack([x // 0.1, floor, trunc, x % 0.1, x % -0.3, x // divisor, x % divisor])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("exporter", ["dynamo", "traced", "scripted"])
def test_divisions_of_floats(exporter: str, dtype: torch.dtype) -> None:
    """Of multiples of the divisor: the exporters round the quotient up to the next integer."""
    x = (torch.arange(-30, 30).to(dtype) * 0.1)[None]
    torch.testing.assert_close(exported(Grid(), exporter, x), Grid()(x), rtol=0, atol=1e-6)


class Counts(nn.Module):
    """Divides integers, and takes their remainders."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return quotients and remainders, padded to a multiple of four columns."""
        floor, trunc = torch.div(x, -7, rounding_mode="floor"), torch.div(x, -7, rounding_mode="trunc")
        results = torch.stack([x // 3, floor, trunc, x % 3, x % -7])
        return functional.pad(results, (0, -(-x.shape[1] // 4) * 4 - x.shape[1]))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("exporter", ["traced", "scripted"])
def test_divisions_of_integers_in_torchscript(exporter: str, dtype: torch.dtype) -> None:
    """TorchScript's exporter rounds toward zero."""
    x = torch.tensor([[-(10**9), -7, -4, -3, 0, 3, 4, 7, 10**9 + 1]], dtype=dtype)
    assert torch.equal(exported(Counts(), exporter, x), Counts()(x))


def exported(module: nn.Module, exporter: str, x: torch.Tensor) -> torch.Tensor:
    """Export with dynamic columns, and run ONNX Runtime."""
    content = io.BytesIO()
    example = x[:, : x.shape[1] // 2]
    if exporter == "dynamo":
        sizes: Any = {"dynamic_shapes": {"x": {1: "columns"}}, "custom_translation_table": TRANSLATIONS}
        program = torch.onnx.export(module.eval(), (example,), dynamo=True, verbose=False, **sizes)
        assert program is not None
        content.write(program.model_proto.SerializeToString())
    else:
        script: Any = torch.jit.script(module) if exporter == "scripted" else module
        register_symbolics(20)
        axes: Any = {"dynamic_axes": {"x": {1: "columns"}}, "input_names": ["x"]}
        torch.onnx.export(script.eval(), (example,), content, dynamo=False, opset_version=20, **axes)  # type: ignore[arg-type] # buffers work, though not declared
    session = onnxruntime.InferenceSession(content.getvalue())
    return torch.tensor(session.run(None, {"x": x.numpy()})[0])


class Angles(nn.Module):
    """Converts degrees and radians, also of integers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of all conversions."""
        return x.deg2rad() + x.rad2deg() + (10 * x).int().deg2rad()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("exporter", ["traced", "dynamo"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_angles(exporter: str, dtype: torch.dtype) -> None:
    """The factor is not rounded to float32."""
    x = torch.randn(3, 8, dtype=dtype)
    torch.testing.assert_close(
        exported(Angles(), exporter, x), Angles()(x), rtol=1e-6 if x.itemsize == 4 else 1e-12, atol=0
    )


class MeanSquares(nn.Module):
    """Divides by root mean squares, with and without weights."""

    def __init__(self) -> None:
        """Create weights for the last axis but one."""
        super().__init__()
        self.norm = nn.RMSNorm(3, eps=1e-3)
        nn.init.normal_(self.norm.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of both."""
        rows = x[:, :4].reshape(-1, 4)
        small = nn.functional.rms_norm(1e-3 * rows, (4,)) + nn.functional.rms_norm(rows.half(), (4,)).float()
        normed: torch.Tensor = self.norm(x.T)
        return torch.cat([small.flatten(), normed.flatten()])


@pytest.mark.filterwarnings("ignore")
def test_rms_norm_in_torchscript() -> None:
    """The exporter does not have it."""
    model, x = MeanSquares(), torch.randn(3, 16)
    torch.testing.assert_close(exported(model, "traced", x), model(x), rtol=2e-3, atol=1e-5)


class Direction(nn.Module):
    """Returns the direction of points."""

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """Return an angle for each row."""
        return torch.atan2(points[:, 1], points[:, 0])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("exporter", ["traced", "dynamo"])
def test_atan2(exporter: str) -> None:
    """On the axes: the exporters return -pi for (-1, 0); dynamo's returns 0 for NaN."""
    values = torch.tensor([0.0, -0.0, 1.0, -1.0, 3.0, -2.5, torch.nan])
    points = torch.cartesian_prod(values, values)
    content = io.BytesIO()
    if exporter == "dynamo":
        program = torch.onnx.export(Direction(), (points,), dynamo=True, custom_translation_table=TRANSLATIONS)
        assert program is not None
        content.write(program.model_proto.SerializeToString())
    else:
        register_symbolics(20)
        torch.onnx.export(Direction(), (points,), content, opset_version=20, dynamo=False)  # type: ignore[arg-type] # as above
    session = onnxruntime.InferenceSession(content.getvalue())
    (angles,) = session.run(None, {session.get_inputs()[0].name: points.numpy()})
    torch.testing.assert_close(torch.tensor(angles), Direction()(points), equal_nan=True)


class Logarithms(nn.Module):
    """Calls functions whose formulas lose small values or overflow."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the results, one row each."""
        results = [
            torch.log1p(x),
            torch.expm1(x),
            functional.logsigmoid(x),
            functional.softplus(x),
            functional.softplus(x, 2.0, 5.0),
        ]
        return torch.cat(results)


class LogarithmsOfSums(nn.Module):
    """Adds probabilities that are given as logarithms."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the results, one row each."""
        y = x.flip(1)
        return torch.cat([torch.logaddexp(x, y), torch.logaddexp(x, x), torch.logaddexp2(x, y)])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.full)])
@pytest.mark.parametrize("module", [Logarithms(), LogarithmsOfSums()])
@pytest.mark.parametrize("exporter", ["dynamo", "traced", "scripted"])
def test_logarithms_near_their_limits(exporter: str, module: nn.Module, dtype: torch.dtype) -> None:
    """The exporters' formulas are 0 for 1e-8, -inf for -20, and inf for 90."""
    sizes = [
        1e-30,
        1e-12,
        1e-8,
        3e-6,
        1e-3,
        0.1,
        0.49,
        0.5,
        0.51,
        0.99,
        1.0,
        2.0,
        20.0,
        30.0,
        90.0,
        1e4,
        1e30,
        torch.inf,
    ]
    x = torch.tensor([[*sizes, 0.0, torch.nan, *(-size for size in sizes)]], dtype=dtype)
    expected, actual = module(x), exported(module, exporter, x)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=0, equal_nan=True)


class Tails(nn.Module):
    """Calls error functions, which are small or large far from zero."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the results, one row each."""
        return torch.cat([torch.erfc(x), torch.special.erfcx(x), torch.special.log_ndtr(x)])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("exporter", [pytest.param("dynamo", marks=pytest.mark.full), "traced"])
def test_error_functions_far_from_zero(exporter: str) -> None:
    """Written as 1 - erf(x), log_ndtr is -inf for -9.5."""
    sizes = [1e-30, 1e-8, 1e-3, 0.5, 1.0, 2.0, 4.0, 8.0, 9.5, 20.0, 1e4, 1e18, torch.inf]
    x = torch.tensor([[*sizes, 0.0, torch.nan, *(-size for size in sizes)]])
    torch.testing.assert_close(exported(Tails(), exporter, x), Tails()(x), rtol=1e-4, atol=1e-37, equal_nan=True)


class LogarithmsOfCumulativeSums(nn.Module):
    """Adds the first probabilities of each row, of each column, and of each slice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logarithms."""
        slices = torch.stack([x - 200, x, x.flip(0)], 1)
        return torch.logcumsumexp(x, 1) + torch.logcumsumexp(x, 0) + torch.logcumsumexp(slices, 1).sum(1)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_logarithms_of_cumulative_sums() -> None:
    """The exporter's are -inf where a later value of the row is larger by 90."""
    x = torch.randn(3, 40, generator=torch.Generator().manual_seed(0)) * 100
    expected = LogarithmsOfCumulativeSums()(x)
    torch.testing.assert_close(exported(LogarithmsOfCumulativeSums(), "dynamo", x), expected, rtol=1e-5, atol=1e-4)


class BinaryLoss(nn.Module):
    """The binary cross-entropy of logits."""

    def __init__(self, **options: Any) -> None:
        """Keep the arguments."""
        super().__init__()
        self.options = options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return one loss, or one for each logit."""
        return functional.binary_cross_entropy_with_logits(x, (x > 1).to(x.dtype) * 0.75, **self.options)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{"reduction": "none"}, {"reduction": "sum", "weight": 2, "pos_weight": 3}, {}])
@pytest.mark.parametrize("exporter", ["traced", pytest.param("dynamo", marks=pytest.mark.full)])
def test_cross_entropy_of_large_logits(exporter: str, options: dict[str, Any]) -> None:
    """TorchScript's exporter writes log(1 - sigmoid(x)), which is NaN for 20."""
    tensors = {name: torch.tensor([float(each)]) if isinstance(each, int) else each for name, each in options.items()}
    x = torch.tensor([[-300.0, -20.0, -1.0, 0.0, 0.5, 3.0, 20.0, 300.0]])
    torch.testing.assert_close(exported(BinaryLoss(**tensors), exporter, x), BinaryLoss(**tensors)(x))


@pytest.mark.filterwarnings("ignore")
def test_lstm() -> None:
    """Projections have no translation; without them, the exporter's own is used."""
    x = torch.randn(3, 4, 5)
    with pytest.raises(torch.onnx.errors.OnnxExporterError) as raised:
        same(Last(nn.LSTM(5, 6, proj_size=2)), x)
    error = explain(raised.value, Signature((), ()))
    assert (error.code, "proj_size" in error.message) == ("export.no-translation", True)
    assert same(Last(nn.LSTM(5, 6)), x)

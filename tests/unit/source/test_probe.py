"""Tests for detecting random numbers and state by running a model several times."""

from __future__ import annotations

import datetime as dt
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch

from repogen.artifacts.source import Eager
from repogen.errors import ParityError, SourceError

from .test_load import returning

if TYPE_CHECKING:
    from collections.abc import Callable

    from repogen.artifacts.source import SourceModel

    Load = Callable[..., SourceModel]

STATE = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(1))
            self.calls = 0
        def forward(self, x):
            {line}
            return x + 1
    def build():
        return Net().eval()
"""


@pytest.mark.parametrize(
    ("expression", "operator"),
    [
        ("x + torch.rand_like(x)", "aten.rand_like at models.py:"),
        ("torch.manual_seed(0) and x + torch.randn(x.shape)", "aten.randn at models.py:"),
        ("x + torch.rand(4, generator=torch.Generator().manual_seed(1))", "aten.rand.generator at models.py:"),
        ("nn.functional.dropout(x, 0.5)", "aten.bernoulli_.float at models.py:"),
        ("torch.where(torch.rand(x.shape) < 1e-5, 2 * x, x)", "aten.rand at models.py:"),
        ("torch.where(torch.rand(x.shape) > 0.9999999, 2 * x, x)", "aten.rand at models.py:"),
        ("torch.where(torch.randn(x.shape).abs() > 6, 2 * x, x)", "aten.randn at models.py:"),
        ("torch.where(torch.randn(x.shape) < -6, 2 * x, x)", "aten.randn at models.py:"),
        ("x[torch.randperm(x.shape[0])] + x.new_empty(x.shape).normal_()", "aten.randperm at models.py:"),
    ],
)
def test_random_numbers_that_reach_outputs_are_rejected(load: Load, expression: str, operator: str) -> None:
    """The message has the operator and the line."""
    with pytest.raises(SourceError) as caught:
        load(returning(expression))
    assert (caught.value.code, operator in caught.value.message) == ("source.random", True)


@pytest.mark.parametrize("modules", ["[nn.Dropout()]", "{'a': nn.Sequential(nn.Dropout())}"])
def test_modules_that_eval_does_not_reach_are_named(load: Load, modules: str) -> None:
    """Those of a Python list stay in training mode."""
    code = f"""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Module()
            self.inner.blocks = {modules}
        def forward(self, x):
            blocks = self.inner.blocks
            return (blocks["a"] if isinstance(blocks, dict) else blocks[0])(x)
    def build():
        return Net().eval()
    """
    with pytest.raises(SourceError) as caught:
        load(code)
    assert "does not reach the modules in inner.blocks: use nn.ModuleList" in caught.value.hint


def test_unused_random_numbers_are_allowed(load: Load) -> None:
    """For example the layer drop of Wav2Vec2, which also draws numbers in evaluation mode."""
    assert load(returning("(torch.rand([]), x)[1]")).signature.outputs[0].name == "output"


@pytest.mark.parametrize("line", ["self.seen += 1", "self.seen = self.seen + x.sum()"])
def test_buffer_changed_at_every_call_is_rejected(load: Load, line: str) -> None:
    """The buffer is changed in place, or replaced by another tensor."""
    with pytest.raises(SourceError, match="forward changes the model's buffer seen") as caught:
        load(STATE.format(line=line))
    assert caught.value.code == "source.stateful"


@pytest.mark.parametrize("line", ["self.norm.train()", "self.norm.training = True"])
def test_batch_norm_in_training_mode_is_named(load: Load, line: str) -> None:
    """Its statistics are not state that a graph should return."""
    code = STATE.replace("self.calls = 0", "self.norm = nn.BatchNorm1d(4)").replace("x + 1", "self.norm(x)")
    with pytest.raises(SourceError, match=r"changes the model's buffers norm\.running_mean, norm\.") as caught:
        load(code.format(line=line))
    assert caught.value.code == "source.stateful"
    assert "batch norm in training mode: call model.eval()" in caught.value.hint


def test_buffer_filled_once_is_allowed(load: Load) -> None:
    """A table that the first call computes does not change later."""
    load(STATE.format(line="self.seen = torch.ones(1)"))


def test_tensor_that_every_call_overwrites_is_allowed(load: Load) -> None:
    """A buffer for intermediate results, and the last result in an attribute, change with the inputs."""
    load(STATE.format(line="self.seen = x.mean().reshape(1); self.last = x * 2; x = x - self.seen"))


CACHE = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("keys", torch.zeros(64, 4))
        def forward(self, x, position):
            self.keys.index_copy_(0, position, x[:1])
            seen = (torch.arange(64) <= position)[:, None]
            return x + torch.where(seen, self.keys, 0).sum(0)
    def build():
        return Net().eval()
"""


@pytest.mark.parametrize("highest", [3, 8, 63])
def test_cache_in_a_buffer_is_rejected(load: Load, highest: int) -> None:
    """A call writes one position, and reads all positions before it: the other examples may write only later ones."""
    inputs = {
        "x": {"dtype": "float32", "shape": ["batch", 4]},
        "position": {"dtype": "int64", "shape": [1], "range": [1, highest]},
    }
    with pytest.raises(SourceError, match="forward changes the model's keys") as caught:
        load(CACHE, inputs=inputs)
    assert caught.value.code == "source.stateful"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("self.calls += 1; x = x + self.calls", "forward changes the model's calls at every call"),
        (
            "self.calls += 1; x = x * (2 if self.calls < 9 else 3)",
            "forward changes the model's calls at every",
        ),
        (
            "self.calls = self.calls or x.shape[0]; x = x / self.calls",
            "the first call sets the model's calls from its inputs",
        ),
        (
            "self.seen = self.seen if self.seen.any() else x.mean().reshape(1); x = x - self.seen",
            "sets the model's seen",
        ),
        (
            "self.seen = torch.maximum(self.seen, x.abs().max() - 9).detach(); x = x / (1 + self.seen)",
            "forward changes the model's seen for some inputs",
        ),
        (
            "x = x + self.lists['last'].mean() if 'last' in self.lists else x; self.lists['last'] = x",
            "forward changes the model's lists['last'] at every call",
        ),
        (
            "y = x; x = x + self.lists.get('last', 0); self.lists['last'] = y",
            "forward changes the model's lists['last'], and the outputs of the next call depend on it",
        ),
        (
            "self.lists.setdefault('scale', x.abs().mean()); x = x / self.lists['scale']",
            "the first call sets the model's lists['scale'] from its inputs",
        ),
        (
            "self.lists['peak'] = max(self.lists['peak'], x.abs().max().item()); x = x / self.lists['peak']",
            "forward changes the model's lists['peak'] for some inputs",
        ),
        (
            "self.box.scale = self.box.scale or x.shape[0]; x = x / self.box.scale",
            "the first call sets the model's box.scale from its inputs",
        ),
        ("self.calls = [*(self.calls or []), 1]; x = x + sum(self.calls)", "the model's calls[1] at every call"),
        ("self.p.data.add_((x.abs().max() > 9).float())", "forward writes to the model's parameter p"),
        ("self.p.data.add_(1)", "forward writes to the model's parameter p"),
    ],
)
def test_state_that_affects_outputs_is_rejected(load: Load, line: str, message: str) -> None:
    """Includes attributes, containers, objects, parameters, and effects only in later calls or at other sizes."""
    more = "self.lists = {{'peak': 9.0}}; self.box = type('Box', (), {{'scale': None}})()"
    code = STATE.replace("self.calls = 0", f"self.calls = 0; {more}; self.p = nn.Parameter(torch.zeros(1))")
    with pytest.raises(SourceError) as caught:
        load(code.format(line=line))
    assert caught.value.code == "source.stateful"
    assert message in caught.value.message


EMBEDDED = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.kept, self.key = {{}}, None
        def forward(self, image, click, number):
            {line}
            return kept + click + number
    def build():
        return Net().eval()
"""


@pytest.mark.parametrize("click", [{}, {"fill": "ones"}])
@pytest.mark.parametrize("key", ["image.shape", "tuple(click.flatten().tolist())", "number.sum().item()"])
@pytest.mark.parametrize(
    "line",
    [
        "kept = self.kept.setdefault({key}, image * 2)",
        "self.kept, self.key = (self.kept, self.key) if self.key == {key} else (image * 2, {key}); kept = self.kept",
    ],
)
def test_result_that_is_kept_for_part_of_the_inputs_is_rejected(load: Load, line: str, key: str, click: Any) -> None:
    """Other values of the same sizes, or with one input in common, get the result of an earlier call."""
    inputs = {
        "image": {"dtype": "float32", "shape": ["batch", 4]},
        "click": {"dtype": "float32", "shape": ["batch", 4], **click},
        "number": {"dtype": "int64", "shape": ["batch", 1], "range": [0, 9]},
    }
    with pytest.raises(SourceError, match="model's kept") as caught:
        load(EMBEDDED.format(line=line.format(key=key)), inputs=inputs)
    assert (caught.value.code, "for some inputs" in caught.value.message) == ("source.stateful", True)


@pytest.mark.parametrize(
    "line",
    [
        "kept = self.kept.setdefault(image.shape, torch.arange(len(image))[:, None])",
        "kept = self.kept.setdefault(tuple(image.flatten().tolist()), image * 2)",
        "kept = self.kept if self.key == image.tolist() else image * 2; self.kept, self.key = kept, image.tolist()",
    ],
)
def test_result_that_is_kept_for_all_that_it_depends_on_is_allowed(load: Load, line: str) -> None:
    """A table for a size, or the embedding of an image for the same image."""
    inputs = {
        "image": {"dtype": "float32", "shape": ["batch", 4]},
        "click": {"dtype": "float32", "shape": ["batch", 4]},
        "number": {"dtype": "int64", "shape": ["batch", 1], "range": [0, 9]},
    }
    load(EMBEDDED.format(line=line), inputs=inputs)


@pytest.mark.parametrize(
    "line",
    [
        "self.calls += 1",
        "self.lists['calls'] = self.lists.get('calls', 0) + 1",
        "self.lists.setdefault('means', []).append(x.mean())",
        "self.lists.setdefault(x.shape[0], torch.ones(x.shape[0], 1)); x = x * self.lists[x.shape[0]]",
        "self.lists['last'] = x * 2; x = x + self.lists['last']",
    ],
)
def test_state_without_an_effect_is_allowed(load: Load, line: str) -> None:
    """A model may count its calls, and keep tables by size and intermediate results."""
    load(STATE.replace("self.calls = 0", "self.calls = 0; self.lists = {{}}").format(line=line))


HOOK = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.features = nn.Linear(4, 4), {"layer": torch.zeros(1)}
            features = self.features
            def keep(layer, inputs, output):
                features["layer"] = output
            self.layer.register_forward_hook(keep)
        def forward(self, x):
            self.layer(x)
            return self.features["layer"] * 2
    def build():
        return Net().eval()
"""


OUTSIDE = """
    SCALES, LIMIT, LENGTHS = {{}}, None, {{}}
    def keep(x, scales={{}}):
        return scales.setdefault("scale", x.std())
    def keeping():
        scale = None
        def kept(x):
            nonlocal scale
            scale = x.std() if scale is None else scale
            return scale
        return kept
    KEPT = keeping()
    class Store:
        pass
    STORE = Store()
    class Net(nn.Module):
        peak = torch.zeros([])
        def forward(self, x):
            global LIMIT
            {line}
    def build():
        return Net().eval()
"""


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('return x / SCALES.setdefault("scale", x.std())', "models.SCALES['scale']"),
        ("LIMIT = x.std() if LIMIT is None else LIMIT; return x / LIMIT", "models.LIMIT"),
        ('globals().setdefault("NEW", x.std()); return x / NEW', "models.NEW"),
        ("return x / keep(x)", "models.keep (default argument 1)['scale']"),
        ("return x / KEPT(x)", "models.KEPT.scale"),
        ("STORE.scale = vars(STORE).get('scale', x.std()); return x / STORE.scale", "models.STORE.scale"),
        ("keep.scale = vars(keep).get('scale', x.std()); return x / keep.scale", "models.keep.scale"),
        ("Net.peak = torch.maximum(Net.peak, x.max()); return x / Net.peak.clamp(5)", "models.Net.peak"),
    ],
)
def test_state_outside_of_the_module_is_rejected(load: Load, line: str, name: str) -> None:
    """The first call, or one with large values, sets it; two calls on the same inputs return the same."""
    with pytest.raises(SourceError, match=r"outside of the model.*, and later outputs depend on it") as caught:
        load(OUTSIDE.format(line=line))
    assert (caught.value.code, name in caught.value.message) == ("source.stateful", True)


@pytest.mark.parametrize(
    "line",
    [
        "SCALES['calls'] = SCALES.get('calls', 0) + 1; return x * 2",
        "return x * LENGTHS.setdefault(len(x), torch.arange(len(x)))[:, None]",
        "Net.last = x; return x * 2",
    ],
)
def test_values_outside_of_the_module_without_an_effect_are_allowed(load: Load, line: str) -> None:
    """A counter, tables by length, and the last inputs for debugging; an exporter would fill an empty cache."""
    load(OUTSIDE.format(line=line))
    values = vars(sys.modules["models"])
    assert values["SCALES"] or values["LENGTHS"] or hasattr(values["Net"], "last")


def test_features_of_a_hook_are_allowed(load: Load) -> None:
    """The hook writes to a dict that it shares with the module."""
    load(HOOK)


def test_other_nondeterminism_is_rejected(load: Load) -> None:
    """The state of NumPy's random numbers is not visible in the module's state."""
    code = "    import numpy as np\n" + returning("x + np.random.rand()")
    with pytest.raises(ParityError) as caught:
        load(code)
    assert caught.value.code == "parity.non-deterministic"


@pytest.mark.parametrize(
    "moment",
    [
        "datetime.datetime.now().hour",
        "Datetime.now(datetime.timezone.utc).weekday()",
        "Datetime.utcnow().minute",
        "Datetime.today().second",
        "datetime.date.today().month",
        "time.time() / 1e9",
        "now_ns() / 1e18",
        "time.localtime().tm_hour",
        "time.gmtime().tm_min",
        "int(time.strftime('%j'))",
        "int(time.asctime()[11:13])",
        "int(time.ctime()[11:13])",
    ],
)
def test_outputs_that_depend_on_the_current_time_are_rejected(load: Load, moment: str) -> None:
    """The hour is the same in all runs of a build, and would be a constant of the graph."""
    imports = (
        "import datetime, time",
        "from datetime import datetime as Datetime",
        "from time import time_ns as now_ns",
    )
    with pytest.raises(ParityError) as caught:
        load("".join(f"    {line}\n" for line in imports) + returning(f"x + {moment}"))
    assert caught.value.code == "parity.non-deterministic"


def test_clock_without_an_effect_on_outputs_is_allowed(load: Load) -> None:
    """A model may measure and log the time of its calls; the clock is restored."""
    code = STATE.format(line="import datetime; isinstance(self.calls, datetime.datetime); self.calls = time.time()")
    load("    import time\n" + code)
    assert time.time.__module__ == "time"
    assert type(dt.datetime.now(dt.UTC)).__name__ == "datetime"


@pytest.mark.parametrize("line", ["self.calls += 1; x = (x + self.calls) * 1e-8", "x = (x + next(self.source)) * 1e-8"])
def test_state_that_affects_small_outputs_is_rejected(load: Load, line: str) -> None:
    """The tolerance scales with the outputs."""
    code = STATE.replace("self.calls = 0", "self.calls = 0; self.source = iter(range(100))").replace("x + 1", "x")
    with pytest.raises((ParityError, SourceError)) as caught:
        load(code.format(line=line))
    assert caught.value.code in {"source.stateful", "parity.non-deterministic"}


@pytest.mark.parametrize(
    ("expression", "attention"), [("x + 1", False), ("nn.functional.scaled_dot_product_attention(x, x, x)", True)]
)
def test_attention_is_detected(load: Load, expression: str, *, attention: bool) -> None:
    """Exporters may need its eager form."""
    origin = load(returning(expression)).origin
    assert isinstance(origin, Eager)
    assert origin.attention is attention


def test_control_flow_operators_are_allowed(load: Load) -> None:
    """``torch.cond`` supports dispatch modes only if they declare it."""
    code = returning("torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))")
    assert [spec.name for spec in load(code).signature.outputs] == ["output"]


@pytest.mark.parametrize(
    ("expression", "precision"),
    [
        ("x + 1", ""),
        ("(x.half() + 1).float()", "float16"),
        ("(x.bfloat16() + 1).float()", "bfloat16"),
        ("torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -127, 127)", "qint8"),
    ],
)
def test_half_precision_arithmetic_is_detected(load: Load, expression: str, precision: str) -> None:
    """The outputs may be float32, but parity is limited by the precision inside."""
    assert load(returning(expression)).precision == precision


KEPT = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            {initial}
        def forward(self, x):
            if self.kept is None or self.kept.shape != x.shape[:1]:
                self.kept = torch.arange(x.shape[0], dtype=torch.float32)
            self.tables[0] = self.kept if self.sizes is None or self.sizes != x.shape else self.tables[0]
            self.sizes = x.shape
            return x + self.kept[:, None] + self.tables[0][:, None]
    def build():
        return Net().eval()
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("exporting", [False, True])
@pytest.mark.parametrize(
    ("initial", "is_buffer"),
    [("self.kept = None", False), ('self.register_buffer("kept", None)', True)],
)
def test_tables_of_one_size_are_not_part_of_a_trace(
    load: Load, monkeypatch: pytest.MonkeyPatch, initial: str, *, is_buffer: bool, exporting: bool
) -> None:
    """An export starts without them, and leaves those of the last call; torch.export does not accept such buffers."""
    origin = load(KEPT.format(initial=f"{initial}; self.sizes = None; self.tables = [torch.empty(0)]")).origin
    assert isinstance(origin, Eager)
    net: Any = origin.module.module
    grid, tables = net.kept, list(net.tables)
    if exporting:
        monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
        (output,) = origin.module(torch.zeros(5, 4))
        assert (net.kept is grid) is not is_buffer
    else:
        trace: Any = torch.jit.trace
        (output,) = trace(origin.module, torch.zeros(len(grid), 4), check_trace=False)(torch.zeros(5, 4))
        assert net.kept is grid
        assert net.tables == tables
    assert output[:, 0].tolist() == [0, 2, 4, 6, 8]


@pytest.mark.parametrize(("expression", "dtype"), [("torch.fft.rfft(x).abs()", "complex64"), ("x * 2", "")])
def test_complex_arithmetic_is_detected(load: Load, expression: str, dtype: str) -> None:
    """Error messages of exporters then name it."""
    assert load(returning(expression)).complex == dtype

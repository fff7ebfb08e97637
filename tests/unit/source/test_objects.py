"""Tests for detecting state between calls wherever a forward can keep it: in objects, containers, and closures."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest

from repogen.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from repogen.artifacts.source import SourceModel

    Load = Callable[..., SourceModel]

CODE = """
import collections, dataclasses, functools, itertools, types, weakref
from typing import List
import numpy as np

class Box:
    def __init__(self, **values):
        self.__dict__.update(values)

class Slots:
    __slots__ = ("calls", "scale", "grid")
    def __init__(self):
        self.calls, self.scale = 0, None

class Base:
    __slots__ = ("calls",)

class Derived(Base):
    __slots__ = ("other",)
    def __init__(self):
        self.calls = 0

class Counted:
    def __init__(self):
        self.__calls = 0
    @property
    def calls(self):
        return self.__calls
    @calls.setter
    def calls(self, value):
        self.__calls = value

class Hostile:
    def __init__(self):
        self.calls = 0
    @property
    def broken(self):
        raise RuntimeError("a property was read")
    def __eq__(self, other):
        raise RuntimeError("objects were compared")
    def __repr__(self):
        raise RuntimeError("repr was called")
    __hash__ = None

class Registry(dict):
    def __setitem__(self, key, value):
        raise RuntimeError("read only")

@dataclasses.dataclass
class Settings:
    calls: int = 0
    scale: float = 1.0

class Namespace:
    calls, seen, scales = 0, [], {}

CALLS, SEEN, STATS, BOX, TICKS = 0, set(), {"calls": [0]}, Box(calls=0, inner=Box(calls=0)), itertools.count()
TABLE = torch.zeros(1)

class Ticker:
    def __init__(self):
        self.calls = 0
    def tick(self):
        self.calls += 1
        return self.calls

class Part(nn.Module):
    calls: int
    def __init__(self):
        super().__init__()
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        return x * (2 if self.calls < 9 else 3)

class Growing(nn.Module):
    calls: List[int]
    def __init__(self):
        super().__init__()
        self.calls = [0]
    def forward(self, x):
        self.calls.append(1)
        return x * (2 if len(self.calls) < 9 else 3)

def local_class():
    calls = []
    class Local:
        def add(self):
            calls.append(0)
        def total(self):
            return len(calls)
    return Local

Pair = collections.namedtuple("Pair", "first second")
PART = Part()

def counting(start=[0]):
    start[0] += 1
    return start[0]

def keeping(x, *, kept=collections.deque(maxlen=1)):
    if not kept:
        kept.append(x.std())
    return kept[0]

def count_in(box, *args):
    box.calls += 1

def ticks():
    number = 0
    while True:
        number += 1
        yield number

def make_counter():
    calls = 0
    def count(*args):
        nonlocal calls
        calls += 1
        return calls
    return count

def make_grids():
    grids = {}
    def grid(size):
        if size not in grids:
            grids[size] = torch.linspace(0, 1, size)
        return grids[size]
    return grid

grid_of = make_grids()

@functools.lru_cache(maxsize=None)
def ramp(size):
    return torch.linspace(0, 1, size)

class Net(nn.Module):
    total, history = 0, []
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        INIT
    @functools.lru_cache(maxsize=None)
    def scale_once(self):
        return self.last.std()
    def forward(self, x):
        global CALLS
        LINE
        return x
def build():
    return Net().eval()
"""
SWITCH = "x = x * (2 if {} < 9 else 3)"
"""The ninth call returns something else."""


def model(init: str, line: str) -> str:
    """Return the code of a module with two lines of its own."""
    return textwrap.dedent(CODE).replace("INIT", init or "pass").replace("LINE", line)


STATEFUL = {
    "object": ("self.box = Box(calls=0)", f"self.box.calls += 1; {SWITCH.format('self.box.calls')}"),
    "every tenth call": ("self.box = Box(calls=0)", "self.box.calls += 1; x = x * (self.box.calls % 10 == 9)"),
    "every 25th call": ("self.box = Box(calls=0)", "x = x * (self.box.calls % 25 == 24); self.box.calls += 1"),
    "nested objects": (
        "self.box = Box(inner=Box(inner=Box(calls=0)))",
        f"self.box.inner.inner.calls += 1; {SWITCH.format('self.box.inner.inner.calls')}",
    ),
    "objects in a list": (
        "self.boxes = [Box(calls=0)]",
        f"self.boxes[0].calls += 1; {SWITCH.format('self.boxes[0].calls')}",
    ),
    "slots": ("self.box = Slots()", f"self.box.calls += 1; {SWITCH.format('self.box.calls')}"),
    "inherited slots": ("self.box = Derived()", f"self.box.calls += 1; {SWITCH.format('self.box.calls')}"),
    "dataclass": ("self.box = Settings()", f"self.box.calls += 1; {SWITCH.format('self.box.calls')}"),
    "namespace": (
        "self.box = types.SimpleNamespace(calls=0)",
        f"self.box.calls += 1; {SWITCH.format('self.box.calls')}",
    ),
    "property": ("self.box = Counted()", f"self.box.calls += 1; {SWITCH.format('self.box.calls')}"),
    "hostile object": ("self.box = Hostile()", f"self.box.calls += 1; {SWITCH.format('self.box.calls')}"),
    "cycle": (
        "self.box = Box(calls=0); self.box.itself = [self.box, self]",
        f"self.box.itself[0].calls += 1; {SWITCH.format('self.box.calls')}",
    ),
    "set": ("self.seen = set()", f"self.seen.add(len(self.seen)); {SWITCH.format('len(self.seen)')}"),
    "set of objects": ("self.seen = set()", f"self.seen.add(object()); {SWITCH.format('len(self.seen)')}"),
    "deque": (
        "self.seen = collections.deque(maxlen=20)",
        f"self.seen.append(1); {SWITCH.format('len(self.seen)')}",
    ),
    "dict of lists": ("self.seen = {'a': []}", f"self.seen['a'].append(0); {SWITCH.format('len(self.seen[chr(97)])')}"),
    "list that shrinks": (
        "self.left = list(range(9))",
        "self.left and self.left.pop(); x = x * (2 if self.left else 3)",
    ),
    "growing text": ("self.log = ''", f"self.log += '.'; {SWITCH.format('len(self.log)')}"),
    "growing dict": ("self.seen = {}", f"self.seen[len(self.seen)] = 1; {SWITCH.format('len(self.seen)')}"),
    "Counter": ("self.seen = collections.Counter()", f"self.seen['a'] += 1; {SWITCH.format('self.seen[chr(97)]')}"),
    "defaultdict": (
        "self.seen = collections.defaultdict(int)",
        f"self.seen['a'] += 1; {SWITCH.format('self.seen[chr(97)]')}",
    ),
    "tuple": ("self.state = (0, 'a')", f"self.state = (self.state[0] + 1, 'a'); {SWITCH.format('self.state[0]')}"),
    "array": ("self.state = np.zeros(1)", f"self.state += 1; {SWITCH.format('self.state[0]')}"),
    "number of numpy": ("self.state = np.float64(0)", f"self.state = self.state + 1; {SWITCH.format('self.state')}"),
    "bytearray": ("self.state = bytearray(1)", f"self.state[0] += 1; {SWITCH.format('self.state[0]')}"),
    "count": ("self.ticks = itertools.count()", SWITCH.format("next(self.ticks)")),
    "global count": ("", SWITCH.format("next(TICKS)")),
    "iterator": ("self.ticks = iter(range(10**6))", SWITCH.format("next(self.ticks)")),
    "generator": ("self.ticks = ticks()", SWITCH.format("next(self.ticks)")),
    "cycle of factors": ("self.factors = itertools.cycle([2] * 9 + [3])", "x = x * next(self.factors)"),
    "class attribute": ("", f"Net.total += 1; {SWITCH.format('Net.total')}"),
    "list of a class": ("", f"self.history.append(0); {SWITCH.format('len(self.history)')}"),
    "class of an object": ("self.box = Namespace()", f"Namespace.calls += 1; {SWITCH.format('self.box.calls')}"),
    "default argument": ("", SWITCH.format("counting()")),
    "keyword default": ("", "x = x / keeping(x)"),
    "closure": ("self.count = make_counter()", SWITCH.format("self.count()")),
    "closure of a hook": (
        "self.count = make_counter(); self.layer.register_forward_hook(self.count)",
        "self.layer(x); " + SWITCH.format("self.count.__closure__[0].cell_contents"),
    ),
    "hook with an object": (
        "box = self.__dict__['box'] = Box(calls=0); self.layer.register_forward_hook(functools.partial(count_in, box))",
        "self.layer(x); " + SWITCH.format("self.box.calls"),
    ),
    "partial": ("self.count = functools.partial(counting, [0])", SWITCH.format("self.count()")),
    "bound method": ("self.tick = Ticker().tick", SWITCH.format("self.tick()")),
    "list of modules": ("self.parts = [Part()]", "x = self.parts[0](x)"),
    "global module": ("", "x = PART(x)"),
    "attribute of a function": (
        "",
        f"Net.forward.calls = vars(Net.forward).get('calls', 0) + 1; {SWITCH.format('Net.forward.calls')}",
    ),
    "scripted submodule": ("self.part = torch.jit.script(Part())", "x = self.part(x)"),
    "list in a scripted submodule": ("self.part = torch.jit.script(Growing())", "x = self.part(x)"),
    "class in a function": ("self.box = local_class()()", f"self.box.add(); {SWITCH.format('self.box.total()')}"),
    "weak keys": (
        "self.seen = weakref.WeakKeyDictionary({self.layer: [0]})",
        f"self.seen[self.layer][0] += 1; {SWITCH.format('self.seen[self.layer][0]')}",
    ),
    "UserDict": (
        "self.seen = collections.UserDict(calls=0)",
        f"self.seen.data['calls'] += 1; {SWITCH.format('next(iter(self.seen.data.values()))')}",
    ),
    "frozen dataclass that is replaced": (
        "self.box = Settings()",
        f"self.box = dataclasses.replace(self.box, calls=self.box.calls + 1); {SWITCH.format('self.box.calls')}",
    ),
    "named tuple": (
        "self.state = Pair(0, 1)",
        f"self.state = self.state._replace(first=self.state.first + 1); {SWITCH.format('self.state.first')}",
    ),
    "tuple with a list": ("self.state = ('a', [0])", f"self.state[1][0] += 1; {SWITCH.format('self.state[1][0]')}"),
    "enumeration of counts": ("self.ticks = enumerate(itertools.count())", SWITCH.format("next(self.ticks)[0]")),
    "global number": ("", f"CALLS += 1; {SWITCH.format('CALLS')}"),
    "global set": ("", f"SEEN.add(len(SEEN)); {SWITCH.format('len(SEEN)')}"),
    "global dict of lists": (
        "",
        f"STATS['calls'][0] += 1; {SWITCH.format('STATS[chr(99) + chr(97) + chr(108) * 2 + chr(115)][0]')}",
    ),
    "global object": ("", f"BOX.inner.calls += 1; {SWITCH.format('BOX.inner.calls')}"),
    "global tensor in place": ("", f"TABLE.add_(1); {SWITCH.format('TABLE.item()')}"),
    "tensor in place in an object": (
        "self.box = Box(sums=[torch.zeros(1)])",
        f"self.box.sums[0].add_(1); {SWITCH.format('self.box.sums[0].item()')}",
    ),
    "tensor in a dict in a slot": (
        "self.box = Slots(); self.box.grid = {'sum': torch.zeros(1)}",
        f"self.box.grid['sum'].add_(1); {SWITCH.format('self.box.grid[chr(115) + chr(117) + chr(109)].item()')}",
    ),
    "first scale in a slot": (
        "self.box = Slots()",
        "self.box.scale = x.std() if self.box.scale is None else self.box.scale; x = x / self.box.scale",
    ),
    "first scale of a cached method": ("", "self.__dict__['last'] = x; x = x / self.scale_once()"),
    "peak in a nested object": (
        "self.box = Box(inner=[Box(peak=9.0)])",
        "b = self.box.inner[0]; b.peak = max(b.peak, x.abs().max().item()); x = x / b.peak",
    ),
    "average in a read-only dict": (
        "self.state = Registry(mean=[0.0])",
        "self.state['mean'][0] = 0.9 * self.state['mean'][0] + x.mean().item(); x = x - self.state['mean'][0]",
    ),
    "object that cannot be copied": (
        "self.box = Box(calls=0, reader=open(__file__)); self.box.reader.close()",
        f"self.box.calls += 1; {SWITCH.format('self.box.calls')}",
    ),
    "first scale next to an object that cannot be copied": (
        "self.box = Box(scale=None, reader=open(__file__)); self.box.reader.close()",
        "self.box.scale = self.box.scale or x.std().item(); x = x / self.box.scale",
    ),
}

STATELESS = {
    "counter in an object": ("self.box = Box(calls=0)", "self.box.calls += 1"),
    "counter in slots": ("self.box = Slots()", "self.box.calls += 1"),
    "global counter": ("", "CALLS += 1"),
    "count": ("self.ticks = itertools.count()", "next(self.ticks)"),
    "endless generator": ("self.ticks = ticks()", "next(self.ticks)"),
    "Counter of sizes": ("self.sizes = collections.Counter()", "self.sizes[x.shape[0]] += 1"),
    "set of sizes": ("self.sizes = set()", "self.sizes.add(tuple(x.shape))"),
    "last values": ("self.last = collections.deque(maxlen=4)", "self.last.append(x.mean().item())"),
    "log of shapes": ("self.box = Box(log=[])", "self.box.log.append((tuple(x.shape), 'call'))"),
    "default argument": ("", "counting()"),
    "closure": ("self.count = make_counter()", "self.count()"),
    "hook that counts": ("self.layer.register_forward_hook(make_counter())", "self.layer(x)"),
    "features of a hook": (
        "self.kept = {}; kept = self.kept; self.layer.register_forward_hook(lambda m, i, o: kept.__setitem__('y', o))",
        "self.layer(x); x = x + self.kept['y']",
    ),
    "features in slots": ("self.box = Slots()", "self.box.grid = x * 2; x = x + self.box.grid"),
    "grids by size": (
        "self.box = Box(grids={})",
        "x = x + self.box.grids.setdefault(x.shape[0], torch.linspace(0, 1, x.shape[0]))[:, None]",
    ),
    "grids in a closure": ("", "x = x + grid_of(x.shape[0])[:, None]"),
    "grids of a cached function": ("", "x = x + ramp(x.shape[0])[:, None]"),
    "grids in an OrderedDict with a limit": (
        "self.grids = collections.OrderedDict()",
        (
            "n = x.shape[0]; self.grids.setdefault(n, torch.arange(n) / n); self.grids.move_to_end(n); "
            "len(self.grids) > 2 and self.grids.popitem(last=False); x = x + self.grids[n][:, None]"
        ),
    ),
    "grid of the last size": (
        "self.box = Slots()",
        (
            "n = x.shape[0]; fits = self.box.calls == n; self.box.grid = self.box.grid if fits else ramp(n); "
            "self.box.calls = n; x = x + self.box.grid[:, None]"
        ),
    ),
    "growing table in an object": (
        "self.box = Box(table=torch.zeros(0))",
        (
            "n = x.shape[0]; self.box.table = self.box.table if len(self.box.table) >= n else torch.arange(n) / 8.0; "
            "x = x + self.box.table[:n, None]"
        ),
    ),
    "initialized at the first call": (
        "self.box = Box(weight=None)",
        "self.box.weight = torch.ones(4) if self.box.weight is None else self.box.weight; x = x * self.box.weight",
    ),
    "work array": (
        "self.work = np.zeros(4)",
        "self.work[:] = 0; self.work += 1; x = x + torch.from_numpy(self.work).float()",
    ),
    "work list": ("self.work = []", "self.work.clear(); self.work.extend([x, x * 2]); x = sum(self.work)"),
    "hostile object": ("self.box = Hostile()", "self.box.calls += 1"),
    "cycle": ("self.box = Box(); self.box.itself = [self.box, self]", "x = x + 1"),
    "list that contains itself": ("self.items = [1]; self.items.append(self.items)", "x = x + self.items[0]"),
    "queue that the call fills and empties": (
        "self.work = collections.deque()",
        "self.work.append(x); x = self.work.popleft()",
    ),
    "global tensor that is overwritten": ("", "TABLE.fill_(0).add_(1); x = x + TABLE"),
    "object that cannot be copied": ("self.box = Box(reader=open(__file__)); self.box.reader.close()", "x = x + 1"),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize(("init", "line"), STATEFUL.values(), ids=STATEFUL)
def test_state_between_calls_is_rejected(load: Load, init: str, line: str) -> None:
    """Most of it has an effect only in the ninth call, and two runs on the same inputs return the same."""
    with pytest.raises(SourceError) as caught:
        load(model(init, line))
    assert caught.value.code == "source.stateful", caught.value.message


@pytest.mark.parametrize(("init", "line"), STATELESS.values(), ids=STATELESS)
def test_values_without_an_effect_on_later_calls_are_allowed(load: Load, init: str, line: str) -> None:
    """Counters, logs, intermediate results, and tables that depend only on sizes."""
    load(model(init, line))

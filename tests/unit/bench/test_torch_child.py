"""The process that measures PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from repogen.bench import torch_child

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # of torch.compile itself
def test_compiled_variant_compiles() -> None:
    """Loading a source turns compilation off in its process; the compiled variant turns it on again."""
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    torch.compiler.set_stance("force_eager")
    try:
        torch_child.compile_module(nn.Linear(2, 2))
        torch.compile(nn.Linear(2, 2), backend=backend)(torch.zeros(1, 2))
    finally:
        torch.compiler.set_stance("default")
    assert len(graphs) == 1

"""Models with known problems, for test_traps.py."""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
from torch import nn


class _Call(nn.Module):
    """A linear layer and a function of its output."""

    def __init__(self, function: object, features: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(features, features)
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert callable(self.function)
        result: torch.Tensor = self.function(self.linear(x))
        return result


def forgot_eval() -> nn.Module:
    """Return a model with dropout in training mode."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2)).train()


class BakedBatch(nn.Module):
    """Reshapes with a fixed batch size."""

    def __init__(self) -> None:
        """Create the layer."""
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute a result that is valid only for a batch of 2."""
        result: torch.Tensor = self.linear(x.reshape(2, -1))
        return result


class Branch(nn.Module):
    """Branches on values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x + 1`` for positive sums, otherwise ``x - 1``."""
        if x.sum() > 0:
            return x + 1
        return x - 1


class BranchOnShape(nn.Module):
    """Branches on a shape; a trace may freeze the branch if no declared size takes it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Take the branch only outside the declared dims."""
        if x.shape[0] > 1000:
            return x * 2
        return x + 1


class TimeMajor(nn.Module):
    """An LSTM with batch-first inputs and time-first outputs."""

    def __init__(self) -> None:
        """Create the LSTM."""
        super().__init__()
        torch.manual_seed(0)
        self.lstm = nn.LSTM(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [batch, time, 4] to [time, batch, 3]."""
        result: torch.Tensor = self.lstm(x.transpose(0, 1))[0]
        return result


class Subtract(nn.Module):
    """Treats its two inputs differently."""

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Return ``2 * left - right``."""
        return 2 * left - right


class TooWide(nn.Module):
    """Has enough weights for an external data file."""

    def __init__(self) -> None:
        """Create a layer of 1 MB."""
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(512, 512)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [batch, 512] to itself."""
        result: torch.Tensor = self.linear(x)
        return result


def mixes_rows() -> nn.Module:
    """Subtracts the batch's mean."""
    return _Call(lambda y: y - y.mean(0))


def bfloat16() -> nn.Module:
    """Computes and returns bfloat16."""
    return _Call(lambda y: y.to(torch.bfloat16))


def not_a_number() -> nn.Module:
    """Takes the logarithm of negative numbers."""
    return _Call(lambda y: torch.log(-y.abs()))


def random() -> nn.Module:
    """Adds noise at inference."""
    return _Call(lambda y: y + torch.randn_like(y))


def exits() -> nn.Module:
    """Call sys.exit."""
    sys.exit(3)


def exits_hard() -> nn.Module:
    """Exit the process without cleanup."""
    os._exit(9)


def hangs() -> nn.Module:
    """Sleep forever."""
    time.sleep(3600)
    raise AssertionError


def killed() -> nn.Module:
    """Kill the process like the kernel's out-of-memory killer."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def number() -> int:
    """Return a value that is not a module."""
    return 42

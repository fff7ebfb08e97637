"""Trains the digits network in seconds and writes ``digits_cnn.safetensors`` and ``examples.npz``.

Run it from this directory: ``python train.py``. It wrote the committed weights.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from data import load_split
from models import build
from safetensors.torch import save_file

EPOCHS = 30
BATCH = 64


def main() -> None:
    """Train the network, print its test accuracy, and save it."""
    torch.manual_seed(0)
    train_x, train_y, test_x, test_y = (torch.from_numpy(array) for array in load_split())
    model = build().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    steps = EPOCHS * (len(train_x) // BATCH + 1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(train_x)).split(BATCH):
            loss = torch.nn.functional.cross_entropy(model(train_x[rows]), train_y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    model.eval()
    with torch.no_grad():
        accuracy = (model(test_x).argmax(1) == test_y).float().mean().item()
    print(f"test accuracy {accuracy:.4f} on {len(test_y)} digits")
    here = Path(__file__).parent
    save_file(model.state_dict(), here / "digits_cnn.safetensors")
    np.savez(here / "examples.npz", image=test_x[:32].numpy())


if __name__ == "__main__":
    main()

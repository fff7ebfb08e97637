"""scikit-learn's digits as arrays; the same split for training, tests and examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

if TYPE_CHECKING:
    import numpy.typing as npt


def load_split() -> tuple[
    npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[np.float32], npt.NDArray[np.int64]
]:
    """Return train images, train labels, test images, test labels.

    Images are ``[n, 1, 8, 8]`` float32 between 0 and 1, labels ``[n]`` int64.
    """
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[:, None]
    train_x, test_x, train_y, test_y = train_test_split(
        images, digits.target.astype(np.int64), test_size=0.25, random_state=0, stratify=digits.target
    )
    return train_x, train_y, test_x, test_y

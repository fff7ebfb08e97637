"""Maps an embedding to the nearest label: the last step of the ensemble, run by Triton's Python backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    """Cosine similarity with the mean embedding of each label's sentences."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the labels from the directory of this file.

        Args:
            args: Arguments from Triton; not used.
        """
        del args
        with np.load(Path(__file__).with_name("labels.npz")) as stored:
            self.names, self.centers = stored["names"].astype(object), stored["centers"]

    def execute(self, requests: list[Any]) -> list[Any]:
        """Map ``embedding`` ``[batch, 384]`` of each request to ``label`` and ``score``, both ``[batch, 1]``."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        similarity = pb.get_input_tensor_by_name(request, "embedding").as_numpy() @ self.centers.T
        best = similarity.argmax(1)
        score = similarity[np.arange(len(best)), best].astype(np.float32)
        label = self.names[best].reshape(-1, 1)
        return pb.InferenceResponse([pb.Tensor("label", label), pb.Tensor("score", score.reshape(-1, 1))])

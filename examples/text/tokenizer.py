"""Converts text to token IDs: the first step of the ensemble, run by Triton's Python backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb
from tokenizers import BertWordPieceTokenizer

MAX_TOKENS = 256


class TritonPythonModel:
    """BERT's WordPiece tokens, padded to the longest text of a request."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the vocabulary from the directory of this file.

        Args:
            args: Arguments from Triton; not used.
        """
        del args
        self.tokenizer = BertWordPieceTokenizer(str(Path(__file__).with_name("vocab.txt")), lowercase=True)
        self.tokenizer.enable_truncation(MAX_TOKENS)
        self.tokenizer.enable_padding()

    def execute(self, requests: list[Any]) -> list[Any]:
        """Convert ``text`` ``[batch, 1]`` of each request to two ``[batch, sequence]`` int64 tensors."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        texts = pb.get_input_tensor_by_name(request, "text").as_numpy()
        encoded = self.tokenizer.encode_batch([text.decode("utf-8", "replace") for text in texts[:, 0]])
        ids = np.array([encoding.ids for encoding in encoded], dtype=np.int64)
        mask = np.array([encoding.attention_mask for encoding in encoded], dtype=np.int64)
        return pb.InferenceResponse([pb.Tensor("input_ids", ids), pb.Tensor("attention_mask", mask)])

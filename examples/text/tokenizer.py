"""Text to token ids: the first step of the ensemble, run by Triton's Python backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb
from tokenizers import BertWordPieceTokenizer

LONGEST = 256


class TritonPythonModel:
    """BERT's word pieces, padded to the longest text of a request."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the vocabulary, which lies beside this file.

        Args:
            args: Triton's; not needed.
        """
        del args
        self.tokenizer = BertWordPieceTokenizer(str(Path(__file__).with_name("vocab.txt")), lowercase=True)
        self.tokenizer.enable_truncation(LONGEST)
        self.tokenizer.enable_padding()

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request: ``text`` ``[batch, 1]`` to two ``[batch, sequence]`` int64 tensors."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        texts = pb.get_input_tensor_by_name(request, "text").as_numpy()
        encoded = self.tokenizer.encode_batch([text.decode("utf-8", "replace") for text in texts[:, 0]])
        ids = np.array([one.ids for one in encoded], dtype=np.int64)
        mask = np.array([one.attention_mask for one in encoded], dtype=np.int64)
        return pb.InferenceResponse([pb.Tensor("input_ids", ids), pb.Tensor("attention_mask", mask)])

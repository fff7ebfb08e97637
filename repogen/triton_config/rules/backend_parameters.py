"""``parameters`` that Triton's ONNX Runtime backend reads, and what it can read from each.

Source: triton-inference-server/onnxruntime_backend, README and src/onnxruntime.cc; ParseIntValue (std::stoi) and
ParseBoolValue of triton-inference-server/backend.
"""

from __future__ import annotations

import re
from difflib import get_close_matches

NUMBERS = frozenset({
    "intra_op_thread_count", "inter_op_thread_count", "execution_mode", "cudnn_conv_algo_search", "gpu_mem_limit",
    "arena_extend_strategy",
})  # fmt: skip
SWITCHES = frozenset({
    "enable_mem_arena", "enable_mem_pattern", "share_session_between_instances",
    "use_device_allocator_for_initializers",
})  # fmt: skip
_PASSED_ON = frozenset({"memory.enable_memory_arena_shrinkage", "session.use_device_allocator_for_initializers"})
_OF_TRITON = frozenset({"TRITON_BATCH_STRATEGY_PATH", "MAX_BATCH_VOLUME_BYTES"})
_KNOWN = NUMBERS | SWITCHES | _PASSED_ON | _OF_TRITON
_FREE = re.compile(r"^(memory\.|session\.|ep\.|optimization\.|disable_|mlas\.)")
_OTHER_NAMES = {"intra_op_num_threads": "intra_op_thread_count", "inter_op_num_threads": "inter_op_thread_count"}
_TRUTHS = frozenset({"true", "false", "1", "0"})
_NEAR = 0.85


def is_known(name: str) -> bool:
    """Whether the backend, or Triton, reads a parameter; options that it hands on to ONNX Runtime are taken for known.

    >>> is_known("enable_mem_arena"), is_known("session.intra_op.allow_spinning"), is_known("note")
    (True, True, False)
    """
    return name in _KNOWN or (_FREE.match(name) is not None and not meant_by(name))


def meant_by(name: str) -> str:
    """Return the parameter that a name was meant to be; empty where it is one, or like none.

    >>> meant_by("intra_op_num_threads"), meant_by("enable_mem_arenas"), meant_by("enable_mem_arena"), meant_by("note")
    ('intra_op_thread_count', 'enable_mem_arena', '', '')
    """
    if name in _KNOWN:
        return ""
    near = get_close_matches(name, sorted(_KNOWN), n=1, cutoff=_NEAR)
    return _OTHER_NAMES.get(name, near[0] if near else "")


def unreadable(name: str, value: str) -> str:
    """Return what the backend would have in place of a parameter's value; empty where it can read it.

    >>> unreadable("enable_mem_arena", "yes"), unreadable("intra_op_thread_count", "2")
    ('it takes true, false, 1 or 0', '')
    """
    if name in NUMBERS:
        match = re.match(r"\s*[-+]?\d+", value)
        if match is None or not -(2**31) <= int(match[0]) < 2**31:
            return "a number of 32 bits is read from it"
        return "it takes 0 or 1" if name == "execution_mode" and int(match[0]) not in {0, 1} else ""
    return "it takes true, false, 1 or 0" if name in SWITCHES and value.lower() not in _TRUTHS else ""

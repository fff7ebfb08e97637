"""Typed ModelConfig sections: what the ``triton:`` key of a spec accepts."""

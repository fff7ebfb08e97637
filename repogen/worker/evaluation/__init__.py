"""The evaluation gate: user code, in a process of its own, evaluates a served version."""

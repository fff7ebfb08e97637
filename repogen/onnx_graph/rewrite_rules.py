"""Corrects onnxscript's rewrite rules, which the dynamo exporter and the pass ``ort-fusions`` apply."""

from __future__ import annotations


def require_exact_constants() -> None:
    """Let the rules drop ``x + c`` and ``x * c`` only if ``c`` is exactly 0 or 1, in this process.

    By default, a constant matches 0 if it is not above 1e-8, and 1 if it differs by less than 1e-5 (onnxscript 0.7.2).
    Without its 1e-8, ``x / (total + 1e-8)`` returns NaN for zeros, and wrong values for small inputs.
    """
    from onnxscript import rewriter  # noqa: PLC0415 - modules of passes are imported without the extra `build`
    from onnxscript.rewriter._pattern_ir import Constant  # noqa: PLC0415 - the same

    for rule in rewriter._DEFAULT_REWRITE_RULES:  # noqa: SLF001 - the rules have no parameter for it
        for node in rule._target_pattern:  # noqa: SLF001
            for value in node.inputs:
                if isinstance(value, Constant) and not isinstance(value.value, list):
                    value._rel_tol = value._abs_tol = 0.0  # noqa: SLF001

"""Applies the rules of family RG1, and RG5 within one ensemble, to one config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.targets import newest_target
from repogen.triton_config.rules.batching import batching_findings
from repogen.triton_config.rules.ensemble import ensemble_config_findings
from repogen.triton_config.rules.execution import execution_findings
from repogen.triton_config.rules.identity import identity_findings
from repogen.triton_config.rules.sequence import sequence_findings
from repogen.triton_config.rules.tensors import tensor_findings
from repogen.triton_config.rules.warmup import warmup_findings

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig

    from repogen.targets import Target
    from repogen.triton_config.rules.findings import Finding

_RULES = (
    batching_findings,
    sequence_findings,
    ensemble_config_findings,
    warmup_findings,
)


def config_findings(config: ModelConfig, directory: str = "", target: Target | None = None) -> list[Finding]:
    """Return the violations that can be found in a config alone.

    Args:
        config: The parsed config.
        directory: Name of the model directory that contains the config; empty if there is none.
        target: The Triton release that serves it; None for the newest, if it is not known.
    """
    target = target or newest_target()
    return [
        *identity_findings(config, directory),
        *(finding for rule in _RULES for finding in rule(config)),
        *tensor_findings(config, target),
        *execution_findings(config, target),
    ]

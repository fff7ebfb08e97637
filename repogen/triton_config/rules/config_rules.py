"""Every rule of the RG1 family, applied to one config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.triton_config.rules.batching import batching_rules
from repogen.triton_config.rules.ensemble import ensemble_rules
from repogen.triton_config.rules.identity import identity_rules
from repogen.triton_config.rules.instances import instance_rules
from repogen.triton_config.rules.optimization import optimization_rules
from repogen.triton_config.rules.sequence import sequence_rules
from repogen.triton_config.rules.tensors import tensor_rules
from repogen.triton_config.rules.warmup import warmup_rules

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig

    from repogen.triton_config.rules.findings import Finding

_RULES = (
    tensor_rules,
    batching_rules,
    sequence_rules,
    ensemble_rules,
    instance_rules,
    optimization_rules,
    warmup_rules,
)


def config_findings(config: ModelConfig, directory: str = "") -> list[Finding]:
    """Return every rule of the RG1 family that a config breaks.

    Args:
        config: The parsed config.
        directory: Name of the directory that holds the config, when it lies in one.
    """
    return [*identity_rules(config, directory), *(finding for rule in _RULES for finding in rule(config))]

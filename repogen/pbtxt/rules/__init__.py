"""Rules that a config.pbtxt must keep, one module a part of ModelConfig.

Source: each was seen on tritonserver 2.51.0, rules of the backend with the stock onnxruntime backend. An ``error`` is
what the server refuses or dies of, a ``warning`` what it accepts to a user's surprise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.pbtxt.rules.batching import batching_rules
from repogen.pbtxt.rules.ensemble import ensemble_rules
from repogen.pbtxt.rules.graph import graph_findings, target_findings
from repogen.pbtxt.rules.identity import identity_rules
from repogen.pbtxt.rules.instances import instance_rules
from repogen.pbtxt.rules.optimization import optimization_rules
from repogen.pbtxt.rules.sequence import sequence_rules
from repogen.pbtxt.rules.tensors import tensor_rules
from repogen.pbtxt.rules.warmup import warmup_rules

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig

    from repogen.pbtxt.findings import Finding

__all__ = ["config_findings", "graph_findings", "target_findings"]

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

"""config.pbtxt: reading it, what a tensor's shape becomes in it, and the rules it must keep.

This package lies below the rooms, because configure, smoke and check all judge the same file by the same rules.
tritonclient, and gRPC with it, is imported when a text is parsed, not when this package is.
"""

from repogen.pbtxt.compare import differences
from repogen.pbtxt.dims import client_dims, config_dims, wire_array, wire_shape
from repogen.pbtxt.findings import RULES, Finding, errors_of
from repogen.pbtxt.parse import PbtxtError, empty_config, message_text, parse, quoted
from repogen.pbtxt.places import Fields, Place, fields_of
from repogen.pbtxt.rules import config_findings, graph_findings, target_findings
from repogen.pbtxt.rules.members import Neighbor, circle_findings, ensemble_findings, neighbor_at
from repogen.pbtxt.view import TensorView, tensor_views

__all__ = [
    "RULES",
    "Fields",
    "Finding",
    "Neighbor",
    "PbtxtError",
    "Place",
    "TensorView",
    "circle_findings",
    "client_dims",
    "config_dims",
    "config_findings",
    "differences",
    "empty_config",
    "ensemble_findings",
    "errors_of",
    "fields_of",
    "graph_findings",
    "message_text",
    "neighbor_at",
    "parse",
    "quoted",
    "target_findings",
    "tensor_views",
    "wire_array",
    "wire_shape",
]

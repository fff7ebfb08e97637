"""ONNX files as export, optimize and validate all see them; a room below the steps, which do not import each other."""

from repogen.graph.blame import first_line
from repogen.graph.describe import count_nodes, describe
from repogen.graph.finish import Finishing, finish

__all__ = ["Finishing", "count_nodes", "describe", "finish", "first_line"]

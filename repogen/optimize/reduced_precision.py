"""What the lossy passes share: their tools read a whole model, and some nodes stay in float32."""

from __future__ import annotations

import difflib
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from repogen.artifacts.file_names import DATA_FILE
from repogen.errors import SourceError
from repogen.optimize.interface import PassOptions
from repogen.triton_config.sections.base import must_be

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import onnx

    from repogen.artifacts.built_model import OnnxArtifact

_LIMIT = 2**31 - 2**20
"""Bytes of a protobuf message, with room for what a tool adds."""
_GB = 1e9
_SHOWN = 3
"""Names in a hint."""
_CLOSE = 0.7
"""Ratio of difflib above which a name is suggested; names with only `node_` and a number in common have 0.6."""
_MAX_NAME = 200
"""Characters of a name that are compared: difflib is quadratic in them."""

Patterns = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...], must_be("a list of node names, in which * matches any text")
]


class ReducedPrecisionOptions(PassOptions):
    """The options of every pass that reduces the precision of nodes."""

    exclude: Patterns = Field(default=(), description="Names of nodes that stay in float32; * matches any text")


def too_large(artifact: OnnxArtifact, tool: str) -> str:
    """Return why a tool that needs the model in one protobuf message cannot read it; empty if it can.

    Args:
        artifact: The model; external data are read into memory.
        tool: Name of the tool for the message.
    """
    files = [artifact.path, *([artifact.path.with_name(DATA_FILE)] if artifact.external_data else [])]
    size = sum(path.stat().st_size for path in files)
    return f"the model is {size / _GB:.1f} GB, and {tool} reads less than 2 GB" if size > _LIMIT else ""


def load(artifact: OnnxArtifact, *, weights: bool = True) -> onnx.ModelProto:
    """Return a model, with or without its external data, and without declared types of weights.

    A weight has a type and shape of its own. ONNX Runtime's tools transpose weights, and leave the declared shape.
    """
    import onnx  # noqa: PLC0415 - modules of passes are imported without the extra `build`

    model = onnx.load(artifact.path, load_external_data=weights)
    names = {tensor.name for tensor in model.graph.initializer}
    declared = [value for value in model.graph.value_info if value.name not in names]
    del model.graph.value_info[:]
    model.graph.value_info.extend(declared)
    return model


def check_excluded(model: onnx.ModelProto, patterns: Sequence[str], convertible: Iterable[onnx.NodeProto]) -> None:
    """Check that each name in ``exclude`` is that of a node, so that a misspelled name is not ignored.

    Args:
        model: The graph.
        patterns: The names.
        convertible: Nodes that the pass can convert; only their names are suggested.

    Raises:
        SourceError: A pattern matches no node.
    """
    unused = next((pattern for pattern in patterns if not _matching(model, [pattern])), None)
    if unused is None:
        return
    names = list(dict.fromkeys(node.name[:_MAX_NAME] for node in convertible if node.name))
    similar = difflib.get_close_matches(unused[:_MAX_NAME], names, n=_SHOWN, cutoff=_CLOSE)
    if similar:
        hint = f"did you mean {' or '.join(map(repr, similar))}?"
    elif names:
        more = ", ..." if len(names) > _SHOWN else ""
        hint = (
            f"names of nodes that the pass converts are {', '.join(map(repr, names[:_SHOWN]))}{more}; * matches any "
            "text; `repogen view` shows a published graph with its names"
        )
    else:
        hint = "the nodes that the pass converts have no names; remove `exclude`"
    raise SourceError(f"`exclude`: no node is named {unused!r}", hint, code="source.exclude", where="optimize")


def excluded_nodes(model: onnx.ModelProto, options: ReducedPrecisionOptions) -> list[str]:
    """Return the names of the nodes that stay in float32."""
    return _matching(model, options.exclude)


def _matching(model: onnx.ModelProto, patterns: Sequence[str]) -> list[str]:
    return [node.name for node in model.graph.node if any(fnmatchcase(node.name, pattern) for pattern in patterns)]

"""The commands import no heavy package: they also run where only Triton's files are."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.published import Publisher

PROGRAM = """
import sys
from repogen.cli.group import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    heavy = {"torch", "onnxruntime", "mlflow", "onnx", "grpc", "jinja2"} & set(sys.modules)
    print(end.code, *sorted(heavy), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["versions"], "0"),
        (["verify", "--model", "m", "{repository}"], "0"),
        (["rollback", "m", "--to", "1", "--dry-run"], "0"),
        (["prune", "--keep", "1", "--dry-run"], "0"),
        (["diff", "m"], "0 onnx"),
    ],
)
def test_imports(publisher: Publisher, words: list[str], expected: str) -> None:
    """Only `diff` reads graphs."""
    for weights in (b"1", b"2"):
        publisher.publish(weights=weights)
    repository = str(publisher.repository)
    words = [word.format(repository=repository) for word in words]
    arguments = words if repository in words else [*words, "--repository", repository]
    run = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True)
    assert run.stderr.splitlines()[-1] == expected

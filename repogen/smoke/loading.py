"""A model on the server for as long as it is tested."""

from __future__ import annotations

import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import (
    CONFIG_FILE,
    DATA_FILE,
    MANIFEST_FILE,
    MODEL_FILE,
    PYTHON_FILE,
    UNCONFIRMED_FILE,
)
from repogen.artifacts.named_file import is_named_file, path_in_model
from repogen.errors import SmokeError
from repogen.repository.golden import GOLDEN_JSON, GOLDEN_NPZ
from repogen.repository.layout import latest_version, requirements_in
from repogen.smoke.inference import NoAnswerError, RefusedError
from repogen.smoke.overrides import as_json
from repogen.triton_config.text.parse import parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tritonclient.grpc.model_config_pb2 import ModelConfig

    from repogen.smoke.inference import InferenceClient

# A gRPC message ends at 2 GiB; names, versions and the config need a little of it.
MAX_SENT = 2**31 - 2**20
_OURS = frozenset({CONFIG_FILE, MANIFEST_FILE, UNCONFIRMED_FILE, GOLDEN_JSON, GOLDEN_NPZ})
"""Files of a version that no backend reads."""


@contextmanager
def loaded(
    client: InferenceClient, name: str, config: ModelConfig | None, files: Mapping[str, bytes]
) -> Iterator[None]:
    """Load model ``name`` for the body, unload it afterwards.

    Args:
        client: A client of a server in explicit mode.
        name: Name on the server.
        config: A config in place of the repository's; None for the repository's own.
        files: Bytes in place of the repository's, by path in the model directory.

    Raises:
        SmokeError: The server is not in explicit mode.
        RefusedError: It does not load the model; the message is the server's.
        NoAnswerError: It does not answer.
    """
    try:
        client.load(name, None if config is None else as_json(config), files)
    except RefusedError as refusal:
        if "explicit model load" in refusal.message:
            raise SmokeError(
                f"the server does not load models on request: {refusal.message}",
                "start it with --model-control-mode=explicit, or use --server embedded",
                code="smoke.not-explicit",
            ) from refusal
        raise
    try:
        yield
    except BaseException:
        with suppress(RefusedError, NoAnswerError):  # what went wrong inside is what matters
            client.unload(name)
        raise
    client.unload(name)


def private_name(model: str) -> str:
    """Return a name that no model of a foreign server bears, so that none is replaced."""
    return f"repogen-smoke-{uuid.uuid4().hex[:12]}-{model}"


def sent_files(version_dir: Path, version: int) -> dict[str, bytes]:
    """Return the model's files for a server that does not see this machine's disk.

    Raises:
        SmokeError: They don't fit into one gRPC message.
    """
    code = (version_dir / PYTHON_FILE).is_file()  # which may read anything that lies beside it
    names = (path.name for path in version_dir.iterdir() if path.name not in _OURS) if code else (MODEL_FILE, DATA_FILE)
    paths = sorted(path for path in map(version_dir.joinpath, names) if path.is_file())
    size = sum(path.stat().st_size for path in paths)
    if size > MAX_SENT:
        raise SmokeError(
            f"{version_dir.parent.name}: {size / 2**30:.1f} GiB can't be sent to a remote server: gRPC carries 2 GiB",
            "use --server embedded or docker, or --no-smoke and `repogen smoke` where the repository is mounted",
            code="smoke.too-large-to-send",
        )
    named = {path_in_model(path.name): path.read_bytes() for path in version_dir.iterdir() if is_named_file(path.name)}
    return {**named, **{f"{version}/{path.name}": path.read_bytes() for path in paths}}


def requirements_of(config: ModelConfig, version_dir: Path, repository: Path) -> list[str]:
    """Return what a version imports, and what the models of its steps do.

    Args:
        config: Its config.
        version_dir: It.
        repository: Where the models of its steps lie.

    Raises:
        MalformedRecordError: A requirements.txt can't be read.
    """
    found = list(requirements_in(version_dir))
    for step in config.ensemble_scheduling.step:
        directory = repository / step.model_name
        version = step.model_version if step.model_version > 0 else latest_version(directory)
        if (directory / CONFIG_FILE).is_file():
            inner = parse((directory / CONFIG_FILE).read_text(encoding="utf-8"), f"config.pbtxt of {step.model_name}")
            found += requirements_of(inner, directory / str(version), repository)
    return list(dict.fromkeys(found))

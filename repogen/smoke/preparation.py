"""Prepares models for one server: a private name, a config that the server can load, files to send, requirements."""

from __future__ import annotations

import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf import json_format
from tritonclient.grpc.model_config_pb2 import TYPE_BF16, ModelConfig

from repogen.artifacts.file_names import (
    ATTESTATION_FILES,
    CONFIG_FILE,
    DATA_FILE,
    MANIFEST_FILE,
    MODEL_FILE,
    PYTHON_FILE,
    UNCONFIRMED_FILE,
)
from repogen.artifacts.named_file import is_named_file, path_in_model
from repogen.artifacts.serving import SmokeCheck
from repogen.errors import RepogenError, SmokeError
from repogen.files import is_file, read_bytes
from repogen.files.tree import walk
from repogen.repository.ensembles import with_steps
from repogen.repository.golden import GOLDEN_JSON, GOLDEN_NPZ
from repogen.repository.layout import directory_of_step, latest_version, triton_versions
from repogen.repository.version_policy import served_versions
from repogen.serving import control
from repogen.serving.admission import is_safe_name, load_refusals, read_refusals, requirements_of
from repogen.smoke.inference import NoResponseError, RefusedError
from repogen.triton_config.text.parse import parse, parse_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from repogen.artifacts.serving import Endpoint, RunningTriton
    from repogen.artifacts.versions import StagedVersion
    from repogen.smoke.inference import InferenceClient

# The limit of a gRPC message is 2 GiB; names, versions and the config need some of it.
MAX_SENT = 2**31 - 2**20
_BACKENDS_IGNORE = frozenset(
    {CONFIG_FILE, MANIFEST_FILE, UNCONFIRMED_FILE, GOLDEN_JSON, GOLDEN_NPZ, *ATTESTATION_FILES}
)


@dataclass(frozen=True)
class PreparedModel:
    """A model directory, prepared for one server.

    Attributes:
        directory: The model's directory.
        versions: Versions that the server serves, ascending.
        config: The config for the server; its name is the model's name on the server.
        overrides: Fields that differ from config.pbtxt, one line each.
        replaces_config: Whether the server must load ``config`` instead of config.pbtxt.
        sent: Whether the server receives the files, since it does not read this machine's disk.
    """

    directory: Path
    versions: tuple[int, ...]
    config: ModelConfig
    overrides: tuple[str, ...] = ()
    replaces_config: bool = False
    sent: bool = False

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.directory.name

    @property
    def served_as(self) -> str:
        """Name of the model on the server."""
        return str(self.config.name)

    def requirements(self) -> list[str]:
        """Return the packages that the model and the models of its steps import, each ``name==version``.

        Raises:
            RepogenError: A requirements.txt, or the config.pbtxt of a step, cannot be read.
        """
        lines = requirements_of(self.directory, self.config, [self.directory / str(each) for each in self.versions])
        return list(dict.fromkeys([*lines, *_step_requirements(self.config, self.directory.parent)]))

    def files(self) -> dict[str, bytes]:
        """Return the bytes to send, by path in the model directory; empty for a server that reads the disk.

        Raises:
            SmokeError: They are larger than a gRPC message.
        """
        files: dict[str, bytes] = {}
        for version in self.versions if self.sent else ():
            files.update(_sent_files(self.directory / str(version)))
        return files


def prepare_staged(endpoint: Endpoint, staged: StagedVersion) -> PreparedModel:
    """Prepare a staged version.

    The name in its config may differ from its directory's, which is its name on the server. A server that does not
    read this machine's disk gets a copy with a unique name.

    Raises:
        SmokeError: An ensemble cannot be sent to this server.
    """
    original = parse(staged.config.text, f"config.pbtxt of {staged.name}")
    config, overrides = override_config(original, version=staged.version, has_gpu=endpoint.has_gpu)
    config.name = staged.name
    if not endpoint.sees_files:
        if config.HasField("ensemble_scheduling"):
            raise SmokeError(
                f"{staged.name}: an ensemble cannot be sent to a remote server, which lacks the models of its steps",
                "use --server embedded or docker; or --no-smoke, and `repogen smoke` where the repository is mounted",
                code="smoke.ensemble",
            )
        config.name = f"repogen-smoke-{uuid.uuid4().hex[:12]}-{staged.name}"
        overrides = (f"name: {staged.name} -> {config.name} (a private copy: live models are unaffected)", *overrides)
    return PreparedModel(
        directory=staged.model_dir,
        versions=(staged.version,),
        config=config,
        overrides=overrides,
        replaces_config=bool(overrides) or config.name != original.name,
        sent=not endpoint.sees_files,
    )


def prepare_published(endpoint: Endpoint, directory: Path) -> PreparedModel:
    """Prepare a model of the repository that the server was started on, with every version that it serves.

    Raises:
        RepogenError: config.pbtxt cannot be parsed.
        OSError: It cannot be read.
    """
    config = parse_file(directory / CONFIG_FILE, f"{directory.name}/{CONFIG_FILE}")
    config.name = config.name or directory.name
    numbers = tuple(reversed(served_versions(config, triton_versions(directory))))
    overrides: tuple[str, ...] = ()
    if endpoint.sees_files:
        # `served` follows the version policy, so that the policy stays unchanged
        version = numbers[-1] if numbers else 0
        config, overrides = override_config(config, version=version, has_gpu=endpoint.has_gpu)
    return PreparedModel(directory, numbers, config, overrides, replaces_config=bool(overrides))


@contextmanager
def loaded(server: RunningTriton, client: InferenceClient, model: PreparedModel) -> Iterator[None]:
    """Load a model while the block runs, and unload it afterward.

    Args:
        server: A server in explicit mode.
        client: A connection to it.
        model: The model.

    Raises:
        SmokeError: The server is not in explicit mode or requires a header, or the files are too large to send.
        RefusedError: The server does not load the model; the message is the server's. Or repogen does not let it,
            because Triton would run code of a model that is not a Python model.
        NoResponseError: The server does not respond.
        ServerError: The model's requirements cannot be installed.
    """
    if reasons := admission_refusals(model):
        raise RefusedError("NOT_ADMITTED", "; ".join(reasons))
    server.provide(model.requirements())
    try:
        client.load(model.served_as, as_json(model.config) if model.replaces_config else None, model.files())
    except RefusedError as refusal:
        if (error := control.refusal(refusal.message, server.endpoint.control)) is not None:
            raise error from refusal
        raise
    try:
        yield
    except BaseException:
        with suppress(RefusedError, NoResponseError):  # the block's error is the cause
            client.unload(model.served_as)
        raise
    client.unload(model.served_as)


def admission_refusals(model: PreparedModel) -> tuple[str, ...]:
    """Return why Triton may not load a model, or a model of its steps, which Triton loads with an ensemble.

    A server that reads the repository loads the model by its name in config.pbtxt, so that must be the directory's.
    """
    if not model.sent and model.served_as != model.name:
        return (f"config.pbtxt has the name {model.served_as!r}, which is not the name of the directory",)
    repository, steps = model.directory.parent, _step_names(model)
    if unsafe := [name for name in steps if not is_safe_name(name)]:
        return tuple(f"step {name!r} is not the name of a model" for name in unsafe)
    directories = (directory_of_step(repository, name) for name in steps)
    of_steps = (reason for path in directories if path is not None for reason in read_refusals(path))
    return (*load_refusals(model.directory, model.config), *of_steps)


def _step_names(model: PreparedModel) -> list[str]:
    """Return the names of the models of an ensemble's steps, of their steps, and so on, sorted."""
    steps = (step.model_name for step in model.config.ensemble_scheduling.step)
    return sorted(with_steps(model.directory.parent, steps))


def check_supported(endpoint: Endpoint, model: PreparedModel) -> SmokeCheck | None:
    """Return a warning when this server, unlike NVIDIA's, does not support a feature of the config; else None.

    The features of an ensemble are also those of its steps, which Triton loads with it.
    """
    if endpoint.kind != "embedded":
        return None
    unsupported = list(_unsupported_features(model.config))
    for name in _step_names(model):
        directory = directory_of_step(model.directory.parent, name)
        with suppress(RepogenError, OSError):  # the load fails, and its check has the reason
            if directory is not None:
                config = parse_file(directory / CONFIG_FILE, f"config.pbtxt of {name}")
                unsupported += [f"{feature} (of its step {name})" for feature in _unsupported_features(config)]
    if not unsupported:
        return None
    detail = (
        f"not tested: the embedded server's backend, unlike NVIDIA's, does not support {', '.join(unsupported)}; "
        "use --server docker"
    )
    return SmokeCheck("served", passed=True, detail=detail, warning=True)


def _unsupported_features(config: ModelConfig) -> Iterator[str]:
    """Yield the features that the embedded server's backend does not support."""
    states = config.sequence_batching.state
    if any(state.use_same_buffer_for_input_output or state.use_growable_memory for state in states):
        yield "use_same_buffer_for_input_output"
    if any(tensor.data_type == TYPE_BF16 for tensor in (*config.input, *config.output)):
        yield "TYPE_BF16"


def override_config(config: ModelConfig, *, version: int, has_gpu: bool) -> tuple[ModelConfig, tuple[str, ...]]:
    """Return a copy of a config that the server can load, and one line per changed field.

    Without a GPU, the kind and gpus of instance groups and the GPU's execution accelerators change. The version policy
    changes where it does not serve ``version``.
    """
    copy = ModelConfig()
    copy.CopyFrom(config)
    lines = list(_override_version_policy(copy, version))
    if not has_gpu:
        lines += [*_override_instance_groups(copy), *_override_accelerators(copy)]
    return copy, tuple(lines)


def as_json(config: ModelConfig) -> str:
    """Return the JSON of a config for Triton's load request."""
    return str(json_format.MessageToJson(config, preserving_proto_field_name=True))


def _override_version_policy(config: ModelConfig, version: int) -> Iterator[str]:
    policy = config.version_policy
    if policy.HasField("specific") and version not in policy.specific.versions:
        yield f"version_policy: specific {list(policy.specific.versions)} -> specific [{version}]"
        del policy.specific.versions[:]
        policy.specific.versions.append(version)


def _override_instance_groups(config: ModelConfig) -> Iterator[str]:
    for index, group in enumerate(config.instance_group):
        kinds = type(group).Kind
        if group.kind == kinds.KIND_GPU or (group.kind == kinds.KIND_AUTO and group.gpus):
            yield f"instance_group[{index}].kind: {kinds.Name(group.kind)} -> KIND_CPU (no GPU here)"
            group.kind = kinds.KIND_CPU
            if group.gpus:
                yield f"instance_group[{index}].gpus: {list(group.gpus)} -> []"
                del group.gpus[:]


def _override_accelerators(config: ModelConfig) -> Iterator[str]:
    accelerators = config.optimization.execution_accelerators
    if accelerators.gpu_execution_accelerator:
        names = [accelerator.name for accelerator in accelerators.gpu_execution_accelerator]
        yield f"optimization.execution_accelerators.gpu_execution_accelerator: {names} -> [] (no GPU here)"
        accelerators.ClearField("gpu_execution_accelerator")


def _sent_files(version_dir: Path) -> Mapping[str, bytes]:
    """Return the bytes of a version for a server that does not read this machine's disk."""
    is_code = (version_dir / PYTHON_FILE).is_file()  # code may read any file next to it
    candidates = _code_files(version_dir) if is_code else map(version_dir.joinpath, (MODEL_FILE, DATA_FILE))
    paths = sorted(path for path in candidates if path.is_file())
    size, model = sum(path.stat().st_size for path in paths), version_dir.parent.name
    if size > MAX_SENT:
        raise SmokeError(
            f"{model}: {size / 2**30:.1f} GiB cannot be sent to a remote server; gRPC's limit is 2 GiB",
            "use --server embedded or docker, or --no-smoke and `repogen smoke` where the repository is mounted",
            code="smoke.too-large-to-send",
        )
    named_files = {
        path_in_model(path.name): read_bytes(path) for path in version_dir.iterdir() if is_named_file(path.name)
    }
    names = {path: path.relative_to(version_dir.parent).as_posix() for path in paths}
    return {**named_files, **{name: read_bytes(path, MAX_SENT) for path, name in names.items()}}


def _code_files(version_dir: Path) -> Iterator[Path]:
    """Yield the files of a version of Python code, and of its packed packages."""
    for folder, _, names in walk(version_dir):
        if folder.name != "__pycache__":
            yield from (folder / name for name in names if folder != version_dir or name not in _BACKENDS_IGNORE)


def _step_requirements(config: ModelConfig, repository: Path) -> Iterator[str]:
    """Yield the requirements of the models of an ensemble's steps in ``repository``, and of their steps."""
    names, pending = set[str](), list(config.ensemble_scheduling.step)
    while pending:
        step = pending.pop(0)
        directory = directory_of_step(repository, step.model_name)
        if directory is None or not is_file(directory / CONFIG_FILE):
            continue
        version = step.model_version if step.model_version > 0 else latest_version(directory)
        key = f"{step.model_name}/{version}"
        if key in names:  # steps may form a cycle, which Triton rejects
            continue
        names.add(key)
        config = parse_file(directory / CONFIG_FILE, f"config.pbtxt of {step.model_name}")
        yield from requirements_of(directory, config, [directory / str(version)])
        pending += config.ensemble_scheduling.step

"""The files that a config names: model files, class names, warmup data, initial states, environments, libraries."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import MODEL_FILE, PYTHON_FILE
from repogen.artifacts.named_file import path_in_model
from repogen.triton_config.rules.identity import is_ensemble
from repogen.triton_config.text.source_map import entry_path
from repogen.triton_config.text.view import dtype_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tritonclient.grpc.model_config_pb2 import ModelConfig

_ENVIRONMENT = "EXECUTION_ENV_PATH"
_MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY/"
_MAX_BYTES = 2**63 - 1
# Source: onnxruntime_session_options_config_keys.h of ONNX Runtime 1.27, and the prefixes that onnxruntime.cc of the
# backend forwards. `ep.context_enable` writes a model next to the model file, or to `ep.context_file_path`.
_SESSION_FILE = re.compile(r"^(?:session|ep|optimization|memory|mlas)\..*(?:file|path|folder|librar|context_enable)")
# Source: provider_options.h and tensorrt_provider_options.h of ONNX Runtime.
_ACCELERATOR_LIBRARY = re.compile(r"lib(?:rary)?_paths?$|librar|plugin")
_ACCELERATOR_FILE = re.compile(r"(?:path|file|folder|dir|directory|cache_prefix|calibration_table_name)$")
_ITEM_BYTES = {
    **dict.fromkeys(("BOOL", "UINT8", "INT8"), 1),
    **dict.fromkeys(("UINT16", "INT16", "FP16", "BF16"), 2),
    **dict.fromkeys(("UINT32", "INT32", "FP32"), 4),
    **dict.fromkeys(("UINT64", "INT64", "FP64"), 8),
}


@dataclass(frozen=True)
class DataFile:
    """A file in a model's directory that a config names.

    Attributes:
        field: The field that contains the name.
        directory: The directory, relative to the model's, in which Triton looks for it.
        name: Its name there.
        size: Minimum size in bytes; 0 if any size is valid.
        may_be_directory: Whether it may be a directory.
    """

    field: str
    directory: str
    name: str
    size: int = 0
    may_be_directory: bool = False

    @property
    def path(self) -> str:
        """Its path relative to the model's directory, as Triton joins it: an absolute name is appended."""
        return f"{self.directory}/{self.name}".lstrip("/")


def leaves(path: str) -> bool:
    """Return whether a relative path leads out of the directory that it is relative to.

    >>> leaves("../labels.txt"), leaves("warmup/../1/model.onnx"), leaves("..hidden")
    (True, False, False)
    """
    return os.path.normpath(path).split("/", 1)[0] == ".."


def data_files(config: ModelConfig) -> Iterator[DataFile]:
    """Yield the files of class names, warmup data and initial states."""
    for index, output in enumerate(config.output):
        if output.label_filename:
            yield DataFile(f"output[{index}].label_filename", "", output.label_filename)
    samples = ((index, list(warmup.inputs.values())) for index, warmup in enumerate(config.model_warmup))
    for index, number, sample in ((i, n, sample) for i, inputs in samples for n, sample in enumerate(inputs)):
        if sample.HasField("input_data_file"):
            field = f"model_warmup[{index}].inputs[{number}].value.input_data_file"
            yield DataFile(field, "warmup", sample.input_data_file, _bytes(sample.data_type, sample.dims))
    for index, state in enumerate(config.sequence_batching.state):
        for number, initial in enumerate(state.initial_state):
            if initial.HasField("data_file"):
                field = f"sequence_batching.state[{index}].initial_state[{number}].data_file"
                yield DataFile(field, "initial_state", initial.data_file, _bytes(initial.data_type, initial.dims))


def environments(config: ModelConfig) -> Iterator[DataFile]:
    """Yield the archive or directory of a Python environment, if the config looks for it in the model's directory."""
    value = config.parameters[_ENVIRONMENT].string_value if _ENVIRONMENT in config.parameters else ""
    if value.startswith(_MODEL_DIRECTORY):
        field = entry_path("parameters", _ENVIRONMENT)
        yield DataFile(field, "", value.removeprefix(_MODEL_DIRECTORY), may_be_directory=True)


def model_filenames(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """Yield field and name of each model file; Triton appends the name to the version's directory."""
    if config.default_model_filename:
        yield "default_model_filename", config.default_model_filename
    for key in sorted(config.cc_model_filenames):
        yield entry_path("cc_model_filenames", key), config.cc_model_filenames[key]


def session_files(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """Yield field and value of each parameter with which ONNX Runtime reads or writes files, anywhere on the server.

    The backend passes keys with certain prefixes to ONNX Runtime unchanged.
    """
    for key in sorted(config.parameters):
        value = config.parameters[key].string_value
        if _SESSION_FILE.search(key) and value.strip():
            yield entry_path("parameters", key), value


def accelerator_files(config: ModelConfig) -> Iterator[tuple[str, str, bool]]:
    """Yield field and value of each parameter that names files for an accelerator, and whether they are libraries."""
    accelerators = config.optimization.execution_accelerators
    for device in ("gpu", "cpu"):
        for index, entry in enumerate(getattr(accelerators, f"{device}_execution_accelerator")):
            field = f"optimization.execution_accelerators.{device}_execution_accelerator[{index}].parameters"
            for key in sorted(entry.parameters):
                is_library = _ACCELERATOR_LIBRARY.search(key) is not None
                if entry.parameters[key].strip() and (is_library or _ACCELERATOR_FILE.search(key)):
                    yield entry_path(field, key), entry.parameters[key], is_library


def library_filenames(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """Yield field and name of each library of operators; the backend passes the name to the dynamic linker."""
    for index, name in enumerate(config.model_operations.op_library_filename):
        yield f"model_operations.op_library_filename[{index}]", name


def file_problems(config: ModelConfig, published: Mapping[str, int]) -> Iterator[str]:
    """Yield the file names in a config that a published version does not contain.

    Args:
        config: The config.
        published: Sizes of the files that are published with it and named by their content, by name.
    """
    for file in data_files(config):
        if file.name not in published or file.path != path_in_model(file.name):
            yield f"{file.field} names {file.name!r}, which is not published with the model"
        elif published[file.name] < file.size:
            size = published[file.name]
            yield f"{file.field} names {file.name!r}, which has {size} bytes; its dims and data type need {file.size}"
    for file in environments(config):
        if leaves(file.path):
            yield f"{file.field} names {file.name!r}, which is outside the model's directory"
    for field, name in library_filenames(config):
        if "/" in name:
            yield f"{field} is the path {name!r} on the server: write the library's name without a directory"


def model_file_problems(config: ModelConfig, files: Collection[str]) -> Iterator[str]:
    """Yield the model files that a config needs and a version that repogen built does not contain.

    Args:
        config: The version's config.
        files: Paths of the version's files.
    """
    if is_ensemble(config):
        return
    main = PYTHON_FILE if config.backend == "python" else MODEL_FILE
    if main not in files:
        yield f"backend {config.backend or config.platform!r} needs {main}, which is not published with the model"
    for field, name in model_filenames(config):
        if name != main:
            yield f"{field} names {name!r}, and the model's file is {main}"


def _bytes(data_type: int, dims: Sequence[int]) -> int:
    """Return the size of a tensor in bytes, at most 2**63 - 1; 0 for strings, which have any length."""
    size = _ITEM_BYTES.get(dtype_name(data_type), 0)
    for dim in dims:
        size = min(size * max(dim, 0), _MAX_BYTES)
    return size

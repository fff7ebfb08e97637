"""Reads a directory written by ``save_pretrained``: configuration, weights, and files to publish with the model."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard, TypeVar

from pydantic import BaseModel, BeforeValidator, TypeAdapter, ValidationError

from repogen.artifacts.source import Companion
from repogen.errors import SourceError
from repogen.files import is_directory, is_file, is_inside, is_private_hard_link, open_inside
from repogen.files.content import MAX_TEXT_BYTES, ContentError, read_stream, require_few_values
from repogen.files.resolve import resolved

if TYPE_CHECKING:
    from collections.abc import Mapping

_T = TypeVar("_T")

CONFIG = "config.json"
PREPROCESSOR = ("preprocessor_config.json", "image_processor_config.json", "processor_config.json")
TOKENIZER = "tokenizer_config.json"
# In the order of transformers; safetensors first, because pickles can run code.
SAFE_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
PICKLED_WEIGHTS = ("pytorch_model.bin", "pytorch_model.bin.index.json")
LICENSES = ("LICENSE*", "LICENCE*", "COPYING*", "NOTICE*", "README.md")
PROCESSORS = (
    CONFIG, *PREPROCESSOR, TOKENIZER, "tokenizer.json", "tokenizer.model", "tokenizer.model.v3", "added_tokens.json",
    "special_tokens_map.json", "vocab.json", "vocab.txt", "vocab.bpe", "merges.txt", "bpe.codes", "spiece.model",
    "sentencepiece.bpe.model", "source.spm", "target.spm", "feature_extractor_config.json", "generation_config.json",
    "chat_template.json", "chat_template.jinja", "modules.json", "sentence_bert_config.json",
    "config_sentence_transformers.json",
)  # fmt: skip
# Contents of directories that have no PyTorch weights, and what to do instead.
_OTHER_FORMATS = {
    "adapter_config.json": (
        "it contains an adapter (PEFT), not a full model",
        "merge it: peft.AutoPeftModel…from_pretrained(…).merge_and_unload().save_pretrained(DIR)",
    ),
    "*.gguf": ("it contains a GGUF file", "use the directory with the original weights"),
    "tf_model.h5": ("it contains TensorFlow weights", "convert them: model.save_pretrained(DIR) in PyTorch"),
    "flax_model.msgpack": ("it contains Flax weights", "convert them: model.save_pretrained(DIR) in PyTorch"),
    "*.onnx": ("it contains an ONNX file", "source: {kind: onnx, path: …}"),
}
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)\n---[ \t]*$", re.DOTALL | re.MULTILINE)
_MAX_CARD_BYTES = 2**20
_MAX_NAME_BYTES = 255  # of Linux
_MAX_VALUES = 500_000
_PIPELINE_TAG = re.compile(r"^pipeline_tag:\s*[\"']?([\w-]+)[\"']?\s*$", re.MULTILINE)


class ConfigFile(BaseModel):
    """The keys of ``config.json`` that repogen itself reads; their meaning is defined by transformers."""

    model_type: str | None = None
    architectures: list[str] | None = None
    auto_map: dict[str, object] | None = None
    custom_code: object = None
    quantization_config: dict[str, object] | None = None
    transformers_weights: str | None = None
    dtype: object = None
    torch_dtype: object = None

    @property
    def architecture(self) -> str:
        """The first architecture; empty when there is none."""
        return self.architectures[0] if self.architectures else ""

    @property
    def has_remote_code(self) -> bool:
        """Whether the model requires Python code from its directory or from the Hub."""
        return bool(self.auto_map or self.custom_code)

    @property
    def names_other_repository(self) -> bool:
        """Whether that code is in another repository of the Hub, as in ``owner/name--module.Class``."""
        return any(repository for repository, _ in self.code_paths) or "--" in json.dumps(self.auto_map)

    @property
    def code_paths(self) -> tuple[tuple[str, str], ...]:
        """The files of that code: the repository on the Hub, empty for that of the model, and the path in it."""
        values = [value for each in (self.auto_map or {}).values() for value in (each if _is_list(each) else [each])]
        references = [value.rpartition("--") for value in values if isinstance(value, str)]
        return tuple((repository, f"{name.partition('.')[0]}.py") for repository, _, name in references)

    @property
    def remote_code(self) -> str:
        """The classes of that code, or the keys that require it."""
        classes = [value for value in (self.auto_map or {}).values() if isinstance(value, str)]
        keys = [key for key in ("auto_map", "custom_code") if getattr(self, key)]
        return ", ".join(classes) or " and ".join(keys)


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def image_size(value: object) -> tuple[int, int] | None:
    """Return height and width from any of the forms that transformers uses; None when there is no fixed size.

    >>> image_size(224), image_size([32, 48]), image_size({"shortest_edge": 256}), image_size({"longest_edge": 800})
    ((224, 224), (32, 48), (256, 256), None)
    """
    if isinstance(value, dict):
        edge = value.get("shortest_edge")
        value = [value.get("height", edge), value.get("width", edge)]
    pair = [value, value] if isinstance(value, int) else value
    match pair:
        case (int(height), int(width)) if height > 0 and width > 0:
            return height, width
    return None


_ImageSize = Annotated[tuple[int, int] | None, BeforeValidator(image_size)]


class PreprocessorFile(BaseModel):
    """The keys of an image processor's or feature extractor's configuration that determine input shapes."""

    size: _ImageSize = None
    crop_size: _ImageSize = None
    do_center_crop: bool | None = None
    image_processor: PreprocessorFile | None = None
    return_attention_mask: bool | None = None

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Height and width after preprocessing: the crop, or else the resized image."""
        settings = self.image_processor or self
        return (settings.crop_size if settings.do_center_crop else None) or settings.size


class TokenizerFile(BaseModel):
    """The part of ``tokenizer_config.json`` that lists the inputs."""

    model_input_names: list[str] | None = None


class _WeightIndex(BaseModel):
    """The part of a sharded checkpoint's index that maps tensors to files."""

    weight_map: dict[str, str] = {}


_File = TypeVar("_File", bound=BaseModel)


@dataclass(frozen=True)
class Checkpoint:
    """A directory whose files were checked; no code in it was run.

    Attributes:
        directory: The directory; for a model from the Hub, its snapshot in the cache.
        name: The model as named in the spec, for messages.
        config: The keys of ``config.json`` that repogen reads.
        raw_config: All of ``config.json``.
        weights: Weight files; never empty.
        notes: Remarks for the report.
        local: Whether the directory is the user's own, not a snapshot in the cache.
        root: The directory without symlinks, when its configuration was read.
    """

    directory: Path
    name: str
    config: ConfigFile
    raw_config: Mapping[str, Any]
    weights: tuple[Path, ...]
    notes: tuple[str, ...]
    local: bool
    root: Path

    @property
    def preprocessor(self) -> PreprocessorFile:
        """The configuration of the image processor or feature extractor; empty when there is none."""
        return self._first_file(PREPROCESSOR, PreprocessorFile)

    @property
    def tokenizer(self) -> TokenizerFile:
        """The configuration of the tokenizer; empty when there is none."""
        return self._first_file((TOKENIZER,), TokenizerFile)

    @property
    def pipeline_tag(self) -> str:
        """The task named in the front matter of the model card; empty when there is none."""
        path = self.directory / "README.md"
        text = _head(path, self.root) if path.is_file() and is_inside(path, self.directory) else ""
        front_matter = _FRONT_MATTER.search(text)
        tag = _PIPELINE_TAG.search(front_matter[1]) if front_matter else None
        return tag[1] if tag else ""

    @property
    def files(self) -> tuple[Path, ...]:
        """Files whose change requires a new build; none for a Hub snapshot, which its revision identifies."""
        if not self.local:
            return ()
        index = [path for name in (*SAFE_WEIGHTS, *PICKLED_WEIGHTS) if (path := self.directory / name).is_file()]
        code = self.code_files(self.directory) if self.config.has_remote_code else ()
        return tuple(dict.fromkeys((*self._companion_paths(), *index, *self.weights, *filter(is_file, code))))

    def code_files(self, directory: Path, repository: str = "") -> tuple[Path, ...]:
        """Return the Python files that transformers may import: the named ones, and those next to them.

        Args:
            directory: That of the model, or a snapshot of the repository.
            repository: A repository on the Hub that the configuration names; empty for that of the model.
        """
        named = [directory / path for other, path in self.config.code_paths if other == repository]
        directories = filter(is_directory, dict.fromkeys((directory, *(path.parent for path in named))))
        return tuple(dict.fromkeys((*named, *(file for each in directories for file in sorted(each.glob("*.py"))))))

    def companions(self) -> tuple[tuple[Companion, ...], tuple[str, ...]]:
        """Return the files to publish with the model, and notes on links to files that may not belong to it."""
        paths = self._companion_paths()
        outside = [path for path in paths if not is_inside(path, self.directory)]
        private = [path for path in paths if path not in outside and is_private_hard_link(path)]
        reasons = {
            "they link to files outside the directory": outside,
            "they have more than one hard link, and not every user may read them": private,
        }
        notes = (f"not published, because {why}: {', '.join(p.name for p in x)}" for why, x in reasons.items() if x)
        published = (path for path in paths if path not in {*outside, *private})
        return tuple(Companion(path.name, path, self.root) for path in published), tuple(notes)

    def _companion_paths(self) -> list[Path]:
        files = sorted(path for path in self.directory.iterdir() if path.is_file())
        return [p for p in files if p.name in PROCESSORS or any(fnmatch(p.name, pattern) for pattern in LICENSES)]

    def _first_file(self, names: tuple[str, ...], kind: type[_File]) -> _File:
        path = next((path for path in (self.directory / name for name in names) if path.is_file()), None)
        return kind() if path is None else read_json(_inside(path, self.directory), kind, root=self.root)


def open_checkpoint(
    directory: Path, name: str, *, trusted: bool, local: bool, notes: tuple[str, ...] = ()
) -> Checkpoint:
    """Read a directory's configuration and find its weight files.

    Args:
        directory: An existing directory.
        name: The model as named in the spec.
        trusted: Whether Python code in the directory may be run.
        local: Whether the directory is the user's own, not a snapshot in the Hub's cache.
        notes: Remarks to keep for the report.

    Raises:
        SourceError: The directory has no configuration or no weights, or requires code that is not trusted.
    """
    path, root = directory / CONFIG, resolved(directory)
    if not path.is_file():
        problem, hint = _other_format(directory)
        raise _files_error(f"{name} has no config.json{f': {problem}' if problem else ''}", hint)
    config = read_json(_inside(path, directory), ConfigFile, root=root)
    if config.has_remote_code:
        if not trusted:
            raise SourceError(
                f"{name} contains its own Python code ({config.remote_code}), which was not run",
                "review the code; to allow it, set source.trust_remote_code: true",
                code="source.hf-remote-code",
                where=f"{name}/{CONFIG}",
            )
        notes = (*notes, f"trust_remote_code: Python code of {name} was run ({config.remote_code})")
    raw = read_json(path, dict[str, Any], root=root)
    return Checkpoint(directory, name, config, raw, _weights(directory, root, name, config), notes, local, root)


def read_json(path: Path, kind: type[_T], values: int = _MAX_VALUES, root: Path | None = None) -> _T:
    """Read a JSON file, which may be a link within its directory, into a pydantic model or dict.

    Args:
        path: The file.
        kind: The model, or dict.
        values: How many values it may have. A value of a wrong type needs a kilobyte of memory.
        root: The directory of the file without symlinks, if another one may have replaced it.

    Raises:
        SourceError: The file cannot be read, is not JSON, or has values of another type.
    """
    try:
        with open_inside(path, path.parent, root) as stream:
            content = read_stream(stream, MAX_TEXT_BYTES)
        require_few_values(content, values)
        return TypeAdapter(kind).validate_json(content)
    except ContentError as error:
        raise _files_error(f"{path.name} {error}", "download it again", path.name) from error
    except OSError as error:
        raise _files_error(f"{path.name} cannot be read: {error.strerror}", "download it again", path.name) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "json_invalid":
            problem = f"cannot be read as JSON: {first['msg'].removeprefix('Invalid JSON: ')}"
        else:
            problem = f"is not valid: {key}: {first['msg']}" if key else "is not a JSON object"
        raise _files_error(f"{path.name} {problem}", "download it again", path.name) from error


def _head(path: Path, root: Path) -> str:
    """Return the beginning of a text file, with line feeds as line ends."""
    with open_inside(path, path.parent, root) as stream:
        text = stream.read(_MAX_CARD_BYTES).decode(errors="replace")
    return text.replace("\r\n", "\n")


def _weights(directory: Path, root: Path, name: str, config: ConfigFile) -> tuple[Path, ...]:
    custom = [config.transformers_weights] if config.transformers_weights is not None else []
    for candidate in (*custom, *SAFE_WEIGHTS, *PICKLED_WEIGHTS):
        path = directory / _file_name(candidate, CONFIG)
        if path.is_file():
            weights = _shards(_inside(path, directory), root) if path.name.endswith(".index.json") else (path,)
            return tuple(_inside(file, directory) for file in weights)
    problem, hint = _other_format(directory)
    raise _files_error(f"{name} has no weights: {problem or 'neither model.safetensors nor pytorch_model.bin'}", hint)


def _shards(index: Path, root: Path) -> tuple[Path, ...]:
    names = sorted(set(read_json(index, _WeightIndex, root=root).weight_map.values()))
    if not names:
        raise _files_error(f"{index.name} lists no weight files", "download it again", index.name)
    shards = tuple(index.parent / _file_name(name, index.name) for name in names)
    if missing_files := [path.name for path in shards if not path.is_file()]:
        raise _files_error(
            f"{index.name} lists {', '.join(missing_files[:3])}, which does not exist", "download it", index.name
        )
    return shards


def _file_name(name: str, where: str) -> str:
    """Return a file name unchanged.

    Raises:
        SourceError: It is a path that leads out of the directory, or longer than a file name.
    """
    if len(name.encode()) > _MAX_NAME_BYTES:
        raise _files_error(f"{where} refers to a file with a name of {len(name)} characters", "correct it", where)
    if PurePath(name).name != name or name in {"", ".", ".."}:
        raise _files_error(f"{where} refers to weights outside its directory: {name!r}", "move them next to it", where)
    return name


def _other_format(directory: Path) -> tuple[str, str]:
    for pattern, (problem, hint) in _OTHER_FORMATS.items():
        if any(directory.glob(pattern)):
            return problem, hint
    return "", "specify the directory that model.save_pretrained(DIR) wrote"


def _inside(path: Path, directory: Path) -> Path:
    """Return a file's path unchanged.

    Raises:
        SourceError: It is a link that leads out of the directory; those of the Hub's cache do not.
    """
    if not is_inside(path, directory):
        raise _files_error(
            f"{path.name} is a link that leads out of its directory",
            "replace the link with a copy, or specify the directory that it leads to",
            path.name,
        )
    return path


def _files_error(message: str, hint: str, where: str = "") -> SourceError:
    return SourceError(message, hint, code="source.hf-files", where=where)

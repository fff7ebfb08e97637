"""What lies in a directory that transformers' ``save_pretrained`` wrote: configuration, weights, and what travels."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from repogen.artifacts.source import Companion
from repogen.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIG = "config.json"
PREPROCESSOR = ("preprocessor_config.json", "image_processor_config.json", "processor_config.json")
TOKENIZER = "tokenizer_config.json"
# As transformers looks for them; safetensors first, because a pickle has to be kept from running code.
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
_OTHERS = {
    "adapter_config.json": (
        "it holds an adapter (PEFT), not a whole model",
        "merge it: peft.AutoPeftModel…from_pretrained(…).merge_and_unload().save_pretrained(DIR)",
    ),
    "*.gguf": ("it holds a GGUF file", "give the directory with the original weights"),
    "tf_model.h5": ("it holds TensorFlow weights", "convert them: model.save_pretrained(DIR) in PyTorch"),
    "flax_model.msgpack": ("it holds Flax weights", "convert them: model.save_pretrained(DIR) in PyTorch"),
    "*.onnx": ("it holds an ONNX file", "source: {kind: onnx, path: …}"),
}
_REMOTE_CODE = ("auto_map", "custom_code")


@dataclass(frozen=True)
class Checkpoint:
    """A directory that was looked through; nothing of it was run.

    Attributes:
        directory: The directory; for a model of the hub, its snapshot in the cache.
        name: What the spec calls it, for messages.
        config: ``config.json``.
        weights: Files of weights, none of them empty.
        notes: What a person should know.
        local: Whether its files are those of the spec's own directory.
    """

    directory: Path
    name: str
    config: Mapping[str, object]
    weights: tuple[Path, ...]
    notes: tuple[str, ...]
    local: bool

    def json(self, *names: str) -> Mapping[str, object]:
        """Return the first of these files that is there; an empty mapping when none is, or none is an object."""
        found = next((path for path in (self.directory / name for name in names) if path.is_file()), None)
        return {} if found is None else read_json(found)

    @property
    def files(self) -> tuple[Path, ...]:
        """What a local directory's model is made of; a snapshot of the hub is what its revision says."""
        if not self.local:
            return ()
        index = [path for name in (*SAFE_WEIGHTS, *PICKLED_WEIGHTS) if (path := self.directory / name).is_file()]
        code = sorted(self.directory.glob("*.py")) if has_remote_code(self.config) else []
        return tuple(dict.fromkeys((*self._travelling(), *index, *self.weights, *code)))

    def companions(self) -> tuple[tuple[Companion, ...], tuple[str, ...]]:
        """Return the files that travel into the version, and a note on those that may not."""
        found = [(path, _stays_inside(path, self.directory)) for path in self._travelling()]
        strangers = ", ".join(path.name for path, inside in found if not inside)
        notes = (f"links to outside the directory, which do not travel: {strangers}",) if strangers else ()
        return tuple(Companion(path.name, path) for path, inside in found if inside), notes

    def _travelling(self) -> list[Path]:
        entries = sorted(path for path in self.directory.iterdir() if path.is_file())
        return [p for p in entries if p.name in PROCESSORS or any(fnmatch(p.name, licence) for licence in LICENSES)]


def look_through(directory: Path, name: str, *, trusted: bool, local: bool, notes: tuple[str, ...] = ()) -> Checkpoint:
    """Read a directory's configuration and find its weights.

    Args:
        directory: An existing directory.
        name: What the spec calls it.
        trusted: Whether Python code in it may be run.
        local: Whether it is the spec's own, not a snapshot in the hub's cache.
        notes: What is known of it so far.

    Raises:
        SourceError: It has no configuration or no weights, or wants to run its own code.
    """
    path = directory / CONFIG
    if not path.is_file():
        what, hint = _other(directory)
        raise _no_files(f"{name} has no config.json{f': {what}' if what else ''}", hint)
    config = read_json(path)
    if has_remote_code(config):
        code = _code_of(config)
        if not trusted:
            raise SourceError(
                f"{name} brings Python code of its own ({code}), which was not run",
                "read that code; then trust it: source.trust_remote_code: true",
                code="source.hf-remote-code",
                where=f"{name}/{CONFIG}",
            )
        notes = (*notes, f"trust_remote_code: Python code of {name} was run ({code})")
    return Checkpoint(directory, name, config, _weights(directory, name, config), notes, local)


def read_json(path: Path) -> Mapping[str, object]:
    """Read a JSON object.

    Raises:
        SourceError: It is none.
    """
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _no_files(f"{path.name} cannot be read as JSON: {error}", "download it again", path.name) from error
    if not isinstance(read, dict):
        raise _no_files(f"{path.name} holds no JSON object", "download it again", path.name)
    return read


def has_remote_code(config: Mapping[str, object]) -> bool:
    """Whether a configuration names code that lies beside it or on the hub."""
    return any(config.get(key) for key in _REMOTE_CODE)


def _code_of(config: Mapping[str, object]) -> str:
    named = config.get("auto_map")
    classes = [value for value in named.values() if isinstance(value, str)] if isinstance(named, dict) else []
    return ", ".join(classes) or " and ".join(key for key in _REMOTE_CODE if config.get(key))


def _weights(directory: Path, name: str, config: Mapping[str, object]) -> tuple[Path, ...]:
    named = config.get("transformers_weights")
    for candidate in (*([named] if isinstance(named, str) else []), *SAFE_WEIGHTS, *PICKLED_WEIGHTS):
        path = directory / _plain(candidate, CONFIG)
        if path.is_file():
            return _shards(path) if path.name.endswith(".index.json") else (path,)
    what, hint = _other(directory)
    raise _no_files(f"{name} has no weights: {what or 'neither model.safetensors nor pytorch_model.bin'}", hint)


def _shards(index: Path) -> tuple[Path, ...]:
    places = read_json(index).get("weight_map")
    names = sorted(set(map(str, places.values()))) if isinstance(places, dict) else []
    if not names:
        raise _no_files(f"{index.name} names no files of weights", "download it again", index.name)
    shards = tuple(index.parent / _plain(name, index.name) for name in names)
    if missing := [path.name for path in shards if not path.is_file()]:
        raise _no_files(f"{index.name} names {', '.join(missing[:3])}, which is not there", "download it", index.name)
    return shards


def _plain(name: str, where: str) -> str:
    """Return a file's name that stays in its directory.

    Raises:
        SourceError: It does not.
    """
    if PurePath(name).name != name or name in {"", ".", ".."}:
        raise _no_files(f"{where} names weights outside its directory: {name!r}", "put them beside it", where)
    return name


def _other(directory: Path) -> tuple[str, str]:
    for pattern, (what, hint) in _OTHERS.items():
        if any(directory.glob(pattern)):
            return what, hint
    return "", "name the directory that model.save_pretrained(DIR) wrote"


def _stays_inside(path: Path, directory: Path) -> bool:
    """Whether a file is the directory's own; in the hub's cache, snapshots are links to ``blobs``."""
    real, home = path.resolve(), directory.resolve()
    blobs = home.parent.parent / "blobs"
    return real.is_relative_to(home) or (home.parent.name == "snapshots" and real.is_relative_to(blobs))


def _no_files(what: str, hint: str, where: str = "") -> SourceError:
    return SourceError(what, hint, code="source.hf-files", where=where)

"""What a build depends on, as key -> digest or version; says what changed without importing torch or the model.

Keys are ``spec``, ``target``, ``repogen``, ``weights``, ``examples``, ``triton:KEY`` for files that config.pbtxt is to
name, ``template:PATH`` (relative to its directory of templates), ``file:PATH`` (relative to the spec's directory),
``dist:NAME``, ``step:MODEL`` for what an ensemble is made of, and ``registered`` where the version went into a model
registry. No path is absolute, so a fingerprint recorded here still holds in a clone elsewhere; code imported from
outside the spec's directory is ``file:../PATH``. Files are hashed as bytes: a checkout that rewrites line ends has
changed them.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import sys
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.errors import RepogenError
from repogen.resources import templates_dir
from repogen.repository.digest import sha256_bytes, sha256_file, sha256_files
from repogen.repository.layout import latest_version, model_dir
from repogen.repository.manifest import read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from repogen.spec.models import ModelSpec, Spec
    from repogen.artifacts.built_model import ImportedCode

GONE = "gone"

_PACKAGE = Path(__file__).resolve().parents[1]
# The rooms whose code decides published bytes, or whether they may be published; the console is none of them.
_DECIDING = (
    "source", "export", "optimize", "validate", "onnx_graph", "triton_config", "repository", "artifacts", "spec", "data",
    "worker",
)  # fmt: skip
_TEMPLATES = "*.pbtxt.j2"
# Enough for any directory of overrides; it keeps a spec that names a whole home directory from being hashed for hours.
_MOST_OVERRIDES = 1000
_FILE, _DIST, _TEMPLATE, _STEP = "file:", "dist:", "template:", "step:"
_REGISTERED = "registered"
_DIST_INFO = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)\.dist-info")


def known_inputs(spec: Spec, name: str) -> dict[str, str]:
    """Return what a build depends on, as it is now, without what only the import of the model tells.

    To be called before the build reads any of it: what is edited from then on shows as changed afterwards.

    Args:
        spec: The spec.
        name: The model.

    Returns:
        Key -> SHA-256, release, or ``gone`` for what can't be found.
    """
    return _now(spec, name, ())


def fingerprint(before: Mapping[str, str], imported: ImportedCode) -> dict[str, str]:
    """Return everything the build of a model depended on.

    Args:
        before: The ``known_inputs``, taken before the build read them.
        imported: What the worker imported. Its digests of files are taken as they are: a file edited after the worker
            hashed it shows as changed afterwards. Versions are asked for again, in the way that ``changes`` asks.

    Returns:
        Key -> SHA-256, version, or ``gone`` for what can't be found; sorted by key.
    """
    files = {f"{_FILE}{path}": digest for path, digest in imported.files.items()}
    versions = {f"{_DIST}{distribution}": _version(distribution) for distribution in imported.distributions}
    return dict(sorted({**before, **files, **versions}.items()))


def registered(before: Mapping[str, str]) -> dict[str, str]:
    """Return the inputs of a build whose version goes into a model registry."""
    return {**before, _REGISTERED: "yes"}


def step_inputs(members: Iterable[str], repository: Path) -> dict[str, str]:
    """Return the inputs of an ensemble's build that are other models: what the newest version of each holds.

    Args:
        members: The models of its steps, and of theirs.
        repository: Where they lie.
    """
    return {f"{_STEP}{name}": _content(model_dir(repository, name)) for name in members}


def steps_changed(old: Mapping[str, str], members: Iterable[str], repository: Path) -> bool:
    """Return whether an ensemble's steps are others than a recorded fingerprint says."""
    recorded = {key: value for key, value in old.items() if key.startswith(_STEP)}
    return recorded != step_inputs(members, repository)


def _content(directory: Path) -> str:
    version = latest_version(directory)
    try:
        return GONE if version is None else read_manifest(directory / str(version)).content_sha256
    except (OSError, RepogenError):
        return GONE


def was_registered(old: Mapping[str, str]) -> bool:
    """Tell whether a recorded version went into a model registry; ``changes`` does not ask."""
    return _REGISTERED in old


def changes(old: Mapping[str, str], spec: Spec, name: str) -> list[str]:
    """Return why a build is no longer what a recorded fingerprint says.

    Args:
        old: The fingerprint recorded with the published version.
        spec: The spec as it is now.
        name: The model.

    Returns:
        One reason a change, for people; empty when nothing changed.
    """
    now = _now(spec, name, [key for key in old if key.startswith((_FILE, _DIST))])
    old = {key: value for key, value in old.items() if key != _REGISTERED and not key.startswith(_STEP)}
    return [_reason(key, old.get(key), now.get(key)) for key in sorted({*old, *now}) if old.get(key) != now.get(key)]


def spec_digest(spec: Spec, name: str) -> str:
    """Return the SHA-256 of a model's effective spec block (defaults merged) as canonical JSON."""
    # gates decide about promotion, not about bytes
    block = spec.models[name].model_dump(mode="json", exclude={"promotion"})
    return sha256_bytes(json.dumps(block, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode())


def _now(spec: Spec, name: str, recorded: Iterable[str]) -> dict[str, str]:
    """Return today's value of every key that a build always has, and of the ``recorded`` files and distributions."""
    model, root = spec.models[name], spec.root
    paths = {key: root / key.removeprefix(_FILE) for key in recorded if key.startswith(_FILE)}
    paths |= _template_files(spec)
    paths |= _source_files(model, root)
    return {
        "spec": spec_digest(spec, name),
        "target": f"{spec.release} gpu" if spec.gpu else spec.release,
        "repogen": _repogen_digest(),
        **{key: _version(key.removeprefix(_DIST)) for key in recorded if key.startswith(_DIST)},
        **_hash_all(paths),
    }


def _source_files(model: ModelSpec, root: Path) -> dict[str, Path]:
    """Return the data files that a model is made of and tried with; imported code is recorded by the build."""
    named = {key: getattr(model.source, key) for key in model.source.files}
    if isinstance(model.examples, tuple):
        named |= {f"examples[{n}]": file for n, file in enumerate(model.examples)}
    else:
        named["examples"] = model.examples
    named |= {f"triton:{'.'.join(map(str, path))}": file for path, file in model.triton.files.items()}
    return {key: root / file for key, file in named.items() if file is not None and ":" not in file}


def _template_files(spec: Spec) -> dict[str, Path]:
    """Return repogen's own templates, and every file of the overrides, since a template may include any of them."""
    found = {path.name: path for path in sorted(templates_dir().glob(_TEMPLATES))}
    if spec.templates is not None:
        overrides = islice(_walk(spec.templates), _MOST_OVERRIDES)
        found |= {path.relative_to(spec.templates).as_posix(): path for path in overrides}
    return {f"{_TEMPLATE}{name}": path for name, path in found.items()}


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the files below a directory in a fixed order, its own first; Jinja follows links, so this does, too."""
    for place, folders, files in os.walk(folder, followlinks=True):
        folders.sort()
        yield from (path for path in (Path(place, file) for file in sorted(files)) if path.is_file())


@cache
def _repogen_digest() -> str:
    """Return one digest of the sources that decide what is published, the same in a wheel and in a checkout."""
    lines = [
        f"{path.relative_to(_PACKAGE).as_posix()} {sha256_file(path)}"
        for room in _DECIDING
        for path in sorted((_PACKAGE / room).rglob("*"))
        if path.suffix in {".py", ".csv"}
    ]
    return sha256_bytes("\n".join(lines).encode())


@cache
def _installed() -> dict[str, str]:
    """Return versions by normalized name from the names of ``.dist-info`` directories on ``sys.path``.

    ``importlib.metadata.version`` parses the METADATA of each distribution, and torch's alone takes milliseconds.
    """
    found: dict[str, str] = {}
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208 - 10 times faster than Path.iterdir in large site-packages
        except OSError:
            continue
        for match in filter(None, map(_DIST_INFO.fullmatch, names)):
            found.setdefault(_normalized(match["name"]), match["version"])
    return found


def _version(distribution: str) -> str:
    known = _installed().get(_normalized(distribution))
    if known is not None:
        return known
    try:
        # Old egg-info directories and archives on sys.path.
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return GONE


def _normalized(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _hash_all(paths: Mapping[str, Path]) -> dict[str, str]:
    """Return the digest of each file, or ``gone``."""
    return {key: digest or GONE for key, digest in zip(paths, sha256_files(paths.values()), strict=True)}


def _reason(key: str, old: str | None, new: str | None) -> str:
    kind, _, what = key.partition("[")[0].partition(":")
    if kind == "dist":
        return f"{what} {old} -> {new}"
    if kind == "target":
        return f"target Triton {old} -> {new}"
    subject = {
        "spec": "the model's block in the spec",
        "repogen": "repogen itself",
        "weights": "the weights file",
        "examples": "the examples file",
        "path": "the model's file",
        "file": what,
        "triton": f"the file of triton.{what}",
        "template": f"the template {what}",
    }.get(kind, f"{key} (recorded by another repogen)")
    if old is None:
        return f"{subject} is new"
    return f"{subject} is {GONE}" if new in {None, GONE} else f"{subject} changed"

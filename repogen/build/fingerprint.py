"""The inputs of a build, as key -> digest or version; finds what changed without importing torch or the model.

Keys are ``spec``, ``spec:KEY.KEY`` for each of its parts, ``target``, ``repogen``, ``weights``, ``examples``,
``triton:KEY`` for files that config.pbtxt names,
``quality`` for its data, ``optimize:PASS`` for files of options,
``template:PATH`` (relative to its directory of templates), ``file:PATH`` (relative to the spec's directory),
``dist:NAME`` for imported packages and for plug-ins that the spec selects, ``step:MODEL`` for the models that an
ensemble uses, and ``registered`` if the version went into a model registry. No path is absolute, so a fingerprint is
also valid for a clone in another directory; code imported from outside the spec's directory is ``file:../PATH``. Files
are hashed as bytes: a checkout that rewrites line endings changes them.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import sys
from functools import cache
from typing import TYPE_CHECKING

from repogen.artifacts.versions import REGISTERED, STEP
from repogen.build.code_digest import code_digest
from repogen.errors import RepogenError
from repogen.plugins import plugin_distributions
from repogen.repository.digest import sha256_bytes, sha256_files
from repogen.repository.layout import latest_version, model_dir
from repogen.repository.manifest import read_manifest
from repogen.resources import templates_dir
from repogen.spec.sources import MlflowSource
from repogen.triton_config.render.template_files import files_below

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from repogen.artifacts.built_model import ImportedCode
    from repogen.repository.remembered import Remembered
    from repogen.spec.models import ModelSpec, Spec

GONE = "gone"

_TEMPLATES = "*.pbtxt.j2"
_FILE, _DIST, _TEMPLATE = "file:", "dist:", "template:"
SPEC_PART = "spec:"
"""Prefix of the keys with the parts of the model's block in the spec."""
_PART_DIGITS = 16
"""Hexadecimal digits of a part's digest, which only says where blocks with different digests differ."""
_DIST_INFO = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)\.dist-info")


def build_inputs(spec: Spec, name: str) -> dict[str, str]:
    """Return the inputs of a build as they are now, except those that only importing the model can find.

    Call it before the build reads any of them: an input that is edited later then shows up as changed.

    Args:
        spec: The spec.
        name: The model.

    Returns:
        Key -> SHA-256, release, or ``gone`` for a file that cannot be read.
    """
    return _current(spec, name, ())


def fingerprint(inputs: Mapping[str, str], imported: ImportedCode) -> dict[str, str]:
    """Return all inputs of the build of a model.

    Args:
        inputs: The ``build_inputs``, computed before the build read them.
        imported: What the worker imported. Its digests of files are used unchanged: a file that is edited after the
            worker hashed it shows up as changed. Versions are looked up again, in the way that ``changes`` does it.

    Returns:
        Key -> SHA-256, version, or ``gone`` for what cannot be found; sorted by key.
    """
    files = {f"{_FILE}{path}": digest for path, digest in imported.files.items()}
    versions = {f"{_DIST}{distribution}": _version(distribution) for distribution in imported.distributions}
    return dict(sorted({**inputs, **files, **versions}.items()))


def registered(inputs: Mapping[str, str]) -> dict[str, str]:
    """Return the inputs of a build whose version goes into a model registry."""
    return {**inputs, REGISTERED: "yes"}


def step_inputs(dependencies: Iterable[str], repository: Path) -> dict[str, str]:
    """Return the inputs of an ensemble that are other models: the content of the newest version of each.

    Args:
        dependencies: The models that the ensemble uses.
        repository: The repository that contains them.
    """
    return {f"{STEP}{name}": _content(model_dir(repository, name)) for name in dependencies}


def changed_steps(recorded: Mapping[str, str], dependencies: Iterable[str], repository: Path) -> list[str]:
    """Return one reason for each model that an ensemble uses, or used, and that differs from a recorded fingerprint."""
    old = {key: value for key, value in recorded.items() if key.startswith(STEP)}
    new = step_inputs(dependencies, repository)
    return [_reason(key, old.get(key), new.get(key)) for key in sorted({*old, *new}) if old.get(key) != new.get(key)]


def changes(recorded: Mapping[str, str], spec: Spec, name: str, remembered: Remembered | None = None) -> list[str]:
    """Return what changed since a fingerprint was recorded.

    Args:
        recorded: The fingerprint in the manifest of the published version.
        spec: The spec as it is now.
        name: The model.
        remembered: Digests of earlier runs; without them every file is read.

    Returns:
        One readable reason per change; empty if nothing changed.
    """
    new = current_inputs(recorded, spec, name, remembered)
    old = {key: value for key, value in recorded.items() if key != REGISTERED and not key.startswith(STEP)}
    changed = {key for key in {*old, *new} if old.get(key) != new.get(key)}
    parts = {key for key in changed if key.startswith(SPEC_PART)}
    # A version that was built before these keys were recorded has none of them.
    changed -= {"spec"} if parts and any(key.startswith(SPEC_PART) for key in old) else parts
    return [_reason(key, old.get(key), new.get(key)) for key in sorted(changed)]


def current_inputs(
    recorded: Mapping[str, str], spec: Spec, name: str, remembered: Remembered | None = None
) -> dict[str, str]:
    """Return the inputs of a model as they are now, except its steps; with the imports of a recorded fingerprint."""
    return _current(spec, name, [key for key in recorded if key.startswith((_FILE, _DIST))], remembered)


def imports_changed(recorded: Mapping[str, str], root: Path) -> bool:
    """Return whether a file or a distribution that a build imported is another one now.

    Args:
        recorded: The fingerprint of the build.
        root: Directory of the spec.
    """
    versions = {key: _version(key.removeprefix(_DIST)) for key in recorded if key.startswith(_DIST)}
    files = _hash_all({key: root / key.removeprefix(_FILE) for key in recorded if key.startswith(_FILE)})
    return any(recorded[key] != value for key, value in {**versions, **files}.items())


def input_files(spec: Spec, name: str) -> list[Path]:
    """Return the files that the spec names for a model, and its templates; not those of its code."""
    own = templates_dir()
    templates = [path for path in _template_files(spec).values() if not path.is_relative_to(own)]
    return [*_source_files(spec.models[name], spec.root).values(), *templates]


def spec_digest(spec: Spec, name: str) -> str:
    """Return the SHA-256 of a model's effective spec block as canonical JSON, without keys that have their defaults.

    A release that adds a key to the spec does not change the digest of a spec that does not use the key.
    """
    return block_digest(spec.models[name])


def block_digest(model: ModelSpec) -> str:
    """Return the ``spec_digest`` of a spec entry."""
    return _digest(_block(model))


def spec_parts(model: ModelSpec) -> dict[str, str]:
    """Return a short digest of each key of a spec entry, or of each key below it, which says what changed."""
    parts: dict[str, object] = {}
    for key, value in _block(model).items():
        parts |= {f"{key}.{name}": part for name, part in value.items()} if isinstance(value, dict) else {key: value}
    return {f"{SPEC_PART}{key}": _digest(part)[:_PART_DIGITS] for key, part in parts.items()}


def _block(model: ModelSpec) -> dict[str, object]:
    # Gates decide about promotion, the description is shown in MLflow, and resources choose a machine: none of them
    # changes what is published.
    excluded = {"promotion", "description", "resources"}
    return model.model_dump(mode="json", exclude=excluded, exclude_defaults=True)


def _digest(value: object) -> str:
    return sha256_bytes(json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode())


def _content(directory: Path) -> str:
    version = latest_version(directory)
    try:
        return GONE if version is None else read_manifest(directory / str(version)).content_sha256
    except (OSError, RepogenError):
        return GONE


def _current(spec: Spec, name: str, recorded: Iterable[str], remembered: Remembered | None = None) -> dict[str, str]:
    """Return the current value of every key that each build has, and of the ``recorded`` files and distributions."""
    model, root = spec.models[name], spec.root
    # no build records an absolute path, but a manifest may have one
    paths = {
        key: root / path for key in recorded if key.startswith(_FILE) and (path := key.removeprefix(_FILE))[:1] != "/"
    }
    paths |= _template_files(spec)
    paths |= _source_files(model, root)
    distributions = {f"{_DIST}{name}" for name in _plugin_distributions(model)}
    distributions |= {key for key in recorded if key.startswith(_DIST)}
    return {
        "spec": spec_digest(spec, name),
        **spec_parts(model),
        "target": f"{spec.release} gpu" if spec.gpu else spec.release,
        "repogen": code_digest(),
        **({"registry": _digest(spec.registry)} if isinstance(model.source, MlflowSource) else {}),
        **{key: _version(key.removeprefix(_DIST)) for key in distributions},
        **_hash_all(paths, remembered),
    }


def _plugin_distributions(model: ModelSpec) -> set[str]:
    """Return the plug-ins that a build of a model uses: with ``exporter: auto``, all exporters are in the chain."""
    return (
        plugin_distributions("repogen.sources", [model.source.kind])
        | plugin_distributions("repogen.exporters", model.export.exporters)
        | plugin_distributions("repogen.passes", [optimization.name for optimization in model.passes])
    )


def _source_files(model: ModelSpec, root: Path) -> dict[str, Path]:
    """Return the data files that the spec names for a model; the files of its code are recorded by the build."""
    files = {key: getattr(model.source, key) for key in model.source.files}
    if isinstance(model.examples, tuple):
        files |= {f"examples[{n}]": file for n, file in enumerate(model.examples)}
    else:
        files["examples"] = model.examples
    files |= {f"triton:{'.'.join(map(str, path))}": file for path, file in model.triton.files.items()}
    files["quality"] = None if model.quality is None else model.quality.data
    for number, step in enumerate(model.passes):
        files |= {f"optimize:{step.name}[{number}].{option}": file for option, file in step.files.items()}
    return {key: root / file for key, file in files.items() if file is not None and ":" not in file}


def _template_files(spec: Spec) -> dict[str, Path]:
    """Return repogen's own templates, and all files of the overrides, because a template may include any of them."""
    files = {path.name: path for path in sorted(templates_dir().glob(_TEMPLATES))}
    if spec.templates is not None:
        files |= {path.relative_to(spec.templates).as_posix(): path for path in files_below(spec.templates)}
    return {f"{_TEMPLATE}{name}": path for name, path in files.items()}


@cache
def _installed_versions() -> dict[str, str]:
    """Return versions by normalized name from the names of ``.dist-info`` directories on ``sys.path``.

    ``importlib.metadata.version`` parses the METADATA of each distribution, which takes milliseconds for torch alone.
    """
    versions: dict[str, str] = {}
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208 - 10 times faster than Path.iterdir in large site-packages
        except OSError:
            continue
        for match in filter(None, map(_DIST_INFO.fullmatch, names)):
            versions.setdefault(_normalize(match["name"]), match["version"])
    return versions


def _version(distribution: str) -> str:
    version = _installed_versions().get(_normalize(distribution))
    if version is not None:
        return version
    try:
        # Old egg-info directories and archives on sys.path.
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return GONE


def _normalize(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _hash_all(paths: Mapping[str, Path], remembered: Remembered | None = None) -> dict[str, str]:
    """Return the digest of each file, or ``gone``."""
    return {key: digest or GONE for key, digest in zip(paths, sha256_files(paths.values(), remembered), strict=True)}


def _reason(key: str, old: str | None, new: str | None) -> str:
    kind, _, name = key.partition("[")[0].partition(":")
    is_removed = new in {None, GONE}
    if kind == "dist" and old is None:
        return f"{name} {new} is new"
    if kind == "dist":
        return f"{name} {old} was removed" if is_removed else f"{name} {old} -> {new}"
    if kind == "target":
        return f"target Triton {old} -> {new}"
    if kind == "spec" and None in {old, new}:
        return f"{name} in the spec is {'no longer' if new is None else 'now'} set"
    subject = {
        "spec": f"{name} in the spec" if name else "the model's block in the spec",
        "repogen": "repogen itself",
        "registry": "the MLflow server of the model",
        "weights": "the weights file",
        "examples": "the examples file",
        "path": "the model's file",
        "file": name,
        "triton": f"the file of triton.{name}",
        "quality": "the file of quality.data",
        "optimize": f"a file of the options of {name}",
        "template": f"the template {name}",
        "step": f"its step {name}",
    }.get(kind, f"{key} (recorded by another version of repogen)")
    if old is None:
        return f"{subject} is new"
    removed = "was removed, or cannot be read" if new == GONE else "was removed"
    return f"{subject} {removed if is_removed else 'changed'}"

"""A `ModelRegistry` in memory whose entries are version directories on disk; it can fail at any call."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from repogen.artifacts.built_model import OnnxArtifact
from repogen.artifacts.file_names import ATTESTATION_FILES, CONFIG_FILE, MANIFEST_FILE
from repogen.artifacts.named_file import data_file, label_file
from repogen.artifacts.registry import EntryState, RegistryEntry
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.artifacts.versions import STEP, ModelConfig, Provenance
from repogen.errors import TrackingError
from repogen.repository.manifest import damaged_files, read_manifest
from repogen.repository.stage import stage_version

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.artifacts.registry import AliasMove, PromotionRun
    from repogen.artifacts.tensors import Dim
    from repogen.artifacts.versions import Manifest

CONFIG = """\
# Written by repogen: change the spec, not this file.
name: "{name}"
backend: "onnxruntime"
max_batch_size: {batch}

input [
  {{
    name: "x"
    data_type: TYPE_FP32
    dims: [ {dims} ]
  }}
]

output [
  {{
    name: "y"
    data_type: TYPE_FP32
    dims: [ {dims} ]
  }}
]
{policy}
instance_group [
  {{
    count: 1
    kind: KIND_CPU
  }}
]
"""


class SimulatedRegistry:
    """Registered models in memory, with their files in a directory.

    Attributes:
        calls_left: Number of calls that succeed before all others fail; None for no limit. A `fetch` that fails has
            already written one file.
        runs: The recorded promotions.
        extra_entries: Model -> ``more`` or ``link``: an entry that `fetch` adds to the files that the manifest lists.
    """

    def __init__(self, home: Path) -> None:
        """Store the files of versions in ``home``."""
        self.calls_left: int | None = None
        self.extra_entries: dict[str, str] = {}
        self._home = home
        self._versions: dict[str, list[RegistryEntry]] = {}
        self._aliases: dict[str, dict[str, int]] = {}
        self._moves: dict[str, list[AliasMove]] = {}
        self.runs: list[PromotionRun] = []

    def register(
        self,
        version_dir: Path,
        *aliases: str,
        name: str = "",
        state: EntryState = EntryState.PUBLISHED,
        tags: dict[str, str] | None = None,
    ) -> RegistryEntry:
        """Register a copy of a version directory that repogen built, with an optional other name and aliases."""
        manifest = read_manifest(version_dir)
        published = state is EntryState.PUBLISHED
        entry = RegistryEntry(
            name=name or manifest.model,
            version=len(self._versions.get(name or manifest.model, [])) + 1,
            state=state,
            content=manifest.content_sha256,
            sha256=manifest.sha256,
            triton_version=int(version_dir.name) if published else None,
            repository=str(version_dir.parent.parent) if published else "",
            target=manifest.provenance.target,
            tags={} if tags is None else tags,
            aliases=(),
            steps=tuple(manifest.provenance.steps),
        )
        shutil.copytree(version_dir, self.artifacts(entry))
        return self._add(entry, aliases)

    def register_foreign(self, name: str, *aliases: str) -> RegistryEntry:
        """Register a version that repogen did not build."""
        version = len(self._versions.get(name, [])) + 1
        return self._add(RegistryEntry(name, version, EntryState.FOREIGN, "", "", None, "", "", {}, ()), aliases)

    def point(self, name: str, alias: str, version: int | None) -> None:
        """Move or delete (None) an alias outside of repogen, like a user of the registry's web page."""
        aliases = self._aliases.setdefault(name, {})
        aliases.pop(alias, None)
        if version is not None:
            aliases[alias] = version

    def artifacts(self, entry: RegistryEntry) -> Path:
        """Return the directory of a version's files, for tests that damage them."""
        return self._home / quote(entry.name, safe="") / str(entry.version)

    def entries(self, name: str) -> tuple[RegistryEntry, ...]:
        """Return every version, newest first."""
        self._count_call()
        return tuple(self._with_aliases(entry) for entry in reversed(self._versions.get(name, [])))

    def with_alias(self, alias: str) -> tuple[RegistryEntry, ...]:
        """Return the entries with an alias, by model name."""
        self._count_call()
        return tuple(
            self._with_aliases(self._versions[name][aliases[alias] - 1])
            for name, aliases in sorted(self._aliases.items())
            if alias in aliases
        )

    def ensembles_with_alias(self, alias: str) -> tuple[RegistryEntry, ...]:
        """Return the ensembles with an alias, by name."""
        return tuple(entry for entry in self.with_alias(alias) if entry.steps)

    def manifest(self, entry: RegistryEntry) -> Manifest:
        """Read the manifest of a version."""
        self._count_call()
        try:
            return read_manifest(self.artifacts(entry))
        except OSError as error:
            raise TrackingError(f"{entry.name}: the manifest does not exist", code="tracking.artifacts") from error

    def fetch(self, entry: RegistryEntry, directory: Path) -> Path:
        """Copy the files of a version and check them against its manifest."""
        source = self.artifacts(entry)
        try:
            manifest = read_manifest(source)
        except OSError as error:
            raise TrackingError(
                f"{entry.name}: the registry's artifacts do not exist", code="tracking.artifacts"
            ) from error
        described = (name for name in ATTESTATION_FILES if (source / name).is_file())
        names = [MANIFEST_FILE, *(file.path for file in manifest.files), *described]
        shutil.copyfile(source / names[0], directory / names[0])
        self._count_call()
        if damaged := damaged_files(source, manifest):
            raise TrackingError(f"{entry.name}: altered in the registry: {damaged[0]}", code="tracking.artifacts")
        for name in names[1:]:
            shutil.copyfile(source / name, directory / name)
        if self.extra_entries.get(entry.name) == "more":
            (directory / "MLmodel").touch()
        elif self.extra_entries.get(entry.name) == "link":
            (directory / "link").symlink_to(source)
        return directory

    def move_alias(self, name: str, move: AliasMove) -> None:
        """Move an alias if it still points to the move's old version, and record the move."""
        self._count_call()
        if self._aliases.get(name, {}).get(move.alias) != move.old:
            raise TrackingError(f"{name}: {move.alias} was moved in the meantime", code="tracking.alias-moved")
        self._aliases.setdefault(name, {})[move.alias] = move.new
        self._moves.setdefault(name, []).append(move)

    def moves(self, name: str, alias: str | None = None) -> tuple[AliasMove, ...]:
        """Return the recorded moves, oldest first."""
        self._count_call()
        return tuple(move for move in self._moves.get(name, []) if alias in {None, move.alias})

    def record(self, run: PromotionRun) -> None:
        """Keep a run."""
        self._count_call()
        self.runs.append(run)

    def _count_call(self) -> None:
        if self.calls_left == 0:
            raise TrackingError("the registry does not respond", code="tracking.unreachable")
        if self.calls_left is not None:
            self.calls_left -= 1

    def _add(self, entry: RegistryEntry, aliases: tuple[str, ...]) -> RegistryEntry:
        self._versions.setdefault(entry.name, []).append(entry)
        for alias in aliases:
            self.point(entry.name, alias, entry.version)
        return self._with_aliases(entry)

    def _with_aliases(self, entry: RegistryEntry) -> RegistryEntry:
        pointing = self._aliases.get(entry.name, {}).items()
        return replace(entry, aliases=tuple(sorted(alias for alias, version in pointing if version == entry.version)))


def version_of_bytes(  # noqa: PLR0913 - one parameter per property of a version
    root: Path,
    name: str = "m",
    weights: bytes = b"w",
    *,
    batch: int = 8,
    shape: tuple[Dim, ...] = ("batch", 4),
    policy: str = "",
    labels: tuple[str, ...] = (),
    template: str = CONFIG,
    steps: Mapping[str, str] | None = None,
) -> Path:
    """Stage a version whose `model.onnx` is a few bytes in the empty directory ``root``; return its directory.

    Args:
        root: The directory.
        name: Model name.
        weights: Content of `model.onnx`.
        batch: ``max_batch_size``.
        shape: Shape of input ``x`` and output ``y``, with the batch.
        policy: Content of ``version_policy { … }``; no policy if empty.
        labels: Class names of output ``y``; if set, the version also has warmup data.
        template: Template of config.pbtxt.
        steps: The content of each model that it uses as an ensemble, which it was verified with.
    """
    root.mkdir(parents=True)
    for file_name, content in {"model.onnx": weights, "golden.json": b"{}", "golden.npz": b"npz"}.items():
        (root / file_name).write_bytes(content)
    signature = Signature((TensorSpec("x", "float32", shape),), (TensorSpec("y", "float32", shape),))
    dims = ", ".join("-1" if isinstance(dim, str) else str(dim) for dim in (shape[1:] if batch else shape))
    policy_text = f"\nversion_policy: {{ {policy} }}\n" if policy else ""
    config = template.format(name=name, batch=batch, dims=dims, policy=policy_text)
    files = (label_file(labels), data_file("warmup", repr(labels).encode())) if labels else ()
    for file in files[:1]:
        config = config.replace('name: "y"', f'name: "y" label_filename: "{file.name}"')
    artifact = OnnxArtifact(
        root / "model.onnx",
        external_data=False,
        signature=signature,
        opset=20,
        ir_version=10,
        nodes=1,
        exporter="dynamo",
    )
    fingerprint = {f"{STEP}{step}": content for step, content in (steps or {}).items()}
    provenance = Provenance({}, "", "", fingerprint, "24.10", "dynamo", 20, 10, 1, 1, 1, 0.0, 0.0)
    model = ModelConfig(name, config, batch, signature, files)
    staged = stage_version(root, root / "none", model, artifact, root, provenance)
    assert (staged.version_dir / CONFIG_FILE).is_file()
    return staged.version_dir

"""``sbom.cdx.json``: the Python packages that took part in a build, with their licenses, in the CycloneDX format."""

from __future__ import annotations

import importlib.metadata
import json
import uuid
from email.parser import HeaderParser
from typing import TYPE_CHECKING

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from repogen.artifacts.file_names import MAX_METADATA_BYTES, METADATA_FILE, METADATA_SUFFIX, PACKAGES_DIRECTORY
from repogen.files.content import read_bytes
from repogen.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message
    from pathlib import Path

    from cyclonedx.model.license import License

    from repogen.artifacts.versions import Manifest

_DISTRIBUTION = "dist:"
_NAMESPACE = uuid.UUID("5a0f6e0e-3f4c-5d35-9a35-6a1f8a3c2b11")
"""Namespace of the serial numbers; equal versions have equal ones."""
_PACKED = "repogen:packed"
"""Property of a package that is published with the version: the directories that contain it."""
_CLASSIFIER = "License :: OSI Approved :: "
_MAX_LICENSE = 100


def bill_of_materials(manifest: Manifest, version_dir: Path) -> str:
    """Return the bill of materials of a version as JSON; equal versions in equal environments give equal text.

    Args:
        manifest: The version's manifest; its fingerprint has the packages that the build imported.
        version_dir: The version's directory; its packed packages are listed with their own metadata.
    """
    recorded = manifest.provenance.fingerprint.items()
    versions = {key.removeprefix(_DISTRIBUTION): value for key, value in recorded if key.startswith(_DISTRIBUTION)}
    versions["triton-repogen"] = __version__
    packages = {_url(name, version): _component(name, version) for name, version in sorted(versions.items())}
    packages |= _packed(version_dir / PACKAGES_DIRECTORY)
    components = [packages[url] for url in sorted(packages)]
    model = Component(
        name=manifest.model,
        version=manifest.content_sha256[:12],
        type=ComponentType.MACHINE_LEARNING_MODEL,
        bom_ref="model",
    )
    bom = Bom(
        components=components,
        metadata=BomMetaData(component=model),
        serial_number=uuid.uuid5(_NAMESPACE, manifest.content_sha256),
    )
    bom.register_dependency(model, components)
    document = json.loads(JsonV1Dot6(bom).output_as_string())
    del document["metadata"]["timestamp"]  # optional in the format; the attestation has the times
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _packed(directory: Path) -> dict[str, Component]:
    """Return the packages that are published with Python code, by URL; a property has the directories of each.

    Each has one file of metadata with a name and a version, as ``repogen.build.packages`` requires of a wheel.
    """
    folders: dict[tuple[str, str], list[str]] = {}
    components = {}
    for path in sorted(directory.glob(f"*/*{METADATA_SUFFIX}/{METADATA_FILE}")):
        metadata = HeaderParser().parsestr(read_bytes(path, MAX_METADATA_BYTES).decode(errors="replace"))
        name, version = metadata["Name"], metadata["Version"]
        folders.setdefault((name, version), []).append(f"{PACKAGES_DIRECTORY}/{path.parts[-3]}")
        component = _component(name, version, _licenses(metadata))
        component.properties = [Property(name=_PACKED, value=" ".join(folders[name, version]))]
        components[_url(name, version)] = component
    return components


def _url(name: str, version: str) -> str:
    return str(PackageURL("pypi", name=name.lower().replace("_", "-"), version=version))


def _component(name: str, version: str, licenses: list[License] | None = None) -> Component:
    url = PackageURL.from_string(_url(name, version))
    stated = _installed_licenses(name) if licenses is None else licenses
    return Component(name=name, version=version, purl=url, bom_ref=str(url), licenses=stated)


def _installed_licenses(name: str) -> list[License]:
    """Return the license of an installed package."""
    try:
        return _licenses(importlib.metadata.metadata(name))
    except importlib.metadata.PackageNotFoundError:
        return []


def _licenses(metadata: importlib.metadata.PackageMetadata | Message) -> list[License]:
    """Return the license of a package, as its metadata states it."""
    # Some packages state the whole text of their license, and others an empty one.
    short = (text for text in _stated(metadata) if 0 < len(text.strip()) <= _MAX_LICENSE and "\n" not in text)
    text = next(short, None)
    return [] if text is None else [LicenseFactory().make_from_string(text)]


def _stated(metadata: importlib.metadata.PackageMetadata | Message) -> Iterator[str]:
    """Yield the statements of a license, the most precise one first."""
    for key in ("License-Expression", "License"):
        yield from metadata.get_all(key) or ()
    for line in metadata.get_all("Classifier") or ():
        if line.startswith(_CLASSIFIER):
            yield line.removeprefix(_CLASSIFIER)
